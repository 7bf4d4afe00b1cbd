"""Tokens per round of SpecTr, SpecInfer, traversal and GBV over K and L, on the same paths.

    python bench/block_efficiency.py --json bench/results/block_efficiency.json

The target decodes a text without drafts.  At every third position of the text the draft samples the
paths of the largest setting; K paths of length L are the first K of these paths, cut after L
tokens.  Every rule verifies the paths a few times, so differences between rules, K and L are
paired.  The result is the mean number of tokens of a round that starts at a uniformly random
position of the target's text; rounds of a decoder start where the previous round ended, which
weighs positions differently.  Texts are the independent units: ± is half a 95% interval over texts.

The run ends when the interval of every gain over one path is within `--half`, or after `--texts`
texts.  The file stores every text, and a run with the same settings continues from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import click
import numpy as np

from otlp.cli.options import ListOf, json_option
from otlp.cli.output import console, progress, show, table, write_json
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.decode import ALGORITHMS, DraftTree, Model, RandomChooser, Sampling, iid_paths
from otlp.decode.models.fingerprint import fingerprint
from otlp.decode.tree import Slots
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import IID
from otlp.studies.estimate import rate_ratio, ratio

SINGLE = ("speculative", "block")
MULTIPLE = ("recursive-rejection", "k-seq", "traversal", "greedy-multipath")
STRIDE = 3
"""Distance between positions, in tokens."""

Cell = tuple[str, int, int]
"""A rule, K and L."""


def paths_of(tree: DraftTree) -> list[list[int]]:
    """Return the nodes of each drafted path without the root, in the order of drawing."""
    below, paths = tree.slots.children, []
    for slot in below[0]:
        path = [slot]
        while below[path[-1]]:
            path += below[path[-1]]
        paths.append(tree.slots.nodes[path].tolist())
    return paths


def first_paths(tree: DraftTree, paths: int, length: int) -> tuple[DraftTree, IntArray]:
    """Return the first K paths of a tree of i.i.d. paths, cut after L tokens, and their nodes."""
    kept = [path[:length] for path in paths_of(tree)[:paths]]
    nodes = np.unique([0, *(node for path in kept for node in path)])
    new = {old: at for at, old in enumerate(nodes.tolist())}
    draws: dict[int, list[int]] = {}
    for path in kept:
        for above, node in zip([0, *path[:-1]], path, strict=True):
            draws.setdefault(new[above], []).append(new[node])
    inner = sorted(draws)
    q = {at: tree.distributions[int(nodes[at])] for at in inner}
    count, depth = len(kept), np.tile(np.arange(length), len(kept))
    slots = np.arange(1, count * length + 1)
    cut = DraftTree(
        tree.tokens[nodes],
        np.array([-1, *(new[int(above)] for above in tree.parents[nodes[1:]])]),
        {at: IID(q[at], len(draws[at])) for at in inner},
        q,
        {at: np.array(draws[at]) for at in inner},
        Slots(
            np.array([0, *(new[node] for path in kept for node in path)]),
            np.concatenate(([-1], np.where(depth == 0, 0, slots - 1))),
            np.zeros(slots.size + 1, dtype=bool),
            np.concatenate(([False], depth == length - 1)),
        ),
    )
    return cut, nodes


def along_text(
    pair: tuple[Model, Model],
    prompt: IntArray,
    places: int,
    cells: Sequence[Cell],
    times: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the mean tokens of a round in each cell, over positions of a text of the target."""
    draft, target = pair
    drafting = iid_paths(max(cell[1] for cell in cells), max(cell[2] for cell in cells))
    chooser, found = RandomChooser(rng), np.zeros(len(cells))
    for model in pair:
        model.start(prompt)
    for _ in range(places):
        tree = drafting.draft(draft, chooser)
        laws = target.distributions(tree, np.arange(len(tree)))
        cuts = {shape: first_paths(tree, *shape) for shape in {cell[1:] for cell in cells}}
        for at, (rule, *shape) in enumerate(cells):
            cut, nodes = cuts[shape[0], shape[1]]
            for _ in range(times):
                outcome = ALGORITHMS[rule].verify(cut, laws[nodes], chooser)
                found[at] += cut.depths[outcome.node] + 1
        p = laws[0]
        for step in range(STRIDE):
            token = chooser.choose(p)
            for model in pair:
                model.advance(tree, 0, token)
            if step < STRIDE - 1:
                tree = iid_paths(1, 1).draft(draft, chooser)
                p = target.distributions(tree, np.array([0]))[0]
    return found / (places * times)


