"""Tokens a second: settings of the device loop, plain decoding, and transformers, side by side.

    OMP_NUM_THREADS=1 python bench/tokens_a_second.py --widen 1,10 --json found.json

Every way decodes the same prompts with the same seeds, in turn, and whole calls are timed, the
reading of the prompt included; compilation is timed apart, as the first run.  Speed-ups are over
the plain loop (compiled as the others are), paired over prompts.  The plain loop runs once more
before and after: where that drifted, other work was on the machine.  A target widened 10 times says
the same and computes ten times the feed-forward products: it shows what a costly target changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from widened import widened

from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress, show, table, write_json
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.decode.models.model import Sampling
from otlp.device import DeviceLoop, Llama, captured, uncaptured
from otlp.studies import tuning
from otlp.studies.loop_setting import LoopSetting, grid
from otlp.studies.timed_loop import CLOCKS, SideBySide, Way, generated, looped, race, whole

PLAIN = "plain loop"


def setting(text: str) -> LoopSetting:
    """K paths of L tokens such as 4x2, or a tree such as 2-2-1."""
    paths, x, length = text.partition("x")
    if x:
        return grid([int(paths)], [int(length)])[0]
    return LoopSetting(tuple(map(int, text.split("-"))))


def ways(
    pair: tuple[Any, Any], settings: Sequence[LoopSetting], options: dict[str, Any]
) -> dict[str, Way]:
    """All ways of decoding with a draft and a target of transformers."""
    draft, target = pair
    tokens, sampling, slots = options["tokens"], options["sampling"], options["slots"]
    models = Llama(target), Llama(draft)

    def loop(one: LoopSetting, capture: Any = captured) -> Way:
        made = DeviceLoop(
            models[0], models[1] if one.branching else None, branching=one.branching or None,
            sampling=sampling, slots=slots + one.length + 1, compiled=options["compiled"],
            clock=CLOCKS[options["clock"]], capture=capture,
        )  # fmt: skip
        return whole(looped(made, tokens))

    found = {}
    for one in (tuning.PLAIN, *settings):
        name = str(one) if one.branching else PLAIN
        found[name] = loop(one)
        if target.device.type == "cuda":
            found[f"{name}, no graph"] = loop(one, uncaptured)
    if options["transformers"]:
        found["generate"] = generated(target, tokens, sampling)
        found["generate, assisted"] = generated(target, tokens, sampling, assistant_model=draft)
        found["generate, prompt lookup"] = generated(
            target, tokens, sampling, prompt_lookup_num_tokens=3
        )
    return found


def compare(
    factors: Sequence[int], settings: Sequence[LoopSetting], options: dict[str, Any]
) -> dict[int, SideBySide]:
    """Time all ways with the target as it is, and widened."""
    draft, target = open_pair(
        options["draft"], options["target"], options["device"], options["dtype"],
        options["sampling"],
    )  # fmt: skip
    prompts = encode_prompts(target, read_prompts(options["prompts"], options["limit"]))
    prompts = [prompt[-options["prompt_tokens"] :] for prompt in prompts]
    options["slots"] = max(prompt.size for prompt in prompts) + options["tokens"]
    found = {}
    for factor in factors:
        large = target.model if factor == 1 else widened(target.model, factor)
        with progress("timing", 0) as step:
            found[factor] = race(
                ways((draft.model, large), settings, options), PLAIN, prompts,
                seed=options["seed"], repeats=options["repeats"], progress=step,
            )  # fmt: skip
    return found


def report(found: dict[int, SideBySide], clock: str) -> None:
    """Print a table for each width of the target."""
    for factor, one in found.items():
        title = f"target x {factor}, {clock} time; plain after over before: {one.drift(clock)}"
        heads = ["tokens/s", "speed-up", "tokens/call", "draft", "target", "verify", "rest"]
        heads += ["first s", "J/token"]
        made = table("way", *heads, title=title, box=None, title_justify="left", pad_edge=False)
        for name, way in one.ways.items():
            shares, energy = way.shares, way.joules
            known = np.isfinite(way.block_efficiency.mean)
            made.add_row(
                name,
                way.rate(clock).show(1),
                str(way.speed_up(one.ways[PLAIN], clock)),
                str(way.block_efficiency) if known else "",
                *(
                    f"{shares[part]:.1%}" if shares else ""
                    for part in ("draft", "target", "verification", "rest")
                ),
                f"{way.first_seconds:.1f}",
                "not known" if energy is None else f"{energy / sum(way.tokens):.3g}",
            )
        show(made)


@click.command(
    help=__doc__.replace("\n\n    OMP", "\n\n\b\n    OMP"), context_settings={"show_default": True}
)
@click.option("--target", default="trained:target")
@click.option("--draft", default="trained:draft")
@click.option("--device", default="auto")
@click.option("--dtype", default="auto")
@click.option("--widen", default="1", type=ListOf(click.IntRange(1)), help="Widths of the target.")
@click.option("--settings", default="1x1,1x2,2x2,4x4", type=ListOf(str), help="4x2, or 2-2-1.")
@click.option("--prompts", type=click.Path(), help="As for otlp decode.")
@click.option("--limit", default=8, help="Prompts.")
@click.option("--prompt-tokens", default=64, help="Kept of each prompt, its end.")
@click.option("--tokens", default=64, help="Decoded after each.")
@click.option("--repeats", default=1)
@click.option("--temperature", default=1.0)
@click.option("--compile/--no-compile", "compiled", default=True)
@click.option("--transformers/--no-transformers", default=True, help="Their generate, too.")
@click.option("--clock", default="wall", type=click.Choice(list(CLOCKS)))
@click.option("--threads", default=1, help="CPU threads.")
@click.option("--seed", default=0)
@json_option("Write all that was found.")
def main(json_path: Path | None, **options: Any) -> None:
    torch.set_num_threads(options["threads"])
    options["sampling"] = Sampling(options["temperature"])
    settings = [setting(one) for one in options["settings"]]
    found = compare(options["widen"], settings, options)
    if json_path:
        clock = options["clock"]
        rows = {
            str(factor): {
                "drift": one.drift(clock).record(),
                "ways": [way.record(clock) for way in one.ways.values()],
                "speed_up": {
                    name: way.speed_up(one.ways[PLAIN], clock).record()
                    for name, way in one.ways.items()
                },
            }
            for factor, one in found.items()
        }
        write_json(json_path, {"torch": torch.__version__, "clock": clock, "widths": rows})
    report(found, options["clock"])


if __name__ == "__main__":
    main()
