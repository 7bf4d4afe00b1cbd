"""Rounds over models given as tables, enumerated: all drafted paths, all lengths, all tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otlp.batched.block import stops
from otlp.batched.paths import path_laws, residuals
from otlp.batched.two_slice import BatchedScoreLaw
from otlp.decode import TabularModel
from otlp.decode.laws.round_laws import RoundLaw, Tally
from otlp.decode.verification.tournament import Draws, NodeState
from otlp.numerics.score_chains import Score, powered, root_score, slices
from tests.otlp.decode.tabular_rounds import Pair, assert_law_of


def known_of_the_cpu(pair: Pair, path: Sequence[int], paths: int) -> tuple[NodeState, float]:
    """What the compiled rule knows of a path, and Gamma / Q there."""
    known, gain = NodeState(powered(root_score(), 1.0 / paths), 1.0), 1.0
    for depth, token in enumerate(path):
        q, p = (model.distribution(path[:depth]) for model in pair)
        assert known.score is not None
        draws = Draws(known.score, 1.0, known.weight, p, q)
        known, gain = draws.child(token), gain * float(draws.masses()[token] / q[token])
    return known, gain


def below(score: Score, place: float) -> float:
    """The compiled rule's distribution function of a score, at a place in logarithms."""
    if place <= score.edges[0]:
        return float(np.exp(score.left[-1, 0]))
    cell = int(np.searchsorted(score.edges[1:-1], place, side="right"))
    edge = score.edges[cell]
    with np.errstate(divide="ignore"):
        offset = place if edge == -np.inf else edge + np.log(np.expm1(place - edge))
    return float(slices(score, cell, offset)[0])


def dirichlet_pair(seed: int, vocab: int, length: int) -> Pair:
    """Models for rounds of so many drafted tokens."""
    rng = np.random.default_rng(seed)
    both = [rng.dirichlet(np.full(vocab, 0.7), (vocab,) * t + (2,)) for t in range(length + 1)]
    target, draft = (TabularModel([rows[..., one, :] for rows in both]) for one in range(2))
    return draft, target


def along(model: TabularModel, paths: np.ndarray, levels: int) -> Tensor:
    """Distributions along paths of shape (B, K, L): (B, K, levels, V)."""
    shape = (*paths.shape[:2], model.vocab_size)
    prefixes = [tuple(np.moveaxis(paths[..., :level], -1, 0)) for level in range(levels)]
    rows = [table[prefix] for table, prefix in zip(model.tables, prefixes, strict=False)]
    return torch.from_numpy(np.stack([np.broadcast_to(row, shape) for row in rows], 2))


