"""Tokens per second of device loop settings, plain decoding and transformers, side by side.

    OMP_NUM_THREADS=1 python bench/tokens_a_second.py --json found.json

Every way decodes the same prompts with the same seeds, in turn.  Whole calls are timed, including
reading the prompt; compilation is timed separately, as the first run.  Speed-ups are over the plain
loop (compiled like the others), paired over prompts.  The plain loop runs once more before and
after; a drift between these runs shows other work on the machine.  A target in a GGUF file is also
decoded by llama.cpp, if xllamacpp is installed; its weights stay quantised.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import click
import numpy as np
import torch
from llama_cpp import llama_cpp
from measuring import bfloat16_units

from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress, show, table, write_json
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.decode import TopTree, top_tree
from otlp.decode.models.calibration import calibration_of
from otlp.decode.models.copying import network_and_shares
from otlp.decode.models.loading import find_model
from otlp.decode.models.model import Sampling
from otlp.device import DeviceLoop, IidRounds, Llama, LoopModels, NoiseRounds, captured
from otlp.distribution import IntArray
from otlp.studies.timed import Decoding
from otlp_lab.tuning import loop_setting
from otlp_lab.tuning.loop_setting import LoopSetting, grid
from otlp_lab.tuning.side_by_side import CLOCKS, SideBySide, Way, loop_way, race

PLAIN = "plain loop"


def setting(text: str) -> LoopSetting:
    """Parse K paths of L tokens such as 4x2, or a tree such as 2-2-1."""
    paths, x, length = text.partition("x")
    if x:
        return grid([int(paths)], [int(length)])[0]
    return LoopSetting(tuple(map(int, text.split("-"))))


def by_noise(text: str) -> TopTree:
    """Parse a tree with shared noise: nodes x length x width such as 8x4x2; 4x4x1 is one path."""
    nodes, length, width = map(int, text.split("x"))
    return top_tree(nodes, length, width)


def seeded(loop: DeviceLoop, tokens: int) -> Way:
    """Return decoding with the noise of a seed; reading the prompt is not timed."""

    def way(prompt: IntArray, seed: int) -> Decoding:
        found = loop.decode([prompt], tokens, [seed])
        times = found.seconds, found.processor_seconds
        calls = float(found.calls.sum())
        return Decoding(found.tokens, calls, found.rounds, found.parts, *times)

    return way


def whole(way: Way) -> Way:
    """Return a way that times whole calls, including reading the prompt."""

    def timed(prompt: IntArray, seed: int) -> Decoding:
        wall, processor = perf_counter(), process_time()
        found = way(prompt, seed)
        return found._replace(wall=perf_counter() - wall, processor=process_time() - processor)

    return timed


def generated(model: Any, tokens: int, sampling: Sampling, **options: Any) -> Way:
    """Return decoding by transformers' ``generate``, optionally assisted or with prompt lookup.

    End tokens are suppressed up to the requested length, so that all ways decode the same number of
    tokens.  Whole calls are timed.
    """
    import torch

    wanted: dict[str, Any] = {"do_sample": sampling.temperature > 0.0, "top_p": sampling.top_p}
    wanted |= {"temperature": sampling.temperature or 1.0, "top_k": sampling.top_k or 0}

    def way(prompt: IntArray, seed: int) -> Decoding:
        torch.manual_seed(seed)
        ids = torch.as_tensor(prompt, device=model.device)[None]
        with torch.inference_mode():
            text = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                pad_token_id=0,
                **(wanted if wanted["do_sample"] else {"do_sample": False}),
                **options,
            )
        return Decoding(int(text.shape[1] - prompt.size), float("nan"), 0, {}, 0.0, 0.0)

    return whole(way)


def ways(
    draft: Any,
    shares: Sequence[float],
    target: Any,
    settings: Sequence[LoopSetting],
    options: dict[str, Any],
) -> dict[str, Way]:
    """Return all ways of decoding with a draft, which may copy, and a target of transformers."""
    tokens, sampling, slots = options["tokens"], options["sampling"], options["slots"]
    models, clock = (Llama(target), Llama(draft, shares)), CLOCKS[options["clock"]]
    drafted, plain = LoopModels(*models, sampling), LoopModels(models[0], sampling=sampling)

    def loop(one: LoopSetting, capture: Any = captured) -> Way:
        drafting = (drafted, one.branching) if one.branching else (plain,)
        made = DeviceLoop(
            IidRounds(*drafting, clock=clock),
            slots=slots + one.length + 1,
            compiled=options["compiled"],
            capture=capture,
        )
        return whole(loop_way(made, tokens))

    def noise(tree: TopTree | None) -> Way:
        drafting: Any = (drafted, tree, options["calibration"]) if tree else (plain,)
        made = DeviceLoop(
            NoiseRounds(*drafting, clock=clock),
            slots=slots + (tree.length if tree else 0) + 1,
            compiled=options["compiled"],
        )
        return whole(seeded(made, tokens))

    found = {}
    for one in (loop_setting.PLAIN, *settings):
        name = str(one) if one.branching else PLAIN
        found[name] = loop(one)
        if target.device.type == "cuda":
            found[f"{name}, no graph"] = loop(one, lambda round_of, device: round_of)
    if options["noise"]:
        found[f"{PLAIN}, seeds"] = noise(None)
    for text in options["noise"]:
        found[f"equality {text.replace('x', ' x ')}"] = noise(by_noise(text))
    if options["transformers"]:
        found["generate"] = generated(target, tokens, sampling)
        found["generate, assisted by the network"] = generated(
            target, tokens, sampling, assistant_model=draft
        )
        found["generate, prompt lookup"] = generated(
            target, tokens, sampling, prompt_lookup_num_tokens=3
        )
    source = find_model(options["target"])
    if source.endswith(".gguf"):
        found |= llama_cpp(source, slots + tokens, tokens, sampling, options["threads"])
    return found


def compare(settings: Sequence[LoopSetting], options: dict[str, Any]) -> SideBySide:
    """Time all ways."""
    draft, target = open_pair(
        options["draft"], options["target"], options["device"], options["dtype"],
        options["sampling"],
    )  # fmt: skip
    prompts = encode_prompts(target, read_prompts(options["prompts"], options["limit"]))
    prompts = [prompt[-options["prompt_tokens"] :] for prompt in prompts]
    options["slots"] = max(prompt.size for prompt in prompts) + options["tokens"]
    options["calibration"] = calibration_of(target.name, draft.name)
    with progress("timing", 0) as step:
        network: Any
        network, shares = network_and_shares(draft)
        timed = ways(network.model, shares, target.model, settings, options)
        return race(timed, PLAIN, prompts, seed=options["seed"], progress=step)


def report(found: SideBySide, clock: str) -> None:
    title = f"{clock} time; plain after over before: {found.drift(clock)}"
    heads = ["tokens/s", "speed-up", "tokens/call", "draft", "target", "verify", "rest"]
    heads += ["target ms", "first s"]
    made = table("way", *heads, title=title, box=None, title_justify="left", pad_edge=False)
    for name, way in found.ways.items():
        shares = way.shares
        made.add_row(
            name,
            way.rate(clock).show(1),
            str(way.speed_up(found.ways[PLAIN], clock)),
            str(way.block_efficiency) if np.isfinite(way.block_efficiency.mean) else "",
            *(
                f"{shares[part]:.1%}" if shares else ""
                for part in ("draft", "target", "verification", "rest")
            ),
            f"{1e3 * way.seconds_a_round(clock)['target']:.1f}" if shares else "",
            f"{way.first_seconds:.1f}",
        )
    show(made)


@click.command(
    help=__doc__.replace("\n\n    OMP", "\n\n\b\n    OMP"), context_settings={"show_default": True}
)
@click.option("--target", default="trained:target")
@click.option("--draft", default="trained:draft")
@click.option("--device", default="auto")
@click.option("--dtype", default="auto")
@click.option("--settings", default="1x1,1x2,2x2,4x4", type=ListOf(str), help="4x2, or 2-2-1.")
@click.option(
    "--noise", default=(), type=ListOf(str), help="Shared noise: nodes x length x width, 8x4x2."
)
@click.option("--prompts", type=click.Path(), help="Prompts as in otlp decode.")
@click.option("--limit", default=8, help="Maximum number of prompts.")
@click.option("--prompt-tokens", default=64, help="Number of last tokens kept of each prompt.")
@click.option("--tokens", default=64, help="Number of tokens decoded after each prompt.")
@click.option("--temperature", default=1.0)
@click.option("--compile/--no-compile", "compiled", default=True)
@click.option("--transformers/--no-transformers", default=True, help="Also time generate.")
@click.option("--clock", default="wall", type=click.Choice(list(CLOCKS)))
@click.option("--threads", default=1, help="Number of CPU threads.")
@click.option("--seed", default=0)
@json_option("Write all results to this file.")
def main(json_path: Path | None, **options: Any) -> None:
    torch.set_num_threads(options["threads"])
    options["sampling"] = Sampling(options["temperature"])
    settings = [setting(one) for one in options["settings"]]
    found, clock = compare(settings, options), options["clock"]
    if json_path:
        rows = [
            {
                "name": name,
                **way.record(clock),
                "speed_up": way.speed_up(found.ways[PLAIN], clock).record(),
            }
            for name, way in found.ways.items()
        ]
        drift = found.drift(clock).record()
        content = {"torch": torch.__version__, "bfloat16 units": bfloat16_units(), "clock": clock}
        write_json(json_path, {**content, "drift": drift, "ways": rows})
    report(found, clock)


if __name__ == "__main__":
    main()
