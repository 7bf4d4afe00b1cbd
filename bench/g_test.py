"""Rounds of the trained pair against the target's distribution: one G-test for each algorithm.

    python bench/g_test.py

Both models decode from one prompt, over their whole vocabulary, with the tree attention and the
random generator of production.  Each round's text is filled up to three tokens from the target, and
the counts of these texts are compared with their exact probabilities.  Texts that are expected
fewer than ten times share a bin with what begins alike.  Bonferroni bounds the chance that any
lossless algorithm of the family is rejected; the seed is fixed.  A total variation of `detectable`
("TV found") from the target is found with probability 0.9.  All algorithms but `hub` and those of
one path verify the same draft trees.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import numpy as np

from otlp.auditing.gtest import LEAST_EXPECTED, GTest, g_test
from otlp.cli.options import ListOf, Positive, json_option
from otlp.cli.output import console, progress, show, table, write_json
from otlp.cli.prompts import open_pair
from otlp.decode import ALGORITHMS, RandomChooser, Sampling
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import TRAINED_PAIR
from otlp.decode.tree import ROOT
from otlp.distribution import FloatArray, IntArray
from otlp.studies.decoding import Setting

PROMPT = "    def __init__(self, name):\n        self.name = name\n\n    def "
TOKENS = 3
ONE_PATH = ("speculative", "block")
Text = tuple[int, ...]
Distribution = Callable[[Text], FloatArray]


def continuation(target: HuggingFaceModel, prompt: IntArray) -> Distribution:
    """Next-token laws after the prompt and a few tokens, shape (V,), each computed once."""

    @cache
    def distribution(text: Text) -> FloatArray:
        target.start(np.append(prompt, np.array(text, dtype=np.int64)))
        return target.distributions(ROOT, np.array([0]))[0]

    return distribution


def bins(distribution: Distribution, rounds: int) -> dict[Text, float]:
    """Texts, and beginnings of texts, that are to be counted, with their expected counts.

    A text is counted at the longest of its beginnings that is listed.
    """
    expected: dict[Text, float] = {}

    def split(text: Text, count: float) -> float:
        """List what begins with `text`; return what is too rare to be listed."""
        rest = count
        if len(text) < TOKENS:
            counts = count * distribution(text)
            for token in np.flatnonzero(counts >= LEAST_EXPECTED).tolist():
                found = float(counts[token])
                rest += split((*text, token), found) - found
        if rest < LEAST_EXPECTED and text:
            return rest
        expected[text] = rest
        return 0.0

    split((), float(rounds))
    return expected


def test(expected: dict[Text, float], texts: Counter[Text], rate: float) -> GTest:
    """Count the texts in their bins, and test the counts."""
    seen: Counter[Text] = Counter()
    for text, count in texts.items():
        ends = (text[:length] for length in range(TOKENS, -1, -1))
        seen[next(end for end in ends if end in expected)] += count
    law = np.maximum(list(expected.values()), 0.0)
    return g_test(np.array([seen[text] for text in expected]), law / law.sum(), rate)


def play(
    pair: tuple[HuggingFaceModel, HuggingFaceModel],
    prompt: IntArray,
    distribution: Distribution,
    names: tuple[str, ...],
    setting: Setting,
    rounds: int,
    step: Callable[[str], None],
) -> dict[str, tuple[Counter[Text], float]]:
    """Texts of each algorithm, filled up from the target, and its block efficiency."""
    draft, target = pair
    chooser = RandomChooser(np.random.default_rng(20240613))
    texts: dict[str, Counter[Text]] = {name: Counter() for name in names}
    lengths = dict.fromkeys(names, 0)
    for _ in range(rounds):
        for model in pair:
            model.start(prompt)
        tree = setting.drafting.draft(draft, chooser)
        laws = target.distributions(tree, np.arange(len(tree)))
        for name in names:
            outcome = ALGORITHMS[name].verify(tree, laws, chooser)
            text = (*tree.path(outcome.node).tolist(), chooser.choose(outcome.correction))
            lengths[name] += len(text)
            while len(text) < TOKENS:
                text = (*text, chooser.choose(distribution(text)))
            texts[name][text[:TOKENS]] += 1
        step(", ".join(names))
    return {name: (texts[name], lengths[name] / rounds) for name in names}


TESTED = tuple(name for name in ALGORITHMS if name != "autoregressive")


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--algorithms", type=ListOf(click.Choice(TESTED)), default=",".join(TESTED))
@click.option("--rounds", type=click.IntRange(1), default=20_000)
@click.option("--paths", type=click.IntRange(1), default=3, help="K.")
@click.option("--length", type=click.IntRange(1), default=3, help="L.")
@click.option("--temperature", default=1.0)
@click.option(
    "--family", type=Positive(), default=1e-3, help="False-alarm rate of all tests together."
)
@click.option("--device", default="auto")
@json_option("Write the table to a file.")
def main(
    algorithms: tuple[str, ...],
    rounds: int,
    paths: int,
    length: int,
    temperature: float,
    family: float,
    device: str,
    json_path: Path | None,
) -> None:
    target, draft = TRAINED_PAIR
    pair = open_pair(draft, target, device, "auto", Sampling(temperature))
    prompt = pair[1].encode(PROMPT)
    distribution = continuation(pair[1], prompt)
    expected = bins(distribution, rounds)
    several = tuple(name for name in TESTED if name not in ("hub", *ONE_PATH))
    groups = {
        ONE_PATH: Setting("block", 1, length),
        ("hub",): Setting("hub", 2, length),
        several: Setting("two-slice", paths, length),
    }
    chosen = {
        tuple(name for name in group if name in algorithms): setting
        for group, setting in groups.items()
        if set(group) & set(algorithms)
    }
    limit = family / len(algorithms)
    rows = []
    with progress("rounds", rounds * len(chosen)) as step:
        for names, setting in chosen.items():
            played = play(pair, prompt, distribution, names, setting, rounds, step)
            for name, (texts, efficiency) in played.items():
                found = test(expected, texts, limit)
                rows.append(
                    {
                        "algorithm": name,
                        "rounds": rounds,
                        "block_efficiency": efficiency,
                        "cells": found.degrees + 1,
                        "statistic": found.statistic,
                        "p_value": found.p_value,
                        "detectable": found.detectable,
                    }
                )
    if json_path:
        write_json(json_path, {"limit": limit, "rows": rows})
    heads = ("rounds", "block eff.", "cells", "G", "p-value", "TV found")
    made = table("algorithm", *heads, box=None, padding=(0, 1, 0, 0))
    formats = ("{}", "{:,}", "{:.3f}", "{}", "{:.1f}", "{:.3g}", "{:.3f}")
    for row in rows:
        made.add_row(*map(str.format, formats, row.values()))
    show(made)
    rejected = [row["algorithm"] for row in rows if row["p_value"] < limit]
    console.print(
        f"family false-alarm rate {family:g}: rejected below {limit:.2g}: "
        f"{', '.join(rejected) or 'none'}"
    )
    sys.exit(bool(rejected))


if __name__ == "__main__":
    main()
