"""Different drafts as alarm clocks: which one has the largest of independent scores, exactly.

Give each token a clock that rings at an exponential time of rate q_i: the first n to ring are the
drafts, in order.  At a fixed time the clocks are independent, so what concerns the drafted set is
a coefficient of a product of one factor a token, integrated over the time of the last ring.  The
likeliest tokens, the heads, are multiplied one by one; of all others power sums are enough, and
as their factors are smooth functions of q, those are sums of a few polynomials in q.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.batched.numerics import TINY, looks

HEADS = 2
"""Tokens a draft that are multiplied one by one.

All clocks but these have hardly begun to ring, whenever the last draft rings.
"""

DEGREES = 14
"""Polynomials in q that the factors of the other tokens are made of, to rounding."""

FIRST = -3.5
"""No draft rings before the first node, exp(x - exp(-x)) for this x."""

REACH = 41.0
"""In log time: earlier than this before the last node, the last draft rings as good as never."""

STEP = 0.2
"""Between nodes in x, for up to five drafts."""

NODES = 64
"""About so many there are for most rows; over 200 where values cannot be looked at."""

SLICE = 32
"""Nodes that the prefix sums over the vocabulary are worked out for at once."""


class DraftClocks(NamedTuple):
    """The clocks of B rows of V tokens.

    Attributes
    ----------
    light : Tensor, shape (B, V), float64
        q; 0 for heads.
    features : Tensor, shape (B, V, R), float64
        Of the tokens that are no heads: q times Chebyshev's polynomials in q.
    points : Tensor, shape (B, R), float64
        The values of q that interpolate.
    heads : Tensor, shape (B, H), int64
    rates : Tensor, shape (B, H), float64
        q of the heads.
    times, weights : Tensor, shape (B, K), float64
        Nodes of the integral; weights times the chance that no clock but the heads' has rung.
    slowest : Tensor, shape (B, 1), float64
        Rate of what is left when all but one of the drafts have rung, at least.
    missing : Tensor, shape (B, 1), int64
        N - n.
    most : int
        N.
    """

    light: Tensor
    features: Tensor
    points: Tensor
    heads: Tensor
    rates: Tensor
    times: Tensor
    weights: Tensor
    slowest: Tensor
    missing: Tensor
    most: int


def set_clocks(draft: Tensor, n: Tensor, most: int) -> DraftClocks:
    """Prepare the clocks.

    Parameters
    ----------
    draft : Tensor, shape (B, V), float64
        q, of sum one.
    n : Tensor, shape (B, 1), float64
        Number of drafts of each row.
    most : int
        N >= n.

    Returns
    -------
    DraftClocks
        Some `DEGREES` passes over (B, V).
    """
    rates, heads = draft.topk(min(HEADS * most, draft.shape[1]), dim=1)
    light = draft.scatter(1, heads, 0.0)
    tail = light.sum(1, keepdim=True)
    # until n clocks have rung, what is left rings at this rate at least
    places = torch.arange(rates.shape[1], device=draft.device)
    slowest = tail + rates.masked_fill(places < n - 1.0, 0.0).sum(1, keepdim=True)
    slowest = slowest.clamp(min=TINY)
    times, weights = _nodes(slowest, most)
    widest = light.amax(1, keepdim=True).clamp(min=TINY)
    angles = (torch.arange(DEGREES, dtype=draft.dtype, device=draft.device) + 0.5) / DEGREES
    points = 0.5 * widest * (1.0 + torch.cos(torch.pi * angles))
    place = (2.0 * light / widest - 1.0).clamp(max=1.0)
    polynomials = [light, light * place]
    for _ in range(2, DEGREES):
        polynomials.append(2.0 * place * polynomials[-1] - polynomials[-2])
    return DraftClocks(
        light,
        torch.stack(polynomials, 2),
        points,
        heads,
        rates,
        times,
        weights * torch.exp(-tail * times),
        slowest,
        (most - n).long(),
        most,
    )


def _nodes(slowest: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Times and weights of the trapezoidal rule in x, where t = exp(x - exp(-x)).

    As many as the widest row needs, or, where values cannot be looked at, as any row may need.
    """
    last = torch.log((38.0 + most + 9.0 * most**0.5) / slowest)
    first = (last - REACH).clamp(min=FIRST)
    step = min(STEP, 0.5 * most**-0.5)
    length = float((last - first).max()) if looks(slowest) and slowest.numel() else REACH
    count = int(np.ceil(length / step)) + 1
    x = torch.linspace(0.0, 1.0, count, dtype=slowest.dtype, device=slowest.device)
    x = first + (last - first) * x
    times = torch.exp(x - torch.exp(-x))
    return times, (x[:, 1:2] - x[:, :1]) * times * (1.0 + torch.exp(-x))


