"""Time the batched verifiers against each other and against the floor, on synthetic rows.

    python bench/batched.py --batch 1,8 --vocab 4096,128256 --drafts 1,4

Every algorithm runs on the same rows in the same process, in turn, and the median over the
rounds is reported, with the ratio to `torch.sort` of the same batch.  The floor is a copy, a
softmax and a sort of tensors of the same shape.  Bytes are those that the algorithm has to read
and write at least once (two rows in, a token out), so bytes / time is a lower bound on traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import torch
from measuring import in_turns
from torch import Tensor

from otlp import batched
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import console, progress, show, table, write_json

VERIFIERS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "sort": batched.verify,
    "speculative-sampling": batched.speculative_sampling,
    "recursive-rejection": batched.recursive_rejection,
    "k-seq": batched.k_seq,
    "recursive-rejection-without-replacement": batched.recursive_rejection_without_replacement,
}
DIFFERENT = "recursive-rejection-without-replacement"
"""Takes different drafts, and is not among the default ones."""
FLOOR = ("torch.clone", "torch.softmax", "torch.sort")


@dataclass(frozen=True)
class Result:
    """One algorithm on one shape; `acceptance` is the mean over rows, sampled or exact.

    `optimum` is that of i.i.d. drafts.
    """

    algorithm: str
    batch: int
    vocab_size: int
    drafts: int
    median_ms: float
    least_ms: float
    over_sort: float
    least_bytes: int
    gigabytes_per_second: float
    acceptance: float | None
    optimum: float


def synthetic_rows(
    shape: tuple[int, int, int], dtype: torch.dtype, device: str, seed: int
) -> tuple[Tensor, Tensor, Tensor, torch.Generator]:
    """Gaussian logits for the draft, perturbed for the target, and sampled drafts."""
    batch, vocab_size, drafts = shape
    generator = torch.Generator(device).manual_seed(seed)
    logits = 3.0 * torch.randn(batch, vocab_size, generator=generator, device=device)
    noise = torch.randn(batch, vocab_size, generator=generator, device=device)
    draft = batched.softmax(logits).to(dtype)
    target = batched.softmax(logits + noise).to(dtype)
    return target, draft, batched.sample(draft, drafts, generator), generator


def drawn(name: str, draft: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Drafts as an algorithm takes them."""
    draw = batched.sample_without_replacement if name == DIFFERENT else batched.sample
    return draw(draft, n, generator, validate=False)


def finished(action: Callable[[], object], device: str) -> None:
    """Call, and wait for what the device does."""
    action()
    if device != "cpu":
        torch.cuda.synchronize()


def measure(shape: tuple[int, int, int], options: SimpleNamespace) -> list[Result]:
    """Time everything on one shape; `options` are those of the command line."""
    dtype = getattr(torch, options.dtype)
    target, draft, tokens, generator = synthetic_rows(shape, dtype, options.device, options.seed)
    scores = (target.float() / draft.float()).to(dtype)
    actions: dict[str, Callable[[], object]] = {
        "torch.clone": lambda: (target.clone(), draft.clone()),
        "torch.softmax": lambda: (torch.softmax(target, 1), torch.softmax(draft, 1)),
        "torch.sort": lambda: torch.sort(scores, dim=1),
    }
    compile_ = torch.compile if options.compile else lambda function: function
    for name in options.algorithms:
        function = compile_(VERIFIERS[name])
        drafts = drawn(name, draft, shape[2], generator)
        actions[name] = lambda f=function, drafts=drafts: f(
            target, draft, drafts, batched.uniforms(drafts, generator), validate=options.validate
        )
    waited = {name: partial(finished, one, options.device) for name, one in actions.items()}
    times = {name: 1e3 * taken for name, taken in in_turns(waited, options.rounds).items()}
    optimum = float(batched.acceptance(target, draft, tokens, validate=False).upper_bound.mean())
    sort = float(np.median(times["torch.sort"]))
    size = 2 * target.numel() * target.element_size()
    results = []
    for name, taken in times.items():
        median = float(np.median(taken))
        rate = size / median / 1e6
        alpha = mean_acceptance(name, target, draft, tokens, generator, options.samples)
        results.append(
            Result(
                name,
                *shape,
                median,
                float(taken.min()),
                median / sort,
                size,
                rate,
                alpha,
                optimum,
            )
        )
    return results


