"""Representations of objects: at a prompt, in a notebook, in JSON, and in an editor."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest

import otlp
from otlp.showing.html import html_bar, html_table
from otlp.timing import Timings
from tests.processes import run_python

PROBLEM = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))


@cache
def shown() -> dict[str, object]:
    solution = otlp.solve(PROBLEM)
    return {
        "problem": PROBLEM,
        "solution": solution,
        "plan": solution.plan,
        "row": next(iter(otlp.solve_many([PROBLEM]))),
        "failed row": next(iter(otlp.solve_many([PROBLEM], "greedy"))),
        "report": otlp.audit(lambda x, p, q, rng: int(x[0]), [0.5, 0.5], otlp.IID([0.9, 0.1], n=2)),
    }


@pytest.mark.usefixtures("few_repetitions")
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("problem", "Problem(IID(vocabulary 3, n=2))"),
        ("solution", "<Solution by martingale: OPTIMAL, acceptance 0.850000000"),
        ("plan", "<ScorePlan of Problem(IID(vocabulary 3, n=2))>"),
        ("row", "<Row 0: martingale: OPTIMAL, acceptance 0.850000000"),
        ("failed row", "<Row 0: UnsupportedProblemError: greedy"),
        ("report", "<AuditReport NOT_LOSSLESS: "),
    ],
)
def test_objects_say_what_they_are_in_short_and_in_html(name: str, printed: str) -> None:
    thing = shown()[name]
    assert repr(thing).startswith(printed)
    assert " at 0x" not in repr(thing).replace("<lambda> at", "")
    assert len(repr(thing)) < 400
    page = ElementTree.fromstring(f"<div>{thing._repr_html_()}</div>")  # type: ignore[attr-defined]
    bars = [] if name in ("problem", "plan", "failed row") else [page.find(".//svg")]
    assert all(bar is not None and "acceptance" in bar.attrib["aria-label"] for bar in bars)


def test_html_escapes_what_others_named_and_leaves_out_what_is_unknown() -> None:
    table = html_table("<b>", {"a & b": "<script>"})
    assert "<script>" not in table and "<b>" not in table
    ElementTree.fromstring(table)
    whole, plain = html_bar(0.5, 0.75), html_bar(0.5, math.nan)
    assert "at most 0.7500" in whole and "x='179.0'" in whole and "width='120.0'" in whole
    assert "at most" not in plain and "nan" not in plain and "nan" not in html_bar(math.nan, 0.5)


@pytest.mark.parametrize("solver", ["martingale", "linear-program", "naive", "max-flow"])
def test_a_certificate_is_written_in_what_json_holds(solver: str) -> None:
    solution = otlp.solvers.make_solver(solver).solve(PROBLEM)
    written = solution.to_dict()
    assert json.loads(json.dumps(written)) == written
    kept = {field.name for field in fields(solution)} - {"plan", "timings"}
    assert set(written) == kept | {"gap", "seconds"}
    assert written["subset"] == np.flatnonzero(solution.subset).tolist()
    parts = {name: written["seconds"][name] for name in vars(solution.timings)}
    assert Timings(**parts) == solution.timings
    assert written["seconds"]["total"] == solution.timings.total
    assert otlp.Guarantee[written["guarantee"]] is solution.guarantee
    assert otlp.Status[written["status"]] is solution.status


def test_the_optimal_acceptance_is_a_float() -> None:
    assert type(otlp.optimal_acceptance(PROBLEM)) is float
    assert otlp.optimal_acceptance(PROBLEM) == pytest.approx(0.85, abs=1e-12)


def test_completion_offers_every_package() -> None:
    assert {"auditing", "decode", "parallel", "reductions", "solvers", "testing"} <= set(dir(otlp))


def test_names_for_editors_are_the_solvers_and_their_options() -> None:
    from typing import get_args, get_type_hints

    from otlp.solvers.by_name import Options, option_names
    from otlp.solvers.table import SOLVERS, SolverName

    assert get_args(SolverName) == tuple(SOLVERS)
    held = {name for kind in SOLVERS.values() for name in option_names(kind)}
    assert set(get_type_hints(Options)) == held


def test_the_package_runs_as_a_module() -> None:
    printed = run_python("-m", "otlp", "--version")
    assert printed.startswith("otlp") and otlp.__version__ in printed
