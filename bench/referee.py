"""Audit of tree verification rules: losslessness, distance from the optimum, cost and efficiency.

    python bench/referee.py --json bench/results/referee.json

prints Markdown tables: docs/results.md contains the first, docs/benchmarks.md the times.

*Tiny pairs* of models over three tokens, every fourth with tokens removed: the exact distribution
of the next tokens is compared to the target's, and the block efficiency to the linear program of
the drafting, which is an upper bound for lossless rules.  *Time*: one verification of a tree of
four paths, in processor time, on synthetic distributions over a large vocabulary; for list
sampling, whose distribution has too many terms there, the time of its draws.  *Models*: all rules
verify the same trees several times, in the contexts that the leader reaches after held-out prompts;
intervals are paired by prompt.  Twelve prompts only show large differences.

Further rules are given in a file: `--rules mine.py:RULES`, a list of `Verification` objects.  A run
replaces only the parts of the JSON file that it measures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from runpy import run_path
from time import process_time
from typing import Any

import click
import numpy as np
import rivals
from measuring import shown
from trees import held_out_passages, problems_and_chats
from verification_cost import milliseconds, synthetic_round

from otlp.cli.options import ListOf, OutputFile
from otlp.cli.output import console, progress, write_json
from otlp.cli.prompts import open_pair
from otlp.decode import (
    ALGORITHMS,
    Drafting,
    Model,
    Outcome,
    RandomChooser,
    Sampling,
    TabularModel,
    Verification,
    delayed_paths,
    iid_paths,
    mixed_tree,
    random_pair,
    without_replacement,
)
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import SMOLLM2_DRAFT
from otlp.errors import OTLPError
from otlp.studies.estimate import rate_ratio, ratio
from otlp_lab.laws.drafting_lp import drafting_optimum
from otlp_lab.laws.prefix_laws import prefix_law
from otlp_lab.list_sampling import ListSampling
from otlp_lab.one_stream import race

DRAFTINGS: dict[str, Drafting] = {
    "1 x 3": iid_paths(1, 3),
    "2 x 2": iid_paths(2, 2),
    "1, then 2": delayed_paths(1, 2, 1),
    "2 without replacement, then 1": without_replacement([2, 1]),
    "1 certain + 1 drawn, then 1": mixed_tree([(1, 1), (0, 1)]),
}
"""Draftings by their name in the table: K x L paths, and trees level by level."""

TREES: dict[str, Drafting] = {
    "1 x 8": iid_paths(1, 8),
    "2 x 4": iid_paths(2, 4),
    "4 x 4": iid_paths(4, 4),
    "8 x 4": iid_paths(8, 4),
    "4 different, then 3": without_replacement([4, 1, 1, 1]),
}
"""Draftings on models: 8, 8, 16, 32 and 16 nodes."""

LOSS = 1e-10
"""Maximum total variation due to rounding."""

LEADER = "traversal"
"""Baseline on models; it supports all trees."""

TIMED = iid_paths(4, 4)

Pair = tuple[TabularModel, TabularModel]


class ListDraws(ListSampling):
    """Draws of `list_decoding` at all positions of a path (K lists and a race), to time them."""

    def verify(self, tree, targets, chooser):  # type: ignore[no-untyped-def]
        """Draw at each position, without verification."""
        for law in targets[: TIMED.length + 1]:
            race(law, chooser.rng.standard_exponential((TIMED.paths, law.size)).min(axis=0))
        return Outcome(0, targets[0])


def rules_of(files: Iterable[str]) -> dict[str, Verification]:
    """Return the rules of the library, of papers and of files, by name."""
    rules = [*ALGORITHMS.values(), ListSampling(), *rivals.RULES]
    for entry in files:
        path, _, name = entry.rpartition(":")
        rules += run_path(path)[name]
    names = {rule: name for name, rule in ALGORITHMS.items()}
    return {names.get(rule, rule.name): rule for rule in rules}


def tiny_pairs(count: int) -> list[Pair]:
    """Return random pairs of models; every fourth has random tokens removed at each prefix."""
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        pair = random_pair(3, 4, rng, noise=(0.5, 1.0, 2.0)[seed % 3])
        found.append(pair if seed % 4 else tuple(cut(model, rng) for model in pair))
    return found  # type: ignore[return-value]


def cut(model: TabularModel, rng: np.random.Generator) -> TabularModel:
    """Remove a third of a model's tokens at random, but not all tokens after a prefix."""
    tables = []
    for table in model.tables:
        kept = table * (rng.random(table.shape) < 2 / 3)
        kept = np.where(kept.sum(axis=-1, keepdims=True) > 0.0, kept, table)
        tables.append(kept / kept.sum(axis=-1, keepdims=True))
    return TabularModel(tables, model.name)