def mean_acceptance(
    name: str,
    target: Tensor,
    draft: Tensor,
    tokens: Tensor,
    generator: torch.Generator,
    samples: int,
) -> float | None:
    """Exact for our plan; for the baselines the share of accepted rows over fresh drafts."""
    if name in FLOOR:
        return None
    if name == "sort":
        return float(batched.acceptance(target, draft, tokens, validate=False).acceptance.mean())
    if samples == 0:
        return None
    hits = 0
    for _ in range(samples):
        drafts = drawn(name, draft, tokens.shape[1], generator)
        _, accepted = VERIFIERS[name](target, draft, drafts, generator, validate=False)
        hits += int(accepted.sum())
    return hits / (samples * tokens.shape[0])


def report(results: list[Result], title: str) -> None:
    """Print one table for one shape."""
    heads = ("median ms", "least ms", "x torch.sort", "GB/s", "acceptance", "optimum")
    made = table("algorithm", *heads, title=title)
    for r in results:
        exact = r.acceptance is not None
        made.add_row(
            r.algorithm,
            f"{r.median_ms:.3f}",
            f"{r.least_ms:.3f}",
            f"{r.over_sort:.2f}",
            f"{r.gigabytes_per_second:.2f}",
            f"{r.acceptance:.6f}" if exact else "",
            f"{r.optimum:.6f}" if exact else "",
        )
    show(made)


WHOLE = ListOf(click.IntRange(1))


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--batch", default="1,8,64,256", type=WHOLE, help="Rows at once.")
@click.option("--vocab", default="4096,32000,128256,256000", type=WHOLE)
@click.option("--drafts", default="1,2,4,8", type=WHOLE, help="Drafts of a row.")
@click.option(
    "--algorithms",
    type=ListOf(click.Choice(list(VERIFIERS))),
    default=",".join(name for name in VERIFIERS if name != DIFFERENT),
)
@click.option("--dtype", default="float32", type=click.Choice(["float32", "bfloat16", "float16"]))
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu")
@click.option("--threads", default=1, help="CPU threads.")
@click.option("--rounds", default=7)
@click.option("--samples", default=20, help="Verified batches of a baseline.")
@click.option("--seed", default=0)
@click.option("--validate", is_flag=True, help="Check the values of the input.")
@click.option("--compile", is_flag=True, help="Under torch.compile.")
@click.option("--memory", default=4.0, help="Skip shapes above, in GiB.")
@json_option("Write the results to a file.")
def main(json_path: Path | None, **given: Any) -> None:
    options = SimpleNamespace(**given)
    torch.set_num_threads(options.threads)
    shapes = list(product(options.batch, options.vocab, options.drafts))
    # the rows, the floor's copies of them and, for a chunk of the rows, some 14 float64 arrays
    fits = [s for s in shapes if 32 * s[0] * s[1] + 2**29 <= options.memory * 2**30]
    for shape in shapes:
        if shape not in fits:
            console.print(f"skipped (B, V, n) = {shape}: needs more than --memory")
    measured: dict[tuple[int, int, int], list[Result]] = {}
    with progress("synthetic rows", len(fits)) as step:
        for shape in fits:
            measured[shape] = measure(shape, options)
            step(str(shape))
    if json_path:
        document = {
            "data": "synthetic",
            "torch": torch.__version__,
            "options": given,
            "results": [asdict(result) for found in measured.values() for result in found],
        }
        write_json(json_path, document)
    machine = f"(synthetic rows, {options.dtype}, {options.device}, {options.threads} threads)"
    for (batch, vocab_size, drafts), results in measured.items():
        report(results, f"B = {batch}, V = {vocab_size:,}, n = {drafts} {machine}")


if __name__ == "__main__":
    main()
