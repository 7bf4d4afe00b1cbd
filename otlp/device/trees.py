"""Verification of drafted prefix trees: the tournament as one kernel on the CPU, else batched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from otlp.batched.tree_shapes import TreeShape
from otlp.batched.trees import TreeRound, verify_tree
from otlp.decode.drafting import prefix_tree
from otlp.decode.verification.tournament_kernel import verify_prefix_tree


def verify_tree_here(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> TreeRound:
    """Verify a tree a row on the CPU: a kernel reads the rows where they lie.

    Parameters
    ----------
    branching : sequence of int
        Children of each token by depth, k_1, ..., k_L.
    target : Tensor, shape (B, N + 1, V)
    draft : Tensor, shape (B, I, V)
        Next-token distributions after the root and each drafted token, level by level; those of the
        draft after the I that have children.
    tokens : Tensor, shape (B, N), int64
    numbers : Tensor, shape (B, N + L + 4), float64

    Returns
    -------
    TreeRound
        The same decisions as those of `otlp.batched.verify_tree` for the same numbers.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verify_tree_here
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 7, 3), model.expand(1, 3, 3)
    >>> tokens, numbers = torch.tensor([[0, 1, 0, 2, 1, 1]]), torch.full((1, 12), 0.5).double()
    >>> verify_tree_here((2, 2), target, draft, tokens, numbers).accepted.tolist()
    [2]
    """
    batch, length = len(tokens), len(branching)
    p, q, drafted, uniform = (part.numpy() for part in (target, draft, tokens, numbers))
    output, children = np.full((batch, length + 1), -1), np.array(branching)
    paths, accepted = np.full((batch, length), -1), np.zeros(batch, np.int64)
    for row in range(batch):
        path, accepted[row], token = verify_prefix_tree(
            p[row], q[row], drafted[row], children, uniform[row]
        )
        kept = path[: accepted[row]]
        paths[row, : kept.size], output[row, : kept.size] = kept, drafted[row, kept - 1]
        output[row, kept.size] = token
    return TreeRound(*(torch.from_numpy(part) for part in (output, accepted, paths)))


def verify_tree_there(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> TreeRound:
    """Verify by `otlp.batched.verify_tree` without a look at the values.

    Parameters and result are those of `verify_tree_here`.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verify_tree_there
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 7, 3), model.expand(1, 3, 3)
    >>> tokens, numbers = torch.tensor([[0, 1, 0, 2, 1, 1]]), torch.full((1, 12), 0.5).double()
    >>> verify_tree_there((2, 2), target, draft, tokens, numbers).accepted.tolist()
    [2]
    """
    pad = torch.nn.functional.pad
    draft = pad(draft, (0, 0, 0, target.shape[1] - draft.shape[1]))
    shape = _shape(tuple(branching), len(tokens))
    return verify_tree(target, draft, pad(tokens, (1, 0)), shape, numbers, validate=False)


@cache
def _shape(branching: tuple[int, ...], batch: int) -> TreeShape:
    return TreeShape(torch.tensor(prefix_tree(branching).shape).repeat(batch, 1))
