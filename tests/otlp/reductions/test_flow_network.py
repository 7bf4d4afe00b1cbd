from __future__ import annotations

import numpy as np
from hypothesis import given

import otlp
from otlp.reductions import MergeTuples, NetworkReduction
from tests.examples import examples
from tests.instances import problems


@examples(25)
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
    # Arcs unbounded in the paper have the capacity of their token or group.
    assert all(c == min(sources[a][2], sinks[b - tokens][2]) for a, b, c in middle)
