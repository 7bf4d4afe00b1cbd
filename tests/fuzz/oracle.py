"""The truth about an instance, from the definitions alone and none of the library's code.

All tuples of the draft scheme are listed with their probabilities.  The optimum is, to rounding,
the least value of p(H) + P(some draft outside H) over all 2^V sets H of tokens; in every second
instance, and where V is large, it is the linear program over all tuples too, solved by
`scipy.optimize.linprog` to 1e-7.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import fsum, prod

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

from tests.fuzz.instance import Instance, as_given

FloatArray = npt.NDArray[np.float64]

MOST_TUPLES = 3_000
MOST_TOKENS = 10
"""Up to this V all sets of tokens are tried."""


def normalised(law: FloatArray) -> FloatArray:
    """The distribution that a vector of numbers stands for."""
    with np.errstate(under="ignore"):
        return law / law.sum()


@dataclass(frozen=True, eq=False)
class Truth:
    """What is so.

    Attributes
    ----------
    target : ndarray, shape (V,)
    n : int
    laws : list of ndarray, shape (V,)
        The draft distributions, or the probabilities of the listed tuples.
    tuples : dict of tuple of int to float, or None
        All tuples that can be drafted, and their probabilities, which may underflow to 0; None
        where they are too many.
    """

    instance: Instance
    target: FloatArray
    laws: list[FloatArray]
    tuples: dict[tuple[int, ...], float] | None

    @cached_property
    def tokens(self) -> npt.NDArray[np.int64]:
        """The tuples, shape (m, n)."""
        assert self.tuples is not None
        return np.array(list(self.tuples), dtype=np.int64)

    @cached_property
    def mass(self) -> FloatArray:
        """Their probabilities, shape (m,)."""
        assert self.tuples is not None
        return np.array(list(self.tuples.values()))

    @cached_property
    def drafted(self) -> npt.NDArray[np.bool_]:
        """Whether token i is in tuple t, shape (m, V)."""
        result = np.zeros((len(self.tokens), self.target.size), dtype=bool)
        np.put_along_axis(result, self.tokens, True, axis=1)
        return result

    def within(self, subset: npt.NDArray[np.bool_]) -> float:
        """P(all drafts in the subset)."""
        if self.tuples is None:
            return float(prod(min(fsum(law[subset]), 1.0) for law in self.draft_by_place))
        return fsum(self.mass[~(self.drafted & ~subset).any(axis=1)])

    @property
    def draft_by_place(self) -> list[FloatArray]:
        """The laws of independent drafts, one a place."""
        return self.laws * self.instance.n if self.instance.scheme == "iid" else self.laws

    def bound(self, subset: npt.NDArray[np.bool_]) -> float:
        """p(H) + P(some draft outside H)."""
        return min(1.0, fsum(self.target[subset]) + max(0.0, 1.0 - self.within(subset)))

    @cached_property
    def optimum(self) -> float:
        """The largest acceptance, to rounding where V is small, else to 1e-6."""
        size = self.target.size
        if size > MOST_TOKENS:
            return self.linear_program()
        sets = np.array(list(product([False, True], repeat=size)))
        if self.tuples is None:
            return min(self.bound(row) for row in sets)
        # all sets at once: a tuple leaves H if one of its tokens is outside
        leaves = self.drafted.astype(np.float64) @ (~sets).T.astype(np.float64) > 0.5
        return float(min(1.0, (sets @ self.target + self.mass @ leaves).min()))

    def linear_program(self) -> float:
        """Most mass that can go from tuples to tokens they hold, within the mass of both.

        Whatever stays behind can be matched anyhow, so this is the whole problem.
        """
        rows, places = np.nonzero(self.drafted)
        count, arcs = len(self.mass), np.arange(rows.size)
        ends = np.concatenate((rows, count + places))
        entries = (np.ones(ends.size), (ends, np.concatenate((arcs, arcs))))
        matrix = csr_array(entries, shape=(count + self.target.size, rows.size))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = linprog(
                -np.ones(rows.size),
                A_ub=matrix,
                b_ub=np.concatenate((self.mass, self.target)),
                method="highs",
            )
        if result.status != 0:
            raise RuntimeError(f"the oracle's linear program failed: {result.message}")
        return -float(result.fun)


def truth(instance: Instance) -> Truth | str:
    """The truth, or why the problem must be refused."""
    target = normalised(as_given(instance.target, instance.form))
    laws = [normalised(as_given(law, instance.form)) for law in instance.drafts]
    scheme, n = instance.scheme, instance.n
    support = np.count_nonzero(laws[0])
    if scheme in ("without-replacement", "greedy", "hub") and support < n:
        return "fewer tokens than drafts"
    return Truth(instance, target, laws, list_tuples(instance, laws))


def list_tuples(instance: Instance, laws: list[FloatArray]) -> dict[tuple[int, ...], float] | None:
    """All tuples by the definition of the scheme, or None where they are too many."""
    scheme, n, q = instance.scheme, instance.n, laws[0].tolist()
    if scheme == "explicit":
        listed: dict[tuple[int, ...], float] = {}
        for row, mass in zip(instance.tuples, q, strict=True):
            if mass > 0.0:
                listed[row] = listed.get(row, 0.0) + mass
        return listed
    support = [token for token, mass in enumerate(q) if mass > 0.0]
    if scheme in ("iid", "independent"):
        every = [law.tolist() for law in (laws * n if scheme == "iid" else laws)]
        supports = [[i for i, mass in enumerate(law) if mass > 0.0] for law in every]
        if prod(float(len(one)) for one in supports) > MOST_TUPLES:
            return None
        return {
            row: prod(law[i] for law, i in zip(every, row, strict=True))
            for row in product(*supports)
        }
    if scheme == "without-replacement":
        return {row: one_by_one(q, row) for row in permutations(support, n)}
    # ties go to the lowest token
    top = sorted(range(len(q)), key=lambda token: (-q[token], token))[: n - 1]
    others = [token for token in support if token not in top]
    largest = max(q[token] for token in others)
    scaled = {token: q[token] / largest for token in others}
    rest = {token: mass / fsum(scaled.values()) for token, mass in scaled.items()}
    if scheme == "greedy":
        return {(*top, token): mass for token, mass in rest.items()}
    hub = top[0]
    pairs = {(token, hub): q[token] for token in others}
    return pairs | {(hub, token): q[hub] * mass for token, mass in rest.items()}


def one_by_one(q: list[float], row: tuple[int, ...]) -> float:
    """Probability of a tuple drawn without replacement."""
    mass = 1.0
    left = dict(enumerate(q))
    for token in row:
        mass *= q[token] / fsum(left.values())
        del left[token]
    return mass