def audited(
    rules: dict[str, Verification], pairs: Sequence[Pair], step: Callable[..., None]
) -> list[dict[str, Any]]:
    """Return the largest total variation of each rule, and its distance from the optima."""
    worst = dict.fromkeys(rules, 0.0)
    cells: dict[str, dict[str, str]] = {name: {} for name in rules}
    for label, drafting in DRAFTINGS.items():
        able = {name: rule for name, rule in rules.items() if rule.supports(drafting).supported}
        missing: dict[str, list[float]] = {name: [] for name in able}
        for pair in pairs:
            best = drafting_optimum(*pair, drafting)
            for name, rule in able.items():
                law = prefix_law(*pair, drafting, rule)
                wrong = np.abs(law.tokens - pair[1].joint(law.tokens.ndim)).sum() / 2
                worst[name] = max(worst[name], float(wrong))
                missing[name].append(100.0 * (1.0 - law.block_efficiency / best))
            step(label)
        for name in rules:
            found = missing.get(name, [])
            cells[name][label] = f"{np.mean(found):.2f}, {max(found):.1f}" if found else ""
    return [
        {"rule": name, "lossless": "yes" if off <= LOSS else f"no, {off:.3f}", **cells[name]}
        for name, off in worst.items()
    ]


def times(rules: Mapping[str, Verification], vocab_size: int) -> list[dict[str, Any]]:
    """Return the mean processor milliseconds of one verification."""
    rng = np.random.default_rng(2)
    rows = []
    for name, rule in {**rules, "list-sampling, its draws": ListDraws()}.items():
        drafting = TIMED if rule.supports(TIMED).supported else iid_paths(1, TIMED.length)
        trees = [synthetic_round(drafting, vocab_size, rng) for _ in range(2)]
        try:
            took = f"{milliseconds({name: rule}, trees, 2)[name][-1]:.3g}"
        except OTLPError as error:
            took = type(error).__name__
        rows.append({"rule": name, "processor ms": took})
    return rows


