"""Exception raised by a failed check."""

from __future__ import annotations


class Wrong(Exception):  # noqa: N818 - the library is wrong
    """A check failed.

    Attributes
    ----------
    check : str
        Name of the check, the same for every instance.
    detail : str
        Numbers that describe the failure.
    """

    def __init__(self, check: str, detail: str) -> None:
        self.check, self.detail = check, detail
        super().__init__(f"{check}: {detail}")


def expect(holds: bool, check: str, detail: str) -> None:
    """Raise `Wrong` unless `holds`."""
    if not holds:
        raise Wrong(check, detail)
