"""Time the batched verifiers against each other and against the floor, on synthetic rows.

    python bench/batched.py --batch 1 8 --vocab 4096 128256 --drafts 1 4

Every algorithm runs on the same rows in the same process, in turn, and the median over the
rounds is reported, with the ratio to `torch.sort` of the same batch.  The floor is a copy, a
softmax and a sort of tensors of the same shape.  Bytes are those that the algorithm has to read
and write at least once (two rows in, a token out), so bytes / time is a lower bound on traffic.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from otlp import batched

VERIFIERS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "sort": batched.verify,
    "histogram": batched.verify_histogram,
    "single-draft": batched.single_draft,
    "recursive-rejection": batched.recursive_rejection,
    "k-seq": batched.k_seq,
}
FLOOR = ("torch.clone", "torch.softmax", "torch.sort")


@dataclass(frozen=True)
class Result:
    """One algorithm on one shape; `acceptance` is the mean over rows, sampled or exact."""

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
    law = draft.double().cumsum(1)
    uniform = torch.rand(batch, drafts, dtype=torch.float64, generator=generator, device=device)
    tokens = torch.searchsorted(law, uniform * law[:, -1:], right=True)
    return target, draft, tokens.clamp(max=vocab_size - 1), generator


def elapsed(action: Callable[[], object], device: str) -> float:
    """Milliseconds of one call."""
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    action()
    if device != "cpu":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def measure(
    shape: tuple[int, int, int], names: list[str], options: argparse.Namespace
) -> list[Result]:
    """Time everything on one shape."""
    dtype = getattr(torch, options.dtype)
    target, draft, tokens, generator = synthetic_rows(shape, dtype, options.device, options.seed)
    scores = (target.float() / draft.float()).to(dtype)
    actions: dict[str, Callable[[], object]] = {
        "torch.clone": lambda: (target.clone(), draft.clone()),
        "torch.softmax": lambda: (torch.softmax(target, 1), torch.softmax(draft, 1)),
        "torch.sort": lambda: torch.sort(scores, dim=1),
    }
    compile_ = torch.compile if options.compile else lambda function: function
    for name in names:
        function = compile_(VERIFIERS[name])
        actions[name] = lambda f=function: f(
            target, draft, tokens, batched.uniforms(tokens, generator), validate=options.validate
        )
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(options.rounds):
        for name, action in actions.items():
            times[name].append(elapsed(action, options.device))
    optimum = float(batched.acceptance(target, draft, tokens, validate=False).upper_bound.mean())
    sort = statistics.median(times["torch.sort"])
    size = 2 * target.numel() * target.element_size()
    results = []
    for name, taken in times.items():
        median = statistics.median(taken)
        rate = size / median / 1e6
        alpha = mean_acceptance(name, target, draft, tokens, generator, options.samples)
        results.append(
            Result(name, *shape, median, min(taken), median / sort, size, rate, alpha, optimum)
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
    """Exact for our plans; for the baselines the share of accepted rows over fresh drafts."""
    if name in FLOOR:
        return None
    if name == "sort":
        found = batched.acceptance(target, draft, tokens, validate=False)
        return float(found.acceptance.mean())
    if name == "histogram":
        found = batched.acceptance_histogram(target, draft, tokens, validate=False)
        return float(found.acceptance.mean())
    if samples == 0:
        return None
    law = draft.double().cumsum(1)
    hits = 0
    for _ in range(samples):
        uniform = torch.rand(
            tokens.shape, dtype=torch.float64, generator=generator, device=tokens.device
        )
        drafts = torch.searchsorted(law, uniform * law[:, -1:], right=True)
        drafts = drafts.clamp(max=draft.shape[1] - 1)
        _, accepted = VERIFIERS[name](target, draft, drafts, generator, validate=False)
        hits += int(accepted.sum())
    return hits / (samples * tokens.shape[0])


def show(results: list[Result], console: Console, title: str) -> None:
    """Print one table for each shape."""
    shapes = dict.fromkeys((r.batch, r.vocab_size, r.drafts) for r in results)
    for shape in shapes:
        table = Table(title=f"B = {shape[0]}, V = {shape[1]:,}, n = {shape[2]} {title}")
        table.add_column("algorithm")
        for heading in ("median ms", "least ms", "x torch.sort", "GB/s", "acceptance", "optimum"):
            table.add_column(heading, justify="right")
        for r in results:
            if (r.batch, r.vocab_size, r.drafts) == shape:
                alpha = "" if r.acceptance is None else f"{r.acceptance:.6f}"
                table.add_row(
                    r.algorithm,
                    f"{r.median_ms:.3f}",
                    f"{r.least_ms:.3f}",
                    f"{r.over_sort:.2f}",
                    f"{r.gigabytes_per_second:.2f}",
                    alpha,
                    "" if r.acceptance is None else f"{r.optimum:.6f}",
                )
        console.print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--vocab", type=int, nargs="+", default=[4096, 32_000, 128_256, 256_000])
    parser.add_argument("--drafts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--algorithms", nargs="+", choices=list(VERIFIERS), default=list(VERIFIERS))
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=20, help="verified batches of a baseline")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate", action="store_true", help="check the values of the input")
    parser.add_argument("--compile", action="store_true", help="under torch.compile")
    parser.add_argument("--memory", type=float, default=4.0, help="skip shapes above, in GiB")
    parser.add_argument("--json", type=Path, help="write the results here")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    console = Console()
    shapes = list(product(options.batch, options.vocab, options.drafts))
    # about thirty float64 tensors of the shape live at once
    fits = [s for s in shapes if 30 * 8 * s[0] * s[1] <= options.memory * 2**30]
    for shape in shapes:
        if shape not in fits:
            console.print(f"skipped (B, V, n) = {shape}: needs more than --memory")
    results: list[Result] = []
    with Progress(console=console, transient=True) as progress:
        for shape in progress.track(fits, description="synthetic rows"):
            results += measure(shape, options.algorithms, options)
    title = f"(synthetic rows, {options.dtype}, {options.device}, {options.threads} threads)"
    show(results, console, title)
    if options.json:
        document = {
            "data": "synthetic",
            "torch": torch.__version__,
            "options": {k: str(v) for k, v in vars(options).items()},
            "results": [asdict(result) for result in results],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
