"""Verification of draft paths on any device, and of prefix trees on a CPU by a kernel."""

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
"""Data types that the kernel reads; other rows are converted to float32."""


class TreeRound(NamedTuple):
    """Result of a verification round, for each row.

    Attributes
    ----------
    tokens : Tensor, shape (B, L + 1), int64
        Accepted path, then the correction (or bonus) token, then padding with -1.
    accepted : Tensor, shape (B,), int64
        Length of the accepted path, 0 to L.
    path : Tensor, shape (B, L), int64
        Cache slots of the accepted path, then padding with -1.
    """

    tokens: Tensor
    accepted: Tensor
    path: Tensor


def verify_on_cpu(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> TreeRound:
    """Verify one tree per row on the CPU, by a kernel that reads the rows without a copy.

    Parameters
    ----------
    branching : sequence of int
        Number of children of each token by depth, k_1, ..., k_L; K, 1, ..., 1 are K paths.
    target : Tensor, shape (B, N + 1, V)
        Next-token distributions of the target after the root and each drafted token, level by
        level.
    draft : Tensor, shape (B, I, V)
        Next-token distributions of the draft model after the root and each token with children.
    tokens : Tensor, shape (B, N), int64
        Drafted tokens, level by level.
    numbers : Tensor, shape (B, K + L + 2), float64
        Uniform random numbers, where K is the number of leaves.

    Returns
    -------
    TreeRound
        On K paths the decisions are those of `otlp.batched.verify_paths` for the same numbers.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong shape or type.
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
        raise TokenOutOfRangeError(f"tokens must lie in the vocabulary [0, {size})")
    return verify()


def verification_on_cpu(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> Callable[[], TreeRound]:
    """Return a function that verifies the current contents of static tensors.

    Parameters
    ----------
    branching, target, draft, tokens, numbers
        As for `verify_on_cpu`.  The tensors must be contiguous, and the distributions float32 or
        float64.  `numbers` may have additional columns before those used.

    Returns
    -------
    callable
        Function without arguments that returns the result of `verify_on_cpu` for the current values
        of the tensors.  Each call overwrites the result of the previous call.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong shape or type.

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
    """Raise `InvalidInputError` for wrong shapes or types, which the kernel does not check."""
    widths = list(accumulate(branching, mul, initial=1))
    slots, batch = sum(widths), len(tokens)
    expected = {
        "target": (target, (batch, slots, target.shape[-1]), KEPT),
        "draft": (draft, (batch, slots - widths[-1], target.shape[-1]), KEPT),
        "tokens": (tokens, (batch, slots - 1), (torch.int64,)),
        "numbers": (numbers, (batch, numbers.shape[-1]), (torch.float64,)),
    }
    for name, (values, shape, types) in expected.items():
        if values.shape != shape or values.dtype not in types or not values.is_contiguous():
            known = " or ".join(str(kind).removeprefix("torch.") for kind in types)
            raise InvalidInputError(
                f"{name} must be contiguous {known} of shape {shape} for branching "
                f"{tuple(branching)}, got {values.dtype} of shape {tuple(values.shape)}"
            )
    columns = prod(branching) + len(branching) + 2
    if numbers.shape[-1] < columns:
        raise InvalidInputError(
            f"numbers must have at least {columns} columns for branching {tuple(branching)}, got "
            f"{numbers.shape[-1]}"
        )


def verify_on_device(
    branching: Sequence[int], target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> TreeRound:
    """Verify K paths with `otlp.batched.verify_paths`, without checks of values.

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
    """Raise InvalidInputError if a tree branches below its root."""
    if any(children > 1 for children in branching[1:]):
        raise InvalidInputError(
            "branching must be K, 1, ..., 1 except on a CPU, where verify_on_cpu verifies every "
            f"tree, got {tuple(branching)}; draft paths, or move the models to the CPU"
        )
