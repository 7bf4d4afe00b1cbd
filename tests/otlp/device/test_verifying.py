"""Verification on the device: both verifiers make the decisions of the reference rule."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")

from otlp.decode import prefix_tree  # noqa: E402
from otlp.decode.verification.tournament import ELIMINATED, Branch, NodeState  # noqa: E402
from otlp.device import verify_on_cpu, verify_on_device  # noqa: E402
from otlp.device.tournament_kernel import BLOCK, draw  # noqa: E402
from otlp.distribution import invert_cdf  # noqa: E402
from otlp.errors import InvalidInputError, OTLPError  # noqa: E402
from otlp.numerics.positive_part import positive_part  # noqa: E402
from otlp.numerics.score_chains import drawn, root_score  # noqa: E402
from tests.otlp.device.loops import PROMPTS, numbers, pair, uncompiled, verifiers  # noqa: E402


def by_slot(rows, branching: tuple[int, ...]):
    """Convert one row per level, (B, l, V), to rows of the slots of a tree, level by level."""
    widths = list(accumulate(branching, mul, initial=1))[: rows.shape[1]]
    return torch.cat([rows[:, [at]].expand(-1, width, -1) for at, width in enumerate(widths)], 1)


def references(branching: tuple[int, ...], p: Any, q: Any, tokens: Any, uniform: Any) -> Any:
    """Return the result of `reference` for each row."""
    wide = [(rows.double() / rows.double().sum(-1, keepdim=True)).numpy() for rows in (p, q)]
    for parts in zip(*wide, tokens.numpy(), uniform.numpy(), strict=True):
        yield reference(branching, *parts)


def reference(branching, p, q, tokens, uniform) -> tuple[list[int], int, int]:
    """Return path slots, accepted count and token, computed with the parts of `Tournament`."""
    parents, length = prefix_tree(branching).shape, len(branching)
    states, branches = [NodeState(root_score(), 1.0)], {}
    for slot, parent in enumerate(parents[1:], start=1):
        state, children = states[parent], parents.count(parent)
        if state.score is None:
            states.append(ELIMINATED)
            continue
        if parent not in branches:
            branches[parent] = Branch(state, p[parent], (), (), q[parent], children, 0)
        states.append(branches[parent].child(int(tokens[slot - 1]), False, False))
    leaves = prod(branching)
    scoring = uniform[-length - 2 - leaves :]
    places = [-np.inf if state.score is None else drawn(state.score, scoring[leaf])
              for leaf, state in enumerate(states[-leaves:])]  # fmt: skip
    path = [len(parents) - leaves + int(np.argmax(places))]
    while path[0]:
        path.insert(0, parents[path[0]])
    for at in range(length, -1, -1):
        slot, number = path[at], uniform[at - length - 2]
        weight = states[slot].weight
        if at == length:
            left, stop = p[slot], weight
        else:
            left, total = positive_part(weight, p[slot], 1.0, branches[slot].distribution())
            stop = total / (total + (1.0 - weight)) if total > 0.0 else 0.0
        if at == 0 or number < stop:
            left = left if left.sum() > 0.0 else p[slot]
            return path[1:], at, int(invert_cdf(np.cumsum(left), uniform[-1]))
    raise AssertionError


@pytest.mark.parametrize("branching", [(1, 1, 1), (3, 1), (4, 1, 1, 1)])
def test_both_verifiers_decide_alike(branching: tuple[int, ...]) -> None:
    models, texts = pair(), []
    for verify in verifiers(branching):
        loop = uncompiled(*models, branching=branching, verify=verify)
        texts.append(loop.decode(PROMPTS, 40, numbers(loop, 3, 5)).texts)
    assert all((one == other).all() for one, other in zip(*texts, strict=True))


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("vocab", [3, 700])
@pytest.mark.parametrize("branching", [(1, 1, 1), (3, 1, 1), (2, 2), (3, 1, 2)])
def test_rows_are_taken_as_stored(branching: tuple[int, ...], vocab: int, kind: str) -> None:
    """Sums that differ from 1, tokens of draft or target probability 0, the same law twice."""
    rng = np.random.default_rng(8)
    batch, length = 64, len(branching)
    p, q = (
        torch.from_numpy(rng.dirichlet(np.full(vocab, 0.5), (batch, levels)))
        for levels in (length + 1, length)
    )
    p[..., ::5], q[..., 2::5] = 0.0, 0.0
    q[:8], p[8:16] = p[:8, :length], p[8:16, :1]
    p, q = (by_slot((rows * 1.001).to(getattr(torch, kind)), branching) for rows in (p, q))
    above = q[:, torch.tensor(prefix_tree(branching).shape[1:])]
    seeded = torch.Generator().manual_seed(8)
    drafted = torch.multinomial(above.flatten(0, 1).float(), 1, generator=seeded).view(batch, -1)
    uniform = torch.from_numpy(rng.random((batch, prod(branching) + length + 2)))
    given = p, q, drafted, uniform
    found = verify_on_cpu(branching, *given)
    for row, (slots, accepted, token) in enumerate(references(branching, *given)):
        kept = [int(drafted[row, slot - 1]) for slot in slots[:accepted]]
        assert found.tokens[row].tolist() == [*kept, token, *[-1] * (length - accepted)]
        assert found.path[row].tolist() == [*slots[:accepted], *[-1] * (length - accepted)]
    assert {0, length} <= set(found.accepted.tolist())


def test_trees_are_verified_on_a_cpu_alone() -> None:
    model = torch.tensor([0.5, 0.3, 0.2])
    given = model.expand(1, 7, 3), model.expand(1, 3, 3), torch.tensor([[0, 1, 0, 2, 1, 1]])
    with pytest.raises(InvalidInputError, match=r"branching must be .* on a CPU, .*, got \(2, 2\)"):
        verify_on_device((2, 2), *given, torch.full((1, 8), 0.5).double())


def test_a_draw_steps_over_blocks() -> None:
    weights = np.zeros(3 * BLOCK + 5)
    weights[[1, BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 7]] = 1.0, 2.0, 1.0, 4.0
    reached = [draw(weights, uniform / 16.0) for uniform in (0, 1, 2, 5, 6, 7, 8, 15)]
    assert reached == [1, 1, BLOCK - 1, BLOCK - 1, *[2 * BLOCK] * 2, *[2 * BLOCK + 7] * 2]
    assert draw(weights, 1.0) == 2 * BLOCK + 7  # as rounding may cause


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("target", lambda rows: rows[:, :-1]),
        ("draft", lambda rows: rows[:, :-1]),
        ("draft", lambda rows: rows[..., :-1]),
        ("tokens", lambda rows: rows.int()),
        ("tokens", lambda rows: rows + 3),
        ("tokens", lambda rows: rows - 3),
        ("tokens", lambda rows: rows.repeat(2, 1)),
        ("numbers", lambda rows: rows[:, :5]),
        ("numbers", lambda rows: rows.float()),
    ],
)
def test_verification_reads_no_other_memory(name: str, change: Any) -> None:
    """The kernel does not check shapes or bounds."""
    law = torch.tensor([0.5, 0.3, 0.2])
    parts = {
        "target": law.repeat(1, 7, 1), "draft": law.repeat(1, 3, 1),
        "tokens": torch.tensor([[0, 1, 0, 2, 1, 1]]), "numbers": torch.full((1, 8), 0.5).double(),
    }  # fmt: skip
    assert verify_on_cpu((2, 2), **parts).accepted.tolist() == [2]
    with pytest.raises(OTLPError, match=r"must (be|lie|have)"):
        verify_on_cpu((2, 2), **parts | {name: change(parts[name])})


def played_alike(branching: tuple[int, ...], texts: int, rounds: int) -> None:
    """Check every verification of the rounds of some texts, for both verifiers."""
    played = 0

    def checking(p, q, tokens, uniform):
        nonlocal played
        given = p, q, tokens, uniform
        found, *there = (verify(*given) for verify in verifiers(branching))
        for row, (slots, accepted, token) in enumerate(references(branching, *given)):
            kept = tokens[row, torch.tensor(slots[:accepted], dtype=torch.long) - 1]
            assert found.path[row, :accepted].tolist() == slots[:accepted]
            for one in (found, *there):
                assert int(one.accepted[row]) == accepted
                assert int(one.tokens[row, accepted]) == token
                assert (one.tokens[row, :accepted] == kept).all()
            played += 1
        return found

    loop = uncompiled(*pair(), branching=branching, verify=checking)
    source = numbers(loop, texts, 9)
    while played < texts * rounds:
        loop.decode([[one % 64] for one in range(texts)], 60, source)


@pytest.mark.parametrize("branching", [(2, 2), (1, 3, 2)])
def test_rounds_of_the_reference_on_trees(branching: tuple[int, ...]) -> None:
    played_alike(branching, 10, 10)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("branching", [(1, 1), (3, 1), (3, 2, 1)])
def test_ten_thousand_rounds_of_the_reference(branching: tuple[int, ...]) -> None:
    played_alike(branching, 100, 100)
