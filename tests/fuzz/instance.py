"""Instances of the fuzzer: a problem as plain numbers, an input form, and a solver.

An instance contains no object of the library, so that its repr reproduces the instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import otlp

try:
    import torch
except ImportError:
    torch = None

Vector = tuple[float, ...]

NUMPY_FORMS = ("list", "float64", "float32", "float16", "read-only", "strided", "reversed")
TORCH_FORMS = ("torch float64", "torch float32", "torch float16", "torch bfloat16", "torch grad")
FORMS = NUMPY_FORMS + (() if torch is None else TORCH_FORMS)


@dataclass(frozen=True)
class Instance:
    """A problem, a solver and an input form.

    Attributes
    ----------
    scheme : str
        "iid", "independent", "without-replacement", "greedy", "hub" or "explicit".
    target : tuple of float, length V
    drafts : tuple of tuple of float
        One draft distribution; for "independent", n distributions; for "explicit", the
        probabilities of the tuples.
    n : int
    tuples : tuple of tuple of int
        Draft tuples of "explicit".
    solver : str
        A name in `otlp.solvers.SOLVERS`, or "batched." and a function of `otlp.batched`.
    options : dict
    form : str
        One of `FORMS`.
    family : str
        Family of the drawn numbers.
    seed : int
        Random seed of the checks.
    """

    scheme: str
    target: Vector
    drafts: tuple[Vector, ...]
    n: int
    solver: str
    tuples: tuple[tuple[int, ...], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    form: str = "list"
    family: str = ""
    seed: int = 0

    @property
    def vocab_size(self) -> int:
        return len(self.target)

    def problem(self) -> otlp.Problem:
        """Build the problem with the public API."""
        return otlp.Problem(convert(self.target, self.form), self.scheme_object())

    def scheme_object(self) -> otlp.DraftScheme:
        """Build the draft scheme with the public API."""
        given = [convert(law, self.form) for law in self.drafts]
        if self.scheme == "iid":
            return otlp.IID(given[0], self.n)
        if self.scheme == "independent":
            return otlp.Independent(given)
        if self.scheme == "without-replacement":
            return otlp.WithoutReplacement(given[0], self.n)
        if self.scheme == "greedy":
            return otlp.Greedy(given[0], self.n)
        if self.scheme == "hub":
            return otlp.Hub(given[0])
        return otlp.Explicit(self.tuples, given[0], self.vocab_size)


def convert(law: Vector, form: str) -> Any:
    """Convert a vector to one of the `FORMS`."""
    values = np.array(law, dtype=np.float64)
    if form.startswith("torch"):
        if form == "torch grad":
            return torch.tensor(values, requires_grad=True)
        return torch.tensor(values).to(getattr(torch, form.split()[1]))
    if form == "list":
        return list(law)
    if form in ("float64", "float32", "float16"):
        with np.errstate(under="ignore"):
            return values.astype(form)
    if form == "read-only":
        values.flags.writeable = False
    if form == "strided":
        values = np.column_stack((values, values))[:, 0]
    if form == "reversed":
        values = values[::-1].copy()[::-1]
    return values


def rounded(law: Vector, form: str) -> npt.NDArray[np.float64]:
    """Return the converted vector in float64, including the rounding of the form."""
    converted = convert(law, form)
    if form.startswith("torch"):
        converted = converted.detach().double().numpy()
    return np.asarray(converted, dtype=np.float64)
