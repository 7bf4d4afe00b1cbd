"""Rounds over models given as tables, enumerated: all drafted paths, all lengths, all tokens."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otlp.batched.paths import accept_block, block_weights, path_laws
from otlp.batched.two_slice import BatchedScoreLaw, TwoSlice
from otlp.decode.verification.tournament import Draws, NodeState
from otlp.numerics.score_chains import Score, powered, root_score, slices


def prefixes(vocab: int, length: int):
    return [x for level in range(length) for x in product(range(vocab), repeat=level)]


def laws_of_the_cpu(
    p, q, paths: int, length: int
) -> dict[tuple[int, ...], tuple[NodeState, float]]:
    """What the compiled rule knows of every prefix, and Gamma / Q there."""
    nodes = {(): (NodeState(powered(root_score(), 1.0 / paths), 1.0), 1.0)}
    for prefix in prefixes(len(p[()]), length):
        known, gain = nodes.get(prefix, (None, 0.0))
        if known is not None and known.score is not None:
            draws = Draws(known.score, 1.0, known.weight, p[prefix], q[prefix])
            gamma = draws.masses()
            for x in np.flatnonzero(q[prefix]).tolist():
                nodes[(*prefix, x)] = draws.child(x), gain * float(gamma[x] / q[prefix][x])
    return nodes


def below(score: Score, place: float) -> float:
    """The compiled rule's distribution function of a score, at a place in logarithms."""
    if place <= score.edges[0]:
        return float(np.exp(score.left[-1, 0]))
    cell = int(np.searchsorted(score.edges[1:-1], place, side="right"))
    edge = score.edges[cell]
    with np.errstate(divide="ignore"):
        offset = place if edge == -np.inf else edge + np.log(np.expm1(place - edge))
    return float(slices(score, cell, offset)[0])


def tabular(seed: int, vocab: int, length: int, kind: str):
    """Laws after every prefix of at most `length` tokens."""
    rng = np.random.default_rng(seed)
    p, q = {}, {}
    for prefix in [*prefixes(vocab, length), *product(range(vocab), repeat=length)]:
        p[prefix], q[prefix] = rng.dirichlet(np.full(vocab, 0.7), size=2)
        if kind == "equal":
            p[prefix] = q[prefix]
        if kind == "masked":
            p[prefix][rng.integers(vocab)] = 0.0
            q[prefix][rng.integers(vocab)] = 0.0
            p[prefix], q[prefix] = p[prefix] / p[prefix].sum(), q[prefix] / q[prefix].sum()
        if kind == "disjoint":
            p[prefix][0] = 0.0
            q[prefix] = np.eye(vocab)[0]
            p[prefix] /= p[prefix].sum()
    return p, q


def tensors(p, q, paths: np.ndarray, length: int, dtype=torch.float64):
    """Rows along each path; paths has shape (B, K, L)."""
    target = [[[p[tuple(x[:i])] for i in range(length + 1)] for x in row] for row in paths]
    draft = [[[q[tuple(x[:i])] for i in range(length)] for x in row] for row in paths]
    return (
        torch.tensor(np.array(target), dtype=dtype),
        torch.tensor(np.array(draft), dtype=dtype),
        torch.tensor(paths),
    )


def possible(q, vocab: int, length: int) -> np.ndarray:
    paths = [
        x
        for x in product(range(vocab), repeat=length)
        if all(q[x[:i]][x[i]] > 0 for i in range(length))
    ]
    return np.array(paths)[:, None]


def distribution(edges, density, grid):
    return (density * np.clip(grid[:, None] - edges[:-1], 0.0, np.diff(edges))).sum(1)


class Rounds(NamedTuple):
    """What a round does on every path that can be drafted, N of them."""

    paths: np.ndarray
    mass: np.ndarray
    """Q of each."""
    leaves: BatchedScoreLaw
    splits: list[TwoSlice]
    weights: Tensor
    p: Tensor
    q: Tensor


def enumerate_round(p, q, vocab: int, length: int, paths: int, dtype=torch.float64) -> Rounds:
    """The laws of every path, from the functions that the sampler uses."""
    every = possible(q, vocab, length)
    target, draft, tokens = tensors(p, q, every, length, dtype)
    wide = [part.repeat_interleave(paths, 1) for part in (target, draft)]
    wide = [part.double() / part.double().sum(-1, keepdim=True) for part in wide]
    leaves, splits, weights = path_laws(*wide, tokens.repeat_interleave(paths, 1))
    first = slice(None, None, paths)
    leaves = type(leaves)(*(part[first] for part in leaves))
    splits = [TwoSlice(*(part[first] for part in split)) for split in splits]
    p, q = (part[:, 0] for part in wide)
    mass = q.gather(2, tokens[:, 0, :, None])[..., 0].prod(1)
    return Rounds(every[:, 0], mass.numpy(), leaves, splits, weights[first], p, q)


