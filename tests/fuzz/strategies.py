"""Hypothesis strategies for instances: schemes, families of numbers, solvers and options."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import otlp
from otlp.solvers import SOLVERS
from tests.fuzz.instance import FORMS, TORCH_FORMS, Instance, Vector
from tests.fuzz.oracle import normalised

FloatArray = npt.NDArray[np.float64]

PAIRS = {
    "iid": otlp.IID([0.5, 0.5], 2),
    "independent": otlp.Independent([[0.5, 0.5], [0.4, 0.6]]),
    "without-replacement": otlp.WithoutReplacement([0.5, 0.5], 2),
    "greedy": otlp.Greedy([0.5, 0.5], 2),
    "hub": otlp.Hub([0.5, 0.5]),
    "explicit": otlp.Explicit([[0, 1], [1, 1]], [0.5, 0.5]),
}
SOLVERS_OF = {
    scheme: tuple(
        name for name, kind in SOLVERS.items() if kind().supports(otlp.Problem([0.5, 0.5], pair))
    )
    for scheme, pair in PAIRS.items()
}
EVERY = sorted(SOLVERS)
BATCHED = ("verify", "speculative_sampling", "recursive_rejection", "k_seq")
DIFFERENT = ("hub", "greedy", "without-replacement")
"""Schemes whose drafts are different tokens."""

NUMBERS = (
    *("dirichlet", "ties", "equal", "permuted", "disjoint", "point masses", "1e-300", "subnormal"),
    *("magnitudes", "1e-16 apart", "outside the support"),
)
"""Families defined by the values of the numbers."""

SIZES = {
    "one token": ("iid", "independent", "explicit"),
    "one draft": tuple(SOLVERS_OF),
    "many drafts": ("iid", "independent"),
    "all drafted": ("greedy", "without-replacement"),
    "large": tuple(SOLVERS_OF),
}
"""Families defined by the sizes V and n, with the schemes that they apply to."""

TINY = {"1e-300": [1e-300], "subnormal": [5e-324, 1e-320, 1e-310, 1e-300]}
MOST_DRAFTS = {1: 6, 2: 6, 3: 4, 4: 3, 5: 2, 6: 2}
"""Maximum n by V; limits the number of tuples to a few hundred."""

OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "linear-program": {"form": st.sampled_from(["relaxed", "full"])},
    "max-flow": {"time_limit": st.just(60.0), "memory_limit": st.just(2**30)},
    "slackness": {"time_limit": st.just(60.0), "memory_limit": st.just(2**30)},
    "orderings": {
        "gap": st.sampled_from([0.0, 1e-9, 1e-6, 1e-3]),
        "max_iterations": st.sampled_from([1, 5, 1000]),
    },
    "k-seq": {"rho": st.sampled_from([1.0, 1.5, 3.0, 6.0])},
    "recursive-rejection": {"max_sequences": st.sampled_from([1.0, 3e7])},
    "global-resolution": {
        "tau": st.sampled_from([1e-6, 1e-4, 1e-3, 0.1]),
        "plan": st.sampled_from(["lossless", "published"]),
        "fallback": st.sampled_from([None, "max-flow"]),
        "max_iterations": st.sampled_from([25, 200]),
        "newton_steps": st.sampled_from([0, 50]),
    },
}

ALWAYS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "linear-program": {"time_limit": st.just(5.0)},
    "recursive-rejection": {"samples": st.sampled_from([100, 2_000])},
}
"""Options that keep slow solvers from running for seconds or minutes."""


def options(solver: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the options of a solver, each optional and within its range."""
    return st.fixed_dictionaries(ALWAYS.get(solver, {}), optional=OPTIONS.get(solver, {}))


@st.composite
def laws(draw: st.DrawFn, size: int, family: str) -> FloatArray:
    """Draw a distribution of a family."""

    def each(numbers: st.SearchStrategy[Any]) -> FloatArray:
        return np.array(draw(st.lists(numbers, min_size=size, max_size=size)), dtype=np.float64)

    if family in ("ties", "1e-16 apart"):
        weights = each(st.integers(0, 4))
    elif family == "point masses":
        weights = np.zeros(size)
    elif family in TINY:
        weights = each(st.sampled_from([0.0, 1.0, 0.3, *2 * TINY[family]]))
    elif family == "peaked":
        slope = draw(st.floats(0.1, 40.0))
        weights = np.exp(-slope * np.array(draw(st.permutations(range(size)))))
    elif family == "magnitudes":
        weights = 10.0 ** -each(st.floats(0.0, draw(st.sampled_from([3.0, 20.0, 200.0]))))
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        weights = rng.dirichlet(np.full(size, draw(st.sampled_from([3.0, 1.0, 0.3, 0.05]))))
        if draw(st.integers(0, 2)) == 2:
            weights[draw(st.integers(0, size - 1))] = 0.0
    # Replace all-zero or underflowed weights by a point mass.
    if not weights.sum() > 1e-290:
        weights = np.eye(size)[draw(st.integers(0, size - 1))]
    return normalised(weights)


