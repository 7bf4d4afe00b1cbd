"""Oracle for instances, computed from the definitions without code of the library.

All tuples of the draft scheme are listed with their probabilities.  The optimum is, to rounding,
the minimum of p(H) + P(some draft outside H) over all 2^V sets H of tokens.  For every second
instance, and for large V, the linear program over all tuples is also solved with
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

from tests.fuzz.instance import Instance, rounded

FloatArray = npt.NDArray[np.float64]

MOST_TUPLES = 3_000
MOST_TOKENS = 10
"""Maximum V for the enumeration of all sets of tokens."""


def normalised(law: FloatArray) -> FloatArray:
    """Divide a vector by its sum."""
    with np.errstate(under="ignore"):
        return law / law.sum()


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact properties of an instance.

    Attributes
    ----------
    target : ndarray, shape (V,)
    n : int
    laws : list of ndarray, shape (V,)
        The draft distributions, or the probabilities of the listed tuples.
    tuples : dict of tuple of int to float, or None
        All possible draft tuples and their probabilities, which may underflow to 0; None if there
        are too many tuples.
    """

    instance: Instance
    target: FloatArray
    laws: list[FloatArray]
    tuples: dict[tuple[int, ...], float] | None

    @cached_property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Draft tuples, shape (m, n)."""
        assert self.tuples is not None
        return np.array(list(self.tuples), dtype=np.int64)

    @cached_property
    def mass(self) -> FloatArray:
        """Probabilities of the tuples, shape (m,)."""
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
        """Laws of independent drafts, one per position."""
        return self.laws * self.instance.n if self.instance.scheme == "iid" else self.laws

    def bound(self, subset: npt.NDArray[np.bool_]) -> float:
        """p(H) + P(some draft outside H)."""
        return min(1.0, fsum(self.target[subset]) + max(0.0, 1.0 - self.within(subset)))

    @cached_property
    def optimum(self) -> float:
        """Largest acceptance, to rounding for small V, else to 1e-6."""
        size = self.target.size
        if size > MOST_TOKENS:
            return self.linear_program()
        sets = np.array(list(product([False, True], repeat=size)))
        if self.tuples is None:
            return min(self.bound(row) for row in sets)
        # For all sets H at once: a tuple leaves H if one of its tokens is outside H.
        leaves = self.drafted.astype(np.float64) @ (~sets).T.astype(np.float64) > 0.5
        return float(min(1.0, (sets @ self.target + self.mass @ leaves).min()))

    def linear_program(self) -> float:
        """Return the maximum mass that can flow from tuples to tokens that they contain.

        The rest of the mass can be matched in any way, so this solves the whole problem.
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
    """Return the truth, or the reason why the problem must be refused."""
    target = normalised(rounded(instance.target, instance.form))
    laws = [normalised(rounded(law, instance.form)) for law in instance.drafts]
    scheme, n = instance.scheme, instance.n
    support = np.count_nonzero(laws[0])
    if scheme in ("without-replacement", "greedy", "hub") and support < n:
        return "fewer tokens than drafts"
    return Truth(instance, target, laws, list_tuples(instance, laws))


def list_tuples(instance: Instance, laws: list[FloatArray]) -> dict[tuple[int, ...], float] | None:
    """Return all tuples by the definition of the scheme; None if there are too many."""
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
    """Return the probability of a tuple drawn without replacement."""
    mass = 1.0
    left = dict(enumerate(q))
    for token in row:
        mass *= q[token] / fsum(left.values())
        del left[token]
    return mass
