"""Every max-flow engine: flows, cuts, limits, and the error if an engine is missing."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import linprog

import otlp
from otlp.reductions import FlowNetwork, MergeTuples, NetworkReduction, Relaxation
from otlp.solvers import SOLVERS, MaxFlow, Slackness, Solver, make_solver
from otlp.solvers.engines import FLOW_ENGINES
from tests.examples import examples
from tests.instances import (
    DEGENERATE,
    brute_force_optimum,
    check_solution,
    exact_solvers,
    large,
    problems,
)
from tests.processes import run_python


@examples(25)
@given(problem=problems())
def test_flows_are_feasible_and_the_engines_own_cut_proves_them(
    engine: str, problem: otlp.Problem
) -> None:
    for reduction in (MergeTuples(), Relaxation()):
        relaxed, _ = reduction.apply(problem)
        network, inverse = NetworkReduction().apply(relaxed)
        answer = FLOW_ENGINES[engine](network)
        flows = answer.primal
        assert flows.shape == network.capacities.shape and flows.min() >= 0.0
        assert (flows <= network.capacities + 1e-15).all()
        arriving = np.bincount(network.heads, weights=flows, minlength=network.sink + 1)
        leaving = np.bincount(network.tails, weights=flows, minlength=network.sink + 1)
        inner = slice(0, network.source)
        np.testing.assert_allclose(arriving[inner], leaving[inner], rtol=0.0, atol=1e-15)

        flow, subset = NetworkReduction().invert(answer, inverse)
        bound = problem.dual_value(subset)
        assert abs(relaxed.dual_value(subset) - bound) <= 1e-12
        assert abs(bound - flow.sum()) <= 1e-12
        assert abs(bound - brute_force_optimum(problem)) <= 1e-12


def test_empty_and_zero_networks(engine: str) -> None:
    no_groups = FlowNetwork(np.array([1]), np.array([0]), np.array([0.5]), tokens=1, groups=0)
    zeros = FlowNetwork(np.array([2, 0, 1]), np.array([0, 1, 3]), np.zeros(3), tokens=1, groups=1)
    for network in (no_groups, zeros):
        assert not FLOW_ENGINES[engine](network).primal.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5])
def test_capacities_that_are_no_numbers_are_refused(engine: str, bad: float) -> None:
    network = FlowNetwork(
        np.array([2, 0, 1]), np.array([0, 1, 3]), np.array([bad, 1.0, 1.0]), tokens=1, groups=1
    )
    with pytest.raises(RuntimeError, match="capacities must be at least 0"):
        FLOW_ENGINES[engine](network)


@pytest.mark.parametrize("family", DEGENERATE)
def test_both_solvers_at_the_edges(engine: str, family: str) -> None:
    problem = DEGENERATE[family]
    for kind in (MaxFlow, Slackness):
        solution = kind(engine).solve(problem)
        assert solution.guarantee is otlp.Guarantee.OPTIMAL
        assert solution.details["engine"] == engine
        assert solution.acceptance == pytest.approx(brute_force_optimum(problem), abs=1e-9)
        check_solution(solution)


@pytest.mark.parametrize(("k", "n"), [(60, 2), (25, 3), (12, 8)])
def test_larger_networks_reach_the_optimum(engine: str, k: int, n: int) -> None:
    problem = large(k, n)
    for kind in (MaxFlow, Slackness):
        solution = kind(engine).solve(problem)
        assert solution.guarantee is otlp.Guarantee.OPTIMAL
        assert abs(solution.acceptance - otlp.optimal_acceptance(problem)) <= 1e-10
        assert abs(solution.gap) <= 1e-10 and solution.marginal_error <= 1e-12


def test_a_time_limit_is_a_status_and_the_next_solve_works(engine: str) -> None:
    problem = large(30, 3)
    late = MaxFlow(engine, time_limit=1e-3).solve(problem)
    assert late.status is otlp.Status.TIME_LIMIT and late.plan is None
    assert "stopped after 0.001 s" in late.message
    assert MaxFlow(engine, time_limit=60.0).solve(problem).guarantee is otlp.Guarantee.OPTIMAL


def test_a_missing_graph_tool_says_in_one_line_how_it_is_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "graph_tool.flow", None)
    for kind in (MaxFlow, Slackness):
        with pytest.raises(otlp.errors.EngineNotFoundError) as caught:
            kind("graph-tool").solve(DEGENERATE["uniform"])
        printed = str(caught.value)
        assert "\n" not in printed
        for words in ("apt install python3-graph-tool", "--system-site-packages", "conda-forge"):
            assert words in printed


def test_a_graph_tool_that_crashes_where_it_is_loaded_ends_no_other_process(
    tmp_path: Path,
) -> None:
    package = tmp_path / "graph_tool"
    package.mkdir()
    (package / "__init__.py").write_text("import os\nos.abort()\n")
    code = """
