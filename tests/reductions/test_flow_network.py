from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import otlp
from otlp.reductions import MergeTuples, NetworkReduction, PrimalDual, Relaxation
from otlp.reductions.flow_network import minimum_cut, tokens_beyond_cut
from otlp.solvers.engines import ortools
from tests.instances import DEGENERATE, brute_force_optimum, problems


@settings(max_examples=60)
@given(problem=problems())
def test_arcs_are_those_of_the_paper(problem: otlp.Problem) -> None:
    relaxed, _ = MergeTuples().apply(problem)
    network, _ = NetworkReduction().apply(relaxed)
    tokens, groups = network.tokens, network.groups
    arcs = list(
        zip(
            network.tails.tolist(), network.heads.tolist(), network.capacities.tolist(), strict=True
        )
    )
    assert len(set((a, b) for a, b, _ in arcs)) == len(arcs)
    sources, middle, sinks = (arcs[:tokens], arcs[network.middle], arcs[network.middle.stop :])
    assert sources == [(network.source, i, p) for i, p in enumerate(problem.target.tolist())]
    assert sinks == [
        (tokens + j, network.sink, mass) for j, mass in enumerate(relaxed.groups.mass.tolist())
    ]
    drafted = {
        (i, tokens + relaxed.groups.find(np.array(row)))
        for row in problem.drafts.enumerate_tuples().tokens.tolist()
        for i in row
    }
    assert {(a, b) for a, b, _ in middle} == drafted
    assert len(sinks) == groups
    # An arc that the paper leaves unbounded may carry what its token or its group can.
    assert all(c == min(sources[a][2], sinks[b - tokens][2]) for a, b, c in middle)


@settings(max_examples=60)
@given(problem=problems())
def test_the_cut_proves_the_flow_optimal(problem: otlp.Problem) -> None:
    for reduction in (MergeTuples(), Relaxation()):
        relaxed, _ = reduction.apply(problem)
        network, inverse = NetworkReduction().apply(relaxed)
        answer = PrimalDual(ortools.max_flow(network))
        flow, subset = NetworkReduction().invert(answer, inverse)
        assert abs(relaxed.dual_value(subset) - problem.dual_value(subset)) <= 1e-12
        bound = problem.dual_value(subset)
        assert abs(bound - flow.sum()) <= 1e-12
        assert abs(bound - brute_force_optimum(problem)) <= 1e-12


def test_a_cut_tells_a_token_that_could_give_more() -> None:
    problem = otlp.Problem([0.5, 0.5], otlp.Explicit([[0], [1]], [0.2, 0.8]))
    relaxed, _ = MergeTuples().apply(problem)
    optimal = tokens_beyond_cut(relaxed, np.array([0.2, 0.5]), 1e-15)
    assert optimal.tolist() == [False, True]
    assert problem.dual_value(optimal) == 0.7
    # Token 1 has 0.1 left, so nothing is beyond the cut, and the bound does not meet the flow.
    assert not tokens_beyond_cut(relaxed, np.array([0.2, 0.4]), 1e-15).any()


def test_a_cut_survives_rounding() -> None:
    """Where rounding leaves room in a full token, a larger tolerance finds the proof."""
    problem = DEGENERATE["one draft"]
    relaxed, _ = MergeTuples().apply(problem)
    exact = np.minimum(problem.target, problem.drafts.mean_draft)
    assert problem.dual_value(minimum_cut(relaxed, exact - 3e-14)) == 0.6
    assert problem.dual_value(tokens_beyond_cut(relaxed, exact - 3e-14, 1e-15)) == 1.0
