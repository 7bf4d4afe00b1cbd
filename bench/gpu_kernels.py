"""Resource usage of the kernels of `otlp.batched.martingale`, compiled without a GPU.

    python bench/gpu_kernels.py --json kernels.json

For each kernel and GPU: registers per thread, spilled bytes, shared memory per program, and memory
traffic of a row of V tokens, in KiB and relative to one read of p and q, which is the lower bound.
The target is stored as p, or as logits whose normaliser `normalise` computes first.  `add_up` also
makes two additions per token to 32 KiB that stay in the cache.  Compiled with Triton's own
assembler; needs Triton but no GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click
from measuring import report

from otlp.batched.ratio_bins import SIZE, layout_for
from otlp.cli.options import ListOf, json_option

os.environ["TRITON_INTERPRET"] = "0"  # read when Triton is

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from otlp.batched import gpu_kernels as kernels
from otlp.batched.martingale_on_gpu import OPTIONS, TILE, WARPS

TYPES = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "float64": "*fp64"}

POINTERS = {
    "tokens": "*i64", "numbers": "*fp64", "masses": "*i64", "edges": "*fp64", "plan": "*fp64",
    "sums": "*i64", "levels": "*fp64", "found": "*i64", "weights": "*i64",
    "temperatures": "*fp32", "V": "i32", "TILES": "i32", "COUNT": "i32",
}  # fmt: skip

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def constants(most: int, vocab: int) -> dict[str, dict[str, int]]:
    """Return the compile-time constants of the kernels for up to `most` drafts."""
    layout = layout_for(most)
    bins = {"SHIFT": layout.shift, "OFFSET": layout.offset}
    tiles = {**bins, "TILE": TILE}
    wide = triton.next_power_of_2(triton.cdiv(vocab, TILE))
    selected = {"N": most, "WIDE": triton.next_power_of_2(most)}
    return {
        "normalise": {"TILE": TILE}, "add_up": tiles, "select": {**bins, **selected},
        "weigh": tiles, "replace": {**tiles, "WIDE": wide},
    }  # fmt: skip


def moved(vocab: int, most: int, width: int) -> dict[str, int]:
    """Return the bytes read and written for one rejecting row by kernel, without additions."""
    row, tiles = 2 * vocab * width, triton.cdiv(vocab, TILE)
    drafts = most * (8 + 2 * width + 3 * 8)
    return {
        "normalise": 2 * vocab * width,
        "add_up": row,
        "select": SIZE * (16 + 16 + 5 * 8) + drafts,
        "weigh": row + SIZE * 8 + 8 * tiles,
        "replace": 8 * tiles + 2 * TILE * width + SIZE * 8,
    }


def used(cubin: bytes) -> dict[str, int]:
    """Return the registers and stack per thread from machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(TOOLS / "cuobjdump"), "-res-usage", file.name]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: int(re.search(f"{name}:(\\d+)", usage)[1]) for name in ("REG", "STACK", "LOCAL")}  # type: ignore[index]


def compile_for(
    capability: int, dtype: str, most: int, vocab: int, logits: bool
) -> list[dict[str, Any]]:
    """Compile all kernels for one GPU, one dtype of rows and up to `most` drafts."""
    found = []
    known = POINTERS | dict.fromkeys(("target", "draft", "logits", "p_at", "q_at"), TYPES[dtype])
    if logits:
        known["scales"] = "*fp32"
    width = {"float32": 4, "float64": 8}.get(dtype, 2)
    for name, given in constants(most, vocab).items():
        if name == "normalise" and not logits:
            continue
        function = getattr(kernels, name)
        types = {one: known.get(one, "constexpr") for one in function.arg_names}
        if types.get("scales") == "constexpr":
            given = {**given, "scales": None}  # type: ignore[dict-item]
        source = ASTSource(fn=function, signature=types, constexprs=given)
        options = {**OPTIONS, "num_warps": WARPS if name == "select" else 4}
        target = GPUTarget("cuda", capability, 32)
        compiled = triton.compile(source, target=target, options=options)
        code = used(compiled.asm["cubin"])
        bytes_moved = moved(vocab, most, width)[name]
        found.append({
            "kernel": name, "GPU": f"sm_{capability}", "rows": dtype, "N": most,
            "target": "logits" if logits else "p",
            "registers": code["REG"], "spilled": code["STACK"] + code["LOCAL"],
            "shared": compiled.metadata.shared, "KiB a row": bytes_moved / 1024,
            "x one read": bytes_moved / (2 * vocab * width),
        })  # fmt: skip
    return found


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--gpus", default="80,90", type=ListOf(click.IntRange(70)), help="GPU capabilities.")
@click.option("--dtypes", default="float32,bfloat16", type=ListOf(click.Choice(list(TYPES))))
@click.option("--drafts", default="4", type=ListOf(click.IntRange(1)), help="Drafts per row.")
@click.option("--vocab", default=128_256, type=click.IntRange(1))
@json_option("Write the results to this file.")
def main(
    gpus: list[int], dtypes: list[str], drafts: list[int], vocab: int, json_path: Path | None
) -> None:
    rows = [
        row for gpu in gpus for dtype in dtypes for most in drafts
        for logits in (False, True) for row in compile_for(gpu, dtype, most, vocab, logits)
    ]  # fmt: skip
    report(f"Triton {triton.__version__}, a row of {vocab:,} tokens that rejects", rows, json_path)


if __name__ == "__main__":
    main()
