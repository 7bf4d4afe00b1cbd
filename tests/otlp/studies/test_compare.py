"""Comparison: exact acceptances, the references that bound them, and reasons for gaps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import otlp
from otlp.cli.compare import command
from otlp.data import captures
from otlp.data.spread_rows import spread_rows
from otlp.distribution import FloatArray
from otlp.drafts.by_name import SCHEMES, make_scheme
from otlp.errors import InvalidInputError, UnknownSolverError
from otlp.solvers import SOLVERS
from otlp.studies import compare
from otlp.studies.compare import EQUALITIES
from otlp.studies.points import SweepPoint, SweepSetting
from otlp.studies.sweep import Grid, sweep
from tests.example_captures import example
from tests.instances import brute_force_optimum


def pairs(count: int, size: int) -> list[tuple[FloatArray, FloatArray]]:
    rng = np.random.default_rng(4)
    laws = rng.dirichlet(np.ones(size), size=(count, 2))
    return [(p, q) for p, q in laws]


Measured = list[tuple[int, str, int, compare.RuleResult]]


def measure(
    given: Any, n: Sequence[int], schemes: Iterable[str] = SCHEMES, **options: Any
) -> Measured:
    """Return row, scheme and n of every result."""
    return [
        (row, scheme, count, found)
        for row, pair in enumerate(given)
        for scheme in schemes
        for count in n
        for found in compare.measure_rules(pair, scheme, count, **options)
    ]


def test_every_rule_under_every_scheme() -> None:
    measured = measure(pairs(3, 6), (1, 2, 3))
    wanted = 3 * len(SCHEMES) * 3 * (len(compare.RULES) + 2)
    assert len(measured) == wanted
    by_key = {(*where, found.rule): found for *where, found in measured}
    for *where, found in measured:
        assert math.isnan(found.acceptance) == bool(found.reason), found  # none is unknown
        best = by_key[*where, compare.OPTIMUM].acceptance
        bound = by_key[*where, compare.BOUND].acceptance
        if found.rule in compare.RULES and not found.reason:
            assert found.guarantee in ("LOSSLESS", "OPTIMAL")
            assert found.acceptance <= best + 1e-9
        if not math.isnan(best):
            assert best <= bound + 1e-12


def test_first_drafts_are_said_of_rules_that_know() -> None:
    for row, scheme, n, found in measure(pairs(2, 5), (1, 2, 3)):
        knows = found.rule in ("hub", "recursive-rejection") and not found.reason
        assert (found.first_draft is not None) == knows
        if knows and scheme != "hub":
            p, q = pairs(2, 5)[row]
            first = np.minimum(p, make_scheme(scheme, q, n).next_distribution(())).sum()
            assert found.first_draft == pytest.approx(first, abs=1e-12)
        if knows:
            more = found.acceptance - found.first_draft
            assert more == pytest.approx(0.0, abs=1e-12) if n == 1 else more > 0.0


def test_references() -> None:
    """The optimum is the minimum dual value over all subsets; the bound is that of SpecTr."""
    given = pairs(2, 5)
    for row, scheme, n, found in measure(given, (1, 2, 3), rules=()):
        if found.reason:
            continue
        p, q = given[row]
        problem = otlp.Problem(p, make_scheme(scheme, q, n))
        if found.rule == compare.OPTIMUM:
            assert found.acceptance == pytest.approx(brute_force_optimum(problem), abs=1e-12)
        elif scheme == "iid":
            once = np.minimum(p, 1.0 - (1.0 - q) ** n).sum()
            assert found.acceptance == pytest.approx(once, abs=1e-12)


def test_one_draft_is_the_same_under_every_scheme() -> None:
    p, q = pairs(1, 6)[0]
    for *_, found in measure([(p, q)], (1,)):
        if not found.reason and found.rule != compare.BOUND:
            best = p @ q if found.rule == "naive" else np.minimum(p, q).sum()
            assert found.acceptance == pytest.approx(best, abs=1e-12)


def test_no_tuples_are_listed_for_large_vocabularies() -> None:
    """V = 4,096: a list of triples would be refused."""
    measured = measure(pairs(1, 4096), (3,), ("iid", "greedy"))
    valid = {(scheme, found.rule) for _, scheme, _, found in measured if not found.reason}
    references = {(s, r) for s in ("iid", "greedy") for r in (compare.OPTIMUM, compare.BOUND)}
    rules = {("iid", r) for r in ("naive", "recursive-rejection", "k-seq")}
    rules |= {("greedy", r) for r in ("naive", "recursive-rejection", "greedy")}
    assert valid == references | rules


def test_reasons_are_recorded() -> None:
    measured = measure([([0.5, 0.5], [1.0, 0.0])], (2,), ("without-replacement",))
    assert all(found.reason and math.isnan(found.acceptance) for *_, found in measured)
    hub = measure(pairs(1, 4), (3,), ("hub",))
    assert all("pairs" in found.reason for *_, found in hub)
    summary = sweep(otlp.captures.builtin()[:1], Grid(n=[3], schemes=["hub"]))[0]
    assert summary.rows == 0
    assert math.isnan(summary.acceptance.mean)
    assert "pairs" in summary.reason


def test_unknown_names_are_refused_before_anything_is_measured() -> None:
    with pytest.raises(InvalidInputError, match=r"must be one of iid, .*, got 'idd'"):
        Grid(schemes=("idd",))
    with pytest.raises(UnknownSolverError, match="naive"):
        Grid(rules=("naiv",))
    assert set(compare.RULES) <= set(SOLVERS)


def test_independent_drafts_are_tempered() -> None:
    q = np.array([0.7, 0.2, 0.1, 0.0])
    scheme = make_scheme("independent", q, 3)
    assert isinstance(scheme, otlp.Independent)
    np.testing.assert_allclose(scheme.drafts[0], q)
    squared = np.sqrt(2.0)
    np.testing.assert_allclose(scheme.drafts[1], q**squared / (q**squared).sum())
    assert scheme.drafts[2, 0] < q[0] < scheme.drafts[1, 0]


def test_summary() -> None:
    setting, values = SweepSetting("iid", 2, 1.0, None), np.array([0.5, 0.7, math.nan])
    summary = SweepPoint.of(setting, "naive", values, "", np.arange(3))
    assert (summary.rows, summary.acceptance.mean) == (2, pytest.approx(0.6))
    half = 12.706204736432095 * 0.1  # t with one degree of freedom, times the standard error
    assert summary.acceptance.high - summary.acceptance.mean == pytest.approx(half)
    assert summary.partial
    assert not SweepPoint.of(setting, "naive", values[:2], "", np.arange(2)).partial


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("compare") / "capture.safetensors"
    captures.save(example(rows=6, vocab_size=30, seed=8, synthetic=True), path)
    return str(path)


def test_command(capture: str, tmp_path: Path) -> None:
    output, figure = tmp_path / "out.json", tmp_path / "out.png"
    arguments = ["--n", "1,2", "--rows", "3", "--schemes", "iid,hub"]
    result = CliRunner().invoke(
        command, [capture, *arguments, "--json", str(output), "--figure", str(figure)]
    )
    assert result.exit_code == 0, result.output
    assert "hub on iid, n = 1, 2: the drafts must be SpecHub's pairs" in result.output
    assert "information bound on hub, n = 1: hub drafts must be pairs" in result.output
    assert "large / small (synthetic), 3 of 6 rows, " in result.output
    records = json.loads(output.read_text())["results"]
    assert len(records) == 3 * 2 * 2 * (len(compare.RULES) + 2)
    drawn = spread_rows(6, 3)
    p, q = captures.load(capture).distributions(drawn[2])
    last = [r for r in records if r["row"] == drawn[2] and r["scheme"] == "iid" and r["n"] == 2]
    optimum = next(r["acceptance"] for r in last if r["rule"] == compare.OPTIMUM)
    assert optimum == otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 2)))
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_equalities_are_the_same_beside_every_scheme() -> None:
    measured = measure(pairs(2, 6), (1, 2, 4), ("iid", "without-replacement"), rules=EQUALITIES)
    found = {(row, scheme, n, r.rule): r.acceptance for row, scheme, n, r in measured}
    for row, (p, q) in enumerate(pairs(2, 6)):
        for n in (1, 2, 4):
            for rule in EQUALITIES:
                assert found[row, "iid", n, rule] == found[row, "without-replacement", n, rule]
            coupled, likeliest = (found[row, "iid", n, rule] for rule in EQUALITIES)
            assert coupled <= found[row, "without-replacement", n, compare.OPTIMUM] + 1e-9
            assert likeliest == pytest.approx(p[np.argsort(-q)[:n]].sum())
        apart = 0.5 * np.abs(p - q).sum()
        assert found[row, "iid", 1, compare.COUPLED] >= (1.0 - apart) / (1.0 + apart)