@st.composite
def related(draw: st.DrawFn, near: FloatArray, family: str) -> FloatArray:
    """Draw a distribution related to `near` as the family requires."""
    size = near.size
    if family == "equal":
        return near
    if family == "permuted":
        return near[draw(st.permutations(range(size)))]
    if family == "1e-16 apart" and draw(st.integers(0, 4)) < 4:
        steps = draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size))
        return near * (1.0 + 1.1e-16 * np.array(steps))
    if family == "disjoint" and (near == 0.0).any():
        return normalised(np.where(near > 0.0, 0.0, draw(laws(size, "dirichlet")) + 1e-3))
    if family == "outside the support":
        return normalised(draw(laws(size, "dirichlet")) + np.where(near > 0.0, 0.0, 0.5))
    if family == "ties" and draw(st.booleans()):
        factors = st.sampled_from([1.0, 0.5, 2.0, 0.0])
        scaled = near * np.array(draw(st.lists(factors, min_size=size, max_size=size)))
        if scaled.sum() > 0.0:
            return normalised(scaled)
    return draw(laws(size, family))


@st.composite
def instances(draw: st.DrawFn, scheme: str) -> Instance:
    """Draw an instance of a draft scheme."""
    sizes = [family for family, schemes in SIZES.items() if scheme in schemes]
    family = draw(st.sampled_from([*NUMBERS, *sizes]))
    vocab_size = draw(st.integers(2, 6))
    n = draw(st.integers(1, MOST_DRAFTS[vocab_size]))
    if family == "one token":
        vocab_size, n = 1, draw(st.integers(1, 4))
    elif family == "one draft":
        n = 1
    elif family == "many drafts":
        vocab_size = draw(st.integers(2, 3))
        n = draw(st.sampled_from([8, 20, 100, 300] if scheme == "iid" else [8, 12]))
    elif family == "all drafted":
        n = draw(st.integers(1, 5))
    elif family == "large":
        vocab_size, n = draw(st.integers(11, 30)), draw(st.integers(1, 2))
    if scheme == "hub":
        n = 2
    if scheme in DIFFERENT:
        vocab_size = max(vocab_size, n)
    tuples: tuple[tuple[int, ...], ...] = ()
    if scheme == "explicit":
        row = st.tuples(*[st.integers(0, vocab_size - 1)] * n)
        tuples = tuple(draw(st.lists(row, min_size=1, max_size=12)))
        drafts = [draw(laws(len(tuples), family))]
        near = draw(laws(vocab_size, family))
    else:
        near = draw(laws(vocab_size, family))
        if family == "all drafted":
            numbers = draw(st.sampled_from(["dirichlet", "magnitudes", "subnormal"]))
            near = np.append(draw(laws(n, numbers)), np.zeros(vocab_size - n))
        if scheme in DIFFERENT and draw(st.integers(0, 9)) < 9:
            near = draw(supported(near, n, family))
        others = n - 1 if scheme == "independent" else 0
        drafts = [near, *(draw(related(near, family)) for _ in range(others))]
    solvers = [SOLVERS_OF[scheme], SOLVERS_OF[scheme], EVERY]
    if n == 1:
        solvers.append(("speculative-sampling",))
    solver = draw(st.sampled_from(solvers).flatmap(st.sampled_from))
    return Instance(
        scheme=scheme,
        target=plain(draw(related(near, family))),
        drafts=tuple(map(plain, drafts)),
        n=n,
        tuples=tuples,
        solver=solver,
        options=draw(options(solver)),
        form=draw(st.just("list") | st.sampled_from(FORMS)),
        family=family,
        seed=draw(st.integers(0, 2**31 - 1)),
    )


@st.composite
def batched_instances(draw: st.DrawFn) -> Instance:
    """Draw an instance for a function of `otlp.batched`."""
    family = draw(st.sampled_from([*NUMBERS[:9], "peaked"]))
    vocab_size = draw(st.integers(1, 6))
    draft = draw(laws(vocab_size, family))
    name, scheme = draw(st.sampled_from(BATCHED)), "iid"
    n = min(draw(st.integers(0, 3)), MOST_DRAFTS[vocab_size])
    if draw(st.integers(0, 9)) < 4:
        name, scheme = "recursive_rejection_without_replacement", "without-replacement"
        # often all tokens of the support, or all but one
        support = int((draft > 0.0).sum())
        n = support - draw(st.integers(0, 1)) if draw(st.booleans()) else min(n, support)
    return Instance(
        scheme=scheme,
        target=plain(draw(related(draft, family))),
        drafts=(plain(draft),),
        n=n,
        solver=f"batched.{name}",
        form=draw(st.sampled_from(TORCH_FORMS[:4] if scheme == "iid" else TORCH_FORMS[:2])),
        family=family,
        seed=draw(st.integers(0, 2**31 - 1)),
    )


@st.composite
def supported(draw: st.DrawFn, law: FloatArray, least: int, family: str) -> FloatArray:
    """Return `law` with a support of at least `least` tokens."""
    weights = law.copy()
    zeros = np.flatnonzero(weights == 0.0)
    for token in zeros[: max(0, least - (weights.size - zeros.size))]:
        weights[token] = draw(st.sampled_from([0.01, *TINY.get(family, [])]))
    return normalised(weights)


def plain(values: FloatArray) -> Vector:
    """Convert to a tuple of floats."""
    return tuple(values.tolist())
