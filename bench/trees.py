r"""Comparison of draft trees: all schemes at 8, 16 and 32 nodes, on two pairs of models.

    python bench/trees.py --choosing 8 --measuring 16 --checking 6 --tokens 50 \
        --json bench/results/trees.json
    python bench/trees.py --pair smollm2 --json bench/results/trees_smollm2.json

The target decodes text after held-out prompts.  The texts of the first prompts choose the setting
of each scheme, and the others measure it, by text renewal with all schemes on the same texts.  The
trained pair continues held-out passages.  The published pair, with a copying draft, continues
HumanEval's problems and answers chats in turn: problems 50 to 69 and the first half of the chats
choose, problems 70 to 99 and the other half measure.  Then the recommended design and its rivals
decode, to check the predictions.  Each finished setting is written at once, and the same command
continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.table import Table
from tree_schemes import Scheme, gain, schemes, value

from otlp.cli.options import ListOf, OutputFile, figure_option
from otlp.cli.output import console, progress, table, write_json, write_whole
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.data.captures import load
from otlp.decode import ALGORITHMS, Model, Sampling, decode
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import SMOLLM2_DRAFT, TRAINED_PAIR
from otlp.distribution import IntArray
from otlp.studies.canvas import figure
from otlp.studies.estimate import ratio
from otlp.studies.style import look
from otlp_lab.design import Renewal, WrittenText, gather_statistics
from otlp_lab.design.gathering import at_temperature
from otlp_lab.design.text_renewal import without_undrafted
from otlp_lab.design.written_texts import write_text

CAPTURE = Path(__file__).parent / "data" / "standard-library.safetensors"
CHOOSING, MEASURING = "humaneval:50-69", "humaneval:70-99"
"""HumanEval's problems; 0 to 49 are for training."""
CHATS = Path(__file__).parent / "data" / "chats.jsonl"
LEADER = "i.i.d. paths, two-slice"
CHECKED = (LEADER, "recommended", "Sequoia's tree, traversal")


def held_out_passages(model: HuggingFaceModel, choosing: int, measuring: int) -> list[IntArray]:
    """Return the text before the first row of each held-out passage of the large capture."""
    capture = load(CAPTURE)
    positions = np.asarray(capture.positions)
    firsts = np.flatnonzero(np.append(True, np.diff(positions) != 1))[: choosing + measuring]
    return [model.encode(capture.contexts[int(row)]) for row in firsts]


def problems_and_chats(model: HuggingFaceModel, choosing: int, measuring: int) -> list[IntArray]:
    """Return problems of HumanEval, and chats in turn if the model has a chat template.

    The prompts for choosing come first.
    """
    chats = read_prompts(str(CHATS), None)
    half = len(chats) // 2
    found: list[IntArray] = []
    for count, numbers, talks in (
        (choosing, CHOOSING, chats[:half]),
        (measuring, MEASURING, chats[half:]),
    ):
        turns = read_prompts(numbers, None)
        if model.tokenizer.chat_template:
            turns = [one for pair in zip(turns, talks, strict=False) for one in pair]
        if count > len(turns):
            raise click.UsageError(f"at most {len(turns)} prompts are available, got {count}")
        found += encode_prompts(model, turns[:count])
    return found


class Written(NamedTuple):
    """A prompt, the token ids of the target's text, and the distributions of both models."""

    prompt: IntArray
    tokens: IntArray
    text: WrittenText


class Study:
    """The pair, its texts at one temperature, and the results so far."""

    def __init__(self, options: dict[str, Any], path: Path | None, real: bool) -> None:
        self.options, self.path = options, path
        names = (f"copying:{SMOLLM2_DRAFT}", SMOLLM2) if real else TRAINED_PAIR[::-1]
        self.pair = open_pair(*names, "cpu", "auto", Sampling())
        choose = problems_and_chats if real else held_out_passages
        self.prompts = choose(self.pair[1], options["choosing"], options["measuring"])
        self.found: dict[str, Any] = {"options": options, "settings": {}, "checks": {}}
        if path is not None and path.exists():
            known = json.loads(path.read_text(encoding="utf-8"))
            if known["options"] != options:
                raise click.UsageError(f"{path} has other options: {known['options']}")
            self.found = known

    def keep(self, part: str, key: str, content: Any) -> None:
        """Store a result, and write all results."""
        self.found[part][key] = content
        if self.path is not None:
            write_json(self.path, self.found)

    def sample(self, temperature: float) -> None:
        """Set the temperature of all models."""
        for model in self.pair:
            model.sampling = Sampling(temperature)

    def texts(self, step: Callable[..., None]) -> tuple[list[Written], list[Written]]:
        """Decode texts from the target, for choosing and for measuring.

        Texts shorter than a round of the longest path are left out.
        """
        found: tuple[list[Written], list[Written]] = [], []
        for index, prompt in enumerate(self.prompts):
            rng = np.random.default_rng([1, index])
            text = write_text(*self.pair, prompt, self.options["tokens"], rng)
            if len(text) > self.options["length"]:
                one = Written(prompt, text.tokens, text)
                found[index >= self.options["choosing"]].append(one)
            step(f"T = {self.pair[0].sampling.temperature:g}: text {index}", 0)
        return found


