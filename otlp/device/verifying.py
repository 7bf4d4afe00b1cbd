"""Verification of drafted prefix trees, paths among them: a kernel on the CPU, else batched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from otlp.batched.paths import verify_paths
from otlp.batched.tree_shapes import TreeShape
from otlp.batched.trees import TreeRound, verify_tree
from otlp.decode.drafting import prefix_tree
from otlp.decode.verification.tournament_kernel import verify_trees
from otlp.device.steps import by_path

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
    rows = (one if one.dtype in KEPT else one.float() for one in (target, draft))
    parts = [one.contiguous() for one in (*rows, tokens, numbers)]
    return verification_here(branching, *parts)()


def verification_here(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> Callable[[], TreeRound]:
    """Verification of tensors that stay where they are: NumPy's views of them are made once.

    Parameters
    ----------
    branching, target, draft, tokens, numbers
        As for `verify_here`, contiguous, the distributions in float32 or float64; in front of the
        numbers there may be others.

    Returns
    -------
    callable
        Does as `verify_here` on what the tensors hold at that time; each call overwrites the round
        that the last one returned.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verification_here
    >>> model = torch.tensor([[[0.5, 0.3, 0.2]]])
    >>> target, tokens = model.repeat(1, 2, 1), torch.tensor([[0]])
    >>> verify = verification_here((1,), target, model, tokens, torch.full((1, 4), 0.5).double())
    >>> verify().accepted.tolist()
    [1]
    """
    length, leaves = len(branching), prod(branching)
    spare = 0 if is_paths(branching) else 1  # of `otlp.batched.verify_tree`
    begin = numbers.shape[1] - length - 2 - spare - leaves
    p, q, drafted, uniform = (part.numpy() for part in (target, draft, tokens, numbers))
    children, batch = np.array(branching), len(tokens)
    output, path = np.empty((batch, length + 1), np.int64), np.empty((batch, length), np.int64)
    accepted = np.empty(batch, np.int64)
    found = TreeRound(*map(torch.from_numpy, (output, accepted, path)))

    def verify() -> TreeRound:
        verify_trees(p, q, drafted, uniform, children, begin, output, accepted, path)
        return found

    return verify


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
    if not is_paths(branching):
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


def is_paths(branching: Sequence[int]) -> bool:
    """Whether a tree branches at the root alone."""
    return all(children == 1 for children in branching[1:])


@cache
def _shape(branching: tuple[int, ...], batch: int) -> TreeShape:
    return TreeShape(torch.tensor(prefix_tree(branching).shape).repeat(batch, 1))
