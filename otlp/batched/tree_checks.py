"""Checks of drafted trees: that tokens, nodes and rows agree with the shape."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.checks import (
    check_devices,
    check_distribution,
    check_floats,
    check_tokens,
)
from otlp.batched.rows import in_chunks, row_sums
from otlp.batched.tree_shapes import TreePlan, TreeShape
from otlp.distribution import SUM_TOLERANCE
from otlp.errors import InvalidInputError, TokenOutOfRangeError, ZeroProbabilityError


def check_tree_form(
    target: object, draft: object, draft_tokens: object, shape: object, nodes: object
) -> None:
    """Raise `InvalidInputError` unless types, shapes and devices agree."""
    if not isinstance(shape, TreeShape):
        raise InvalidInputError(
            f"shape is a {type(shape).__name__}: it must be an otlp.batched.TreeShape"
        )
    check_floats(target, "target", 3)
    check_floats(draft, "draft", 3)
    check_tokens(draft_tokens, "draft_tokens", "B, S")
    parts = {"target": target, "draft": draft, "draft_tokens": draft_tokens}
    wanted = (shape.batch, shape.slots)
    if nodes is not None:
        check_tokens(nodes, "nodes", "B, S")
        parts["nodes"] = nodes
    tensors = {name: part for name, part in parts.items() if isinstance(part, Tensor)}
    for name in ("draft_tokens", "nodes"):
        if name in tensors and tuple(tensors[name].shape) != wanted:
            raise InvalidInputError(
                f"{name} has shape {tuple(tensors[name].shape)}: with this shape of trees it must "
                f"be {wanted}"
            )
    rows, vocab_size = tensors["target"].shape[1:]
    wanted_rows = rows if nodes is not None and rows > 0 else shape.slots
    for name in ("target", "draft"):
        full = (shape.batch, wanted_rows, vocab_size)
        if tuple(tensors[name].shape) != full:
            raise InvalidInputError(
                f"{name} has shape {tuple(tensors[name].shape)}: it must be {full}"
            )
    check_devices(**tensors)


def check_tree_values(
    target: Tensor, draft: Tensor, tokens: Tensor, nodes: Tensor, plan: TreePlan
) -> None:
    """Raise an error, naming row and slot, unless the trees can have been drafted."""
    parents, vocab_size = plan.parents, target.shape[2]
    drafted = parents >= 0
    there = drafted.clone()
    there[:, 0] = True
    _refuse(
        there & ((nodes < 0) | (nodes >= target.shape[1])), nodes, InvalidInputError,
        "nodes", f"node {{}} lies outside [0, {target.shape[1]})",
    )  # fmt: skip
    _refuse(
        drafted & ((tokens < 0) | (tokens >= vocab_size)), tokens, TokenOutOfRangeError,
        "draft_tokens", f"token id {{}} lies outside the vocabulary [0, {vocab_size})",
    )  # fmt: skip
    prefixes = _prefixes(tokens, parents)
    nodes = torch.where(there, nodes, nodes[:, :1])
    same = nodes[:, :, None] == nodes[:, None]
    mixed = same & (prefixes[:, :, None] != prefixes[:, None])
    _refuse(
        (mixed & there[:, :, None] & there[:, None]).any(2), nodes, InvalidInputError,
        "nodes", "node {} stands for two different prefixes",
    )  # fmt: skip
    inner = torch.zeros_like(there).scatter_reduce(1, parents.clamp(min=0), drafted, "amax")
    for name, rows, looked in (("target", target, there), ("draft", draft, inner)):
        used = torch.zeros(rows.shape[:2], dtype=torch.bool, device=rows.device)
        used = used.scatter_reduce(1, nodes, looked, "amax")
        sums = row_sums(rows.reshape(-1, vocab_size)).view(*rows.shape[:-1], 1)
        check_distribution(rows, sums, name, used)
        first = nodes.gather(1, prefixes)
        _check_equal(rows, nodes, first, looked & looked.gather(1, prefixes), name)
    brothers = parents[:, :, None] == parents[:, None]
    brothers &= (tokens[:, :, None] == tokens[:, None]) & (drafted[:, :, None])
    brothers &= plan.certain[:, None] & ~torch.eye(
        parents.shape[1], dtype=torch.bool, device=parents.device
    )
    _refuse(
        brothers.any(2), tokens, ZeroProbabilityError, "draft_tokens",
        "token {} is also that of a certain sibling: name certain tokens once, and draw the "
        "others without them",
    )  # fmt: skip
    rows = torch.arange(parents.shape[0], device=parents.device)[:, None]
    above = nodes.gather(1, parents.clamp(min=0))
    mass = draft[rows, above, tokens.masked_fill(~drafted, 0)]
    _refuse(
        drafted & ~plan.certain & (mass == 0), tokens, ZeroProbabilityError, "draft_tokens",
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


def _check_equal(rows: Tensor, nodes: Tensor, first: Tensor, looked: Tensor, name: str) -> None:
    """Raise `InvalidInputError` unless nodes of equal prefixes have equal rows."""
    tolerance = SUM_TOLERANCE[rows.element_size()]
    row, slot = (looked & (nodes != first)).nonzero(as_tuple=True)
    one, other = first[row, slot], nodes[row, slot]

    def gaps(row: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor]:
        return ((rows[row, one].double() - rows[row, other].double()).abs().amax(1),)

    (gap,) = in_chunks(gaps, rows.shape[2], row, one, other)
    if bool((gap > tolerance).any()):
        at = int((gap > tolerance).to(torch.int8).argmax())
        raise InvalidInputError(
            f"{name} row {int(row[at])}: nodes {int(one[at])} and {int(other[at])} have the same "
            f"prefix, but the distributions after them differ by {float(gap[at]):.3g}: they must "
            "be equal"
        )


def _refuse(refused: Tensor, values: Tensor, kind: type[Exception], name: str, reason: str) -> None:
    """Raise an error of this kind at the first slot that is refused."""
    if bool(refused.any()):
        row, slot = refused.nonzero()[0].tolist()
        text = reason.format(int(values[row, slot]))
        raise kind(f"{name} row {row}, slot {slot}: {text}")