def check_law(rounds: Rounds, paths: int) -> None:
    """Output of a round, continued by the target, against the target: all sequences of L + 1."""
    every, mass, leaves, splits, weights, target, draft = rounds
    _, length, vocab = draft.shape
    # the leaf laws mix to the uniform law, so the largest of K scores selects with W = K u^(K-1)
    edges = leaves.edges.numpy()
    grid = np.unique(edges)
    mixed = sum(
        m * distribution(e, d, grid)
        for m, e, d in zip(mass, edges, leaves.density.numpy(), strict=True)
    )
    assert np.abs(mixed - grid).max() < 1e-12
    powers = edges[:, 1:] ** paths - edges[:, :-1] ** paths
    gain = (leaves.density.numpy() * powers).sum(1)
    assert (mass * np.abs(gain - leaves.gain[:, 0].numpy())).max() < 1e-12
    gamma = mass * gain
    assert abs(gamma.sum() - 1.0) < 1e-10

    exact = {}
    for j, path in enumerate(every):
        for i in range(length + 1):
            exact[tuple(path[:i])] = target[j, i].numpy()
    stop, residual = (part.numpy() for part in block_weights(target, draft, splits, weights))
    begun = {}  # law of (accepted prefix, next token)
    for j, path in enumerate(every):
        reject = 1.0
        for i in range(length, -1, -1):
            follow = residual[j, i] / residual[j, i].sum() if residual[j, i].sum() > 0 else 0.0
            added = gamma[j] * reject * stop[j, i] * follow
            key = tuple(path[:i])
            begun[key] = begun.get(key, 0.0) + added
            reject *= 1.0 - stop[j, i]
        assert abs(reject) < 1e-12
    # P(output starts with s) must be the target's P(s), where the output goes on as the target
    for depth in range(1, length + 2):
        for s in product(range(vocab), repeat=depth):
            law = probability(exact, s, 0)
            if law is None:
                continue
            total = sum(
                row[s[len(key)]] * probability(exact, s, len(key) + 1)
                for key, row in begun.items()
                if len(key) < depth and key == s[: len(key)] and np.ndim(row)
            ) + sum(
                np.sum(row) for key, row in begun.items() if len(key) >= depth and key[:depth] == s
            )
            assert abs(total - law) < 1e-10


def probability(exact, s, start: int):
    """Target probability of s[start:] after s[:start]; None if it leaves the drafted prefixes."""
    value = 1.0
    for i in range(start, len(s)):
        if s[:i] not in exact:
            return None if start == 0 else 1.0
        value *= exact[s[:i]][s[i]]
    return value


def check_decisions(rounds: Rounds, margin: float = 1e-12) -> None:
    """Decisions turn where the law says, up to a margin: each number just below, and just above.

    Only one number decides at a time.  What is accepted falls with its number, and the token
    rises, so nothing else can happen between these places.
    """
    _, _, _, splits, weights, p, q = rounds
    count, length, vocab = q.shape
    stop, residual = block_weights(p, q, splits, weights)
    ends = residual.cumsum(2) / residual.sum(2, keepdim=True)
    path, numbers, wanted = [], [], []
    for j, level in product(range(count), range(length + 1)):
        never = torch.ones(length + 2, dtype=torch.float64)
        for number, taken in ((stop[j, level] - margin, level), (stop[j, level] + margin, 0)):
            if 0.0 <= number and level > 0:
                path.append(j)
                numbers.append(never.index_fill(0, torch.tensor(level), float(number)))
                wanted.append((taken, -1))
        if stop[j, level] <= margin:
            continue
        start = 0.0
        for token in range(vocab):
            end = float(ends[j, level, token])
            for number in (start + margin, end - margin) if end - start > 2 * margin else ():
                path.append(j)
                numbers.append(never.index_fill(0, torch.tensor(level), 0.0))
                numbers[-1][-1] = number
                wanted.append((level, token))
            start = end
    chosen = [TwoSlice(*(part[path] for part in split)) for split in splits]
    accepted, last = accept_block(p[path], q[path], chosen, weights[path], torch.stack(numbers))
    for taken, token, (level, x) in zip(accepted.tolist(), last.tolist(), wanted, strict=True):
        assert taken == level
        assert x in (-1, token)
