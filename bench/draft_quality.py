r"""Rules, trees and engines over the quality of the draft, on two published targets.

    OMP_NUM_THREADS=1 python bench/draft_quality.py --target smollm2 \
        --json bench/results/draft_quality_smollm2.json

The targets are SmolLM2-135M-Instruct and Gemma 3 270M.  Their drafts are published, or the target
without some of its layers (`bench/skipped_layers.py`), so the overlap sum min(p, q) ranges from .4
to .9.  The target continues HumanEval's problems, and SmolLM2 chats in turn: problems 50 to 69 and
the first half of the chats choose the setting of each scheme, problems 70 to 99 and the other half
measure.  All schemes and drafts use the same texts.  Each cell, a pair at one sampling, answers
three questions:

- one position: the acceptance of n drafts by rule;
- a round of 8, 16 and 32 nodes: tokens per target call by scheme, by text renewal;
- as served: a draft that is cut like the target, a whole draft, and the likeliest tokens.

Every draft is limited to its 500 likeliest tokens.  Each finished part of a cell is written at
once, and the same command continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from tree_schemes import Scheme, of, schemes, value
from trees import problems_and_chats

from otlp.cli.options import OutputFile
from otlp.cli.output import progress, write_json
from otlp.cli.prompts import silence_transformers
from otlp.decode import Model, Sampling, TopTree
from otlp.decode.models.calibration import calibration_of
from otlp.decode.models.fingerprint import fingerprint
from otlp.decode.models.gguf import GEMMA3, SMOLLM2
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import load_draft, load_model
from otlp.distribution import FloatArray, IntArray, logarithms
from otlp.studies.compare import measure_rules
from otlp_lab.design import (
    FAMILIES,
    Renewal,
    Statistics,
    WrittenText,
    design,
    gather_statistics,
)
from otlp_lab.design.shared_noise import along_texts
from otlp_lab.design.text_renewal import without_undrafted
from otlp_lab.design.top_trees import top_tree_renewals
from otlp_lab.design.written_texts import with_draft, write_text

DRAFTS = {
    SMOLLM2: ("copying:smollm2-draft", "skip:3", "skip:3,9,25", "skip:3,5,9,13,14,25,26"),
    GEMMA3: ("skip:15", "skip:7,8", "skip:6,7,8,9"),
}
"""Drafts by target."""

PRECISION = "bfloat16"
LIKELIEST = 500
"""Number of likeliest tokens that a draft may propose."""

SERVED = Sampling(1.0, top_k=64, top_p=0.95)
"""Sampling that the publisher of Gemma 3 recommends."""

SAMPLINGS = {
    "T = 1": Sampling(),
    "T = 0.6": Sampling(0.6),
    "T = 0.3": Sampling(0.3),
    "served": SERVED,
}

CUTS = {
    "top-k 64, top-p .95": SERVED,
    "top-k 20": Sampling(1.0, top_k=20),
    "T = .6, top-p .95": Sampling(0.6, top_p=0.95),
    "min-p .1": Sampling(1.0, min_p=0.1),
}
"""Samplings of the target in the comparison of drafts as served."""

RULES = ("recursive-rejection", "k-seq", "coupled", "likeliest")
COUNTS = (1, 2, 4, 8)
"""Numbers of drafts at one position."""

SCHEMES = (
    "chain, block",
    "i.i.d. paths, two-slice",
    "Sequoia, recursive rejection",
    "Sequoia's tree, traversal",
)
"""Schemes of `tree_schemes` in the comparison; see `other_schemes`."""

BUDGETS = (8, 16, 32)
EVERY = 4
"""Distance of the positions at which rules are compared."""


@dataclass(frozen=True)
class Text:
    """A prompt and the target's text after the prompt, with the distributions of both models."""

    prompt: IntArray
    text: WrittenText


