"""Different drafts as an exponential race: how likely all of them have ranks up to a given one.

Give each token an arrival at an exponential time of rate q_i: the first n to arrive are the drafts,
in order.  At a fixed time the arrivals are independent, and so are the tokens' ranks, so what
concerns the drafted set is a coefficient of a product of one factor a token, integrated over the
time of the last arrival.  The likeliest tokens, the heads, are multiplied one by one; of all others
power sums are enough, and these are prefix sums while the rank rises.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.batched.numerics import TINY, looks
from otlp.batched.rows import CHUNK
from otlp.numerics.arrival_times import arrival_times

FIRST, REACH, STEP = -3.5, 36.0, 0.22
"""First node, nodes before the last one, and between two, in x, where t = exp(x - exp(-x))."""

SLICE = 32
"""Nodes at once, at most, but on a CPU: a compiler unrolls the loop over the slices."""

CACHED = 2**16
"""Entries at once on a CPU, at most: a few such arrays stay in its cache."""

EARLY = 1e300
"""Rate of a token that arrives before all others."""

FULL = 700.0
"""Arrivals expected, from which on there is one for certain; exp of it is a number."""


class BatchedRace(NamedTuple):
    """The race of B rows of V tokens.

    Attributes
    ----------
    light : Tensor, shape (B, V), float64
        q; 0 for heads.
    heads : Tensor, shape (B, N - 1), int64
        The likeliest tokens.
    rates : Tensor, shape (B, N - 1), float64
        q of the heads.  A row of n drafts has n - 1 of them, and beside these `EARLY` arrivals of
        no token, whose ranks are the lowest: so every row has N drafts.
    pace : Tensor, shape (B, 1), float64
        No light token is faster.  Odds and chances of an arrival are multiplied by exp(-t)
        of it, and that grows with time only as those that none has fall: no number overflows.
    times, weights : Tensor, shape (B, K), float64
        Nodes of the integral.
    """

    light: Tensor
    heads: Tensor
    rates: Tensor
    pace: Tensor
    times: Tensor
    weights: Tensor


class BatchedRanks(NamedTuple):
    """Laws of random ranks: every token draws its own, and no two tokens share a rank.

    Attributes
    ----------
    token : Tensor, shape (B, S), int64
        Whose rank each is, the lowest first.
    below, share : Tensor, shape (B, S), float64
        How often the token has a lower rank, and this one; the shares of a token sum to one.
        Ranks of share 0 are nobody's.
    """

    token: Tensor
    below: Tensor
    share: Tensor

    def used(self) -> BatchedRanks:
        """Without the last ranks that are nobody's in any row, which waits for the device."""
        some = (self.share > 0.0).any(0)
        count = int((torch.arange(1, len(some) + 1, device=some.device) * some).amax())
        return BatchedRanks(self.token[:, :count], self.below[:, :count], self.share[:, :count])


def alone(draft: Tensor) -> BatchedRanks:
    """One rank for each token that can be drafted, in their order; (B, V)."""
    token = torch.arange(draft.shape[1], device=draft.device).repeat(len(draft), 1)
    return BatchedRanks(token, torch.zeros_like(draft), (draft > 0.0).to(draft))


def start_race(draft: Tensor, n: Tensor, most: int, look: bool) -> BatchedRace:
    """Prepare the race.

    Parameters
    ----------
    draft : Tensor, shape (B, V), float64
        q, of sum one.
    n : Tensor, shape (B, 1), float64
        Number of drafts of each row; without any, a row is like one of one draft.
    most : int
        N >= n.
    look : bool
        Take as few nodes as these rows need, not as many as any may need: for N = 4, 8 to 16 where
        no N - 1 tokens hold most mass, not 165.

    Returns
    -------
    BatchedRace
    """
    count = min(most - 1, draft.shape[1])
    rates, heads = (pad(part, (0, most - 1 - count)) for part in draft.topk(count, dim=1))
    real = torch.arange(most - 1, device=draft.device) < n - 1.0
    light = draft.scatter_add(1, heads, -rates.masked_fill(~real, 0.0))
    rates = rates.masked_fill(~real, EARLY)
    left = light.sum(1, keepdim=True)
    means = torch.cat([left, rates.sort(1).values], 1).cumsum(1)
    means = means / torch.arange(1, most + 1, device=draft.device)
    slowest = left.clamp(min=TINY)
    if look and draft.numel():
        rule = arrival_times(max(1, int(n.min())), float(slowest.min()), most)
        times, weights = (
            torch.from_numpy(part.ravel()).to(left).expand(len(n), -1) for part in rule
        )
    else:
        times, weights = _any_times(slowest, most)
    times = times.minimum(FULL / slowest)
    return BatchedRace(light, heads, rates, means.amin(1, keepdim=True), times, weights)


