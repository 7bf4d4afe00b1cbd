"""One round of decoding: draft a tree, score it in one target call, verify, advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from otlp.checks import is_a, own_float_errors
from otlp.decode.choosing import Chooser, RandomChooser
from otlp.decode.drafting import Drafting
from otlp.decode.models.model import Model, check_pair
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Outcome, Verification
from otlp.distribution import FloatArray, IntArray, as_distribution
from otlp.errors import InvalidInputError

Transform = Callable[[FloatArray, FloatArray], FloatArray]
"""Function from the next-token distributions q and p to the distribution to decode from.

Examples
--------
>>> import numpy as np
>>> def halfway(q, p):
...     return (q + p) / 2
>>> halfway(np.array([0.8, 0.2]), np.array([0.4, 0.6])).round(6).tolist()
[0.6, 0.4]
"""


@dataclass(frozen=True, eq=False)
class Round:
    """Result of one round.

    Attributes
    ----------
    tree : DraftTree
        The draft tree.
    outcome : Outcome
        The accepted node and the distribution of the correction token.
    token : int
        The correction token.
    draft_seconds, target_seconds, verify_seconds : float
        Wall time of drafting, of the target call, and of verification.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> draft, target = decode.random_pair(4, 3, rng)
    >>> draft.start(()); target.start(())
    >>> played = decode.play_round(draft, target, decode.iid_paths(2, 2), decode.Traversal(), rng)
    >>> played.tokens.size == played.accepted.size + 1, played.verify_seconds > 0
    (True, True)
    """

    tree: DraftTree
    outcome: Outcome
    token: int
    draft_seconds: float
    target_seconds: float
    verify_seconds: float

    @property
    def accepted(self) -> IntArray:
        """The accepted draft tokens."""
        return self.tree.path(self.outcome.node)

    @property
    def tokens(self) -> IntArray:
        """All tokens of the round: the accepted tokens and the correction token."""
        return np.append(self.accepted, self.token)


def check_round(
    draft: Model | None, target: Model, drafting: Drafting, verification: Verification
) -> None:
    """Check that the models, the drafting and the verification are compatible.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type, if the vocabularies differ, or if the drafting needs a
        draft model and there is none.
    UnsupportedProblemError
        If the algorithm does not support the drafting; the message gives the reason.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> draft, target = decode.random_pair(4, 3, rng)
    >>> decode.check_round(draft, target, decode.iid_paths(2, 2), decode.Block())
    Traceback (most recent call last):
    otlp.errors.UnsupportedProblemError: block: block verifies one i.i.d. path, not 2 ...
    """
    check_pair(target if draft is None else draft, target)
    is_a(drafting, Drafting, "drafting")
    is_a(verification, Verification, "verification")
    verification.supports(drafting).require(verification.name)
    if draft is None and drafting.length:
        raise InvalidInputError(f"{drafting!r:.60} needs a draft model: pass draft")


def transformed(transform: Transform, q: FloatArray, p: FloatArray) -> FloatArray:
    """Apply a transform and check that its result is a distribution over the same tokens.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If the result is invalid; the message names the transform and the fault.
    """
    what = f"the result of transform {transform!r:.60}"
    found = as_distribution(transform(q, p), what)
    if found.size != p.size:
        raise InvalidInputError(f"{what} must have {p.size} entries, got {found.size}")
    return found


def apply_transform(
    draft: Model | None, tree: DraftTree, targets: FloatArray, transform: Transform | None
) -> FloatArray:
    """Return the distributions that the verification decodes from, shape (N, V).

    Without a transform these are the target's distributions.  A transform needs the draft's
    distributions at the leaves too, which costs one more draft call.
    """
    if transform is None:
        return targets
    if draft is None:
        raise InvalidInputError(f"transform {transform!r:.60} needs q and p: pass a draft model")
    missing = np.array([n for n in range(len(tree)) if n not in tree.distributions], dtype=np.int64)
    found = draft.distributions(tree, missing) if missing.size else np.empty((0, 0))
    found_q = {**tree.distributions, **dict(zip(missing.tolist(), found, strict=True))}
    nodes = range(len(tree))
    return np.stack([transformed(transform, found_q[node], targets[node]) for node in nodes])


def play_round(
    draft: Model,
    target: Model,
    drafting: Drafting,
    verification: Verification,
    rng: np.random.Generator | Chooser,
    transform: Transform | None = None,
) -> Round:
    """Draft, score and verify a tree, and advance both models.

    Parameters
    ----------
    draft, target : Model
        Models at the end of the same context (`Model.start`).
    drafting : Drafting
    verification : Verification
    rng : numpy.random.Generator or Chooser
    transform : callable, optional
        Transform of a speculative cascade; see `otlp.decode.cascades`.

    Returns
    -------
    Round

    Raises
    ------
    InvalidInputError, UnsupportedProblemError
        If an argument has the wrong type, or for the reasons of `check_round`.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> rng = np.random.default_rng(0)
    >>> draft, target = decode.random_pair(4, 3, rng)
    >>> draft.start(()); target.start(())
    >>> played = decode.play_round(draft, target, decode.iid_paths(2, 2), decode.Traversal(), rng)
    >>> 1 <= played.tokens.size <= 3
    True
    """
    check_round(draft, target, drafting, verification)
    played = scored_round(draft, target, drafting, verification, rng, transform)
    for model in (draft, target):
        model.advance(played.tree, played.outcome.node, played.token)
    return played


@own_float_errors
def scored_round(
    draft: Model | None,
    target: Model,
    drafting: Drafting,
    verification: Verification,
    rng: np.random.Generator | Chooser,
    transform: Transform | None = None,
) -> Round:
    """Draft, score and verify without advancing the models; `check_round` must have passed."""
    chooser = rng if isinstance(rng, Chooser) else RandomChooser(rng)
    if transform is not None and not callable(transform):
        raise InvalidInputError(f"transform must be a function of q and p, got {transform!r:.60}")
    begin = perf_counter()
    tree = drafting.draft(target if draft is None else draft, chooser)
    drafted = perf_counter()
    targets = target.distributions(tree, np.arange(len(tree)))
    scored = perf_counter()
    transformed_targets = apply_transform(draft, tree, targets, transform)
    outcome = verification.verify(tree, transformed_targets, chooser)
    token = chooser.choose(outcome.correction)
    verify_seconds = perf_counter() - scored
    return Round(tree, outcome, token, drafted - begin, scored - drafted, verify_seconds)
