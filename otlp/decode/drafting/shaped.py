"""Drafting of trees with a fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral

import numpy as np

from otlp.checks import whole_number
from otlp.decode.choosing import Chooser
from otlp.decode.drafting.drafting import Drafting
from otlp.decode.drafting.fixed_shape import fixed_shape
from otlp.decode.drafting.growing import ShapeRule, check_slots, grow
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree, children_of, depths_of
from otlp.drafts import IID, DraftScheme
from otlp.drafts.by_name import SchemeMaker, make_scheme
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class ShapedDrafting(Drafting):
    """Drafting with a fixed shape and a draft scheme for siblings.

    Each slot of the shape is filled with one drawn token.  I.i.d. draws may fill two sibling slots
    with the same token; the slots then become one node, which has the children of both.

    Parameters
    ----------
    shape : tuple of int
        The parent of each slot; slot 0 is the root, with parent -1, and parents precede their
        children.  Siblings are drawn in the order of their slots.
    kind : str or callable
        Draft scheme of the n children of a node: a name (`otlp.drafts.by_name`), or a function
        from a distribution and n to a `DraftScheme`.  If the distribution has fewer than n tokens
        to draw without replacement, there are fewer children.

    Raises
    ------
    InvalidInputError
        If the shape is not a tree, or the scheme cannot draft the children of a node.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.ShapedDrafting((-1, 0, 0, 1)).length
    2
    >>> decode.tree_shape([-1, 0, 0, 1]).shape
    (-1, 0, 0, 1)
    """

    shape: tuple[int, ...]
    kind: str | SchemeMaker = "iid"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _whole_numbers(self.shape, "shape"))
        rest = list(enumerate(self.shape))[1:]
        if not self.shape or self.shape[0] != -1 or any(not 0 <= p < s for s, p in rest):
            raise InvalidInputError(
                f"the tree shape {self.shape[:8]}... must begin with -1 for the root, followed by "
                "the parent of each slot; a parent must precede its children"
            )
        for n in {len(below) for below in self.children if below}:
            make_scheme(self.kind, np.full(n + 1, 1.0 / (n + 1)), n)

    @cached_property
    def children(self) -> list[list[int]]:
        """Child slots of each slot."""
        return children_of(self.shape)

    @property
    def independent(self) -> bool:
        """Whether siblings are i.i.d."""
        return self.kind in ("iid", IID)

    @property
    def siblings(self) -> DraftScheme | None:
        """Largest group of siblings in the shape, over one more token; None if there are none."""
        most = max(map(len, self.children))
        return make_scheme(self.kind, np.full(most + 1, 1.0 / (most + 1)), most) if most else None

    @property
    def kind_name(self) -> str:
        """Name of the draft scheme."""
        return self.kind if isinstance(self.kind, str) else getattr(self.kind, "__name__", "own")

    @property
    def paths(self) -> int:
        """Number K of drafted paths (leaves of the shape); 0 if nothing is drafted."""
        return sum(not below for below in self.children) if len(self.shape) > 1 else 0

    @property
    def length(self) -> int:
        """Maximum path length L."""
        return max(self.depths)

    @cached_property
    def depths(self) -> list[int]:
        """Number of tokens from the root to each slot."""
        return depths_of(self.shape)

    @property
    def is_iid_paths(self) -> bool:
        """Whether the drafting is K i.i.d. paths, all of length L."""
        below = self.children
        chains = all(len(slots) <= 1 for slots in below[1:])
        even = len(below[0]) * self.length == len(self.shape) - 1
        return self.independent and chains and even

    @cached_property
    def rule(self) -> ShapeRule[int]:
        """Shape rule of the shape."""
        return fixed_shape([((), below) for below in self.children])

    def shortened(self, length: int) -> ShapedDrafting:
        """Return the drafting with the slots of the first `length` depths."""
        kept = [slot for slot, depth in enumerate(self.depths) if depth <= length]
        new_index = {slot: index for index, slot in enumerate(kept)}
        return replace(self, shape=tuple(new_index.get(self.shape[slot], -1) for slot in kept))

    def draft(self, model: Model, chooser: Chooser) -> DraftTree:
        """Fill every slot; see `Drafting.draft`."""
        return grow(model, chooser, self.rule, self.kind)


def iid_paths(paths: int, length: int) -> ShapedDrafting:
    """Draft K i.i.d. paths of length L (SpecTr, Eq. 7).

    Raises
    ------
    InvalidInputError
        If `paths` or `length` is less than 1.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = decode.iid_paths(2, 3)
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> drafting.shape, [tree.depths[leaf].item() for leaf in tree.leaves]
    ((-1, 0, 1, 2, 0, 4, 5), [3, 3])
    """
    whole_number(paths, "the number of paths K")
    whole_number(length, "the path length L")
    check_slots(paths * length)
    shape = [-1]
    for _ in range(paths):
        shape.append(0)
        shape.extend(range(len(shape) - 1, len(shape) + length - 2))
    return ShapedDrafting(tuple(shape))


def delayed_paths(trunk: int, paths: int, length: int) -> ShapedDrafting:
    """Draft one path (the trunk), and K i.i.d. paths of length L below its end.

    Source: Thomas, Kitanovski, Goldblum and Pal 2026, delayed tree expansion (arXiv:2602.16994):
    draft and target agree less at greater depths, where additional paths help most.

    Parameters
    ----------
    trunk : int
        Number of tokens of the trunk; 0 drafts `iid_paths`.
    paths, length : int
        Number of paths K and their length L.

    Raises
    ------
    InvalidInputError
        If `trunk` is negative, or K or L less than 1.

    Examples
    --------
    >>> from otlp import decode
    >>> drafting = decode.delayed_paths(1, 2, 2)
    >>> drafting.shape, drafting.length
    ((-1, 0, 1, 2, 1, 4), 3)
    """
    whole_number(trunk, "the length of the trunk", 0)
    below = iid_paths(paths, length).shape[1:]
    check_slots(trunk + len(below))
    return ShapedDrafting((*range(-1, trunk), *(trunk + parent for parent in below)))


def prefix_tree(branching: Sequence[int]) -> ShapedDrafting:
    """Draft a prefix tree: each node at depth i has k_(i+1) i.i.d. children (SpecTr, Appendix D).

    Parameters
    ----------
    branching : sequence of int
        Numbers of children k_1, ..., k_L.

    Raises
    ------
    InvalidInputError
        If the sequence is empty or an entry is less than 1.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.prefix_tree([2, 1]).shape
    (-1, 0, 0, 1, 2)
    """
    return ShapedDrafting(_full_tree(branching))


def without_replacement(branching: Sequence[int]) -> ShapedDrafting:
    """Draft a prefix tree whose siblings are drawn without replacement; see `prefix_tree`.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.without_replacement([2, 1]).kind_name
    'without-replacement'
    """
    return ShapedDrafting(_full_tree(branching), "without-replacement")


def hub_pairs(length: int) -> ShapedDrafting:
    """Draft SpecHub pairs on a full binary tree of depth L (SpecHub, section 4).

    Examples
    --------
    >>> from otlp import decode
    >>> decode.hub_pairs(2).shape
    (-1, 0, 0, 1, 1, 2, 2)
    """
    check_slots(2 ** min(whole_number(length, "the path length L"), 100))
    return ShapedDrafting(_full_tree([2] * length), "hub")


def tree_shape(
    parents: Sequence[int], kind: str | SchemeMaker = "without-replacement"
) -> ShapedDrafting:
    """Draft a given tree shape, such as a shape optimised by Sequoia.

    Parameters
    ----------
    parents : sequence of int
        The parent of each slot; slot 0 is the root, with parent -1.
    kind : str or callable
        Draft scheme of siblings, see `ShapedDrafting`; ``"hub"`` requires exactly two children at
        each inner slot.

    Raises
    ------
    InvalidInputError
        If `parents` is not a tree, has only a root, or does not suit the kind.

    Examples
    --------
    >>> from otlp import decode
    >>> drafting = decode.tree_shape([-1, 0, 0, 0, 1])
    >>> drafting.length, drafting.kind_name
    (2, 'without-replacement')
    """
    shape = _whole_numbers(parents, "parents")
    whole_number(len(shape) - 1, "the number of slots below the root")
    return ShapedDrafting(shape, kind)


def no_draft() -> ShapedDrafting:
    """Draft nothing; used by the autoregressive baseline.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = decode.no_draft()
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> tree.tokens.tolist()                # only the root
    [-1]
    """
    return ShapedDrafting((-1,))


def _whole_numbers(values: Sequence[int], what: str) -> tuple[int, ...]:
    try:
        numbers = tuple(values)
    except TypeError:
        numbers = (None,)  # type: ignore[assignment]
    if not all(isinstance(n, Integral) and not isinstance(n, bool) for n in numbers):
        raise InvalidInputError(f"{what} must be a list of whole numbers, got {values!r}")
    return tuple(map(int, numbers))


def _full_tree(branching: Sequence[int]) -> tuple[int, ...]:
    branching = _whole_numbers(branching, "branching")
    whole_number(len(branching), "the path length L")
    shape, level = [-1], [0]
    for depth, count in enumerate(branching, start=1):
        whole_number(count, f"the number of children at depth {depth}")
        check_slots(len(shape) + len(level) * int(count))
        start = len(shape)
        shape.extend(slot for slot in level for _ in range(count))
        level = list(range(start, len(shape)))
    return tuple(shape)
