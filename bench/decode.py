"""Block efficiency, cost and speed-up of all verification algorithms on the trained pair.

    python bench/decode.py

In each setting (K, L, temperature) both models decode prompts.  In every round each algorithm
verifies the same draft tree, and the text continues with the decision of `two-slice`.  So all
algorithms have the same contexts, and their differences are paired.  `hub` drafts differently
(pairs on a binary tree of 2^L leaves) and decodes the same prompts separately, for K = 2.  The
speed-up is computed from the measured times of the parts of a round: block efficiency x time of an
autoregressive round / (draft + target + verification).  Block efficiencies reported in papers for
other, much larger models are printed below.  For the cost of verification with a large vocabulary
see `bench/verification_cost.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import click
import numpy as np
from rich.table import Table

from otlp.cli.options import ListOf, figure_option, json_option
from otlp.cli.output import console, progress, show, table, write_json, write_whole
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.decode import (
    ALGORITHMS,
    RandomChooser,
    Sampling,
    decode,
)
from otlp.decode.models.model import Model
from otlp.decode.verification.top_down import LARGEST_HUB_TREE
from otlp.distribution import IntArray
from otlp.studies.canvas import figure
from otlp.studies.decoding import Setting
from otlp.studies.estimate import Estimate, ratio
from otlp.studies.style import look

LEADER = "two-slice"
HUB = "hub"
SINGLE = ("speculative", "block")
MULTIPLE = (
    "naive",
    "recursive-rejection",
    "k-seq",
    "optimal",
    "global-resolution",
    "traversal",
    "greedy-multipath",
    "two-slice",
)
PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text())
"""Results reported in papers: source, setting, tokens per target call."""


@dataclass(frozen=True)
class Row:
    """Results of one algorithm in one setting; seconds are medians over rounds.

    `prompt_means` is the block efficiency of each prompt.  All algorithms except `hub` have the
    same trees, so their differences are paired.
    """

    algorithm: str
    paths: int
    length: int
    temperature: float
    rounds: int
    prompt_means: tuple[float, ...]
    draft_seconds: float
    target_seconds: float
    verify_seconds: float
    speed_up: float

    @property
    def block_efficiency(self) -> Estimate:
        """Mean over the prompts, which have the same number of rounds, and its interval."""
        return mean(self.prompt_means)


def mean(values: Sequence[float]) -> Estimate:
    """Estimate the mean over prompts."""
    return ratio(np.array(values), np.ones(len(values)))


def paired_rounds(
    pair: tuple[Model, Model],
    prompts: Sequence[IntArray],
    setting: Setting,
    rounds: int,
    plain_seconds: float,
) -> list[Row]:
    """Verify the same trees with every algorithm, `rounds` trees for each prompt.

    The text continues with the decision of the last algorithm, which is that of the setting.
    """
    draft, target = pair
    names: tuple[str, ...] = (*SINGLE, LEADER) if setting.paths == 1 else MULTIPLE
    if setting.algorithm == HUB:
        names = (HUB,)
    chooser = RandomChooser(np.random.default_rng(1))
    tokens: dict[str, list[list[int]]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in ("draft", "target", *names)}
    for prompt in prompts:
        for model in pair:
            model.start(prompt)
        for kept in tokens.values():
            kept.append([])
        for _ in range(rounds):
            begin = perf_counter()
            tree = setting.drafting.draft(draft, chooser)
            drafted = perf_counter()
            laws = target.distributions(tree, np.arange(len(tree)))
            seconds["draft"].append(drafted - begin)
            seconds["target"].append(perf_counter() - drafted)
            for name in names:
                begin = perf_counter()
                outcome = ALGORITHMS[name].verify(tree, laws, chooser)
                token = chooser.choose(outcome.correction)
                seconds[name].append(perf_counter() - begin)
                tokens[name][-1].append(int(tree.depths[outcome.node]) + 1)
            for model in pair:
                model.advance(tree, outcome.node, token)
    middle = {name: float(np.median(values)) for name, values in seconds.items()}
    rows = []
    for name in names:
        gained, parts = np.array(tokens[name]), (middle["draft"], middle["target"], middle[name])
        speed_up = float(gained.mean()) * plain_seconds / sum(parts)
        where = (name, setting.paths, setting.length, setting.temperature)
        rows.append(Row(*where, gained.size, tuple(gained.mean(axis=1).tolist()), *parts, speed_up))
    return rows


def plain_round(pair: tuple[Model, Model], prompts: Sequence[IntArray], tokens: int) -> float:
    """Return the median seconds of an autoregressive round."""
    found = []
    for prompt in prompts:
        rng = np.random.default_rng(0)
        (text,) = decode(pair[1], [prompt], tokens, rng)
        found += [r.target_seconds + r.verify_seconds for r in text.rounds]
    return float(np.median(found))


def report(rows: Sequence[Row]) -> None:
    heads = ("K", "L", "T", "block eff.", "speed-up", "draft ms", "target", "verify", "share")
    made = table("algorithm", *heads, box=None, padding=(0, 1, 0, 0))
    for row in rows:
        whole = row.draft_seconds + row.target_seconds + row.verify_seconds
        made.add_row(
            row.algorithm,
            str(row.paths),
            str(row.length),
            f"{row.temperature:g}",
            str(row.block_efficiency),
            f"{row.speed_up:.2f}",
            f"{1e3 * row.draft_seconds:.1f}",
            f"{1e3 * row.target_seconds:.1f}",
            f"{1e3 * row.verify_seconds:.2f}",
            f"{row.verify_seconds / whole:.1%}",
        )
    show(made)
    console.print(against_leader(rows))
    published = Table("published, other models", "setting", "block efficiency")
    for source, setting, value in PUBLISHED:
        published.add_row(source, setting, f"{value:g}")
    console.print(published)


def against_leader(rows: Sequence[Row]) -> Table:
    """Return means over settings with K > 1, and differences to the leader, paired by prompt."""
    settings: dict[str, dict[tuple[int, int, float], np.ndarray]] = {}
    for row in rows:
        if row.paths > 1:
            found = settings.setdefault(row.algorithm, {})
            found[row.paths, row.length, row.temperature] = np.array(row.prompt_means)
    made = table("algorithm", "mean, K > 1", f"less than {LEADER}, 95% interval")
    for name, own in settings.items():
        gaps = np.mean([settings[LEADER][setting] - own[setting] for setting in own], axis=0)
        made.add_row(
            name if name != HUB else f"{HUB} (K = 2)",
            f"{np.mean(list(own.values())):.3f}",
            "" if name == LEADER else mean(gaps).show(3),
        )
    return made


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw mean block efficiencies over K for each L, and over the temperature for K > 1."""
    lengths = sorted({row.length for row in rows})
    with figure(path, 3.4 * (len(lengths) + 1), 3.6) as canvas:
        panels = canvas.subplots(1, len(lengths) + 1, sharey=True, squeeze=False)[0]
        for name in dict.fromkeys(row.algorithm for row in rows):
            style = look(name)
            own = [row for row in rows if row.algorithm == name]
            for panel, length in zip(panels, lengths, strict=False):
                alike = [row for row in own if row.length == length]
                panel.plot(*means(alike, "paths"), **style)
            wide = [row for row in own if name in SINGLE or row.paths > 1]
            panels[-1].plot(*means(wide, "temperature"), label=name, **style)
        for panel, length in zip(panels, lengths, strict=False):
            panel.set(title=f"L = {length}, mean over temperatures", xlabel="paths K")
            panel.set_xticks(sorted({row.paths for row in rows}))
        panels[-1].set(title="mean over L and K > 1", xlabel="temperature")
        panels[0].set_ylabel("tokens per target call")
        canvas.legend(loc="outside right center")