import otlp
try:
    problem = otlp.Problem([0.5, 0.5], otlp.Explicit([[0, 1]], [1.0]))
    otlp.solve(problem, "max-flow", engine="graph-tool")
except otlp.errors.EngineNotFoundError as error:
    print(error)
"""
    printed = run_python(code, PYTHONPATH=str(tmp_path))
    assert printed.count("\n") == 1 and "exit status -6" in printed and "'numpy<2'" in printed


def eq_1(problem: otlp.Problem) -> float:
    """Return the optimum of the full program, Eq. 1, with one variable per token and tuple.

    One of the sum constraints follows from the others and could contradict them by rounding: it is
    omitted.
    """
    size, n = problem.vocab_size, problem.n
    tuples = list(product(range(size), repeat=n))
    mass = dict.fromkeys(tuples, 0.0)
    listed = problem.drafts.enumerate_tuples()
    for row, probability in zip(listed.tokens.tolist(), listed.mass.tolist(), strict=True):
        mass[tuple(row)] += probability
    cells = list(product(range(size), tuples))
    sums = np.zeros((size + len(tuples), len(cells)))
    for column, (token, drafted) in enumerate(cells):
        sums[token, column] = sums[size + tuples.index(drafted), column] = 1.0
    likeliest = int(problem.target.argmax())
    found = linprog(
        [-float(token in drafted) for token, drafted in cells],
        A_eq=np.delete(sums, likeliest, axis=0),
        b_eq=np.delete(np.concatenate((problem.target, [*mass.values()])), likeliest),
    )
    assert found.success, found.message
    return -float(found.fun)


def random_problem(seed: int) -> otlp.Problem:
    """Up to four tokens, often with ties, zeros, tiny masses and disjoint supports."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))

    def law() -> np.ndarray:
        weights = [
            lambda: rng.integers(0, 4, size).astype(float),
            lambda: rng.dirichlet(np.full(size, rng.choice([0.05, 0.3, 1.0]))),
            lambda: rng.choice([0.0, 1e-300, 1e-16, 1e-4, 1.0], size),
            lambda: np.eye(size)[rng.integers(size)],
        ][rng.integers(4)]()
        weights = weights if weights.sum() > 0.0 else np.ones(size)
        return weights / weights.sum()

    target, draft, n = law(), law(), int(rng.integers(1, 4))
    kind = rng.integers(5)
    if kind == 0:
        drafts: otlp.DraftScheme = otlp.Independent([draft, *(law() for _ in range(n - 1))])
    elif kind == 1:
        rows = rng.integers(0, size, (int(rng.integers(1, 6)), n))
        drafts = otlp.Explicit(rows, rng.dirichlet(np.ones(len(rows))), vocab_size=size)
    elif kind == 2:
        many = min(n, int(np.count_nonzero(draft)))
        drafts = otlp.WithoutReplacement(draft, many)
    else:
        drafts = otlp.IID(draft, n)
    return otlp.Problem(draft if rng.integers(6) == 0 else target, drafts)


EXACT_TO = {"auto": 1e-6, "orderings": 1e-6, "random-ranks": 1e-6, "random-weights": 1e-6}


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in (1, 2, 3))]
)
def test_all_solvers_and_engines_agree_on_200_random_problems(engine: str, block: int) -> None:
    variants: dict[str, Solver] = {
        f"{kind.name}, {engine}": kind(engine) for kind in (MaxFlow, Slackness)
    }
    if engine == "ortools":
        variants |= {name: make_solver(name) for name in SOLVERS}
    for seed in range(50 * block, 50 * (block + 1)):
        problem = random_problem(seed)
        optimum = eq_1(problem)
        for name, solver in variants.items():
            if not solver.supports(problem):
                continue
            solution = solver.solve(problem)
            where = (seed, name, str(solution))
            if solution.plan is None:
                assert solver.name == "global-resolution", where
                continue
            assert solution.marginal_error <= 1e-9, where
            assert solution.acceptance <= optimum + 1e-8, where
            assert solution.upper_bound >= optimum - 1e-8, where
            if solver.name in exact_solvers():
                assert solution.guarantee is otlp.Guarantee.OPTIMAL, where
                assert solution.acceptance >= optimum - EXACT_TO.get(solver.name, 1e-8), where
