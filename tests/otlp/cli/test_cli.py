"""The command line: output, files and exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import otlp
from otlp.cli import COMMANDS
from otlp.cli.output import write_whole
from otlp.data import captures
from otlp.data.spread_rows import spread_rows
from otlp.solvers import SOLVERS
from otlp_lab.commands import COMMANDS as EXPERIMENTS
from tests.example_captures import LABELS, example
from tests.otlp.cli.command import ALL, done, refused, run
from tests.own_plans import Boaster
from tests.processes import run_python


@pytest.mark.parametrize("command", ALL)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    output = done(*command.split(), "--help")
    assert "Examples:" in output and f"otlp {command}" in output


def test_the_group_lists_every_command() -> None:
    assert all(command in done("--help") for command in COMMANDS)
    assert all(command in done("lab", "--help") for command in EXPERIMENTS)


@pytest.mark.parametrize("command", ["design", "tune", "audit-engine", "audit-server"])
def test_commands_of_the_laboratory_are_found(command: str) -> None:
    assert f"Did you mean 'otlp lab {command}'?" in refused(command)


def test_a_laboratory_that_is_not_installed_is_named() -> None:
    run_python(
        "import sys; sys.modules['otlp_lab'] = None; sys.argv = ['otlp', 'lab', 'tune']\n"
        "import contextlib, io, otlp.cli\n"
        "said = io.StringIO()\n"
        "with contextlib.redirect_stderr(said):\n"
        "    try: otlp.cli.main()\n"
        "    except SystemExit as ended: assert ended.code == 2, ended.code\n"
        "assert 'pip install otlp-lab' in said.getvalue(), said.getvalue()"
    )


def test_solve_prints_and_writes_the_certificate(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    assert "OPTIMAL" in done("solve", "--row", 3, "--n", 4, "--json", path)
    certificate = json.loads(path.read_text())
    assert certificate["gap"] < 1e-12 and certificate["marginal_error"] < 1e-10
    assert certificate["guarantee"] == "OPTIMAL"


def test_check_agrees_on_the_built_in_capture() -> None:
    printed = done("check", "--rows", 2, "--top-k", 5, "--n", 3).splitlines()
    assert printed[-3].startswith("No disagreement on 2 rows")
    assert "max-flow" in printed[-2] and "naive" not in printed[-2]
    assert "naive" in printed[-1] and "max-flow" not in printed[-1]


def test_check_exits_with_1_when_a_solver_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOLVERS, "boaster", Boaster)
    words = ("check", "--rows", 1, "--top-k", 4, "--solvers", "martingale,boaster")
    assert "boaster" in done(*words, status=1)


def test_bench_writes_a_table_json_and_a_figure(tmp_path: Path) -> None:
    table, figure = tmp_path / "t.json", tmp_path / "t.png"
    words = ("--top-k", "4,8", "--n", 2, "--rows", 2, "--solvers", "max-flow,martingale")
    assert "(8, 2)" in done("bench", *words, "--json", table, "--figure", figure)
    cells = json.loads(table.read_text())["cells"]
    assert {(cell["top_k"], cell["solver"]) for cell in cells} == {
        (k, solver) for k in (4, 8) for solver in ("max-flow", "martingale")
    }
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        for one, other in zip(first["solves"], second["solves"], strict=True):
            assert one["acceptance"] == pytest.approx(other["acceptance"], abs=1e-9)
    assert sum(len(cell["solves"]) for cell in cells) == 2 * 2 * 2
    assert list(cells[0]["solves"][0])[:2] == ["row", "status"]
    assert not any(cell["partial"] for cell in cells)
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert sorted(tmp_path.iterdir()) == [table, figure]


def test_bench_skips_what_is_too_large_with_its_reason() -> None:
    words = ("--top-k", 1000, "--n", 4, "--rows", 1, "--solvers", "max-flow")
    assert "memory_limit" in done("bench", *words)


def test_a_mean_over_fewer_rows_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    words = ("bench", "--top-k", 100, "--n", 3, "--rows", 3, "--time-limit", 1e-4)
    output = done(*words, "--solvers", "martingale,max-flow", "--json", path)
    assert "1 of 3 rows" in output and "one solve took" in output
    for cell in json.loads(path.read_text())["cells"]:
        assert (cell["row_count"], cell["partial"]) == (3, cell["solved"] in (1, 2))


def foreign(folder: Path, name: str) -> str:
    """Save a capture with unusual names and return its path."""
    path = folder / "capture.safetensors"
    captures.save(example(rows=2, vocab_size=8, seed=1, **dict.fromkeys(LABELS, name)), path)
    return str(path)


NAMES = ("x[/bold]", "m[v2]", "a :smile: b", "a$b$c_", "é")


@pytest.mark.parametrize(
    "name", [" ".join(NAMES), *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES)]
)
def test_names_are_printed_as_they_are(name: str, tmp_path: Path) -> None:
    path = foreign(tmp_path, name)
    files = [tmp_path / "a.json", tmp_path / "a.png"]
    assert run("info", path).output.count(name) == 5
    outputs = ("--json", files[0], "--figure", files[1])
    output = done("compare", path, "--n", 2, "--schemes", "iid", "--rules", "naive", *outputs)
    assert f"{name} / {name}, all 2 rows" in output
    assert all(file.stat().st_size for file in files)


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = foreign(tmp_path, "a\x1b[31mred\x07\rb\x9b\udcff".encode("utf-8", "replace").decode())
    for words in (("info", path), ("bench", path, "--top-k", "4", "--n", "2", "--rows", "1")):
        output = run(*words).output
        assert "\\x1b[31mred\\x07\\rb\\x9b" in output
        assert not set("\x1b\x07\r\x9b") & set(output)


def test_errors_do_not_steer_the_terminal_either() -> None:
    output = run("info", "no\x1b[31mfile").output
    assert "no\\x1b[31mfile" in output and "\x1b" not in output


def test_check_spreads_its_rows_and_says_how() -> None:
    capture = captures.builtin()
    output = done("check", "--rows", 2, "--solvers", "martingale")
    words = f"2 of {len(capture)} rows, one from each of 2 equal parts (seed 0)"
    assert words in " ".join(output.split())
    best = [
        otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 2)))
        for p, q in (capture.distributions(row, top_k=10) for row in spread_rows(len(capture), 2))
    ]
    assert f"{sum(best) / 2:.7f}" in output


def test_check_compares_within_what_is_certified() -> None:
    """`orderings` certifies 1e-6, which once failed the check at 1e-7."""
    words = ("check", "--rows", 3, "--top-k", 1000, "--n", 4, "--tolerance", 1e-9)
    done(*words, "--solvers", "martingale,orderings")


@pytest.mark.parametrize(
    "words",
    [
        "solve", "check", "bench", "compare --schemes without-replacement --rules auto",
        "decode --device cpu", "cascade --device cpu", "capture x.safetensors --device cpu",
    ],
)  # fmt: skip
def test_an_interruption_ends_with_status_130(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interruption comes at the start of the work of each command."""
    monkeypatch.chdir(tmp_path)

    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    if words.split()[0] in ("decode", "cascade", "capture"):
        monkeypatch.setattr("otlp.cli.prompts.open_pair", interrupted)
    else:
        monkeypatch.setattr("otlp.data.captures.Capture.distributions", interrupted)
    output = done(*words.split(), status=130)
    assert output.strip().splitlines()[-1] == "otlp: interrupted"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("after", [1.0, pytest.param(5.0, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "words",
    [
        "check --rows 99 --top-k 60 --n 3", "bench --rows 99", "compare --rows 99",
        "decode --seed 0,1,2,3", "cascade --limit 99",
    ],
)  # fmt: skip
def test_ctrl_c_in_a_process_ends_it_soon(words: str, after: float) -> None:
    # Shells start background processes with Ctrl-C ignored.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from otlp.cli import main; print('begun', flush=True); main()"
    )
    command = [sys.executable, "-c", code, *words.split()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "begun\n"
        try:
            process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            # One second is promised, but the compilation of a kernel finishes first.
            # A Ctrl-C during a finaliser or callback is lost, so send it again.
            for _ in range(3):
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=30.0)
                    break
            assert process.returncode == 130
        else:
            assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.long
def test_cold_kernels_are_in_no_figure(tmp_path: Path) -> None:
    """With an empty cache, times and acceptances are the same as with a warm cache."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    found = []
    for name in ("cold", "warm"):
        path = tmp_path / f"{name}.json"
        command = [
            sys.executable, "-c", "from otlp.cli import main; main()", "bench", "--top-k", "10,100",
            "--n", "2,3", "--solvers", "max-flow,global-resolution,martingale", "--json", str(path),
        ]  # fmt: skip
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0
        assert name == "warm" or "otlp is loading its compiled kernels" in result.stderr
        found.append(json.loads(path.read_text())["cells"])
    for cold, warm in zip(*found, strict=True):
        assert not cold["partial"]
        assert cold["acceptance"] == pytest.approx(warm["acceptance"], abs=1e-12)
        if cold["solver"] != "max-flow":  # Compiled, these take far less than a second.
            assert all(s["seconds"]["total"] < 1.0 for s in cold["solves"])


def test_info_describes_the_built_in_capture() -> None:
    output = done("info")
    assert "49,152" in output and "real models" in output
    assert "Median [10%, 90%] of all 162 rows." in done("info", "--rows", 1000)


def test_info_tells_texts_apart(tmp_path: Path) -> None:
    texts = []
    numbers = np.arange(7) % 2
    for changes in ({}, {"seed": 1}, {"next_tokens": numbers}, {"positions": numbers}):
        captures.save(example(**changes), tmp_path / "a.safetensors")
        done("info", tmp_path / "a.safetensors", "--json", tmp_path / "a.json")
        texts.append(json.loads((tmp_path / "a.json").read_text())["text"])
    assert texts[0] == texts[1] and len(set(texts)) == 3


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


def test_the_token_for_all_others_is_not_counted_in_reasons() -> None:
    output = run("check", "--rows", "1", "--top-k", "4", "--solvers", "hub,martingale").output
    assert "got IID(n=2); use" in output and "49,153" not in output
