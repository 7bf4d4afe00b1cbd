"""Verification of drafted paths on the device, and of prefix trees on the CPU, by a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otlp.batched.paths import verify_paths
from otlp.device.steps import by_path
from otlp.device.tournament_kernel import verify_trees
from otlp.errors import InvalidInputError, TokenOutOfRangeError

KEPT = (torch.float32, torch.float64)
"""What the kernel reads; other rows are taken as float32."""


class TreeRound(NamedTuple):
    """What a round gives each row.

    Attributes
    ----------
    tokens : Tensor, shape (B, L + 1), int64
        The accepted path, then the correction (or bonus) token, then -1.
    accepted : Tensor, shape (B,), int64
        Length of the accepted path, 0 to L.
    path : Tensor, shape (B, L), int64
        Slots of the accepted path, then -1: where its cache comes from.
    """

    tokens: Tensor
    accepted: Tensor
    path: Tensor


def verify_on_cpu(
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
    numbers : Tensor, shape (B, K + L + 2), float64
        K is the number of leaves.

    Returns
    -------
    TreeRound
        On K paths the same decisions as those of `otlp.batched.verify_paths` for the same numbers.

    Raises
    ------
    InvalidInputError
        If a shape or a type is another.
    TokenOutOfRangeError
        If a token is not in the vocabulary.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verify_on_cpu
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 7, 3), model.expand(1, 3, 3)
    >>> tokens, numbers = torch.tensor([[0, 1, 0, 2, 1, 1]]), torch.full((1, 8), 0.5).double()
    >>> verify_on_cpu((2, 2), target, draft, tokens, numbers).accepted.tolist()
    [2]
    """
    rows = (one if one.dtype in KEPT else one.float() for one in (target, draft))
    parts = [one.detach().contiguous() for one in (*rows, tokens, numbers)]
    verify = verification_on_cpu(branching, *parts)
    size = target.shape[2]
    if bool(((tokens < 0) | (tokens >= size)).any()):
        raise TokenOutOfRangeError(f"tokens must lie within 0 to {size - 1}, the vocabulary")
    return verify()


def verification_on_cpu(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> Callable[[], TreeRound]:
    """Verification of tensors that stay where they are: NumPy's views of them are made once.

    Parameters
    ----------
    branching, target, draft, tokens, numbers
        As for `verify_on_cpu`, contiguous, the distributions in float32 or float64; in front of the
        numbers there may be others.

    Returns
    -------
    callable
        Does as `verify_on_cpu` on what the tensors hold at that time; each call overwrites the
        round that the last one returned.

    Raises
    ------
    InvalidInputError
        If a shape or a type is another.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verification_on_cpu
    >>> model = torch.tensor([[[0.5, 0.3, 0.2]]])
    >>> target, tokens = model.repeat(1, 2, 1), torch.tensor([[0]])
    >>> verify = verification_on_cpu((1,), target, model, tokens, torch.full((1, 4), 0.5).double())
    >>> verify().accepted.tolist()
    [1]
    """
    length, leaves = len(branching), prod(branching)
    begin = numbers.shape[-1] - length - 2 - leaves
    _check(branching, target, draft, tokens, numbers)
    p, q, drafted, uniform = (part.numpy() for part in (target, draft, tokens, numbers))
    children, batch = np.array(branching), len(tokens)
    output, path = np.empty((batch, length + 1), np.int64), np.empty((batch, length), np.int64)
    accepted = np.empty(batch, np.int64)
    found = TreeRound(*map(torch.from_numpy, (output, accepted, path)))

    def verify() -> TreeRound:
        verify_trees(p, q, drafted, uniform, children, begin, output, accepted, path)
        return found

    return verify


def _check(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> None:
    """Raise `InvalidInputError` where the kernel, which looks at no shape, would read beyond."""
    widths = list(accumulate(branching, mul, initial=1))
    slots, batch = sum(widths), len(tokens)
    wanted = {
        "target": (target, (batch, slots, target.shape[-1]), KEPT),
        "draft": (draft, (batch, slots - widths[-1], target.shape[-1]), KEPT),
        "tokens": (tokens, (batch, slots - 1), (torch.int64,)),
        "numbers": (numbers, (batch, numbers.shape[-1]), (torch.float64,)),
    }
    for name, (values, shape, types) in wanted.items():
        if values.shape != shape or values.dtype not in types or not values.is_contiguous():
            known = " or ".join(str(kind).removeprefix("torch.") for kind in types)
            raise InvalidInputError(
                f"{name} is {values.dtype} of shape {tuple(values.shape)}: for a tree of branching "
                f"{tuple(branching)} it must be {known} of shape {shape}, contiguous"
            )
    taken = prod(branching) + len(branching) + 2
    if numbers.shape[-1] < taken:
        raise InvalidInputError(
            f"numbers has {numbers.shape[-1]} columns: a tree of branching {tuple(branching)} "
            f"takes {taken}"
        )


def verify_on_device(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> TreeRound:
    """Verify K paths by `otlp.batched.verify_paths` without a look at the values.

    Parameters and result are those of `verify_on_cpu`.

    Raises
    ------
    InvalidInputError
        If the tree branches below its root.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import verify_on_device
    >>> model = torch.tensor([0.5, 0.3, 0.2])
    >>> target, draft = model.expand(1, 5, 3), model.expand(1, 3, 3)
    >>> tokens, numbers = torch.tensor([[0, 1, 2, 1]]), torch.full((1, 6), 0.5).double()
    >>> verify_on_device((2, 1), target, draft, tokens, numbers).accepted.tolist()
    [2]
    """
    check_paths(branching)
    paths, length = branching[0], len(branching)
    drafted = tokens.view(-1, length, paths).transpose(1, 2)
    p, q = (by_path(rows, paths) for rows in (target, draft))
    found = verify_paths(p, q, drafted, numbers, validate=False)
    levels = torch.arange(length, device=tokens.device)
    slots = 1 + found.path[:, None] + paths * levels
    path = slots.masked_fill(levels >= found.accepted[:, None], -1)
    return TreeRound(found.tokens, found.accepted, path)


def check_paths(branching: Sequence[int]) -> None:
    """Refuse trees that branch below the root.

    Raises
    ------
    InvalidInputError
    """
    if any(children > 1 for children in branching[1:]):
        raise InvalidInputError(
            f"branching is {tuple(branching)}: a tree that branches below its root is verified on "
            "a CPU alone, by verify_on_cpu; give paths and length, or move the models to the CPU"
        )
