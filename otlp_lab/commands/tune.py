"""``otlp lab tune``: the setting that decodes most tokens a second, predicted and then timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from otlp.cli import options
from otlp.cli.options import ListOf, OutputFile
from otlp.cli.output import console, note, progress, show, warn, write_result, write_whole
from otlp.cli.prompts import Models, prompt_options
from otlp.decode.drafting import prefix_tree
from otlp.decode.models.copying import network_and_shares
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import TRAINED_PAIR
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp_lab.commands.target_texts import target_texts
from otlp_lab.commands.tuning_result import TuningResult, fastest, tuned_by
from otlp_lab.tuning.loop_costs import Bench, measure_costs
from otlp_lab.tuning.loop_setting import LoopSetting, grid
from otlp_lab.tuning.prediction import TunedTexts, predict, target_only_gain
from otlp_lab.tuning.side_by_side import CLOCKS
from otlp_lab.tuning.tuned import Tuned


class TreeName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A prefix tree such as 3-2-1, the children of each token by depth."""

    name = "tree"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Convert depth by depth, and refuse a tree that is too large."""
        if not re.fullmatch(r"[1-9]\d{0,5}(-[1-9]\d{0,5})*", value, re.ASCII):
            self.fail(f"{value!r} is no tree: give children by depth, such as 3-2-1", param, ctx)
        branching = tuple(map(int, value.split("-")))
        try:
            prefix_tree(branching)
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)
        return branching


@click.command(
    epilog="""\b
Examples:
  otlp lab tune                                     the trained pair, on this device
  otlp lab tune my/model my/small-model --device cuda --dtype bfloat16 --prompts prompts.txt
  otlp lab tune --paths 1,2,4,8 --length 1,2,4,8 --check 20
  otlp lab tune --trees 2-2-1,4-2-1-1 --draft-temperature 0.8,1,1.2
  otlp lab tune smollm2 lookup --prompts humaneval:0-9        every draft of otlp decode is taken
