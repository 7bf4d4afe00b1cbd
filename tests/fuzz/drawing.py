"""How instances are drawn: schemes, families of numbers, solvers and their options."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.fuzz.instance import FORMS, TORCH_FORMS, Instance, Vector

FloatArray = npt.NDArray[np.float64]

FAMILIES = (
    "dirichlet",
    "ties",
    "equal",
    "permuted",
    "disjoint",
    "point masses",
    "1e-300",
    "subnormal",
    "magnitudes",
    "1e-16 apart",
    "outside the support",
    "one token",
    "one draft",
    "many drafts",
    "all drafted",
    "large",
)
WEIGHTS = (5, 4, 2, 2, 1, 1, 2, 2, 3, 3, 2, 0.3, 1.5, 1, 1, 0.15)
DIFFERENT = ("hub", "greedy", "without-replacement")
"""Schemes whose drafts are different tokens."""

TINY = {"1e-300": [1e-300], "subnormal": [5e-324, 1e-320, 1e-310, 1e-300]}

GENERAL = ("linear-program", "max-flow", "slackness", "orderings", "naive", "auto")
RULES = ("k-seq", "recursive-rejection")
SOLVERS_OF = {
    "iid": (*GENERAL, *RULES, "martingale", "martingale", *["global-resolution"] * 2),
    "independent": (*GENERAL, "recursive-rejection"),
    "without-replacement": (*GENERAL, "recursive-rejection"),
    "greedy": (*GENERAL, "greedy", "greedy"),
    "hub": (*GENERAL, "hub", "hub"),
    "explicit": GENERAL,
}
EVERY = sorted({name for names in SOLVERS_OF.values() for name in names} | {"speculative-sampling"})
BATCHED = ("verify", "speculative_sampling", "recursive_rejection", "k_seq")

MOST_DRAFTS = {1: 6, 2: 6, 3: 4, 4: 3, 5: 2, 6: 2}
"""By V, so that there are some hundred tuples at most."""


def draw(rng: np.random.Generator, batched_share: float = 0.0) -> Instance:
    """Draw an instance; each is a function of the generator's state alone."""
    if rng.random() < batched_share:
        return _batched(rng)
    family = str(rng.choice(FAMILIES, p=np.array(WEIGHTS) / sum(WEIGHTS)))
    scheme = str(rng.choice(list(SOLVERS_OF)))
    vocab_size = int(rng.integers(2, 7))
    n = int(rng.integers(1, MOST_DRAFTS[vocab_size] + 1))
    if family == "one token":
        vocab_size, scheme = 1, str(rng.choice(["iid", "independent", "explicit"]))
        n = int(rng.integers(1, 5))
    elif family == "one draft":
        n = 1
    elif family == "many drafts":
        vocab_size, scheme = int(rng.integers(2, 4)), str(rng.choice(["iid", "independent"]))
        n = int(rng.choice([8, 20, 100, 300] if scheme == "iid" else [8, 12]))
    elif family == "all drafted":
        scheme = str(rng.choice(["greedy", "without-replacement"]))
        n = int(rng.integers(1, 6))
    elif family == "large":
        vocab_size, n = int(rng.integers(11, 31)), int(rng.integers(1, 3))
    if scheme == "hub":
        n = 2
    if scheme in DIFFERENT:
        vocab_size = max(vocab_size, n)
    tuples: tuple[tuple[int, ...], ...] = ()
    if scheme == "explicit":
        rows = rng.integers(0, vocab_size, (int(rng.integers(1, 13)), n))
        tuples = tuple(tuple(row) for row in rows.tolist())
        drafts: tuple[Vector, ...] = (_plain(law(rng, len(tuples), family)),)
    else:
        first = law(rng, vocab_size, family)
        if family == "all drafted":
            numbers = str(rng.choice(["subnormal", "magnitudes", "dirichlet"]))
            first = np.append(law(rng, n, numbers), np.zeros(vocab_size - n))
        if scheme in DIFFERENT and rng.random() < 0.9:
            first = _supported(rng, first, n, family)
        drafts = (_plain(first),)
        if scheme == "independent":
            drafts += tuple(_plain(other(rng, first, family)) for _ in range(n - 1))
    near = np.array(drafts[0]) if scheme != "explicit" else law(rng, vocab_size, family)
    form = "list" if rng.random() < 0.5 else str(rng.choice(FORMS))
    solver = str(rng.choice(SOLVERS_OF[scheme]))
    if rng.random() < 0.1:
        solver = str(rng.choice(EVERY))
    if n == 1 and rng.random() < 0.3:
        solver = "speculative-sampling"
    return Instance(
        scheme=scheme,
        target=_plain(other(rng, near, family)),
        drafts=drafts,
        n=n,
        tuples=tuples,
        solver=solver,
        options=options(rng, solver),
        form=form,
        family=family,
        seed=int(rng.integers(2**31)),
    )


