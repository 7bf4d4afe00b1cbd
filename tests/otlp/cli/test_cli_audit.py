"""``otlp audit``: exit status, reports, and rules that cannot be loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import otlp
from otlp.auditing.report import Verdict
from otlp.cli.exit_status import CheckFailed
from otlp.cli.judging import print_report
from otlp.data import captures
from otlp.solvers import make_solver
from tests.example_captures import example
from tests.otlp.cli import command
from tests.processes import alive, parent

pytestmark = pytest.mark.usefixtures("few_repetitions")

FILES = ("rules.py", "hostile.py")
RULES, HOSTILE = (str(Path(__file__).parents[1] / "auditing" / name) for name in FILES)

CLASSES = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Settings:
    token: int = 0

def rule(d, p, q, rng):
    return Settings().token
"""

done, refused = partial(command.done, "audit"), partial(command.refused, "audit")


def test_a_right_rule() -> None:
    output = done(f"{RULES}:eagle_style", "--n", 3, "--vocab-size", 4)
    assert output.startswith("LOSSLESS")
    p, q = np.random.default_rng(0).dirichlet(np.ones(4), size=2)
    best = otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 3)))
    assert f"Optimal acceptance for IID(n=3): {best:.6g}." in output


def test_a_wrong_rule(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    output = done(f"{RULES}:each_in_turn", "--n", 2, "--json", path, status=1)
    report = json.loads(path.read_text())
    assert output.startswith(report["verdict"]) and report["verdict"] == "NOT_LOSSLESS"
    assert report["report"]["total_variation"] > 0.01


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("tests.otlp.auditing.rules:leviathan --seed 3", "LOSSLESS"),
        ("eagle_style_without_replacement --n 2 --scheme without-replacement", "LOSSLESS"),
        ("eagle_style_without_replacement --n 2 --scheme iid", "NOT_LOSSLESS"),
        (f"eagle_style --n 2 --drafts {RULES}:honest", "LOSSLESS"),
        (f"eagle_style --n 2 --drafts {RULES}:greedy", "DRAFTS_DIFFER"),
        ("max-flow --n 2", "LOSSLESS"),
    ],
)
def test_rules_of_files_and_modules_solvers_schemes_and_samplers(words: str, verdict: str) -> None:
    name, *rest = words.split()
    name = f"{RULES}:{name}" if name.startswith("eagle") else name
    assert done(name, *rest, status=int(verdict != "LOSSLESS")).startswith(verdict)


def test_a_row_of_a_capture_is_sampled(tmp_path: Path) -> None:
    path = tmp_path / "capture.safetensors"
    captures.save(example(rows=3, vocab_size=500, seed=1), path)
    report = tmp_path / "report.json"
    words = ("--capture", path, "--row", 2, "--n", 2, "--samples", 5000, "--json", report)
    output = done(f"{RULES}:eagle_style", *words, "--temperature", 0.9, "--seed", 3)
    assert output.startswith("NOT_REJECTED") and "250,000 tuples" in output
    found = json.loads(report.read_text())
    assert found["report"]["test"]["samples"] == 5000
    settings = {"temperature": 0.9, "top_p": None, "seed": 3, "vocab_size": 500, "drafts": None}
    assert {name: found[name] for name in settings} == settings


def test_an_acceptance_above_the_optimum_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def first(d, p, q, rng):\n    return int(d[0])\n")
    output = done(f"{path}:first", "--samples", 2000, status=1)
    assert "the rule is lossy or uses other drafts" in output


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("", "must name a function of the file: write"),
        (":short", "rule is short(d, p): it must accept (draft_tokens, p, q, rng)"),
        (":nothing", "write it as FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"),
    ],
)
def test_what_is_no_rule_is_said_whole(tmp_path: Path, function: str, words: str) -> None:
    path = tmp_path / f"{'long' * 20}.py"
    path.write_text("def verify(d, p, q, rng):\n    return 0\n\ndef short(d, p):\n    return 0\n")
    printed = refused(f"{path}{function}")
    assert words in printed
    assert function or f"{path}:verify or {path}:short" in printed