"""
)
@click.argument("target", default=TRAINED_PAIR[0])
@click.argument("draft", default=TRAINED_PAIR[1])
@prompt_options(limit=8)
@options.paths_option("1,2,4")
@options.length_option("1,2,3,4,6")
@click.option(
    "--trees",
    type=ListOf(TreeName()),
    default="2-2,2-2-1,3-2-1-1",
    help="Prefix trees, by the children of each token at each depth.",
)
@options.temperature_option()
@options.draft_temperature_option(ListOf(float))
@options.sampling_options
@click.option(
    "--text", type=click.IntRange(2), default=96, help="Tokens of each text that values settings."
)
@options.tokens_option(96)
@click.option("--check", type=click.IntRange(0), default=3, help="How many of the best to time.")
@click.option("--compile/--no-compile", "compiled", default=True, help="Compile the loop's steps.")
@click.option(
    "--clock", type=click.Choice(list(CLOCKS)), default="wall", help="What times are read from."
)
@options.seed_option()
@click.option("--config", type=OutputFile(), default="tuned.json", help="Write the winner here.")
@options.json_option("Write all that was found.")
def command(
    models: Models,
    paths: tuple[int, ...],
    length: tuple[int, ...],
    trees: tuple[tuple[int, ...], ...],
    temperature: float,
    draft_temperature: tuple[float, ...] | None,
    sampling_top_k: int | None,
    sampling_top_p: float,
    sampling_min_p: float,
    text: int,
    tokens: int,
    check: int,
    compiled: bool,
    clock: str,
    seed: int,
    config: Path,
    json_path: Path | None,
) -> None:
    """Find the setting that decodes most tokens a second for TARGET with DRAFT.

    The target writes text after each prompt, and text renewal says how many tokens a call each
    setting would give on it. A few settings are timed to learn what rounds cost here. Both make the
    prediction, which is kept, as is the best that was tried before; the best are then timed beside
    plain decoding on the same prompts, and the winner is written to a file that otlp lab decode and
    generate read. Until something is timed a new file holds the setting of fewest tokens.
    Every setting keeps the target's distribution. With a draft that is no network (ngram, lookup,
    mixtures) rounds are those of otlp decode, and nothing is compiled.
    """
    sampling = Sampling(temperature, sampling_top_k, sampling_top_p, sampling_min_p)
    drafted = dict.fromkeys(None if one == temperature else one for one in draft_temperature or ())
    for one in drafted:
        sampling.at(one)
    settings = grid(paths, length, trees, drafted or [None])
    longest = max(one.length for one in settings)
    if text <= longest:
        raise InvalidInputError(
            f"--text is {text} and the longest path {longest}: write texts longer than that"
        )
    how = {"compiled": compiled, "clock": clock, "seed": seed}
    pair, prompts = models.ready(sampling)
    bench = _bench(models, pair, prompts, sampling, tokens, **how)
    content = {
        **models.said(),
        "temperature": temperature,
        "draft_temperature": draft_temperature,
        "sampling_top_k": sampling_top_k,
        "sampling_top_p": sampling_top_p,
        "sampling_min_p": sampling_min_p,
    }

    def write(tuned: Tuned) -> None:
        write_whole(config, lambda path: path.write_bytes(tuned.to_json().encode()))

    def keep(result: TuningResult) -> None:
        write(result.tuned)
        write_result(json_path, "tune", {**content, **result.record()})

    names, best = (models.target, models.draft), 0.0

    def tried(one: LoopSetting, seconds: float, rate: float) -> None:
        nonlocal best
        if rate > best:  # whoever stops now has this
            best = rate
            write(tuned_by(names, bench, one, rate))
        warn(
            f"{one}: {1e3 * seconds:.1f} ms a round, some {rate:.0f} tokens a second"
            + (f"; kept in {config}" if rate == best else "")
        )

    if not config.exists():  # what an earlier run has timed is better than what none has
        first = min(settings, key=lambda one: (one.nodes, one.draft_temperature is not None))
        write(tuned_by(names, bench, first))
        warn(f"{first}: kept in {config} until something is timed")
    texts, begun = target_texts(pair, prompts, text, longest, 2, seed)
    written = TunedTexts.of(pair[0], sampling, begun, texts, drafted)
    result = _predicted(names, written, bench, settings, check, tried)
    keep(result)
    if check:
        warn(f"predicted best, kept in {config}: {result.winner.setting}; the best are timed now")
        with progress("timing", 0) as step:
            timed = bench.race(fastest(result.found, check), progress=step)
        result = replace(result, timed=timed)
        keep(result)
    console.print(f"{result.title}, T = {temperature:g}\n")
    show(result.table())
    console.print()
    for line in result.lines():
        console.print(line)
    note(f"written to {config}")


def _bench(
    models: Models,
    pair: tuple[Model, HuggingFaceModel],
    prompts: Sequence[IntArray],
    sampling: Sampling,
    tokens: int,
    **how: Any,
) -> Bench:
    """The loops that are timed; a model that they do not take is refused."""
    from otlp.device import Llama

    draft, target = pair
    loops: tuple[Any, Any] = target, draft
    network, shares = network_and_shares(draft)
    if isinstance(network, HuggingFaceModel):
        loops = Llama(target.model), Llama(network.model, shares)
    elif how["clock"] != "wall":
        raise InvalidInputError(
            f"the draft {models.draft!r:.60} is no network: its rounds are timed by the wall clock "
            f"alone, leave --clock {how['clock']} out"
        )
    return Bench(*loops, sampling, prompts, tokens, ends=target.ends, **how)


def _predicted(
    names: tuple[str, str],
    texts: TunedTexts,
    bench: Bench,
    settings: Sequence[LoopSetting],
    check: int,
    tried: Callable[[LoopSetting, float, float], None],
) -> TuningResult:
    """Predict, by costs that are measured; say what the likeliest tree would give."""
    with progress("tokens a call", 0) as step:
        found, costs = predict(
            texts.by_temperature,
            settings,
            lambda gains: measure_costs(bench, settings, gains, step, tried),
            keep=check,
            progress=step,
        )
    with progress("target-only", None):
        top = target_only_gain(fastest(found, 1)[0], texts)
    return TuningResult(names, bench, found, None, costs, top)
