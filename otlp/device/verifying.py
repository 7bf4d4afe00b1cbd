"""Verification of drafted prefix trees, paths among them: a kernel on the CPU, else batched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from otlp.batched.paths import verify_paths
from otlp.batched.tree_shapes import TreeShape
from otlp.batched.trees import TreeRound, verify_tree
from otlp.decode.drafting import prefix_tree
from otlp.decode.verification.tournament_kernel import verify_trees
from otlp.device.steps import by_path
from otlp.distribution import IntArray

KEPT = (torch.float32, torch.float64)
"""What the kernel reads; other rows are taken as float32."""


def verify_here(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> TreeRound:
    """Verify a tree a row on the CPU: a kernel reads the rows where they lie.

    Parameters
    ----------
    branching : sequence of int
        Children of each token by depth, k_1, ..., k_L; K, 1, ..., 1 are K paths.
    target : Tensor, shape (B, N + 1, V)
    draft : Tensor, shape (B, I, V)
        Next-token distributions after the root and each drafted token, level by level; those of the
        draft after the I that have children.
    tokens : Tensor, shape (B, N), int64
    numbers : Tensor, shape (B, N + L + 4), float64
        Or (B, K + L + 2) for K paths.

    Returns
    -------
    TreeRound
        The same decisions as those of `otlp.batched.verify_tree`, or of `verify_paths`, for the
        same numbers.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verify_here
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 7, 3), model.expand(1, 3, 3)
    >>> tokens, numbers = torch.tensor([[0, 1, 0, 2, 1, 1]]), torch.full((1, 12), 0.5).double()
    >>> verify_here((2, 2), target, draft, tokens, numbers).accepted.tolist()
    [2]
    """
    target, draft = (rows if rows.dtype in KEPT else rows.float() for rows in (target, draft))
    p, q, drafted, uniform = (
        part.contiguous().numpy() for part in (target, draft, tokens, numbers)
    )
    found = verify_trees(p, q, drafted, uniform, _children(tuple(branching)))
    return TreeRound(*map(torch.from_numpy, found))


def verify_there(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> TreeRound:
    """Verify by `otlp.batched.verify_paths` or `verify_tree` without a look at the values.

    Parameters and result are those of `verify_here`.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verify_there
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 7, 3), model.expand(1, 3, 3)
    >>> tokens, numbers = torch.tensor([[0, 1, 0, 2, 1, 1]]), torch.full((1, 12), 0.5).double()
    >>> verify_there((2, 2), target, draft, tokens, numbers).accepted.tolist()
    [2]
    """
    if max(branching[1:], default=1) > 1:
        pad = torch.nn.functional.pad
        draft = pad(draft, (0, 0, 0, target.shape[1] - draft.shape[1]))
        shape = _shape(tuple(branching), len(tokens))
        return verify_tree(target, draft, pad(tokens, (1, 0)), shape, numbers, validate=False)
    paths, length = branching[0], len(branching)
    drafted = tokens.view(-1, length, paths).transpose(1, 2)
    p, q = (by_path(rows, paths) for rows in (target, draft))
    found = verify_paths(p, q, drafted, numbers, validate=False)
    levels = torch.arange(length, device=tokens.device)
    slots = 1 + found.path[:, None] + paths * levels
    path = slots.masked_fill(levels >= found.accepted[:, None], -1)
    return TreeRound(found.tokens, found.accepted, path)


@cache
def _children(branching: tuple[int, ...]) -> IntArray:
    return np.array(branching)


@cache
def _shape(branching: tuple[int, ...], batch: int) -> TreeShape:
    return TreeShape(torch.tensor(prefix_tree(branching).shape).repeat(batch, 1))
