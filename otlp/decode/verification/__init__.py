"""Verification algorithms with a common interface, one file per algorithm."""

from collections.abc import Mapping

from otlp.decode.verification.autoregressive import Autoregressive
from otlp.decode.verification.block import Block
from otlp.decode.verification.bottom_up import BottomUp
from otlp.decode.verification.equality import Equality
from otlp.decode.verification.greedy_multipath import GreedyMultipath
from otlp.decode.verification.speculative import Speculative
from otlp.decode.verification.target_only import TargetOnly
from otlp.decode.verification.top_down import TopDown, draft_hub_pairs
from otlp.decode.verification.tournament import Tournament, TwoSlicePaths
from otlp.decode.verification.traversal import Traversal
from otlp.decode.verification.verification import Outcome, Verification
from otlp.errors import InvalidInputError

__all__ = [
    "ALGORITHMS",
    "SEEDED",
    "Autoregressive",
    "Block",
    "BottomUp",
    "Equality",
    "GreedyMultipath",
    "Outcome",
    "Speculative",
    "TargetOnly",
    "TopDown",
    "Tournament",
    "Traversal",
    "TwoSlicePaths",
    "Verification",
    "find_verification",
]

ALGORITHMS: Mapping[str, Verification] = {
    "autoregressive": Autoregressive(),
    "speculative": Speculative(),
    "block": Block(),
    "target-only": TargetOnly(),
    "naive": TopDown("naive"),
    "recursive-rejection": TopDown("recursive-rejection"),
    "k-seq": TopDown("k-seq"),
    "hub": TopDown("hub", fallback="auto", drafts=draft_hub_pairs),
    "optimal": TopDown("auto"),
    "global-resolution": TopDown("global-resolution"),
    "greedy-multipath": GreedyMultipath(),
    "traversal": Traversal(),
    "bottom-up": BottomUp(),
    "two-slice": TwoSlicePaths(),
    "tournament": Tournament(),
}
"""All algorithms by name, with their default settings.

Examples
--------
>>> from otlp import decode
>>> "traversal" in decode.ALGORITHMS
True
>>> decode.ALGORITHMS["block"]
Block()
"""

SEEDED: Mapping[str, Verification] = {"equality": Equality()}
"""Algorithms by name for targets that draw with a seed instead of the round's random numbers.

Examples
--------
>>> from otlp import decode
>>> sorted(decode.SEEDED)
['equality']
"""


def find_verification(wanted: str | Verification) -> Verification:
    """Return the algorithm with a given name; a Verification is returned unchanged.

    Raises
    ------
    InvalidInputError
        If there is no algorithm of this name; the message lists the names.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.find_verification("traversal")
    Traversal()
    >>> decode.find_verification("best")
    Traceback (most recent call last):
    otlp.errors.InvalidInputError: there is no verification algorithm 'best': choose ...
    """
    if isinstance(wanted, Verification):
        return wanted
    known = {**ALGORITHMS, **SEEDED}
    if not isinstance(wanted, str) or wanted not in known:
        raise InvalidInputError(
            f"there is no verification algorithm {wanted!r}: choose from {', '.join(known)}, "
            "or pass a Verification"
        )
    return known[wanted]
