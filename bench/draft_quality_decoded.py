r"""Decoding with some schemes in six cells of `draft_quality.py`, to check its predictions.

    OMP_NUM_THREADS=1 python bench/draft_quality_decoded.py \\
        --json bench/results/decoded_draft_quality.json

Settings are chosen as in `draft_quality.py`, at 16 nodes.  Every scheme decodes the first prompts
of the measurement.  The largest number of drafted tokens of a round is stored: no scheme exceeds
its budget.  Each finished cell is written at once, and the same command continues.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from draft_quality import (
    PRECISION,
    SAMPLINGS,
    Results,
    drafted,
    gathered,
    key_of,
    limited,
    other_schemes,
    sampled_schemes,
    written,
)
from draft_quality_figures import gain
from tree_schemes import Scheme
from trees import problems_and_chats

from otlp.cli.options import OutputFile
from otlp.cli.output import console, progress, table
from otlp.cli.prompts import silence_transformers
from otlp.decode import ALGORITHMS, Equality, Model, Verification, decode, with_shared_noise
from otlp.decode.models.gguf import GEMMA3, SMOLLM2
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import load_draft, load_model
from otlp.distribution import IntArray
from otlp.studies.estimate import Estimate, ratio

NODES = 16
CELLS = (
    (SMOLLM2, "copying:smollm2-draft", "T = 1"),
    (SMOLLM2, "copying:smollm2-draft", "T = 0.3"),
    (SMOLLM2, "skip:3,9,25", "T = 1"),
    (SMOLLM2, "skip:3,9,25", "served"),
    (GEMMA3, "skip:7,8", "T = 1"),
    (GEMMA3, "skip:7,8", "T = 0.3"),
)
"""Target, draft and sampling."""

DECODED = ("recommended", "i.i.d. paths, two-slice", "shared noise, equality")


def played(
    draft: Model, target: HuggingFaceModel, scheme: Scheme, after: list[IntArray], tokens: int
) -> dict[str, Any]:
    """Decode after prompts: tokens and calls of each text, and the most drafted tokens."""
    decoded, calls, most = [], [], 0
    for number, prompt in enumerate(after):
        pair: tuple[Model, Model] = draft, target
        verification: Verification
        if scheme.rule == "equality":
            pair, verification = with_shared_noise(draft, target, number), Equality()
        else:
            verification = ALGORITHMS[scheme.rule]
        (text,) = decode(
            pair[1], [prompt], tokens, np.random.default_rng([3, number]),
            draft=pair[0], drafting=scheme.drafting, verification=verification,
        )  # fmt: skip
        decoded.append(sum(one.tokens.size for one in text.rounds))
        calls.append(len(text.rounds))
        most = max(most, *(one.tree.slots.nodes.size - 1 for one in text.rounds))
    return {
        "name": scheme.name,
        "rule": scheme.rule,
        "tokens": decoded,
        "calls": calls,
        "most_nodes": most,
        "decoded": ratio(np.array(decoded), np.array(calls)).record(),
    }


def check(
    target: HuggingFaceModel, source: str, name: str, options: dict[str, int],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:  # fmt: skip
    """Choose the schemes of a cell and decode with them."""
    target.sampling, length = SAMPLINGS[name], options["length"]
    texts = written(target, {**options, "measuring": 0}, say)[0]
    draft = load_draft(source, target, device="cpu", dtype=PRECISION)
    choosing = drafted(draft, limited(target.sampling), texts)
    statistics = gathered(draft, target.name, choosing, length, True, say)
    after = problems_and_chats(target, options["choosing"], options["checking"])[
        options["choosing"] :
    ]
    rows = []
    compared = sampled_schemes(statistics, NODES, length), other_schemes(statistics, NODES)
    for scheme in (one for part in compared for one in part):
        if scheme.name in DECODED:
            say(f"decoding: {scheme.name}")
            rows.append(played(draft, target, scheme, after, options["tokens"] - length))
    return rows


@click.command(
    help=__doc__.replace("\n\n    OMP", "\n\n\b\n    OMP"),
    context_settings={"show_default": True},
)
@click.option("--choosing", type=click.IntRange(2), default=6, help="Texts for choosing settings.")
@click.option("--checking", type=click.IntRange(2), default=8, help="Prompts to decode.")
@click.option("--tokens", type=click.IntRange(2), default=40, help="Tokens per text.")
@click.option("--length", type=click.IntRange(1), default=8, help="Maximum path length.")
@click.option("--json", "json_path", type=OutputFile(), help="Store results, and continue.")
def main(choosing: int, checking: int, tokens: int, length: int, json_path: Path | None) -> None:
    options = {"choosing": choosing, "checking": checking, "tokens": tokens, "length": length}
    results = Results(json_path, options)
    with progress("cells", len(CELLS)) as step:
        for name, source, sampling in CELLS:
            key = key_of(name, source, sampling)
            if not results.cell(key):
                silence_transformers()
                target = load_model(name, device="cpu", dtype=PRECISION)
                say = partial(_say, step, key)
                results.keep(key, {"rows": check(target, source, sampling, options, say)})
            step(key)
    made = table("cell", *DECODED, "second over third, %", "most nodes")
    for key, cell in results.content["cells"].items():
        rows = {row["name"]: row for row in cell["rows"]}
        values = [str(Estimate.of(rows[scheme]["decoded"])) for scheme in DECODED]
        most = max(row["most_nodes"] for row in cell["rows"])
        sums = [rows[scheme][part] for scheme in DECODED[1:] for part in ("tokens", "calls")]
        made.add_row(key, *values, gain(*sums).show(0), str(most))
    console.print(made, soft_wrap=True)


def _say(step: Callable[..., None], key: str, words: str) -> None:
    step(f"{key}: {words}", 0)


if __name__ == "__main__":
    main()
