"""Sentences of the first screen of a report, with numbers and intervals from the JSON results.

A sentence states a difference only if the 95% interval does not contain zero.  Otherwise it states
that there is no significant difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import scipy

from otlp.report.results import Acceptances, Result
from otlp.studies.compare import COUPLED, LIKELIEST, OPTIMUM
from otlp.studies.estimate import Estimate

EQUAL = 5e-4
"""Maximum distance of the overlap from 1 for an equal draft and target."""

USELESS = 0.02
"""Overlap below which a draft is called useless."""

DRAFTS = 4
"""Number of drafts at one position in the sentences."""

NODES = 16
"""Maximum number of draft tokens per round in the sentences."""

SINGLE = "; there is no interval, because all rows belong to one passage"


def percent(found: Estimate) -> str:
    """Format a probability in percent, with the half-width of its interval."""
    half = 50.0 * (found.high - found.low)
    return f"{100.0 * found.mean:.1f}%" + (f" ±{half:.1f}" if math.isfinite(half) else "")


def versus(gap: Estimate, other: str, unit: str = " points") -> str:
    """Format a difference as words, with its interval.

    Parameters
    ----------
    gap : Estimate
        The difference.
    other : str
        Name of the reference.
    unit : str
        Unit printed after the number, which is in percent if there is a unit.
    """
    scale, digits = (100.0, 1) if unit else (1.0, 2)
    mean, low, high = (scale * end for end in (gap.mean, gap.low, gap.high))
    if math.isnan(mean):
        return f"not comparable with {other}"
    if np.nanmax(np.abs([mean, low, high])) < 0.5 * 10.0**-digits:
        return f"as much as {other}"
    if low <= 0.0 <= high:
        return f"no significant difference from {other}"
    half = "" if math.isnan(low) else f" ±{high - mean:.{digits}f}"
    size = f"{abs(mean):.{digits}f}{half}"
    alone = " on these rows, without an interval" if math.isnan(low) else ""
    return f"{size}{unit} {'more' if mean > 0.0 else 'less'} than {other}{alone}"


def first_screen(found: Mapping[str, Result]) -> list[str]:
    """Write the sentences about one pair of models from its results by name."""
    lines: list[str] = []
    for name, (write, failed) in WRITERS.items():
        result = found.get(name)
        if result or name == "noise":
            lines += write(found)
        elif result is not None and failed:
            lines.append(f"{failed}: {result.reason}.")
    return lines


def _overlap(found: Mapping[str, Result]) -> Iterator[str]:
    content, overlap = found["overlap"].content, overlap_of(found["overlap"])
    rows = f"({content['described_rows']:,} of {content['row_count']:,} rows)"
    most, single = (overlap.high, "") if math.isfinite(overlap.low) else (overlap.mean, SINGLE)
    shares = f"shares {percent(overlap)} of its probability with the target {rows}{single}."
    if overlap.mean > 1.0 - EQUAL:
        yield f"The draft equals the target {rows}: no verification rule needs more than one draft."
    else:
        yield f"The draft is useless: it {shares}" if most < USELESS else f"The draft {shares}"
    if content["synthetic"]:
        yield "The data is synthetic, not from a language model."


def overlap_of(found: Result) -> Estimate:
    """Return the mean overlap over all rows of ``otlp info``."""
    return Estimate.of(found.content["overlap"][0]["overlap"])


def _drafts(found: Mapping[str, Result]) -> Iterator[str]:
    rates = Acceptances(found["one_place"].content)
    best = [rates.mean(OPTIMUM, n) for n in (1, 2, DRAFTS)]
    if any(math.isnan(one.mean) for one in best):
        reason = next(one["reason"] for one in rates.points.values() if one["reason"])
        yield f"The best rule could not be computed: {reason}."
        return
    yield (
        "A single draft token is accepted {} of the time. The best rule accepts one of two drafts "
        "{} of the time, and one of four {}.".format(*map(percent, best))
    )
    rules = {
        "recursive-rejection": "Recursive rejection",
        "k-seq": "K-seq",
        LIKELIEST: "Sampled verification of the draft's most likely tokens (the rule of many "
        "engines)",
    }
    for rule, name in rules.items():
        yield f"{name} {_of_four(rates, rule)}."


def _of_four(rates: Acceptances, rule: str) -> str:
    gap = versus(rates.minus_optimum(rule, DRAFTS), "the best rule for independent drafts")
    return f"accepts one of four {percent(rates.mean(rule, DRAFTS))} of the time: {gap}"


def served_as(content: Mapping[str, Any]) -> str:
    """Describe temperature and truncation of a sweep."""
    names = {"sampling_top_k": "top-k", "sampling_top_p": "top-p", "sampling_min_p": "min-p"}
    cuts = [f"{name} {content[key]:g}" for key, name in names.items() if content[key]]
    return ", ".join([f"temperature {content['points'][0]['temperature']:g}", *cuts])


def _served(found: Mapping[str, Result]) -> Iterator[str]:
    content, whole = found["as_served"].content, found.get("whole_draft")
    rates = Acceptances(content)
    one = rates.mean(OPTIMUM, 1)
    if math.isnan(one.mean):
        return
    yield (
        f"As served ({served_as(content)}), a single draft token is accepted {percent(one)} of the "
        f"time, and one of four {percent(rates.mean(OPTIMUM, DRAFTS))}. The draft's most "
        f"likely token equals the target's draw {percent(rates.mean(LIKELIEST, 1))} of the time."
    )
    if whole:
        other = Acceptances(whole.content).mean(OPTIMUM, 1)
        gap = versus(other.minus(one), "a draft truncated like the target")
        yield f"A draft without truncation is accepted {percent(other)} of the time: {gap}."


def tokens_a_call(found: Result, one: Mapping[str, Any]) -> Estimate:
    """Return tokens per target call of a design, with the 95% interval over texts."""
    mean, error, texts = one["tokens_per_call"], one["standard_error"], found.content["text_count"]
    half = float(scipy.special.stdtrit(texts - 1, 0.975)) * error if texts > 1 else math.nan
    return Estimate(mean, mean - half, mean + half)


def designs_of(found: Result) -> Sequence[Mapping[str, Any]]:
    """Return the designs of at most `NODES` nodes, best first."""
    budgets = {one["nodes"]: one["designs"] for one in found.content["budgets"]}
    designs: Sequence[Mapping[str, Any]] = budgets[NODES]
    return designs


def shape_of(one: Mapping[str, Any]) -> str:
    """Describe the shape of a design."""
    if one["chain"]:
        return f"a chain of {one['depth']}"
    if one["family"] == "paths":
        return f"{one['nodes'] / one['depth']:.0f} paths of {one['depth']}"
    return f"a tree of {one['nodes']:.3g} nodes and depth {one['depth']} ({one['family']})"


def _tree(found: Mapping[str, Result]) -> Iterator[str]:
    content, designs = found["round"].content, designs_of(found["round"])
    best, chain = designs[0], next((one for one in designs if one["chain"]), None)
    timed = best["tokens_per_call_time"]
    rank = "is best" if timed is None else f"is best, {timed:.2f} times as fast as no draft"
    choice = (
        f"With at most {NODES} draft tokens per round at temperature {content['temperature']:g}, "
        f"among the trees evaluated on these texts, {shape_of(best)} {rank}: "
        f"{tokens_a_call(found['round'], best).show(2)} tokens per target call"
    )
    if chain is None or best["chain"]:
        yield f"{choice}."
    else:
        gain = Estimate.of(best["over_chain"]).shifted(-1.0)
        other = f"{shape_of(chain)} ({tokens_a_call(found['round'], chain).show(2)})"
        yield f"{choice}, {versus(gain, other, '%')}."


def _noise(found: Mapping[str, Result]) -> Iterator[str]:
    """Compare shared noise with optimal transport: whole trees if available, and one position."""
    designs = designs_of(found["round"]) if found["round"] else ()
    others = [one for one in designs if one["family"] != "shared-noise"]
    for one in designs:
        if one["family"] == "shared-noise" and others:
            rival = max(others, key=lambda other: float(other["tokens_per_call"]))
            mean, most = (tokens_a_call(found["round"], each) for each in (one, rival))
            gap = versus(mean.minus(most), f"the best other tree ({most.show(2)})", "")
            yield f"A tree with shared noise yields {mean.show(2)} tokens per target call: {gap}."
    for name, when in (("one_place", "at temperature 1"), ("as_served", "as served")):
        rates = Acceptances(found[name].content) if found[name] else None
        if rates and not math.isnan(rates.mean(OPTIMUM, DRAFTS).mean):
            yield f"Sampled verification with shared noise, {when}, {_of_four(rates, COUPLED)}."


def _seconds(found: Mapping[str, Result]) -> Iterator[str]:
    rules = {"martingale": "the best rule", "recursive-rejection": "recursive rejection"}
    for cell in found["verification"].content["cells"]:
        name = rules.get(cell["solver"]) if cell["n"] == DRAFTS else None
        if name and (times := [one["seconds"]["plan"] for one in cell["solves"]]):
            time = f"{1e3 * median(times):.2g} ms"
            yield (
                f"On this machine {name} takes {time} to make a plan for four drafts, without "
                f"sampling from it (median of {len(times)})."
            )


def fastest(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fastest measurement of decoding with drafts."""
    drafted = [one for one in content["measurements"] if one["algorithm"] != "autoregressive"]
    found: Mapping[str, Any] = max(drafted, key=lambda one: one["speed_up"][0])
    return found


