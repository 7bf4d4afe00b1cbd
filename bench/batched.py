"""Time the batched verifiers against each other and against the floor, on synthetic rows.

    python bench/batched.py --batch 1,8 --vocab 4096,128256 --drafts 1,4

Every algorithm runs on the same rows in the same process, in turn, and the median over the
rounds is reported, with the ratio to `torch.sort` of the same batch.  The floor is a copy, a
softmax and a sort of tensors of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from measuring import in_turns, report
from torch import Tensor

from otlp import batched
from otlp.cli.options import ListOf, json_option

VERIFIERS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "sort": batched.martingale,
    "speculative-sampling": batched.speculative_sampling,
    "recursive-rejection": batched.recursive_rejection,
    "k-seq": batched.k_seq,
    "recursive-rejection-without-replacement": batched.recursive_rejection_without_replacement,
}


def waited(action: Callable[[], object], device: str) -> None:
    """Call, and wait for what the device does."""
    action()
    if device != "cpu":
        torch.cuda.synchronize()


def measure(shape: tuple[int, int, int], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Time everything on one shape: Gaussian logits for the draft, perturbed for the target."""
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
    actions = {name: partial(waited, action, device) for name, action in actions.items()}
    times = {name: 1e3 * taken for name, taken in in_turns(actions, given["rounds"]).items()}
    sort = float(np.median(times["torch.sort"]))
    row = {"B": batch, "V": vocab_size, "n": n}
    return [
        {
            "algorithm": name, **row, "median ms": float(np.median(taken)),
            "least ms": float(taken.min()), "x torch.sort": float(np.median(taken)) / sort,
        }
        for name, taken in times.items()
    ]  # fmt: skip


WHOLE = ListOf(click.IntRange(1))


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--batch", default="1,8,64,256", type=WHOLE, help="Rows at once.")
@click.option("--vocab", default="4096,32000,128256,256000", type=WHOLE)
@click.option("--drafts", default="1,2,4,8", type=WHOLE, help="Drafts of a row.")
@click.option(
    "--algorithms", default=",".join(VERIFIERS), type=ListOf(click.Choice(list(VERIFIERS)))
)
@click.option("--dtype", default="float32", type=click.Choice(["float32", "bfloat16", "float16"]))
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu")
@click.option("--threads", default=1, help="CPU threads.")
@click.option("--rounds", default=7)
@click.option("--seed", default=0)
@click.option("--compile", is_flag=True, help="Under torch.compile.")
@json_option("Write the results to a file.")
def main(json_path: Path | None, **given: Any) -> None:
    torch.set_num_threads(given["threads"])
    shapes = product(given["batch"], given["vocab"], given["drafts"])
    rows = [row for shape in shapes for row in measure(shape, given)]
    report(f"{given['dtype']} on {given['device']}, torch {torch.__version__}", rows, json_path)


if __name__ == "__main__":
    main()