def drafted(model: Model, sampling: Sampling, texts: Sequence[Text]) -> list[Text]:
    """Return the texts with the distributions of a model in place of the draft's."""
    model.sampling = sampling
    found = []
    for one in texts:
        model.start(one.prompt)
        found.append(replace(one, text=with_draft(one.text, model)))
    return found


def whole_laws(model: Model, texts: Sequence[Text]) -> list[FloatArray]:
    """Return logarithms of a model's whole distributions at every `EVERY`-th position."""
    sampling = model.sampling
    found = [logarithms(one.text.drafts[::EVERY]) for one in drafted(model, Sampling(), texts)]
    model.sampling = sampling
    return found


def limited(sampling: Sampling) -> Sampling:
    """Return the sampling of a draft: that of the target, limited to the likeliest tokens."""
    return replace(sampling, top_k=min(sampling.top_k or LIKELIEST, LIKELIEST))


def overlap(texts: Sequence[Text]) -> list[float]:
    """Return the mean overlap of each text."""
    return [float(np.minimum(t.text.targets, t.text.drafts).sum(1).mean()) for t in texts]


def by_text(values: Sequence[Sequence[dict[str, float]]]) -> dict[str, list[float]]:
    """Return the mean of each name over the positions of each text."""
    return {
        name: [round(float(np.mean([row[name] for row in rows])), 6) for rows in values]
        for name in values[0][0]
    }


def one_position(texts: Sequence[Text]) -> dict[str, list[float]]:
    """Compute the acceptance of n drafts at every `EVERY`-th position: its mean for each text."""

    def row(p: FloatArray, q: FloatArray) -> dict[str, float]:
        return {
            f"{one.rule} {n}": one.acceptance
            for n in COUNTS
            for one in measure_rules((p, q), "iid", n, RULES)
        }

    return by_text([[row(p, q) for _, p, q in one.text.places[::EVERY]] for one in texts])


def as_served(wholes: Sequence[tuple[FloatArray, FloatArray]]) -> dict[str, list[float]]:
    """Compute the acceptance for each of `CUTS` and each kind of draft: its mean for each text.

    Parameters
    ----------
    wholes : sequence of (p, q)
        Logarithms of the distributions of both models at positions of a text, shape (T, V).
    """
    found: dict[str, list[float]] = {}
    for name, cut in CUTS.items():
        texts = []
        for p, q in wholes:
            target = cut.distributions(p)
            kinds = {
                "whole": Sampling(cut.temperature, top_k=LIKELIEST).distributions(q),
                "cut": cut.distributions(q),
            }
            texts.append(
                [
                    served_row(row, {kind: rows[at] for kind, rows in kinds.items()})
                    for at, row in enumerate(target)
                ]
            )
        found |= {f"{name}: {kind}": means for kind, means in by_text(texts).items()}
    return found


def served_row(p: FloatArray, drafts: dict[str, FloatArray]) -> dict[str, float]:
    """Compute the acceptance at one position by kind of draft and number of drafts."""
    found = {}
    for kind, q in drafts.items():
        kept = np.flatnonzero((p > 0.0) | (q > 0.0))
        for n in (1, 2, 4):
            rules = ("coupled", "likeliest") if kind == "cut" else ("coupled",)
            for one in measure_rules((p[kept], q[kept]), "iid", n, rules):
                found[f"{kind} {one.rule} {n}"] = one.acceptance
    return found


def begun(draft: Model, texts: Sequence[Text], number: int) -> tuple[Model, IntArray]:
    """Return the draft at the beginning of a text, and the tokens of the text."""
    draft.start(texts[number].prompt)
    return draft, texts[number].text.tokens


def gathered(
    draft: Model, target: str, texts: Sequence[Text], length: int, grown: bool,
    say: Callable[[str], None],
) -> Statistics:  # fmt: skip
    """Gather statistics on texts; of trees that the draft grows along the text only if `grown`."""
    along = partial(begun, draft, texts) if grown else None
    return gather_statistics(
        [one.text for one in texts], draft=draft.name, target=target, sampling=draft.sampling,
        budgets=BUDGETS, length=length, begun=along, progress=say,
    )  # fmt: skip