def _speed(found: Mapping[str, Result]) -> Iterator[str]:
    best = fastest(found["decoding"].content)
    up = Estimate.of(best["speed_up"])
    line = (
        f"On this machine at temperature {best['temperature']:g}, the fastest measured algorithm "
        f"is {best['algorithm']} with {best['paths']} x {best['length']} draft tokens: "
        f"{up.show(2)} times the speed of autoregressive decoding"
    )
    if math.isnan(up.low):
        yield f"{line}, on one prompt, without an interval."
    else:
        yield f"{line}, {versus(up.shifted(-1.0), 'autoregressive decoding', '%')}."


WRITERS: dict[str, tuple[Callable[[Mapping[str, Result]], Iterator[str]], str]] = {
    "overlap": (_overlap, "The capture could not be described"),
    "one_place": (_drafts, "The rules could not be compared"),
    "as_served": (_served, "The rows could not be truncated as served"),
    "round": (_tree, "No tree is recommended"),
    "noise": (_noise, ""),
    "verification": (_seconds, ""),
    "decoding": (_speed, "Decoding was not measured"),
}
"""For each result, the function that writes its sentences, and the text before the reason if there
is no result.  The sentences about noise use several results."""

APART = {
    "target": "The two captures have different targets.",
    "text": "The two captures have different texts, so the difference is not only the draft's.",
}
"""Sentences about two overlaps with different values of a field."""


def side_by_side(pairs: Sequence[Mapping[str, Result]], names: Sequence[str]) -> list[str]:
    """Compare the overlaps of two pairs as if their rows were independent."""
    found = [pair["overlap"] for pair in pairs]
    if len(found) != 2 or not all(found):
        return []
    one, other = map(overlap_of, found)
    gap = versus(one.minus(other), names[1])
    lines = [f"{names[0]} shares {percent(one)} of its probability with the target: {gap}."]
    for name, line in APART.items():
        if found[0].content[name] != found[1].content[name]:
            lines.append(line)
    return lines
