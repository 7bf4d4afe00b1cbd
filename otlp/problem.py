"""The problem: a target distribution and a draft scheme for n tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from otlp.checks import check_mask, check_n, check_rows, check_tokens, kind_of, whole_number
from otlp.distribution import ByValue, FloatArray, IntArray, as_distribution
from otlp.drafts.scheme import DraftScheme
from otlp.errors import InvalidInputError, ZeroProbabilityError
from otlp.numerics.sums import sum_in
from otlp.showing.html import html_table


@dataclass(frozen=True, eq=False)
class Problem(ByValue):
    """An optimal transport linear program (OTLP) of multi-draft speculative sampling.

    The OTLP maximises the probability that the verified token is one of the n drafted tokens, over
    all verification rules whose output follows `target` exactly (Sun et al. 2023, SpecTr,
    section 4; Thomas and Pal, Global Resolution, Eq. 1).

    Parameters
    ----------
    target : array_like, shape (V,)
        The target distribution p.
    drafts : DraftScheme
        Draft scheme, which samples the n drafted tokens, such as `otlp.IID(q, n)`.

    Attributes
    ----------
    n : int
        Number of drafted tokens.
    vocab_size : int
        Vocabulary size V.

    Raises
    ------
    InvalidDistributionError
        If `target` is not a probability vector (see `otlp.as_distribution`).
    InvalidInputError
        If `drafts` is not a draft scheme, or its vocabulary differs from that of `target`.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> problem.vocab_size, problem.n
    (3, 2)
    """

    target: FloatArray
    drafts: DraftScheme
    n: int = field(init=False)
    vocab_size: int = field(init=False)

    def __init__(self, target: npt.ArrayLike, drafts: DraftScheme) -> None:
        if not isinstance(drafts, DraftScheme):
            raise InvalidInputError(
                f"drafts must be a draft scheme, such as otlp.IID(q, n=2); got {kind_of(drafts)}"
            )
        probabilities = as_distribution(target, "target")
        size = int(whole_number(drafts.vocab_size, "vocab_size"))
        if probabilities.size != size:
            raise InvalidInputError(
                "target and drafts must have the same vocabulary, "
                f"got {probabilities.size} and {size} tokens"
            )
        # The dataclass is frozen, so set the attributes through `vars`.
        vars(self).update(target=probabilities, drafts=drafts, n=check_n(drafts.n), vocab_size=size)

    def __repr__(self) -> str:
        """Return the draft scheme, whose vocabulary is that of the target."""
        return f"Problem({self.drafts!r})"

    def _repr_html_(self) -> str:
        support = int(np.count_nonzero(self.target))
        entries = {"V": f"{self.vocab_size:,}", "n": self.n, "drafts": repr(self.drafts)}
        return html_table("Problem", entries | {"tokens with p > 0": f"{support:,}"})

    def dual_value(self, subset: npt.ArrayLike) -> float:
        """Compute the upper bound on the acceptance of every plan that follows from a subset H.

        An accepted token lies in H, or some drafted token lies outside H, so

            acceptance <= p(H) + P(some draft outside H) = 1 + psi(H)

        (Global Resolution, Eq. 4); the best subset H* attains the optimum.  The bound is computed
        as a sum of two masses, which avoids cancellation.

        Parameters
        ----------
        subset : array_like
            A mask of shape (V,), or token ids.

        Returns
        -------
        float
            At most 1; O(V) for i.i.d. drafts.
        """
        inside = check_mask(subset, self.vocab_size)
        return min(1.0, sum_in(self.target, inside) + self.drafts.mass_touching(~inside))

    def check_draft_tokens(self, draft_tokens: npt.ArrayLike) -> IntArray:
        """Validate one drafted tuple.

        Parameters
        ----------
        draft_tokens : array_like of int, shape (n,)
            Token ids.

        Returns
        -------
        ndarray, shape (n,), int64

        Raises
        ------
        InvalidInputError
            If the shape is not (n,) or the entries are not integers.
        TokenOutOfRangeError
            If an id lies outside [0, V).
        ZeroProbabilityError
            If the scheme never drafts this tuple.
        """
        drafts = self.drafts
        tokens = check_tokens(draft_tokens, drafts.n, drafts.vocab_size)
        if not drafts._possible(tokens):
            raise ZeroProbabilityError(
                f"the tuple {tokens.tolist()} has probability 0 under {drafts!r}: "
                "pass tokens that were drafted by this scheme"
            )
        return tokens

    def check_draft_tuples(self, draft_tokens: npt.ArrayLike) -> IntArray:
        """Validate a batch of drafted tuples; see `check_draft_tokens`.

        Parameters
        ----------
        draft_tokens : array_like of int, shape (m, n)
            Token ids, one tuple per row; m may be 0.

        Returns
        -------
        ndarray, shape (m, n), int64

        Raises
        ------
        InvalidInputError, TokenOutOfRangeError, ZeroProbabilityError
            See `check_draft_tokens`; `ZeroProbabilityError` names the first row with probability 0.
        """
        tokens = check_rows(draft_tokens, self.n, self.vocab_size)
        possible = self.drafts._possible_each(tokens)
        if not possible.all():
            row = int(np.argmin(possible))
            raise ZeroProbabilityError(
                f"row {row}, the tuple {tokens[row].tolist()}, has probability 0 under "
                f"{self.drafts!r}: pass tokens that were drafted by this scheme"
            )
        return tokens


def check_problem(problem: object) -> None:
    """Raise InvalidInputError if `problem` is not a Problem."""
    if not isinstance(problem, Problem):
        raise InvalidInputError(
            "problem must be an otlp.Problem, such as otlp.Problem(p, otlp.IID(q, n=2)); "
            f"got {kind_of(problem)}"
        )
