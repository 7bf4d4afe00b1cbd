"""Times of the batched verifiers, of engines and of simple tensor operations, on synthetic rows.

    python bench/batched.py --batch 1,8 --vocab 4096,128256 --drafts 1,4

All algorithms run in turn on the same rows in one process, with new random numbers.  The table
contains the median and the minimum time over rounds, and ratios of the minimum to those of
`speculative-sampling`, which verifies one draft, and of `torch.sort`.  `martingale` uses kernels if
available, `martingale in PyTorch` does not; the number of rows with different tokens must be zero.
The acceptance is that of the plan, with an upper bound on its loss.  Lower bounds are a copy, a
softmax and a sort of tensors of the same shape.  Engines (`otlp lab audit-engine --help`) verify
one draft per row and draw the next token, from tensors on the device; they are timed if a GPU runs
their kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import click
import numpy as np
import torch
from measuring import in_turns, report
from torch import Tensor

from otlp import batched
from otlp.batched.martingale_rule import verify_in_pytorch
from otlp.batched.rows import prepare
from otlp.cli.options import ListOf, json_option
from otlp_lab.engines import ENGINES


def without_kernels(
    target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor, validate: bool
) -> tuple[Tensor, Tensor]:
    return verify_in_pytorch(prepare(target, draft, tokens, validate), numbers)


VERIFIERS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "martingale": batched.martingale,
    "martingale in PyTorch": without_kernels,
    "speculative-sampling": batched.speculative_sampling,
    "recursive-rejection": batched.recursive_rejection,
    "k-seq": batched.k_seq,
    "recursive-rejection-without-replacement": batched.recursive_rejection_without_replacement,
}


def synchronized(action: Callable[[], object], device: str) -> None:
    """Call `action`, and wait for the device."""
    action()
    if device != "cpu":
        torch.cuda.synchronize()


def one_draft(name: str, target: Tensor, draft: Tensor, generator: Any) -> Callable[[], object]:
    """Return an engine's verification of one drafted token per row."""
    rule: Any = ENGINES[name].load()
    tokens = batched.sample(draft, 1, generator)[:, None]
    p, q = torch.stack([target, target], 1)[:, None], draft[:, None, None]
    rng = np.random.default_rng(0)
    return lambda: rule(tokens, p, q, rng)


def measure(shape: tuple[int, int, int], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Time all actions on one shape: Gaussian logits for the draft, perturbed for the target."""
    batch, vocab_size, n = shape
    device, dtype = given["device"], getattr(torch, given["dtype"])
    generator = torch.Generator(device).manual_seed(given["seed"])
    logits = 3.0 * torch.randn(batch, vocab_size, generator=generator, device=device)
    noise = torch.randn(batch, vocab_size, generator=generator, device=device)
    draft, target = (batched.softmax(part).to(dtype) for part in (logits, logits + noise))
    ratios = (target.float() / draft.float()).to(dtype)
    actions: dict[str, Callable[[], object]] = {
        "torch.clone": lambda: (target.clone(), draft.clone()),
        "torch.softmax": lambda: (torch.softmax(target, 1), torch.softmax(draft, 1)),
        "torch.sort": lambda: torch.sort(ratios, dim=1),
    }
    for name in given["algorithms"]:
        verify = torch.compile(VERIFIERS[name]) if given["compile"] else VERIFIERS[name]
        different = name.endswith("without-replacement")
        draw = batched.sample_without_replacement if different else batched.sample
        tokens = draw(draft, n, generator)
        actions[name] = lambda verify=verify, tokens=tokens: verify(  # type: ignore[misc]
            target, draft, tokens, batched.uniforms(tokens, generator), validate=False
        )
    for name in given["engines"]:
        actions[f"{name}, one draft"] = one_draft(name, target, draft, generator)
    actions = {name: partial(synchronized, action, device) for name, action in actions.items()}
    clock = process_time if device == "cpu" else perf_counter
    times = {name: 1e3 * taken for name, taken in in_turns(actions, given["rounds"], clock).items()}
    least = {name: float(taken.min()) for name, taken in times.items()}
    found = batched.acceptance(
        target, draft, torch.zeros(batch, n, dtype=torch.long, device=device)
    )
    lost = float((found.upper_bound - found.acceptance).mean())
    drafts = batched.sample(draft, n, generator)
    same = target, draft, drafts, batched.uniforms(drafts, generator)
    pair = [verify(*same, validate=False)[0] for verify in (batched.martingale, without_kernels)]
    differ = int((pair[0] != pair[1]).sum())
    row = {"B": batch, "V": vocab_size, "n": n}
    one = least.get("speculative-sampling", float("nan"))
    return [
        {
            "algorithm": name, **row, "median ms": float(np.median(taken)), "least ms": least[name],
            "x one draft": least[name] / one, "x torch.sort": least[name] / least["torch.sort"],
            "acceptance": float(found.acceptance.mean()) if name.startswith("martingale") else "",
            "lost at most": lost if name.startswith("martingale") else "",
            "rows that differ": differ if name == "martingale" else "",
        }
        for name, taken in times.items()
    ]  # fmt: skip


WHOLE = ListOf(click.IntRange(1))


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--batch", default="1,8,64,256", type=WHOLE, help="Batch sizes.")
@click.option("--vocab", default="4096,32000,128256,256000", type=WHOLE)
@click.option("--drafts", default="1,2,4,8", type=WHOLE, help="Numbers of drafts per row.")
@click.option(
    "--algorithms", default=",".join(VERIFIERS), type=ListOf(click.Choice(list(VERIFIERS)))
)
@click.option(
    "--engines", default=(), type=ListOf(click.Choice(list(ENGINES))), help="Engines, on a GPU."
)
@click.option("--dtype", default="float32", type=click.Choice(["float32", "bfloat16", "float16"]))
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu")
@click.option("--threads", default=1, help="Number of CPU threads.")
@click.option("--rounds", default=7)
@click.option("--seed", default=0)
@click.option("--compile", is_flag=True, help="Use torch.compile.")
@json_option("Write the results to this file.")
def main(json_path: Path | None, **given: Any) -> None:
    torch.set_num_threads(given["threads"])
    shapes = product(given["batch"], given["vocab"], given["drafts"])
    rows = [row for shape in shapes for row in measure(shape, given)]
    report(f"{given['dtype']} on {given['device']}, torch {torch.__version__}", rows, json_path)


if __name__ == "__main__":
    main()
