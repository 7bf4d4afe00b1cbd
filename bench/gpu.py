"""All measurements on a GPU, in one command of less than eight minutes.

    python bench/gpu.py --json gpu.json                  # on a GPU
    python bench/gpu.py --small                          # the same on a CPU, to see that it runs

There are four parts, each with a share of the time: in two minutes the batched verifiers over B and
V with their lower bound and the installed engines (bench/batched.py); rounds of K paths over B and
V (`otlp.batched.verify_paths`); the trained pair with and without CUDA graphs, and transformers;
and the same with the published pair, except for `--small` (both by bench/tokens_a_second.py).  A
part that would start after its time is skipped and named.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from measuring import repeated, report

from otlp import batched
from otlp.cli.options import json_option
from otlp.cli.output import console, write_json
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import SMOLLM2_DRAFT
from otlp_lab.engines import ENGINES

ONE_DRAFT = ("sglang-chain", "vllm-v1", "vllm-v2")
"""Engines whose verification of one draft is timed if they are installed."""

HERE = Path(__file__).parent
BUDGET = 480.0
"""Maximum total time, in seconds."""


def run(script: str, *arguments: str, seconds: float) -> Any:
    """Run another script of this folder; return its results, or None if it exceeds the time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, str(HERE / script), *arguments, "--json", str(path)]
        try:
            subprocess.run(command, check=True, timeout=max(seconds, 1.0))
        except subprocess.TimeoutExpired:
            console.print(f"skipped: {script} {' '.join(arguments)} took over {seconds:.0f} s")
            return None
        return json.loads(path.read_text())


def milliseconds(action: Any, device: str, repeats: int) -> float:
    """Return the median of `repeats` calls, after a first call."""

    def whole() -> None:
        action()
        if device == "cuda":
            torch.cuda.synchronize()

    return 1e3 * float(np.median(repeated(whole, repeats)))


def rounds(device: str, small: bool) -> list[dict[str, Any]]:
    """Time verification of K paths of L tokens over B and V, and a softmax of the target's rows."""
    sizes = ((1,), (64,), ((1, 2), (2, 2))) if small else (
        (1, 8, 32), (4096, 32_000, 128_256), ((1, 4), (4, 4))
    )  # fmt: skip
    found = []
    for batch, vocab, (paths, length) in product(*sizes):
        generator = torch.Generator(device).manual_seed(0)
        shape = (batch, paths, length + 1, vocab)
        logits = 3.0 * torch.randn(shape, generator=generator, device=device)
        noise = torch.randn(shape, generator=generator, device=device)
        # Distributions after equal prefixes must be equal: use one context per level.
        first = torch.zeros_like(logits[:, :1])
        target = batched.softmax((logits + noise)[:, :1] + first).expand(shape)
        draft = batched.softmax(logits[:, :1]).expand(shape)[:, :, :-1]
        tokens = batched.sample(draft, 1, generator)[..., 0]
        numbers = batched.uniforms(tokens, generator)
        verify = lambda: batched.verify_paths(target, draft, tokens, numbers, validate=False)  # noqa: B023, E731
        floor = lambda: torch.softmax(logits, -1)  # noqa: B023, E731
        taken = [milliseconds(one, device, 3 if small else 11) for one in (verify, floor)]
        row = {"batch": batch, "vocab": vocab, "paths": paths, "length": length}
        found.append({**row, "milliseconds": taken[0], "floor": taken[1]})
    return found


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--small", is_flag=True, help="Sizes for a CPU, in a minute or two.")
@json_option("Write all results to this file.")
def main(small: bool, json_path: Path | None) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not small:
        raise click.UsageError("no GPU found: use --small to check that the script runs")
    begin = perf_counter()

    def left(share: float) -> float:
        return min(share * BUDGET, BUDGET - (perf_counter() - begin))

    verifiers: tuple[str, ...] = ("--batch", "1", "--vocab", "64", "--drafts", "2", "--rounds", "1")
    pair: tuple[str, ...] = (
        "--limit", "2", "--tokens", "6", "--settings", "1x1,2-2", "--noise", "3x2x2",
        "--no-compile", "--prompt-tokens", "8", "--clock", "processor",
    )  # fmt: skip
    if not small:
        verifiers = ("--batch", "1,8,64", "--vocab", "32000,128256", "--drafts", "4")
        engines = [name for name in ONE_DRAFT if find_spec(ENGINES[name].package)]
        verifiers += ("--engines", ",".join(engines)) if engines else ()
        pair = ("--limit", "4", "--settings", "1x2,1x4,4x4,2-2-1", "--noise", "4x4x1,8x4x4",
                "--dtype", "float16")  # fmt: skip
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "verifiers": run("batched.py", *verifiers, "--device", device, seconds=left(0.25)),
        "rounds": rounds(device, small),
    }
    pairs = {"trained pair": (), "published pair": ("--target", SMOLLM2, "--draft", SMOLLM2_DRAFT)}
    for name, models in list(pairs.items())[: 1 if small else 2]:
        arguments = (*models, "--device", device, *pair)
        found[name] = run("tokens_a_second.py", *arguments, seconds=left(0.4))
    found["seconds"] = perf_counter() - begin
    report("verify_paths", found["rounds"])
    console.print(f"{found['device']}, {found['seconds']:.0f} s in all")
    if json_path:
        write_json(json_path, found)


if __name__ == "__main__":
    main()
