"""The command line: what it prints, writes and exits with."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result

import otlp
from otlp.certificate import Answer
from otlp.cli import COMMANDS, main
from otlp.cli.output import write_whole
from otlp.errors import Capability
from otlp.reductions import MergeTuples, PrimalDual
from otlp.solution import Guarantee
from otlp.solvers import SOLVERS
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch


def run(*words: str) -> Result:
    return CliRunner(catch_exceptions=False).invoke(main, list(words))


@dataclass(frozen=True)
class Liar(Solver):
    """Accepts nothing, and calls that optimal."""

    name: ClassVar[str] = "liar"

    def supports(self, problem: otlp.Problem) -> Capability:
        return Capability(True)

    def answer(self, problem: otlp.Problem, clock: Stopwatch) -> Answer:
        relaxed, inverse = MergeTuples().apply(problem)
        nothing = PrimalDual(0.0 * relaxed.groups.mass[relaxed.groups.rows])
        return Answer(MergeTuples().invert(nothing, inverse).primal, Guarantee.OPTIMAL)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert f"otlp {command}" in result.output


def test_the_group_lists_every_command() -> None:
    output = run("--help").output
    assert all(command in output for command in COMMANDS)


def test_solve_prints_and_writes_the_certificate(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    result = run("solve", "--row", "3", "--n", "4", "--json", str(path))
    assert result.exit_code == 0
    assert "OPTIMAL" in result.output
    certificate = json.loads(path.read_text())
    assert certificate["gap"] < 1e-12
    assert certificate["marginal_error"] < 1e-10
    assert certificate["guarantee"] == "OPTIMAL"


def test_solve_takes_a_solver_and_its_options() -> None:
    result = run("solve", "--top-k", "3", "--solver", "linear-program", "-o", "form=full")
    assert result.exit_code == 0
    assert "linear-program: OPTIMAL" in result.output


def test_check_agrees_on_the_built_in_capture() -> None:
    result = run("check", "--rows", "2", "--top-k", "5", "--n", "3")
    assert result.exit_code == 0, result.output
    assert "All agree" in result.output


def test_check_exits_with_1_when_a_solver_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOLVERS, "liar", Liar)
    result = run("check", "--rows", "1", "--top-k", "4", "--solvers", "martingale,liar")
    assert result.exit_code == 1
    assert "liar" in result.output


def test_bench_writes_a_table_json_csv_and_a_figure(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("t.json", "t.csv", "t.png")]
    result = run(
        "bench", "--top-k", "4,8", "--n", "2", "--rows", "2", "--solvers", "max-flow,martingale",
        "--json", str(paths[0]), "--csv", str(paths[1]), "--plot", str(paths[2]),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "(8, 2)" in result.output
    cells = json.loads(paths[0].read_text())
    assert {(cell["k"], cell["solver"]) for cell in cells} == {
        (k, solver) for k in (4, 8) for solver in ("max-flow", "martingale")
    }
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        for one, other in zip(first["solves"], second["solves"], strict=True):
            assert one["acceptance"] == pytest.approx(other["acceptance"], abs=1e-9)
    assert len(list(csv.reader(paths[1].open()))) == 1 + 2 * 2 * 2
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json", "t.png"]


def test_bench_skips_what_is_too_large_with_its_reason() -> None:
    result = run("bench", "--top-k", "1000", "--n", "4", "--rows", "1", "--solvers", "max-flow")
    assert result.exit_code == 0
    assert "memory_limit" in result.output


def test_info_describes_the_built_in_capture() -> None:
    result = run("info")
    assert result.exit_code == 0
    assert "4,096" in result.output
    assert "real models" in result.output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("solve", "--solver", "martingal"), "did you mean 'martingale'"),
        (("solve", "--solver", "max-flow", "-o", "engin=ortools", "--top-k", "4"), "engine"),
        (("solve", "missing.safetensors"), "missing.safetensors"),
        (("solve", "--row", "100000"), "100000"),
        (("solve", "--n", "0"), "n is 0"),
        (("solve", "--temperature", "0"), "temperature"),
        (("bench", "--top-k", "ten"), "ten"),
        (("bench", "--n", "0"), "too small"),
        (("solv",), "solve"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(words: tuple[str, ...], hint: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert hint in result.output
    assert "Traceback" not in result.output


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def interrupted(temporary: Path) -> None:
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, interrupted)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]
