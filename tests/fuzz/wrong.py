"""How a check says that something does not hold."""

from __future__ import annotations


class Wrong(Exception):  # noqa: N818 - what is wrong is the library
    """Something does not hold.

    Attributes
    ----------
    check : str
        Which check found it; the same words for every instance.
    detail : str
        The numbers.
    """

    def __init__(self, check: str, detail: str) -> None:
        self.check, self.detail = check, detail
        super().__init__(f"{check}: {detail}")


def expect(holds: bool, check: str, detail: str) -> None:
    """Raise `Wrong` unless it holds."""
    if not holds:
        raise Wrong(check, detail)
