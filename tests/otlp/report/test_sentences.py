"""All sentences at the top of the report, in each variant, from the JSON they are built from."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otlp.report.results import Result
from otlp.report.sentences import first_screen, percent, side_by_side, versus
from otlp.studies.estimate import Estimate

NAN = math.nan
RULES = ("recursive-rejection", "k-seq", "coupled", "likeliest", "optimum")


def info(mean: float, half: float | None = 0.05, **changes: Any) -> Result:
    ends = [None, None] if half is None else [mean - half, mean + half]
    group = {"by": "all rows", "label": "", "row_count": 9, "overlap": [mean, *ends]}
    content = {"described_rows": 9, "row_count": 9, "synthetic": False, "overlap": [group]}
    content |= {"target": "a target", "text": "a hash"}
    return Result("otlp info", {**content, **changes})


def sweep(below: dict[str, list[float | None]], best: float | None = 0.5) -> Result:
    points = [
        {
            "rule": rule,
            "n": n,
            "temperature": 0.7,
            "acceptance": [best, best, best],
            "below_optimum": below.get(rule, [0.0, 0.0, 0.0]),
            "reason": "" if best else "a reason",
        }
        for rule in RULES
        for n in (1, 2, 4, 8)
    ]
    cuts = {"sampling_top_k": 20, "sampling_top_p": None, "sampling_min_p": None}
    return Result("otlp sweep", {"points": points, **cuts})


def design(
    *ones: tuple[str, bool, float, float, list[float]], texts: int = 9, timed: float | None = None
) -> Result:
    designs = [
        {
            "family": family,
            "chain": chain,
            "nodes": 16,
            "depth": 4,
            "tokens_per_call": mean,
            "standard_error": error,
            "over_chain": ratio,
            "tokens_per_call_time": timed,
        }
        for family, chain, mean, error, ratio in ones
    ]
    budgets = [{"nodes": 16, "designs": designs}]
    return Result("", {"text_count": texts, "temperature": 1.0, "budgets": budgets})


def bench(seconds: float | None = 0.002) -> Result:
    solves = [{"acceptance": 0.5, "seconds": {"plan": seconds}}] if seconds else []
    cell = {"solver": "martingale", "n": 4, "row_count": 5, "solves": solves}
    return Result("otlp bench", {"cells": [cell]})


def screen(**changes: Result) -> str:
    """Return the top of the report for an ordinary pair, with some results replaced."""
    usual = {
        "overlap": info(0.5),
        "one_place": sweep({}),
        "as_served": sweep({}),
        "round": Result("", reason="no texts"),
        "verification": bench(),
    }
    return "\n".join(first_screen(usual | changes))


@pytest.mark.parametrize(
    ("gap", "sentence"),
    [
        (Estimate(0.02, 0.01, 0.03), "2.0 ±1.0 points more than it"),
        (Estimate(-0.02, -0.03, -0.01), "2.0 ±1.0 points less than it"),
        (Estimate(0.02, -0.01, 0.05), "no significant difference from it"),
        (Estimate(0.02, 0.0, 0.04), "no significant difference from it"),
        (Estimate(1e-9, -0.1, 0.1), "no significant difference from it"),
        (Estimate(0.0, 0.0, 0.0), "as much as it"),
        (Estimate(1e-9, 0.9e-9, 1.1e-9), "as much as it"),
        (Estimate(1e-9, NAN, NAN), "as much as it"),
        (Estimate(0.02, NAN, NAN), "2.0 points more than it on these rows, without an int"),
        (Estimate(-0.02, NAN, NAN), "2.0 points less than it on these rows, without an int"),
        (Estimate(NAN, NAN, NAN), "not comparable with it"),
    ],
)
def test_a_difference_is_said_as_far_as_its_interval_carries_it(
    gap: Estimate, sentence: str
) -> None:
    assert versus(gap, "it").startswith(sentence)


def test_differences_of_two_means_have_the_interval_of_independent_ones() -> None:
    found = Estimate(0.5, 0.47, 0.53).minus(Estimate(0.4, 0.36, 0.44))
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.05, 0.15))
    assert math.isnan(Estimate(0.5, NAN, NAN).minus(Estimate(0.4, 0.3, 0.5)).low)
    assert percent(Estimate(0.5, 0.47, 0.53)) == "50.0% ±3.0"
    assert percent(Estimate(0.5, NAN, NAN)) == "50.0%"


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (info(0.5), "The draft shares 50.0% ±5.0 of its probability with the target (9 of 9 rows)"),
        (info(1.0, 0.0), "The draft equals the target (9 of 9 rows)"),
        (info(0.001, 0.001), "The draft is useless: it shares 0.1% ±0.1"),
        (info(0.01, 0.05), "The draft shares 1.0% ±5.0"),
        (info(0.5, None), "shares 50.0% of its probability with the target (9 of 9 rows); there is "
         "no interval, because all rows belong to one passage."),
        (info(0.0, None), "The draft is useless"),
        (info(0.5, synthetic=True), "The data is synthetic"),
        (Result("", reason="broken"), "The capture could not be described: broken."),
    ],
)  # fmt: skip
def test_the_overlap(found: Result, sentence: str) -> None:
    assert sentence in screen(overlap=found)


@pytest.mark.parametrize(
    ("below", "sentence"),
    [
        ([0.02, 0.01, 0.03], "2.0 ±1.0 points less than the best rule"),
        ([-0.02, -0.03, -0.01], "2.0 ±1.0 points more than the best rule"),
        (
            [0.02, -0.01, 0.05],
            "no significant difference from the best rule for independent drafts.",
        ),
        ([0.0, 0.0, 0.0], "as much as the best rule"),
        (
            [0.02, None, None],
            "2.0 points less than the best rule for independent drafts on th",
        ),
    ],
)
@pytest.mark.parametrize(
    ("rule", "subject"),
    [
        ("recursive-rejection", "Recursive rejection accepts one of four 50.0% ±0.0 of the time: "),
        ("k-seq", "K-seq accepts one of four 50.0% ±0.0 of the time: "),
        ("likeliest", "(the rule of many engines) accepts one of four 50.0% ±0.0 of the time: "),
        ("coupled", "noise, at temperature 1, accepts one of four 50.0% ±0.0 of the time: "),
    ],
)
def test_rules_at_one_place(rule: str, subject: str, below: Any, sentence: str) -> None:
    assert subject + sentence in screen(one_place=sweep({rule: below}))


def test_places_that_cannot_be_solved_have_their_reason() -> None:
    sentence = screen(one_place=sweep({}, None), as_served=sweep({}, None))
    assert "The best rule could not be computed: a reason." in sentence
    assert "As served" not in sentence and "noise" not in sentence
    sentence = screen(one_place=Result("", reason="no"), as_served=Result("", reason="never"))
    assert "The rules could not be compared: no." in sentence
    assert "The rows could not be truncated as served: never." in sentence


@pytest.mark.parametrize(
    ("whole", "sentence"),
    [
        (0.5, "accepted 50.0% ±0.0 of the time: as much as a draft truncated like the target."),
        (0.6, "accepted 60.0% ±0.0 of the time: 10.0 ±0.0 points more than a draft truncated"),
        (0.4, "accepted 40.0% ±0.0 of the time: 10.0 ±0.0 points less than a draft truncated"),
    ],
)
def test_a_draft_that_is_not_cut(whole: float, sentence: str) -> None:
    assert sentence in screen(whole_draft=sweep({}, whole))
    assert (
        "As served (temperature 0.7, top-k 20), a single draft token is accepted 50.0%" in screen()
    )
    assert "without truncation" not in screen()


CHAIN = ("paths", True, 2.0, 0.1, [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (design(("tree", False, 2.4, 0.1, [1.2, 1.1, 1.3]), CHAIN), "trees evaluated on these "
         "texts, a tree of 16 nodes and depth 4 (tree) is best: 2.40 ±0.23 tokens per target call, "
         "20.0 ±10.0% more than a chain of 4 (2.00 ±0.23)."),
        (design(("paths", False, 2.1, 0.1, [1.05, 0.9, 1.2]), CHAIN), "4 paths of 4 is best: "
         "2.10 ±0.23 tokens per target call, no significant difference from a chain of 4 (2.00"),
        (design(("top", False, 1.9, 0.1, [0.95, 0.92, 0.98]), CHAIN, timed=1.3), "(top) is best, "
         "1.30 times as fast as no draft: 1.90 ±0.23 tokens per target call, 5.0 ±3.0% less than"),
        (design(CHAIN), "a chain of 4 is best: 2.00 ±0.23 tokens per target call."),
        (design(CHAIN, texts=1), "a chain of 4 is best: 2.00 tokens per target call."),
        (design(("tree", False, 2.4, 0.1, [1.2, 1.1, 1.3])), "2.40 ±0.23 tokens per target call."),
        (Result("", reason="no texts"), "No tree is recommended: no texts."),
    ],
)  # fmt: skip
def test_the_tree(found: Result, sentence: str) -> None:
    assert sentence in screen(round=found)


@pytest.mark.parametrize(
    ("mean", "sentence"),
    [
        (
            3.0,
            "yields 3.00 ±0.02 tokens per target call: 1.00 ±0.03 more than the best other tree",
        ),
        (1.5, "yields 1.50 ±0.02 tokens per target call: 0.50 ±0.03 less than the best other tree"),
        (2.01, "no significant difference from the best other tree (2.00 ±0.02)"),
    ],
)
def test_noise_or_transport_by_trees(mean: float, sentence: str) -> None:
    chain = ("paths", True, 2.0, 0.01, [1.0, 1.0, 1.0])
    shared = ("shared-noise", False, mean, 0.01, [1.0, 1.0, 1.0])
    order = (shared, chain) if mean > 2.0 else (chain, shared)
    assert sentence in screen(round=design(*order))


def test_milliseconds_are_said_if_there_are_any() -> None:
    assert (
        "On this machine the best rule takes 2 ms to make a plan for four drafts, without sampling "
        "from it (median of 1)."
    ) in screen()
    assert " ms" not in screen(verification=bench(None))
    assert " ms" not in screen(verification=Result("", reason="no"))


@pytest.mark.parametrize(
    ("up", "sentence"),
    [
        (
            [1.5, 1.4, 1.6],
            "1.50 ±0.10 times the speed of autoregressive decoding, 50.0 ±10.0% more than",
        ),
        (
            [0.8, 0.7, 0.9],
            "0.80 ±0.10 times the speed of autoregressive decoding, 20.0 ±10.0% less than",
        ),
        (
            [1.1, 0.9, 1.3],
            "speed of autoregressive decoding, no significant difference from autoregressive dec",
        ),
        (
            [1.5, None, None],
            "1.50 times the speed of autoregressive decoding, on one prompt, without an",
        ),
    ],
)
def test_the_speed_that_was_measured(up: Any, sentence: str) -> None:
    speeds = [("autoregressive", [9.0, 9.0, 9.0]), ("block", [0.1, 0.1, 0.1]), ("two-slice", up)]
    content = {"measurements": [
        {"algorithm": name, "paths": 2, "length": 4, "temperature": 0.6, "speed_up": speed}
        for name, speed in speeds
    ]}  # fmt: skip
    found = screen(decoding=Result("otlp decode", content))
    assert (
        "at temperature 0.6, the fastest measured algorithm is two-slice with 2 x 4" in found
        and sentence in found
    )
    assert "Decoding was not measured: no." in screen(decoding=Result("", reason="no"))


def test_two_drafts_are_compared() -> None:
    pairs = [{"overlap": info(0.5)}, {"overlap": info(0.3)}]
    names = ["a {} / b", "c {0}"]  # braces in names are not format fields
    assert side_by_side(pairs, names) == [
        "a {} / b shares 50.0% ±5.0 of its probability with the target: 20.0 ±7.1 points more than "
        "c {0}."
    ]
    level = side_by_side([{"overlap": info(0.5)}, {"overlap": info(0.48)}], names)
    assert "no significant difference from c {0}" in level[0]
    others = side_by_side([pairs[0], {"overlap": info(0.3, target="another")}], names)
    assert others[1:] == ["The two captures have different targets."]
    others = side_by_side([pairs[0], {"overlap": info(0.3, text="another")}], names)
    assert others[1:] == [
        "The two captures have different texts, so the difference is not only the draft's."
    ]
    assert side_by_side(pairs[:1], names) == []
    assert side_by_side([pairs[0], {"overlap": Result("")}], names) == []
