"""The `martingale` rule on a GPU: kernel launches on chunks of rows."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from otlp.batched.gpu_kernels import add_up, normalise, replace, select, weigh
from otlp.batched.ratio_bins import SIZE, layout_for
from otlp.batched.rejection import is_drafted
from otlp.batched.rows import Rows, in_chunks

TILE = 2048
"""Number of tokens that a program reads at once."""

PROGRAMS = 1024
"""Number of programs below which rows are cut into parts."""

ARRAYS = 7
"""Number of arrays over the bins of a row that are kept in memory."""

WARPS = 8
"""Number of warps of `select`; with fewer warps the plan does not fit into registers."""

OPTIONS = {"enable_fp_fusion": False}
"""Compiler options that round products before sums, as PyTorch does."""


def verify_on_gpu(
    rows: Rows, numbers: Tensor, temperatures: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Verify rows as `otlp.batched.martingale` does, with four kernels (five for logits).

    Parameters
    ----------
    rows : Rows
        Rows as passed by the caller; `target` holds logits if `temperatures` is given.
    numbers : Tensor, shape (B, 3 N + 2), float64
        Uniform random numbers.
    temperatures : Tensor, shape (B,), float32, optional
        Temperature of each row of logits.

    Returns
    -------
    tokens, accepted : Tensor, shape (B,)
    """
    width = rows.target.shape[1] + ARRAYS * SIZE
    parts = (*rows[:3], numbers) if temperatures is None else (*rows[:3], numbers, temperatures)
    with torch.cuda.device_of(numbers):
        (tokens,) = in_chunks(_verify_some, width, *parts)
    return tokens, is_drafted(rows, tokens)


def _verify_some(
    target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor, *temperatures: Tensor
) -> tuple[Tensor]:
    (batch, size), max_n, layout = target.shape, tokens.shape[1], layout_for(tokens.shape[1])
    shape, tiles = (layout.shift, layout.offset), triton.cdiv(size, TILE)
    found = numbers.new_empty(batch, dtype=torch.int64)
    if not batch:
        return (found,)
    masses = torch.zeros((batch, SIZE, 2), dtype=torch.int64, device=numbers.device)
    sums, plan = torch.empty_like(masses), numbers.new_empty((batch, 2, SIZE))
    levels, weights = numbers.new_empty((batch, SIZE)), found.new_empty((batch, tiles))
    edges = torch.stack(layout.edges(numbers.device))
    rows, scales = (target.contiguous(), draft.contiguous()), None
    for one in temperatures:
        scales = numbers.new_empty((batch, 3), dtype=torch.float32)
        normalise[batch,](rows[0], one.contiguous(), scales, size, TILE, **OPTIONS)
    grid = batch, max(1, min(tiles, PROGRAMS // batch))
    # The kernels do not check that tokens lie in the vocabulary; `gather` does.
    at = (row.gather(1, tokens.clamp(min=0)) for row in rows)
    add_up[grid](*rows, scales, masses, size, *shape, TILE, **OPTIONS)
    select[batch,](
        *at, scales, tokens.contiguous(), numbers, masses, edges, plan, sums, levels, found, max_n,
        triton.next_power_of_2(max_n), *shape, num_warps=WARPS, **OPTIONS,
    )  # fmt: skip
    weigh[grid](*rows, scales, levels, found, weights, size, tiles, *shape, TILE, **OPTIONS)
    replace[batch,](
        *rows, scales, levels, found, weights, numbers, size, tiles, numbers.shape[1], *shape, TILE,
        triton.next_power_of_2(tiles), **OPTIONS,
    )  # fmt: skip
    return (found,)