def setting(
    study: Study, texts: tuple[list[Written], list[Written]], temperature: float, pair: str,
    step: Callable[..., None],
) -> None:  # fmt: skip
    """Choose the setting of every scheme on some texts, and measure it on the others."""
    length, budgets = study.options["length"], study.options["nodes"]
    rng = np.random.default_rng(2)
    keys = {nodes: key_of(pair, temperature, nodes) for nodes in budgets}
    if all(key in study.found["settings"] for key in keys.values()):
        return
    choosing, measuring = ([one.text for one in part] for part in texts)
    measuring = [without_undrafted(text) for text in measuring]
    draft = study.pair[0]

    def begun(one: Written) -> tuple[Model, IntArray]:
        draft.start(one.prompt)
        return draft, one.tokens

    statistics = gather_statistics(
        choosing, draft=draft.name, target=study.pair[1].name, sampling=Sampling(temperature),
        budgets=budgets, length=length, begun=lambda at: begun(texts[0][at]),
        draft_temperatures=(None, *(part * temperature for part in study.options["sharper"])),
        progress=lambda words: step(words, 0),
    )  # fmt: skip
    used = [np.minimum(t.targets, t.drafts).sum(axis=1).mean() for t in choosing + measuring]
    overlap = float(np.mean(used))
    for nodes, key in keys.items():
        if key in study.found["settings"]:
            continue
        rows: list[dict[str, Any]] = []
        renewals: dict[str, Renewal] = {}
        known: dict[tuple[Any, str, float | None], Renewal] = {}
        for scheme in schemes(statistics, nodes, length):
            step(f"{key}: {scheme.name}", 0)
            drawn = scheme.draft_temperature
            same = scheme.drafting, scheme.rule, drawn
            if same not in known:
                drafted = (
                    measuring
                    if drawn is None
                    else [at_temperature(text, Sampling(temperature), drawn) for text in measuring]
                )
                known[same] = value(scheme, drafted, length, rng, lambda at: begun(texts[1][at]))
            renewals[scheme.name] = known[same]
            rows.append({**describe(scheme), "renewal": asdict(known[same])})
        for row in rows:
            renewal = renewals[row["name"]]
            row["efficiency"] = ratio(np.array(renewal.tokens), np.array(renewal.calls)).record()
            row["gain"] = gain(renewal, renewals[LEADER]).record()
        study.keep("settings", key, {"overlap": overlap, "rows": rows})
        if nodes == 16:
            chosen = schemes(statistics, nodes, length)
            check(study, [s for s in chosen if s.name in CHECKED], temperature, pair, step)


def check(
    study: Study, wanted: Sequence[Scheme], temperature: float, pair: str,
    step: Callable[..., None],
) -> None:  # fmt: skip
    """Decode with some schemes, after the prompts of the measurement."""
    first = study.options["choosing"]
    prompts = study.prompts[first : first + study.options["checking"]]
    tokens = study.options["tokens"] - study.options["length"]
    rows = []
    for scheme in wanted:
        step(f"decoding: {scheme.name}", 0)
        verification = ALGORITHMS[scheme.rule]
        decoded, calls, nodes, distinct = [], [], [], []
        for index, prompt in enumerate(prompts):
            rng = np.random.default_rng([3, index])
            draft = study.pair[0]
            if scheme.draft_temperature is not None:
                draft.sampling = Sampling(scheme.draft_temperature)
            (text,) = decode(
                study.pair[1], [prompt], tokens, rng,
                draft=draft, drafting=scheme.drafting, verification=verification,
            )  # fmt: skip
            played = text.rounds
            decoded.append(sum(one.tokens.size for one in played))
            calls.append(len(played))
            study.sample(temperature)
            nodes += [one.tree.slots.nodes.size - 1 for one in played]
            distinct += [len(one.tree) - 1 for one in played]
        rows.append({
            **describe(scheme), "decoded": ratio(np.array(decoded), np.array(calls)).record(),
            "slots": float(np.mean(nodes)), "most slots": max(nodes),
            "distinct": float(np.mean(distinct)),
        })  # fmt: skip
    study.keep("checks", key_of(pair, temperature, 16), rows)


def key_of(pair: str, temperature: float, nodes: int) -> str:
    return f"{pair} T={temperature:g} N={nodes}"