def given(pair: Pair, paths: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """What verifiers of paths take: target, draft and tokens."""
    length = paths.shape[2]
    return along(pair[1], paths, length + 1), along(pair[0], paths, length), torch.tensor(paths)


def distribution(edges, density, grid):
    return (density * np.clip(grid[:, None] - edges[:-1], 0.0, np.diff(edges))).sum(1)


class Rounds(NamedTuple):
    """What a round of K paths does on every path that can be drafted, N of them."""

    pair: Pair
    given: tuple[Tensor, Tensor, Tensor]
    """A row for each path, of which there are K copies."""
    paths: np.ndarray
    mass: np.ndarray
    """Q of each."""
    leaves: BatchedScoreLaw
    stop: Tensor
    """Probability of accepting the prefix of each length, given that no longer one is."""
    residual: Tensor
    """Weights of the token that follows each prefix, if it is the longest accepted."""


def enumerate_round(pair: Pair, length: int, paths: int) -> Rounds:
    """The laws of every path, from the functions that the sampler uses."""
    chances = pair[0].joint(length)
    every = np.argwhere(chances > 0.0)
    rows = given(pair, every[:, None].repeat(paths, 1))
    leaves, splits, weights = path_laws(*rows)
    leaves, *splits = (type(one)(*(part[::paths] for part in one)) for one in (leaves, *splits))
    p, q, weights = rows[0][:, 0], rows[1][:, 0], weights[::paths]
    left = residuals(p, q, splits, weights)
    stop = stops(left.sum(2), weights)
    # a prefix without residual is the longest accepted by rounding only
    left = torch.where(left.sum(2, keepdim=True) > 0, left, p[:, :-1])
    residual = torch.cat([left, p[:, -1:]], 1)
    return Rounds(pair, rows, every, chances[chances > 0.0], leaves, stop, residual)


def checked_law(rounds: Rounds) -> RoundLaw:
    """Law of a round, continued by the target, which must be the target's."""
    (_, length), paths = rounds.paths.shape, rounds.given[2].shape[1]
    edges, density = rounds.leaves.edges.numpy(), rounds.leaves.density.numpy()
    # the leaf laws mix to the uniform law, so the largest of K scores selects with W = K u^(K-1)
    grid = np.unique(edges)
    each = [distribution(*law, grid) for law in zip(edges, density, strict=True)]
    assert np.abs(rounds.mass @ each - grid).max() < 1e-12
    gain = (density * np.diff(edges**paths)).sum(1)
    assert (rounds.mass * np.abs(gain - rounds.leaves.gain[:, 0].numpy())).max() < 1e-12
    tally = Tally(rounds.pair[1], length)
    stop, residual = rounds.stop.numpy(), rounds.residual.numpy()
    going = rounds.mass * gain
    for level in range(length, -1, -1):
        for path, mass, left in zip(
            rounds.paths, going * stop[:, level], residual[:, level], strict=True
        ):
            tally.add(path[:level].tolist(), mass, left / left.sum())
        going = going * (1.0 - stop[:, level])
    assert_law_of(rounds.pair[1], tally.law)
    return tally.law


def check_decisions(rounds: Rounds, verify: Callable, margin: float = 1e-12) -> None:
    """Decisions turn where the law says, up to a margin: each number just below, and just above.

    At every level that is reached, and only one number decides at a time.  What is accepted falls
    with its number, and the token rises, so nothing else can happen between these places.
    """
    length, paths = rounds.paths.shape[1], rounds.given[2].shape[1]
    stop, residual = rounds.stop, rounds.residual
    ends = residual.cumsum(2) / residual.sum(2, keepdim=True)
    rejected = (1.0 - stop).flip(1).cumprod(1).flip(1)[:, 1:]
    reached = torch.nn.functional.pad(rejected, (0, 1), value=1.0) > margin
    # scores, one number for each prefix, which no prefix passes, and one for the token
    never = torch.cat([torch.full((paths,), 0.5), torch.ones(length + 2)]).double()
    row, numbers, wanted = [], [], []

    def ask(path: int, places: dict[int, float], accepted: int, token: int) -> None:
        row.append(path)
        numbers.append(never.clone())
        numbers[-1][list(places)] = torch.tensor(list(places.values()), dtype=torch.float64)
        wanted.append((accepted, token))

    for path, level in reached.nonzero().tolist():
        turn = float(stop[path, level])
        for place, taken in ((turn - margin, level), (turn + margin, 0)):
            if 0.0 <= place and level > 0:
                ask(path, {paths + level: place}, taken, -1)
        if turn <= margin:
            continue
        start = 0.0
        for token, end in enumerate(ends[path, level].tolist()):
            for place in (start + margin, end - margin) if end - start > 2 * margin else ():
                ask(path, {paths + level: 0.0, -1: place}, level, token)
            start = end
    tokens, accepted, _ = verify(*(part[row] for part in rounds.given), torch.stack(numbers))
    last = tokens.gather(1, accepted[:, None])[:, 0]
    for taken, token, (level, x) in zip(accepted.tolist(), last.tolist(), wanted, strict=True):
        assert taken == level
        assert x in (-1, token)
