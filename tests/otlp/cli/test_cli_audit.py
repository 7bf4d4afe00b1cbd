"""``otlp audit``: exit status, reports, and what cannot be loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import otlp
from otlp.cli.audit import command
from otlp.data import captures

RULES = str(Path(__file__).parents[1] / "auditing" / "rules.py")

DRAFTS = """
import numpy as np

def honest(q, rng):
    return rng.choice(len(q), size=2, p=q)

def greedy(q, rng):
    return [int(np.argmax(q))] * 2

constant = 3
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.fixture
def drafts(tmp_path: Path) -> str:
    path = tmp_path / "drafts.py"
    path.write_text(DRAFTS)
    return str(path)


def test_a_right_rule() -> None:
    result = run(f"{RULES}:eagle_style", "--n", "3", "--random", "4")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("LOSSLESS")
    p, q = np.random.default_rng(0).dirichlet(np.ones(4), size=2)
    best, _ = otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 3)))
    assert f"Optimal acceptance for IID(V=4, n=3): {best:.6g}." in result.output


def test_a_wrong_rule(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = run(f"{RULES}:each_in_turn", "--n", "2", "--json", str(path))
    assert result.exit_code == 1
    assert result.output.startswith("NOT_LOSSLESS")
    report = json.loads(path.read_text())
    assert report["verdict"] == "NOT_LOSSLESS"
    assert report["total_variation"] > 0.01


def test_a_rule_of_a_module() -> None:
    result = run("tests.otlp.auditing.rules:leviathan", "--seed", "3")
    assert result.exit_code == 0, result.output


def test_another_scheme() -> None:
    name = f"{RULES}:eagle_style_without_replacement"
    assert run(name, "--n", "2", "--scheme", "without-replacement").exit_code == 0
    assert run(name, "--n", "2", "--scheme", "iid").exit_code == 1


def test_a_sampler_of_drafts(drafts: str) -> None:
    rule = (f"{RULES}:eagle_style", "--n", "2", "--drafts")
    assert run(*rule, f"{drafts}:honest").exit_code == 0
    result = run(*rule, f"{drafts}:greedy")
    assert result.exit_code == 1
    assert result.output.startswith("DRAFTS_DIFFER")


def test_a_solver_by_name() -> None:
    result = run("max-flow", "--n", "2")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("LOSSLESS")


def test_a_row_of_a_capture_is_sampled(tmp_path: Path) -> None:
    path = tmp_path / "capture.safetensors"
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(2, 3, 500)).astype(np.float32)
    captures.save(
        captures.Capture(
            target_logits=logits[0],
            draft_logits=logits[1],
            target_model="large",
            draft_model="small",
            tokenizer="none",
            source="random numbers",
            synthetic=True,
        ),
        path,
    )
    report = tmp_path / "report.json"
    arguments = ("--capture", str(path), "--row", "2", "--n", "2", "--samples", "5000")
    result = run(f"{RULES}:eagle_style", *arguments, "--json", str(report))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("NOT_REJECTED")
    assert "250,000 tuples" in result.output
    assert json.loads(report.read_text())["test"]["samples"] == 5000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nofile.py:rule"], "cannot load"),
        ([f"{RULES}:nothing"], "no attribute 'nothing'"),
        ([f"{RULES}:np", "--n", "2"], "is a module"),
        ([f"{RULES}:leviathan", "--random", "5", "--row", "1"], "--random"),
        ([f"{RULES}:leviathan", "--scheme", "nothing"], "nothing"),
    ],
)
def test_bad_input(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