def _any_times(slowest: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Nodes of the trapezoidal rule in x, as many as any row needs; (B, K) each."""
    last = torch.log((38.0 + most + 9.0 * most**0.5) / slowest)
    first = (last - REACH).clamp(min=FIRST)
    count = math.ceil(REACH / min(STEP, 0.5 * most**-0.5)) + 1
    x = torch.linspace(0.0, 1.0, count, dtype=slowest.dtype, device=slowest.device)
    x = first + (last - first) * x
    times = torch.exp(x - torch.exp(-x))
    return times, (x[:, 1:2] - x[:, :1]) * times * (1.0 + torch.exp(-x))


def within(race: BatchedRace, ranks: BatchedRanks) -> Tensor:
    """Probability that all drafts have ranks up to each of them, for each; shape (B, S).

    Notes
    -----
    What one rank adds is a difference of two results, right to some 1e-16: so far off is
    each token of a distribution.  About 5 N^2 passes over (B, K, S), some nodes at a time.
    """
    most = race.rates.shape[1] + 1
    own, rises = race.light.gather(1, ranks.token), _rises(ranks, most)
    raised = [
        torch.where(rate[:, None] < EARLY, _reached(ranks, head[:, None]), 1.0)
        for head, rate in zip(race.heads.unbind(1), race.rates.unbind(1), strict=True)
    ]
    result = torch.zeros_like(own)[:, None]
    # on a CPU small rows cost calls: as many nodes at once as its cache holds
    room = CACHED if looks(own) else CHUNK
    most_nodes = race.times.shape[1] if looks(own) else SLICE
    size = max(1, min(most_nodes, room // max(1, own.numel())))
    for low in range(0, race.times.shape[1], size):
        times, weights = (part[:, low : low + size, None] for part in (race.times, race.weights))
        fall = torch.exp(-race.pace[..., None] * times)
        count, flow = _light(torch.expm1(own[:, None] * times).mul_(fall), own, rises)
        head_count, head_flow = _heads(race, times, raised)
        last = _product(flow, head_count, most - 1).mul_(fall)
        if most > 1:
            last += _product(count, head_flow, most - 1)
        result += weights.mT @ last
    return result[:, 0]


def best_ranked(race: BatchedRace, ranks: BatchedRanks) -> Tensor:
    """Distribution of the draft of the best rank, (B, V); see `within`."""
    inside = within(race, ranks)
    chance = torch.diff(inside, dim=1, prepend=torch.zeros_like(inside[:, :1]))
    return torch.zeros_like(race.light).scatter_add_(1, ranks.token, chance)


def _reached(ranks: BatchedRanks, token: Tensor) -> Tensor:
    """How much of one token, (B, 1), is below each rank."""
    return ranks.share.masked_fill(ranks.token != token, 0.0).cumsum(1)


def _rises(ranks: BatchedRanks, most: int) -> list[Tensor]:
    """By how much the k-th power of what is below rises at each rank, for k = 1 .. N."""
    upper = ranks.below + ranks.share
    rises, power = [ranks.share], ranks.below
    for _ in range(1, most):
        rises.append(rises[-1] * upper + ranks.share * power)
        power = power * ranks.below
    return [rise[:, None] for rise in rises]


def _light(odds: Tensor, rate: Tensor, rises: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Of the light tokens, by Newton's identities: what `within` multiplies, as polynomials.

    Returns
    -------
    count, flow : list of N Tensors, shape (B, K, S)
        The odds that m arrived, all of ranks below; and the rate at which one more does.
    """
    rate, odds = rate[:, None], -odds
    sums: list[Tensor] = []
    flows, power = [(rate * rises[0]).cumsum(2)], odds
    count, flow = [torch.ones_like(rate)], flows[:]
    for m in range(1, len(rises)):
        if m > 1:
            power = power * odds
        sums.append((power * rises[m - 1]).cumsum(2))
        flows.append((power * (rate * rises[m])).cumsum(2))
        count.append(_product(sums, count, m - 1).mul_(-1.0 / m))
        flow.append(_product(flows, count, m))
    return count, flow


def _heads(
    race: BatchedRace, times: Tensor, raised: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Of the heads, one by one: N and N - 1 coefficients; see `_light`."""
    pace, count = race.pace[..., None], [torch.ones_like(times)]
    flow: list[Tensor] = []
    for h, below in enumerate(raised):
        rate = race.rates[:, h, None, None]
        risen = torch.minimum(rate, pace)
        survival = torch.exp((risen - rate) * times)
        fall = torch.exp((risen - pace) * times)
        factor = [survival, below[:, None] * (-torch.expm1(-rate * times) * fall)]
        now = below[:, None] * (rate * torch.exp(-rate * times) * fall)
        flow = [
            now * count[m] + (_product(flow, factor, m) if flow else 0.0) for m in range(len(count))
        ]
        count = [_product(count, factor, m) for m in range(len(count) + 1)]
    return count, flow


def _product(one: list[Tensor], two: list[Tensor], degree: int) -> Tensor:
    """Coefficient of a product of two polynomials."""
    low, high = max(0, degree + 1 - len(two)), min(degree + 1, len(one))
    result = one[low] * two[degree - low]
    for m in range(low + 1, high):
        result.addcmul_(one[m], two[degree - m])
    return result