def on_models(
    rules: Mapping[str, Verification],
    pair: tuple[Model, Any],
    temperature: float,
    sizes: tuple[int, int, int],
    step: Callable[..., None],
) -> list[dict[str, Any]]:
    """Return the tokens per round of each rule, and its gain over the leader on the same trees."""
    prompts, rounds, repeats = sizes
    for model in pair:
        model.sampling = Sampling(temperature)
    rows: dict[str, dict[str, Any]] = {name: {"rule": name} for name in rules}
    real = pair[1].name == SMOLLM2
    texts = (problems_and_chats if real else held_out_passages)(pair[1], 0, prompts)
    for label, drafting in TREES.items():
        chooser = RandomChooser(np.random.default_rng(1))
        able = {name: rule for name, rule in rules.items() if rule.supports(drafting).supported}
        found = {name: np.zeros(prompts) for name in able}
        refused: dict[str, str] = {}
        for at, prompt in enumerate(texts):
            for model in pair:
                model.start(prompt)
            for number in range(rounds):
                tree = drafting.draft(pair[0], chooser)
                laws = pair[1].distributions(tree, np.arange(len(tree)))
                for name, rule in able.items():
                    if name in refused:
                        continue
                    # Use the same random numbers for each rule, to reduce the variance.
                    coins = RandomChooser(np.random.default_rng((2, at, number)))
                    try:
                        ends = [rule.verify(tree, laws, coins).node for _ in range(repeats)]
                    except OTLPError as error:
                        refused[name] = type(error).__name__
                        continue
                    found[name][at] += float(np.mean(tree.depths[ends])) + 1.0
                outcome = ALGORITHMS[LEADER].verify(tree, laws, chooser)
                token = chooser.choose(outcome.correction)
                for model in pair:
                    model.advance(tree, outcome.node, token)
            step(f"T {temperature:g}, {label}")
        calls = np.full(prompts, float(rounds))
        for name, row in rows.items():
            row[label] = refused.get(name, "")
            if name in able and name not in refused:
                gain = rate_ratio(found[name], calls, found[LEADER], calls)
                half = 50.0 * (gain.high - gain.low)
                mean = ratio(found[name], calls).mean
                row[label] = f"{mean:.2f} [{100 * (gain.mean - 1.0):+.1f} ±{half:.1f}]"
    return list(rows.values())


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--rules", multiple=True, help="FILE.py:LIST of further rules; may be repeated.")
@click.option("--pairs", type=click.IntRange(0), default=200, help="Number of tiny pairs.")
@click.option("--vocab-size", type=click.IntRange(0), default=128_256, help="Vocabulary for times.")
@click.option(
    "--models",
    nargs=2,
    multiple=True,
    default=[(SMOLLM2_DRAFT, SMOLLM2)],
    help="Draft and target; may be repeated.",
)
@click.option("--temperatures", type=ListOf(float), default="0.3,0.6,1")
@click.option("--prompts", type=click.IntRange(0), default=12, help="Prompts; 0: no models.")
@click.option("--rounds", type=click.IntRange(1), default=4, help="Rounds per prompt.")
@click.option("--repeats", type=click.IntRange(1), default=4, help="Verifications per tree.")
@click.option("--json", "path", type=OutputFile(), help="Write all tables to this file.")
def main(
    rules: tuple[str, ...],
    pairs: int,
    vocab_size: int,
    models: tuple[tuple[str, str], ...],
    temperatures: tuple[float, ...],
    prompts: int,
    rounds: int,
    repeats: int,
    path: Path | None,
) -> None:
    chosen = rules_of(rules)
    found: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}

    def keep(what: str, title: str, rows: list[dict[str, Any]]) -> None:
        lines = [list(rows[0]), ["---"] * len(rows[0]), *(map(shown, row.values()) for row in rows)]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        minutes = process_time() / 60.0
        text = f"{title} (after {minutes:.1f} processor minutes)\n\n{table}\n"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        found[what] = rows
        if path:
            write_json(path, found)

    if pairs:
        with progress("enumerating", pairs * len(DRAFTINGS)) as step:
            exact = audited(chosen, tiny_pairs(pairs), step)
        keep("exact", f"distance from the optimum on {pairs} pairs: mean and worst, %", exact)
    if vocab_size:
        keep("times", f"ms of a verification, V = {vocab_size:,}", times(chosen, vocab_size))
    for draft, target in models if prompts else ():
        count = len(temperatures) * len(TREES) * prompts
        pair = open_pair(draft, target, "cpu", "auto", Sampling())
        with progress(f"verifying drafts of {draft}", count) as step:
            for temperature in temperatures:
                rows = on_models(chosen, pair, temperature, (prompts, rounds, repeats), step)
                title = f"{target}, drafts of {draft}, T {temperature:g}"
                keep(title, f"{title}: tokens per round [% over {LEADER}]", rows)


if __name__ == "__main__":
    main()