def means(rows: Sequence[Row], axis: str) -> tuple[list[float], list[float]]:
    """Return the values of an axis, and the mean block efficiency of the rows at each value."""
    values = sorted({getattr(row, axis) for row in rows})
    at = [[row.block_efficiency.mean for row in rows if getattr(row, axis) == v] for v in values]
    return values, [float(np.mean(found)) for found in at]


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--paths", type=ListOf(click.IntRange(1)), default="1,2,3,4")
@click.option("--length", type=ListOf(click.IntRange(1)), default="4,8")
@click.option("--temperature", type=ListOf(float), default="0.2,0.4,0.6,0.8,1")
@click.option("--prompts", "count", type=click.IntRange(1), default=10)
@click.option("--rounds", type=click.IntRange(1), default=8, help="Rounds per prompt.")
@click.option("--device", default="auto")
@json_option("Write all results to this file.")
@figure_option("Draw the block efficiencies.")
def main(
    paths: tuple[int, ...],
    length: tuple[int, ...],
    temperature: tuple[float, ...],
    count: int,
    rounds: int,
    device: str,
    json_path: Path | None,
    figure_path: Path | None,
) -> None:
    pair = open_pair("trained:draft", "trained:target", device, "auto", Sampling())
    prompts = encode_prompts(pair[1], read_prompts(None, count))
    settings = [
        Setting(name, drafted, depth, value)
        for value in temperature
        for depth in length
        for drafted in paths
        for name in (LEADER, HUB)
        if name != HUB or (drafted == 2 and depth <= LARGEST_HUB_TREE)
    ]
    for setting in {setting.paths: setting for setting in settings}.values():
        # Compile on first use before the medians are measured.
        paired_rounds(pair, prompts[:1], setting, 1, 1.0)
    rows: list[Row] = []
    with progress("decoding", len(settings)) as step:
        for setting in settings:
            for model in pair:
                model.sampling = Sampling(setting.temperature)
            plain = plain_round(pair, prompts, 6)
            rows += paired_rounds(pair, prompts, setting, rounds, plain)
            step(f"{setting.algorithm}, K = {setting.paths}, L = {setting.length}")
    if json_path:
        content = {
            "prompts": len(prompts),
            "device": str(pair[1].model.device),
            "rows": [
                {**asdict(row), "block_efficiency": row.block_efficiency.record()} for row in rows
            ],
            "published": PUBLISHED,
        }
        write_json(json_path, content)
    if figure_path:
        write_whole(figure_path, lambda path: draw(rows, path))
    console.print(
        f"trained pair on {pair[1].model.device}, {len(prompts)} prompts, {rounds} "
        "rounds each; ± is half a 95% interval over prompts; milliseconds are medians of a round"
    )
    report(rows)


if __name__ == "__main__":
    main()