def within(clocks: DraftClocks) -> Tensor:
    """Probability that all drafts are among the first k tokens, for each k; shape (B, V).

    Notes
    -----
    The others are touched when one of them rings before n of the first k have, a sum over how many
    have; compared with a clock of the rate `slowest` before which they would ring, as early times
    have no nodes.  O(N V) a node.
    """
    batch, size = clocks.light.shape
    most, heads = clocks.most, clocks.heads.shape[1]
    places, which = clocks.heads.sort(1)
    rates = clocks.rates.gather(1, which)
    passed = torch.zeros_like(clocks.heads[:, :1]).expand(batch, size).clone()
    passed = passed.scatter_(1, places, 1).cumsum_(1)
    draft = clocks.light.scatter(1, clocks.heads, clocks.rates)
    outside = pad(draft.flip(1).cumsum(1).flip(1)[:, 1:], (0, 1))
    tail = clocks.light.sum(1)[:, None, None]
    compared = (outside + clocks.slowest)[:, None]
    unrung = 1.0 / compared[:, 0]
    for low in range(0, clocks.times.shape[1], SLICE):
        some_nodes = slice(low, low + SLICE)
        times, weights = clocks.times[:, some_nodes, None], clocks.weights[:, some_nodes, None]
        silent, rung = torch.exp(-rates[:, None] * times), -torch.expm1(-rates[:, None] * times)
        later = pad(rates.flip(1).cumsum(1).flip(1), (0, 1))
        # chances of the first heads to have rung m times, by m, while no later head has
        count = [(clocks.missing == m).double()[:, None].expand(weights.shape) for m in range(most)]
        after = [count]
        for h in range(heads):
            no, yes = silent[..., h : h + 1], rung[..., h : h + 1]
            count = [
                no * now + yes * one
                for now, one in zip(count, [torch.zeros_like(no), *count], strict=False)
            ]
            after.append(count)
        held = torch.exp(-later[:, None] * times) * weights
        unrung -= (torch.exp((tail - compared) * times) * weights).sum(1)
        odds = torch.expm1(clocks.light[:, None] * times)
        some, index = torch.ones_like(odds), passed[:, None].expand(odds.shape)
        for m in range(most):
            upto = torch.cat([torch.stack(each[: most - m]).sum(0) for each in after], 2)
            unrung += (some * (upto * held).gather(2, index)).sum(1)
            if m + 1 < most:
                some = (odds * (pad(some[..., :-1], (1, 0)) if m else 1.0)).cumsum(2)
    return 1.0 - (outside * unrung).clamp(0.0, 1.0)


def best_scored(clocks: DraftClocks, mass: Tensor, below: Tensor) -> Tensor:
    """Distribution of the draft with the largest score.

    Parameters
    ----------
    clocks : DraftClocks
    mass, below : Tensor, shape (B, V, U), float64
        Probability that a token's score is at each of U bars, and that it lies below.  A score
        that is uniform in a cell is at the nodes of Gauss's rule with N / 2 nodes or more.

    Returns
    -------
    Tensor, shape (B, V), float64
        2 N products of V by U by `DEGREES`.
    """
    most, times, weights = clocks.most, clocks.times[:, None], clocks.weights[:, None]
    fit = _fit(clocks)
    rung = torch.expm1(clocks.points[..., None] * times)
    speed = rung / clocks.points[..., None].clamp(min=TINY)
    (count, rate), heads = _heads(clocks, mass, below, _others(clocks, below, fit, rung, speed))
    result, power, factor = torch.zeros_like(clocks.light), mass, weights
    for m in range(most):
        c, r = count[:, most - 1 - m].mT, rate[:, most - 1 - m].mT
        table = (fit @ ((factor * (m + 1)) @ c + (factor * speed) @ r)).mT
        result += (clocks.features * (power @ table)).sum(2)
        if m + 1 < most:
            power, factor = power * below, -factor * rung
    return result.scatter_(1, clocks.heads, heads)