def law(rng: np.random.Generator, size: int, family: str) -> FloatArray:
    """A distribution of one family."""
    if family in ("ties", "1e-16 apart"):
        weights = rng.integers(0, 5, size).astype(float)
    elif family == "point masses":
        weights = np.zeros(size)
        weights[rng.integers(size)] = 1.0
    elif family in TINY:
        tiny = TINY[family]
        weights = rng.choice([0.0, 1.0, 0.3, *tiny, *tiny], size)
    elif family == "peaked":
        weights = rng.permutation(np.exp(-rng.uniform(0.1, 40.0) * np.arange(size)))
    elif family == "magnitudes":
        weights = 10.0 ** rng.uniform(-rng.choice([3, 20, 200]), 0, size)
    else:
        weights = rng.dirichlet(np.full(size, rng.choice([0.05, 0.3, 1.0, 3.0])))
        if rng.random() < 0.3:
            weights[rng.integers(size)] = 0.0
    # what is left of an underflow, or of nothing but zeros, becomes a point mass
    if not weights.sum() > 1e-290:
        weights = np.eye(size)[rng.integers(size)]
    return _normalised(weights)


def other(rng: np.random.Generator, near: FloatArray, family: str) -> FloatArray:
    """A distribution beside another one, in the way that the family says."""
    if family == "equal":
        return near
    if family == "permuted":
        return rng.permutation(near)
    if family == "1e-16 apart":
        moved = near * (1.0 + 1.1e-16 * rng.integers(-2, 3, near.size))
        return moved if rng.random() < 0.8 else law(rng, near.size, "ties")
    if family == "disjoint" and (near == 0.0).any():
        return _normalised(np.where(near > 0.0, 0.0, law(rng, near.size, "dirichlet") + 1e-3))
    if family == "outside the support":
        return _normalised(law(rng, near.size, "dirichlet") + np.where(near > 0.0, 0.0, 0.5))
    if family == "ties" and rng.random() < 0.5:
        scaled = near * rng.choice([0.0, 0.5, 1.0, 2.0], near.size)
        if scaled.sum() > 0.0:
            return _normalised(scaled)
    return law(rng, near.size, family)


def options(rng: np.random.Generator, solver: str) -> dict[str, Any]:
    """Options of a solver: none, or some within their range."""
    plain = rng.random() < 0.5
    if solver == "linear-program":  # which some instances would keep at work for minutes
        form = "relaxed" if plain else str(rng.choice(["relaxed", "full"]))
        return {"form": form, "time_limit": 5.0}
    if plain:
        return {}
    if solver in ("max-flow", "slackness"):
        return {"time_limit": 60.0, "memory_limit": 2**30}
    if solver == "orderings":
        return {
            "gap": float(rng.choice([0.0, 1e-9, 1e-6, 1e-3])),
            "max_iterations": int(rng.choice([1, 5, 1000])),
        }
    if solver == "k-seq":
        return {"rho": float(rng.choice([1.0, 1.5, 3.0, 6.0]))}
    if solver == "recursive-rejection":
        return {"max_sequences": float(rng.choice([1.0, 3e7]))}
    if solver == "global-resolution":
        steps = [(25, 50), (0, 50), (25, 0), (200, 0)][int(rng.integers(4))]
        return {
            "tau": float(rng.choice([1e-6, 1e-4, 1e-3, 0.1])),
            "plan": str(rng.choice(["lossless", "published"])),
            "minimiser": str(rng.choice(["newton", "l-bfgs-b"])),
            "max_iterations": steps[0],
            "newton_steps": steps[1],
            "fallback": None if rng.random() < 0.5 else "max-flow",
        }
    return {}


def _batched(rng: np.random.Generator) -> Instance:
    family = str(rng.choice([*FAMILIES[:6], "1e-300", "subnormal", "magnitudes", "peaked"]))
    vocab_size = int(rng.integers(1, 7))
    draft = law(rng, vocab_size, family)
    n = int(rng.integers(0 if rng.random() < 0.2 else 1, 4))
    name, scheme = str(rng.choice(BATCHED)), "iid"
    if rng.random() < 0.4:
        name, scheme = "recursive_rejection_without_replacement", "without-replacement"
        # often all that can be drafted, or all but one
        support = int((draft > 0.0).sum())
        n = support - int(rng.integers(2)) if rng.random() < 0.5 else min(n, support)
    return Instance(
        scheme=scheme,
        target=_plain(other(rng, draft, family)),
        drafts=(_plain(draft),),
        n=min(n, MOST_DRAFTS[vocab_size]) if scheme == "iid" else n,
        solver=f"batched.{name}",
        form=str(rng.choice(TORCH_FORMS[:2] if scheme != "iid" else TORCH_FORMS[:4])),
        family=family,
        seed=int(rng.integers(2**31)),
    )


def _supported(rng: np.random.Generator, draft: FloatArray, least: int, family: str) -> FloatArray:
    """At least so many tokens that can be drafted."""
    weights = draft.copy()
    zeros = np.flatnonzero(weights == 0.0)
    missing = zeros[: max(0, least - (weights.size - zeros.size))]
    weights[missing] = rng.choice([0.01, *TINY.get(family, [])], missing.size)
    return _normalised(weights)


def _normalised(weights: FloatArray) -> FloatArray:
    with np.errstate(under="ignore"):
        return weights / weights.sum()


def _plain(values: FloatArray) -> Vector:
    return tuple(values.tolist())