def describe(scheme: Scheme) -> dict[str, Any]:
    return {
        "name": scheme.name,
        "drafting": short(scheme),
        "rule": scheme.rule,
        "nodes": scheme.nodes,
        "depth": scheme.drafting.length,
        "predicted": scheme.predicted,
        "draft temperature": scheme.draft_temperature,
    }


def short(scheme: Scheme) -> str:
    """Return a short description of a drafting."""
    made = scheme.drafting
    if getattr(made, "is_iid_paths", False):
        return f"{made.paths} x {made.length}"
    rule = getattr(made, "rule", None)
    values = getattr(rule, "__dict__", {})
    if hasattr(made, "shape"):
        return f"{len(made.shape) - 1} nodes, depth {made.length}"
    return " ".join(str(value) for value in values.values()) or f"depth {made.length}"


def show(found: dict[str, Any]) -> Table:
    columns = list(found["settings"])
    made = table("scheme", *columns, box=None, padding=(0, 1, 0, 0))
    names = [row["name"] for row in found["settings"][columns[0]]["rows"]] if columns else []
    for name in names:
        cells = []
        for column in columns:
            row = next(r for r in found["settings"][column]["rows"] if r["name"] == name)
            mean, low, high = row["gain"]
            cells.append(f"{row['efficiency'][0]:.2f} {100 * mean:+.0f}±{50 * (high - low):.0f}")
        made.add_row(name, *cells)
    return made


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw tokens per call over the nodes, one panel for each pair and temperature."""
    groups: dict[str, dict[int, Any]] = {}
    for key, content in found["settings"].items():
        where, _, nodes = key.rpartition(" N=")
        groups.setdefault(where, {})[int(nodes)] = content["rows"]
    pairs = list(dict.fromkeys(where.split()[0] for where in groups))
    groups = dict(sorted(groups.items(), key=lambda group: pairs.index(group[0].split()[0])))
    lines = -(-len(groups) // 3)
    with figure(path, 7.6, 1.2 + 2.7 * lines) as canvas:
        panels = canvas.subplots(lines, 3, squeeze=False).ravel()
        for panel, (where, content) in zip(panels, groups.items(), strict=False):
            names = [row["name"] for row in next(iter(content.values()))]
            for name in names:
                at = sorted(content)
                rows = [next(r for r in content[n] if r["name"] == name) for n in at]
                wide = {"linewidth": 5.0, "zorder": 1} if name == "recommended" else {}
                heights = [r["efficiency"][0] for r in rows]
                panel.plot(at, heights, label=name, **look(name, names) | wide)
            panel.set(title=where, xticks=sorted(content))
        for panel in panels[len(groups) :]:
            panel.set_axis_off()
        for panel in panels[-3:]:
            panel.set_xlabel("nodes N")
        canvas.supylabel("tokens per target call", fontsize="medium")
        handles, labels = panels[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--nodes", type=ListOf(click.IntRange(1)), default="8,16,32")
@click.option("--temperature", type=ListOf(float), default="0.3,0.6,1")
@click.option("--pair", type=click.Choice(["trained", "smollm2"]), default="trained")
@click.option("--choosing", type=click.IntRange(2), default=12, help="Texts for choosing settings.")
@click.option("--measuring", type=click.IntRange(2), default=24, help="Texts for measuring.")
@click.option("--checking", type=click.IntRange(2), default=12, help="Prompts to decode.")
@click.option("--tokens", type=click.IntRange(2), default=60, help="Tokens per text.")
@click.option("--length", type=click.IntRange(1), default=10, help="Maximum path length.")
@click.option("--sharper", type=ListOf(float), help="More draft temperatures, as multiples of T.")
@click.option("--json", "json_path", type=OutputFile(), help="Store results, and continue.")
@figure_option("Draw the table.")
def main(
    nodes: tuple[int, ...],
    temperature: tuple[float, ...],
    pair: str,
    choosing: int,
    measuring: int,
    checking: int,
    tokens: int,
    length: int,
    sharper: tuple[float, ...] | None,
    json_path: Path | None,
    figure_path: Path | None,
) -> None:
    options = {
        "sharper": list(sharper or ()),
        "nodes": list(nodes),
        "choosing": choosing,
        "measuring": measuring,
        "checking": checking,
        "tokens": tokens,
        "length": length,
    }
    study = Study(options, json_path, pair == "smollm2")
    with progress("trees", len(temperature)) as step:
        for value_of in temperature:
            study.sample(value_of)
            keys = [key_of(pair, value_of, n) for n in nodes]
            if all(key in study.found["settings"] for key in keys):
                continue
            texts = study.texts(step)
            setting(study, texts, value_of, pair, step)
            step(f"T = {value_of:g}")
    console.print(show(study.found), soft_wrap=True)
    if figure_path:
        write_whole(figure_path, lambda path: draw(study.found, path))


if __name__ == "__main__":
    main()