def sampled_schemes(statistics: Statistics, nodes: int, length: int) -> list[Scheme]:
    """Return the schemes that sample tokens from the draft, at a budget."""
    return [one for one in schemes(statistics, nodes, length) if one.name in SCHEMES]


def other_schemes(statistics: Statistics, nodes: int) -> list[Scheme]:
    """Return the choice of `otlp lab design`, and the trees that the draft grows, at a budget.

    Adaptive depth is left out, because it keeps to the budget only on average.
    """
    every = [family for family in FAMILIES if family != "adaptive-depth"]
    return [
        of(name, design(statistics, nodes, families=families))
        for name, families in (
            ("recommended", every),
            ("top tree, target-only", ["top"]),
            ("shared noise, equality", ["shared-noise"]),
        )
    ]


def measured(
    chosen: dict[int, list[Scheme]], texts: Sequence[Text], known: dict[Any, Renewal], length: int,
    say: Callable[[str], None],
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """Measure the schemes of each budget; `known` contains the renewals of grown trees."""
    fewer = [without_undrafted(one.text) for one in texts]
    rng, found = np.random.default_rng(2), {}
    for nodes, compared in chosen.items():
        rows = []
        for scheme in compared:
            same = scheme.drafting, scheme.rule
            if same not in known:
                say(f"{nodes} nodes: {scheme.name}")
                known[same] = value(scheme, fewer, length, rng)
            rows.append({**describe(scheme), **rounded(known[same])})
        found[str(nodes)] = rows
    return found


def grown_trees(
    draft: Model, target: str, texts: Sequence[Text], length: int, say: Callable[[str], None]
) -> dict[Any, Renewal]:
    """Measure the trees that the draft grows along the text, by drafting and rule."""
    whole, plain = [one.text for one in texts], partial(begun, draft, texts)
    noisy = along_texts(plain, whole, calibration_of(target, draft.name))
    found: dict[Any, Renewal] = {}
    for rule, drafts in (("target-only", plain), ("equality", noisy)):
        say(f"trees for {rule}")
        tree = TopTree(max(BUDGETS), length)
        renewals = top_tree_renewals(drafts, whole, tree, length, BUDGETS)
        for nodes, renewal in zip(BUDGETS, renewals, strict=True):
            found[TopTree(nodes, min(length, nodes)), rule] = renewal
    return found


def rounded(renewal: Renewal) -> dict[str, list[float]]:
    """Return tokens and calls of each text with few digits."""
    return {
        "tokens": [round(x, 5) for x in renewal.tokens],
        "calls": [round(x, 5) for x in renewal.calls],
    }


def describe(scheme: Scheme) -> dict[str, Any]:
    return {
        "name": scheme.name,
        "rule": scheme.rule,
        "nodes": scheme.nodes,
        "depth": scheme.drafting.length,
        "predicted": scheme.predicted,
    }


class Results:
    """The file of all cells."""

    def __init__(self, path: Path | None, options: dict[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {"options": options, "cells": {}}
        if path is not None and path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))
            if self.content["options"] != options:
                raise click.UsageError(f"{path} has other options: {self.content['options']}")

    def cell(self, key: str) -> dict[str, Any]:
        """Return the finished parts of a cell."""
        return dict(self.content["cells"].get(key, {}))

    def keep(self, key: str, cell: dict[str, Any]) -> None:
        """Store a cell, and write all cells."""
        self.content["cells"][key] = cell
        if self.path is not None:
            write_json(self.path, self.content)


def key_of(target: str, draft: str, name: str) -> str:
    return f"{target} / {draft}, {name}"


def written(
    target: HuggingFaceModel, options: dict[str, int], say: Callable[[str], None]
) -> tuple[list[Text], list[Text]]:
    """Decode texts from the target, for choosing and for measuring.

    Texts shorter than a round of the longest path are left out.
    """
    blank = load_draft("lookup", target)
    found: tuple[list[Text], list[Text]] = [], []
    wanted = problems_and_chats(target, options["choosing"], options["measuring"])
    for number, prompt in enumerate(wanted):
        say(f"text {number}")
        rng = np.random.default_rng([1, number])
        text = write_text(blank, target, prompt, options["tokens"], rng)
        if len(text) > options["length"]:
            found[number >= options["choosing"]].append(Text(prompt, text))
    return found


def study(target: HuggingFaceModel, name: str, results: Results, step: Callable[..., None]) -> None:
    """Compute the cells of a target at one sampling."""
    cells = {draft: results.cell(key_of(target.name, draft, name)) for draft in DRAFTS[target.name]}
    missing = [draft for draft, cell in cells.items() if "grown trees" not in cell]
    if not missing:
        return
    options, target.sampling = results.content["options"], SAMPLINGS[name]
    length = options["length"]
    texts = written(target, options, lambda words: step(f"{target.name}, {name}: {words}", 0))
    for source in missing:
        key, cell = key_of(target.name, source, name), cells[source]

        def say(words: str, key: str = key) -> None:
            step(f"{key}: {words}", 0)

        draft = load_draft(source, target, device="cpu", dtype=PRECISION)
        weights = [fingerprint(target), fingerprint(draft)]
        if cell.setdefault("weights", weights) != weights:
            raise click.UsageError(f"{key}: the file contains results of other weights")
        choosing, measuring = (drafted(draft, limited(SAMPLINGS[name]), part) for part in texts)
        over = overlap(measuring)
        if cell.get("overlap") != over:  # Machines round differently and decode other texts.
            cell = {"weights": weights, "overlap": over}
        if name == "served" and "as served" not in cell:
            say("as served")
            both = [whole_laws(model, texts[1]) for model in (target, draft)]
            cell["as served"] = as_served(list(zip(*both, strict=True)))
        if "rounds" not in cell:
            say("one position")
            cell["one position"] = one_position(measuring)
            statistics = gathered(draft, target.name, choosing, length, False, say)
            chosen = {nodes: sampled_schemes(statistics, nodes, length) for nodes in BUDGETS}
            cell["rounds"] = measured(chosen, measuring, {}, length, say)
            results.keep(key, cell)
        statistics = gathered(draft, target.name, choosing, length, True, say)
        others = {nodes: other_schemes(statistics, nodes) for nodes in BUDGETS}
        known = grown_trees(draft, target.name, measuring, length, say)
        cell["grown trees"] = measured(others, measuring, known, length, say)
        results.keep(key, cell)
        step(key)


@click.command(
    help=__doc__.replace("\n\n    OMP", "\n\n\b\n    OMP"),
    context_settings={"show_default": True},
)
@click.option("--target", "source", type=click.Choice(list(DRAFTS)), default=SMOLLM2)
@click.option("--choosing", type=click.IntRange(2), default=6, help="Texts for choosing settings.")
@click.option("--measuring", type=click.IntRange(2), default=14, help="Texts for measuring.")
@click.option("--tokens", type=click.IntRange(2), default=40, help="Tokens per text.")
@click.option("--length", type=click.IntRange(1), default=8, help="Maximum path length.")
@click.option("--json", "json_path", type=OutputFile(), help="Store results, and continue.")
def main(
    source: str, choosing: int, measuring: int, tokens: int, length: int, json_path: Path | None
) -> None:
    options = {
        "choosing": choosing,
        "measuring": measuring,
        "tokens": tokens,
        "length": length,
        "likeliest": LIKELIEST,
        "precision": PRECISION,
    }
    results = Results(json_path, options)
    with progress("cells", len(SAMPLINGS) * len(DRAFTS[source])) as step:
        silence_transformers()
        target = load_model(source, device="cpu", dtype=PRECISION)
        for name in SAMPLINGS:
            study(target, name, results, step)


if __name__ == "__main__":
    main()
