"""Verifiers that are separate programs, including the examples of the page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp import IID, audit, audit_rounds
from otlp.auditing import AuditSettings, DraftedPaths, Verdict, command
from otlp.auditing.audited_rule import NotJudgedError
from otlp.auditing.command import CommandRule
from otlp.errors import InvalidInputError
from tests.otlp.cli.command import done, refused, run

pytestmark = pytest.mark.usefixtures("few_repetitions")

PAGE = (Path(__file__).parents[3] / "docs" / "any_language.md").read_text(encoding="utf-8")
P, Q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]

PYTHON = """
import json, random, sys
for line in sys.stdin:
    case = json.loads(line)
    p, q, u = case["p"], case["q"], iter(case["uniforms"] or [random.random() for _ in range(9)])
    {body}
    print(json.dumps({{"id": case["id"], "tokens": tokens}}), flush=True)
"""

PATHS = """
    from otlp.testing.plain_rules import {rule}
    tokens = {rule}(case["drafts"], p, q, u.__next__)
"""


def program(body: str) -> str:
    """Return a command that answers with the given lines of Python."""
    return f"{sys.executable} -c '{PYTHON.format(body=body.strip())}'"


def shell(start: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(start))


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the C verifier of the page."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("verifier")
    (code,) = re.findall(r"^```c\n(.*?)^```", PAGE, re.M | re.S)
    assert len(code.splitlines()) <= 32
    (folder / "verifier.c").write_text(code)
    words = ["cc", "-O1", "-Wall", "-Werror", "-o", folder / "verifier", folder / "verifier.c"]
    subprocess.run(words, check=True)
    return str(folder / "verifier")


def test_thirty_lines_of_c_have_an_exact_law(verifier: str) -> None:
    report = audit(CommandRule(verifier, 2), P, IID(Q, n=1))
    assert (report.verdict, report.method) == (Verdict.NOT_REJECTED, "search")
    assert report.total_variation < 1e-14
    assert report.acceptance == pytest.approx(0.6, abs=1e-14)


def test_the_command_judges_them(verifier: str) -> None:
    printed = done("audit", "--command", verifier, "--uniforms", 2, "--vocab-size", 3)
    assert printed.startswith("NOT_REJECTED") and f"Tested: {verifier}" in printed
    assert "exact by search between probes" in " ".join(printed.split())


def test_a_line_of_a_shell() -> None:
    report = audit(CommandRule(shell("sed -u"), 1), P, IID(Q, n=1))
    assert (report.verdict, report.acceptance) == (Verdict.NOT_LOSSLESS, 1.0)
    np.testing.assert_allclose(report.output, Q, atol=1e-12)


def test_a_line_with_jq() -> None:
    if shutil.which("jq") is None:
        pytest.skip("no jq")
    report = audit(CommandRule(shell("jq"), 1), P, IID(Q, n=1))
    assert (report.verdict, report.method) == (Verdict.NOT_REJECTED, "search")


def paths(rule: str, uniforms: int, length: int = 2, **more: Any) -> Any:
    p = [np.array(P)]
    target = [np.broadcast_to(p[0], (3,) * (t + 1)) for t in range(length + 1)]
    draft = [np.broadcast_to(np.array(Q), (3,) * (t + 1)) for t in range(length)]
    found = CommandRule(program(PATHS.format(rule=rule)), uniforms)
    return audit_rounds(found, target, draft, DraftedPaths(1, length), batch=16, **more)


@pytest.mark.parametrize("rule", ["speculative", "block"])
def test_paths_are_followed_too(rule: str) -> None:
    report = paths(rule, 3)
    assert (report.verdict, report.method) == (Verdict.NOT_REJECTED, "search")
    assert report.total_variation < 1e-13


def test_what_draws_by_itself_is_sampled() -> None:
    report = paths("speculative", 0, settings=AuditSettings(1_000))
    assert (report.verdict, report.method) == (Verdict.NOT_REJECTED, "sampling")
    assert "another process" in report.why_sampled


def test_a_sliver_that_a_search_misses_is_called_no_proof() -> None:
    body = "x = next(u); tokens = [1 if 0.101 <= x < 0.1014 else int(x >= 0.5)]"
    report = audit(CommandRule(program(body), 1), [0.5, 0.5], IID([0.5, 0.5], n=1))
    assert report.verdict is not Verdict.LOSSLESS


def test_what_draws_beside_its_numbers_is_seen() -> None:
    body = "next(u); tokens = [0 if random.random() < 0.1 else 1]"
    report = audit(
        CommandRule(program(body), 1), P, IID(Q, n=1), settings=AuditSettings(samples=1_000)
    )
    assert (report.verdict, report.method) == (Verdict.NOT_LOSSLESS, "sampling")


@pytest.mark.parametrize("tokens", ["[7]", "[]", "None", "[0, 1]", "0.5", "[[0]]"])
def test_tokens_that_are_none(tokens: str) -> None:
    report = audit(CommandRule(program(f"tokens = {tokens}"), 1), P, IID(Q, n=1))
    assert report.verdict is Verdict.RULE_FAILED


@pytest.mark.parametrize("tokens", ["[1.0]", "1.0", "1"])
def test_whole_numbers_are_tokens_however_they_are_written(tokens: str) -> None:
    body = f'case["id"] = float(case["id"]); tokens = {tokens}'
    assert audit(CommandRule(program(body), 1), [0.0, 1.0, 0.0], IID(Q, n=1)).passed


BAD = {
    "it dies": ("raise SystemExit(3)", r"exited with status 3 before answering case 0"),
    "nonsense": ("print('hello', flush=True)", 'must be JSON with an "id"'),
    "no id": ("print('{}', flush=True)", 'must be JSON with an "id"'),
    "another id": ("case['id'] = case['id'] == 0; tokens = [0]", "keep the order"),
    "the question": (
        "print(json.dumps(case), flush=True)",
        'without "token" or "tokens": the keys',
    ),
    "another order": ("case['id'] += 1; tokens = [0]", "keep the order"),
    "too much": (
        "print(json.dumps({'id': case['id'], 'token': 0}) * 1 + chr(10) + 'more', flush=True); "
        "import time; time.sleep(9)",
        "more answers than cases|must be JSON",
    ),
    "too long": ("print('9' * 2**21, flush=True)", "more than 1,048,576 bytes"),
    "silence": ("import time; time.sleep(9)", "did not answer case 0 within 0.5 s"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_asked_is_not_judged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, printed = BAD[name]
    if name in ("silence", "too much"):
        monkeypatch.setattr(command, "ANSWER_TIMEOUT", 0.5)
    body = body.replace("'", '"')
    with pytest.raises(NotJudgedError, match=printed):
        audit(CommandRule(program(body), 1), P, IID(Q, n=1))


def test_the_status_of_what_is_not_judged() -> None:
    result = run("audit", "--command", "false")
    assert result.exit_code == 2 and "not judged: the command exited with status 1" in result.output


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("naive", "--command", "false"),
        ("naive", "--uniforms", 2),
        ("naive", "--length", 2),
        ("--command", "false", "--length", 2, "--row", 1),
        ("--command", "/nowhere/at/all"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[Any, ...]) -> None:
    refused("audit", *words)


def test_what_cannot_be_started_is_refused() -> None:
    for wrong in ("/nowhere/at/all", "'", ""):
        with pytest.raises(InvalidInputError, match="cannot be started"):
            CommandRule(wrong)
