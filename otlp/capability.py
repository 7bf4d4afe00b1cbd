"""The answer to "can you take this problem?": yes, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Capability"]


@dataclass(frozen=True)
class Capability:
    """Whether a solver or reduction takes a problem.

    Attributes
    ----------
    supported : bool
    reason : str
        If not supported: why, with the value and the limit, and what to use instead.
    """

    supported: bool
    reason: str = ""

    def __bool__(self) -> bool:
        """Return whether the problem is supported."""
        return self.supported