def test_the_report_of_a_plan_holds_the_test_of_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    done("martingale", "--n", 2, "--samples", 2000, "--json", path)
    report = json.loads(path.read_text())["report"]
    assert report["sample_test"]["samples"] == 2000
    assert report["sample_error"] is None  # unknown, because it was sampled
    assert "output" not in report


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nofile.py:rule"], "cannot load"),
        ([f"{RULES}:nothing"], "no attribute 'nothing'"),
        ([f"{RULES}:np", "--n", "2"], "must be a function, got module"),
        ([f"{RULES}:leviathan", "--vocab-size", "5", "--row", "1"], "--vocab-size"),
        ([f"{RULES}:leviathan", "--temperature", "0.5"], "add --row"),
        ([f"{RULES}:leviathan", "--vocab-size", "5", "--top-p", "0.5"], "add --row"),
        ([f"{RULES}:leviathan", "--n", "99999999"], "at most 10,000"),
        ([f"{RULES}:leviathan", "--samples", "10"], "--samples"),
        ([f"{RULES}:leviathan", "--false-alarm-rate", "1"], "--false-alarm-rate"),
        ([f"{RULES}:leviathan", "--time-limit", "0"], "--time-limit"),
        ([f"{RULES}:leviathan", "--json", "/proc/here/report.json"], "cannot write"),
        ([f"{HOSTILE}:loops", "--json", "/"], "must be a regular file"),
        ([f"{RULES}:leviathan", "--row", "99999"], "out of range"),
        (["nothing"], "no solver is named"),
        ([":"], "cannot load"),
        ([f"{RULES}:leviathan", "--scheme", "nothing"], "nothing"),
    ],
)
def test_bad_input(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_a_file_with_the_name_of_a_module_and_with_classes(tmp_path: Path) -> None:
    path = tmp_path / "random.py"
    path.write_text(CLASSES)
    assert done(f"{path}:rule", status=1).startswith("NOT_LOSSLESS")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("ends", "the process exited with status 0"),
        ("crashes", "the process was killed by signal 15"),
        ("loops", "the time limit of 0.2 s"),
        ("loops_without_alarm", "the time limit of 0.2 s"),
    ],
)
def test_a_rule_that_cannot_be_judged(function: str, words: str) -> None:
    began = time.monotonic()
    limit = 0.2 if function.startswith("loops") else 5.0
    printed = refused(f"{HOSTILE}:{function}", "--time-limit", limit)
    assert time.monotonic() - began < 10.0
    assert "not judged" in printed and words in printed


@pytest.mark.parametrize(
    ("function", "words"),
    [("leaves", "raises SystemExit: 0"), ("loud", "[/bold] m[v2] \\x1b[31mred")],
)
def test_a_rule_that_raises_fails_and_what_it_says_is_shown(function: str, words: str) -> None:
    output = done(f"{HOSTILE}:{function}", status=1)
    assert output.startswith("RULE_FAILED") and words in output


@pytest.mark.parametrize("sampler", ["failing", "leaving"])
def test_a_sampler_that_fails(sampler: str) -> None:
    printed = refused(f"{RULES}:leviathan", "--drafts", f"{HOSTILE}:{sampler}")
    assert "the draft sampler raises" in printed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("import os; os._exit(0)", "the process exited with status 0"),
        ("raise RuntimeError('[/bold]')", "RuntimeError: [/bold]"),
        ("def rule(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_loaded(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file.py"
    path.write_text(text)
    assert words in refused(f"{path}:rule")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_audit_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C also ends processes started by the rule; a kill of the command at least the rule."""
    # Shells start background processes with Ctrl-C ignored.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from otlp.cli import main; main(sys.argv[1:])"
    )
    words = tmp_path / "words"
    with words.open("w") as file:
        audit = subprocess.Popen(
            [sys.executable, "-c", code, "audit", f"{HOSTILE}:starts", "--time-limit", "100"],
            cwd=tmp_path,
            stderr=file,
        )
    pid = wait_for(tmp_path / "pid")
    rule = parent(pid)
    audit.send_signal(how)
    status = audit.wait(timeout=20)
    assert gone(rule)
    if how == signal.SIGINT:
        assert status == 2
        assert "interrupted" in words.read_text()
        assert gone(pid)
    else:
        os.kill(pid, signal.SIGKILL)


def wait_for(path: Path) -> int:
    for _ in range(600):
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.1)
    raise AssertionError(f"{path} was never written")


def gone(pid: int) -> bool:
    """Return whether a process ends within five seconds."""
    end = time.monotonic() + 5.0
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


def test_the_first_line_and_the_status_are_of_one_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A correct verifier with other drafts: the first line states the error."""

    class Drafts:
        passed, verdict = False, Verdict.DRAFTS_DIFFER

        def __str__(self) -> str:
            return "Its drafts do NOT follow its q."

    report = otlp.audit(make_solver("naive"), [0.5, 0.5], otlp.IID([0.9, 0.1], 1))
    with pytest.raises(CheckFailed):
        print_report(report, {}, tmp_path / "found.json", checked=[Drafts()])
    assert capsys.readouterr().out.startswith("DRAFTS_DIFFER: Its drafts do NOT follow its q.")
    written = json.loads((tmp_path / "found.json").read_text())
    assert (written["verdict"], written["passed"]) == ("DRAFTS_DIFFER", False)
