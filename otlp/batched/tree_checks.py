"""Checks of drafted trees: that tokens, nodes and rows agree with the shape."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.checks import (
    check_devices,
    check_distribution,
    check_floats,
    check_tokens,
    refuse,
)
from otlp.batched.rows import in_chunks, row_sums
from otlp.batched.tree_shapes import TreePlan, TreeShape
from otlp.distribution import SUM_TOLERANCE
from otlp.errors import InvalidInputError, TokenOutOfRangeError, ZeroProbabilityError

AXES = ("row", "slot")


def check_tree_form(
    target: Tensor, draft: Tensor, draft_tokens: Tensor, shape: TreeShape, nodes: Tensor | None
) -> None:
    """Raise `InvalidInputError` unless types, shapes and devices agree."""
    parts = {"draft_tokens": draft_tokens} | ({} if nodes is None else {"nodes": nodes})
    for name, tokens in parts.items():
        check_tree_tokens(tokens, name, shape)
    check_floats(target, "target", 3)
    check_floats(draft, "draft", 3)
    _, rows, vocab_size = target.shape
    wanted = (shape.batch, rows if nodes is not None and rows > 0 else shape.slots, vocab_size)
    for name, part in (("target", target), ("draft", draft)):
        if tuple(part.shape) != wanted:
            raise InvalidInputError(f"{name} has shape {tuple(part.shape)}: it must be {wanted}")
    check_devices(target=target, draft=draft, **parts)


def check_tree_tokens(tokens: Tensor, name: str, shape: TreeShape) -> None:
    """Raise `InvalidInputError` unless there is an integer for each slot of trees."""
    if not isinstance(shape, TreeShape):
        raise InvalidInputError(
            f"shape is a {type(shape).__name__}: it must be an otlp.batched.TreeShape"
        )
    check_tokens(tokens, name, "B, S")
    wanted = (shape.batch, shape.slots)
    if tuple(tokens.shape) != wanted:
        raise InvalidInputError(
            f"{name} has shape {tuple(tokens.shape)}: with this shape of trees it must be {wanted}"
        )


def check_tree_values(
    target: Tensor, draft: Tensor, tokens: Tensor, nodes: Tensor, plan: TreePlan
) -> None:
    """Raise an error, naming row and slot, unless the trees can have been drafted."""
    parents, vocab_size = plan.parents, target.shape[2]
    drafted = parents >= 0
    there = drafted.clone()
    there[:, 0] = True
    refuse(
        there & ((nodes < 0) | (nodes >= target.shape[1])), nodes, InvalidInputError,
        "nodes", AXES, f"node {{}} lies outside [0, {target.shape[1]})",
    )  # fmt: skip
    refuse(
        drafted & ((tokens < 0) | (tokens >= vocab_size)), tokens, TokenOutOfRangeError,
        "draft_tokens", AXES, f"token id {{}} lies outside the vocabulary [0, {vocab_size})",
    )  # fmt: skip
    prefixes = _prefixes(tokens, parents)
    nodes = torch.where(there, nodes, nodes[:, :1])
    same = nodes[:, :, None] == nodes[:, None]
    mixed = same & (prefixes[:, :, None] != prefixes[:, None])
    refuse(
        (mixed & there[:, :, None] & there[:, None]).any(2), nodes, InvalidInputError,
        "nodes", AXES, "node {} stands for two different prefixes",
    )  # fmt: skip
    inner = torch.zeros_like(there).scatter_reduce(1, parents.clamp(min=0), drafted, "amax")
    for name, rows, looked in (("target", target, there), ("draft", draft, inner)):
        used = torch.zeros(rows.shape[:2], dtype=torch.bool, device=rows.device)
        used = used.scatter_reduce(1, nodes, looked, "amax")
        check_distribution(rows, row_sums(rows), name, used)
        first = nodes.gather(1, prefixes)
        row, slot = (looked & looked.gather(1, prefixes) & (nodes != first)).nonzero(as_tuple=True)
        pairs = row, first[row, slot], nodes[row, slot]
        check_alike(rows, pairs, name, "nodes {} and {} have the same prefix")
    brothers = parents[:, :, None] == parents[:, None]
    brothers &= (tokens[:, :, None] == tokens[:, None]) & (drafted[:, :, None])
    brothers &= plan.certain[:, None] & ~torch.eye(
        parents.shape[1], dtype=torch.bool, device=parents.device
    )
    refuse(
        brothers.any(2), tokens, ZeroProbabilityError, "draft_tokens", AXES,
        "token {} is also that of a certain sibling: name certain tokens once, and draw the "
        "others without them",
    )  # fmt: skip
    rows = torch.arange(parents.shape[0], device=parents.device)[:, None]
    above = nodes.gather(1, parents.clamp(min=0))
    mass = draft[rows, above, tokens.masked_fill(~drafted, 0)]
    refuse(
        drafted & ~plan.certain & (mass == 0), tokens, ZeroProbabilityError, "draft_tokens", AXES,
        "token {} has draft probability 0: pass the distribution that it was sampled from, or say "
        "that it was certain",
    )  # fmt: skip


def _prefixes(tokens: Tensor, parents: Tensor) -> Tensor:
    """First slot with the same path as each, shape (B, S)."""
    found = torch.zeros_like(parents)
    for slot in range(1, parents.shape[1]):
        above = found.gather(1, parents.clamp(min=0))
        alike = (above == above[:, slot : slot + 1]) & (tokens == tokens[:, slot : slot + 1])
        alike &= parents >= 0
        first = alike[:, : slot + 1].to(torch.int8).argmax(1)
        found[:, slot] = torch.where(alike[:, slot], first, slot)
    return found


def check_alike(rows: Tensor, pairs: tuple[Tensor, Tensor, Tensor], name: str, reason: str) -> None:
    """Raise `InvalidInputError` unless rows after equal prefixes are equal.

    Parameters
    ----------
    rows : Tensor, shape (B, N, V)
    pairs : tuple of Tensor, shape (M,) each
        Numbers of a row, and of two places there.
    name : str
        What holds the rows.
    reason : str
        Why they must be equal, with two ``{}`` for the places.
    """
    tolerance = SUM_TOLERANCE[rows.element_size()]

    def gaps(row: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor]:
        return ((rows[row, one].double() - rows[row, other].double()).abs().amax(1),)

    (gap,) = in_chunks(gaps, rows.shape[2], *pairs)
    if bool((gap > tolerance).any()):
        at = int((gap > tolerance).to(torch.int8).argmax())
        row, one, other = (int(part[at]) for part in pairs)
        raise InvalidInputError(
            f"{name} row {row}: {reason.format(one, other)}, but the distributions after them "
            f"differ by {float(gap[at]):.3g}: they must be equal"
        )