def _heads(
    clocks: DraftClocks, mass: Tensor, below: Tensor, others: tuple[Tensor, Tensor]
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Multiply the heads' factors in, one by one, and find how often each is the best, (B, H)."""
    times, weights = clocks.times[:, None], clocks.weights[:, None]
    index = clocks.heads[..., None].expand(-1, -1, below.shape[2])
    mass, below = mass.gather(1, index), below.gather(1, index)
    silent, rung, flow = [], [], []
    for h in range(clocks.heads.shape[1]):
        rate = clocks.rates[:, h, None, None]
        silent.append(torch.exp(-rate * times))
        rung.append(-torch.expm1(-rate * times))
        flow.append(rate * silent[h])
    steps = [
        (
            silent[h][:, None],
            *((part * below[:, h, :, None])[:, None] for part in (rung[h], flow[h])),
        )
        for h in range(len(silent))
    ]
    before = [others]
    for step in steps:
        before.append(_times(before[-1], *step))
    one = torch.zeros_like(others[0])
    one[:, 0] = 1.0
    after = one, torch.zeros_like(one)
    found = []
    for h in reversed(range(len(steps))):
        (c, r), (d, s) = before[h], (part.flip(1) for part in after)
        now, earlier = (c * d).sum(1), (r * d + c * s).sum(1)
        each = (flow[h] * now + rung[h] * earlier) * weights
        found.append((mass[:, h] * each.sum(2)).sum(1))
        after = _times(after, *steps[h])
    return before[-1], torch.stack(found[::-1], 1)


def _others(
    clocks: DraftClocks, below: Tensor, fit: Tensor, rung: Tensor, speed: Tensor
) -> tuple[Tensor, Tensor]:
    """Coefficients (B, N, U, K): chances, as odds, that m rang below the bar; and one rings now."""
    power, sums, flows, part = below, [], [], torch.ones_like(rung)
    for _ in range(1, clocks.most):
        moments = power.mT @ clocks.features @ fit
        sums.append(moments @ (part * speed))
        flows.append(moments @ part)
        power, part = power * below, part * rung
    ones = below.new_ones(below.shape[0], below.shape[2], clocks.times.shape[1])
    count, rate = [ones], [torch.zeros_like(ones)]
    for m in range(1, clocks.most):
        signed = torch.stack([(-1.0) ** k * count[m - 1 - k] for k in range(m)])
        count.append((torch.stack(sums[:m]) * signed).sum(0) / m)
        rate.append((torch.stack(flows[:m]) * signed).sum(0))
    # a row of fewer drafts than others begins as if some had been drawn already
    place = torch.arange(clocks.most, device=below.device) - clocks.missing
    index = place.clamp(min=0)[:, :, None, None].expand(-1, -1, *ones.shape[1:])
    none = (place < 0)[:, :, None, None]
    shifted = [torch.stack(part, 1).gather(1, index) for part in (count, rate)]
    return shifted[0].masked_fill(none, 0.0), shifted[1].masked_fill(none, 0.0)


def _times(
    polynomials: tuple[Tensor, Tensor], silent: Tensor, rung: Tensor, flow: Tensor
) -> tuple[Tensor, Tensor]:
    """Multiply a head's factor in."""
    count, rate = polynomials
    one, two = (pad(part[:, :-1], (0, 0, 0, 0, 1, 0)) for part in polynomials)
    return silent * count + rung * one, silent * rate + rung * two + flow * one


def _fit(clocks: DraftClocks) -> Tensor:
    """Matrix (R, R) from values at the points to coefficients of Chebyshev's polynomials."""
    angles = (np.arange(DEGREES) + 0.5) * np.pi / DEGREES
    fit = 2.0 / DEGREES * np.cos(np.arange(DEGREES)[:, None] * angles)
    fit[0] *= 0.5
    return torch.from_numpy(fit).to(clocks.points)