def report(cells: Sequence[Cell], found: FloatArray) -> None:
    """Print tokens per round, gains over one path of the same length and over greedy multi-path."""
    at: Mapping[Cell, Any] = {cell: found[:, place] for place, cell in enumerate(cells)}
    ones = np.ones(len(found))
    lengths = sorted({cell[2] for cell in cells})
    counts = sorted({cell[1] for cell in cells})
    for title, against in (
        ("tokens per round", lambda rule, paths, length: None),
        ("over one path: k-seq and SpecInfer over speculative, others over block", one_path),
        ("over greedy multi-path", lambda rule, paths, length: ("greedy-multipath", paths, length)),
    ):
        made = table("rule", "K", *(f"L = {length}" for length in lengths), title=title)
        for rule, paths in ((rule, k) for k in counts for rule in (MULTIPLE if k > 1 else SINGLE)):
            line = []
            for length in lengths:
                other = against(rule, paths, length)
                if other is None:
                    line.append(ratio(at[rule, paths, length], ones).show(3))
                elif other in at and paths > 1:
                    own = rate_ratio(at[rule, paths, length], ones, at[other], ones)
                    line.append(own.show(3))
            if line:
                made.add_row(rule, str(paths), *line)
        show(made)


def one_path(rule: str, paths: int, length: int) -> Cell:
    """Return the baseline of a rule in papers: the single-path rule that it generalises."""
    return "speculative" if rule in ("k-seq", "recursive-rejection") else "block", 1, length


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--paths", type=ListOf(click.IntRange(1)), default="1,2,3,4,8")
@click.option("--length", type=ListOf(click.IntRange(1)), default="4,8,16")
@click.option("--temperature", type=float, default=1.0)
@click.option("--half", type=float, default=0.05, help="Maximum half width of a 95% interval.")
@click.option("--texts", type=click.IntRange(2), default=400, help="Maximum number of texts.")
@click.option("--places", type=click.IntRange(1), default=20, help="Positions per text.")
@click.option("--times", type=click.IntRange(1), default=2, help="Verifications per position.")
@json_option("Write the mean of every text to this file.")
def main(
    paths: tuple[int, ...],
    length: tuple[int, ...],
    temperature: float,
    half: float,
    texts: int,
    places: int,
    times: int,
    json_path: Path | None,
) -> None:
    pair = open_pair("trained:draft", "trained:target", "cpu", "auto", Sampling(temperature))
    prompts = encode_prompts(pair[1], read_prompts(None, 10))
    cells = [
        (rule, k, depth)
        for depth in length
        for k in paths
        for rule in (MULTIPLE if k > 1 else SINGLE)
    ]
    setting = {"temperature": temperature, "places": places, "times": times,
               "cells": [list(cell) for cell in cells],
               "weights": [fingerprint(model) for model in pair]}  # fmt: skip
    found = kept(json_path, setting)
    with progress("texts", texts) as step:
        while len(found) < texts and widest(cells, found) > half:
            rng = np.random.default_rng([0, len(found)])
            prompt = prompts[len(found) % len(prompts)]
            found.append(along_text(pair, prompt, places, cells, times, rng).tolist())
            if json_path:
                write_json(json_path, setting | {"texts": found})
            step(f"{len(found)} texts, widest interval ±{widest(cells, found):.3f}")
    console.print(
        f"trained pair, T = {temperature:g}: {len(found)} texts of {len(prompts)} prompts, "
        f"{places} positions each, {times} verifications at each; gains within "
        f"±{widest(cells, found):.3f}"
    )
    report(cells, np.array(found))


def kept(path: Path | None, setting: Mapping[str, Any]) -> list[list[float]]:
    """Return the texts of an earlier run with the same settings from the file."""
    if path is None or not path.exists():
        return []
    stored = json.loads(path.read_text(encoding="utf-8"))
    found: list[list[float]] = stored.pop("texts")
    if any(stored.get(name) != value for name, value in setting.items()):
        raise click.ClickException(f"{path} contains other settings: give another file")
    return found


def widest(cells: Sequence[Cell], found: Sequence[Sequence[float]]) -> float:
    """Return the largest half width of a gain over one path; infinite below ten texts."""
    if len(found) < 10:
        return inf
    at, ones = dict(zip(cells, np.array(found).T, strict=True)), np.ones(len(found))
    gains = (rate_ratio(at[cell], ones, at[one_path(*cell)], ones) for cell in cells if cell[1] > 1)
    return max((gain.high - gain.low) / 2.0 for gain in gains)


if __name__ == "__main__":
    main()
