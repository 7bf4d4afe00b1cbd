"""A bracket of a root that chords narrow: the Illinois variant of regula falsi."""

from __future__ import annotations

from typing import NamedTuple

from otlp.numerics.compiled import compiled


class Bracket(NamedTuple):
    """Ends of an interval that a rising function has its root in.

    Attributes
    ----------
    a, b : float
        The ends.
    at_a, at_b : float
        The function there, or less: an end that stays twice counts half.
    side : int
        Which end was moved last: -1 the left, 1 the right, 0 none.
    """

    a: float
    at_a: float
    b: float
    at_b: float
    side: int


@compiled
def next_place(bracket: Bracket, step: int) -> float:
    """Where to look next: the chord's root, and the middle in every third step."""
    a, at_a, b, at_b, _ = bracket
    return 0.5 * (a + b) if step % 3 == 2 else a + (b - a) * (at_a / (at_a - at_b))


@compiled
def narrowed(bracket: Bracket, place: float, value: float) -> Bracket:
    """Move the end of the same sign to a place between them."""
    a, at_a, b, at_b, side = bracket
    if value < 0.0:
        return Bracket(place, value, b, 0.5 * at_b if side == -1 else at_b, -1)
    return Bracket(a, 0.5 * at_a if side == 1 else at_a, place, value, 1)
