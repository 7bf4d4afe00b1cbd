"""Whether a solver or a verification rule supports a problem, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.errors import UnsupportedProblemError

__all__ = ["Capability", "fits"]


@dataclass(frozen=True)
class Capability:
    """Whether a problem is supported, and if not, why.

    Attributes
    ----------
    supported : bool
    reason : str
        If not supported: the reason with the value, the limit, and an alternative.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2)
    >>> answer = otlp.solvers.Martingale().supports(otlp.Problem([0.1, 0.6, 0.3], drafts))
    >>> bool(answer), "i.i.d." in answer.reason
    (False, True)
    """

    supported: bool
    reason: str = ""

    def __bool__(self) -> bool:
        """Return whether the problem is supported."""
        return bool(self.supported)

    def require(self, who: str) -> None:
        """Raise an error with the name `who` and the reason if the problem is not supported.

        Raises
        ------
        UnsupportedProblemError
            If not supported.
        """
        if not self.supported:
            raise UnsupportedProblemError(f"{who}: {self.reason}")


def fits(what: str, needed: float, memory_limit: float) -> Capability:
    """Return whether `needed` bytes are within the memory limit, and if not, the reason.

    Parameters
    ----------
    what : str
        Name of the object that needs the memory, for the reason.
    needed, memory_limit : float
        Bytes.

    Examples
    --------
    >>> from otlp.capability import fits
    >>> bool(fits("the list of tuples", 1024**2, 2 * 1024**2))
    True
    >>> fits("the list of tuples", 3 * 1024**2, 2 * 1024**2).reason[:49]
    'the list of tuples would need 3 MiB, more than me'
    """
    if needed <= memory_limit:
        return Capability(True)
    needed = min(needed, 1e300)  # An integer may be too large to convert to a float.
    return Capability(
        False,
        f"{what} would need {needed / 1024**2:,.0f} MiB, more than memory_limit = "
        f"{memory_limit / 1024**2:,.0f} MiB; raise the limit, use a smaller n, cut the draft with "
        "top_k, or use a solver that enumerates nothing (martingale for i.i.d. drafts)",
    )


def supported_if(condition: bool, reason: str) -> Capability:
    """Return whether a condition holds, and if not, the reason."""
    return Capability(condition, "" if condition else reason)
