"""What ``otlp lab tune`` chose for a pair of models, as a small file that other programs read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from otlp.checks import is_a, number, whole_number
from otlp.decode.drafting import ShapedDrafting, iid_paths, no_draft, prefix_tree
from otlp.decode.models.loading import TRAINED_PAIR, find_model
from otlp.decode.models.model import Sampling
from otlp.decode.verification import ALGORITHMS
from otlp.errors import InvalidInputError
from otlp_lab.json_files import from_json, read_as, to_json

FORMAT = "otlp lab tuned 1"
"""What the file says it is."""


@dataclass(frozen=True)
class Tuned:
    """The best setting that was found for a target and a draft.

    Parameters
    ----------
    target, draft : str
        Names of the models, as they were loaded.
    device, dtype : str
        Where and in which precision they were measured.
    sampling : Sampling
    algorithm : str
        ``"autoregressive"`` (no draft), ``"block"``, ``"two-slice"`` or ``"tournament"``.
    paths, length : int
        K and L; 0 without a draft.
    predicted, measured : float or None
        Tokens a second; None where the models were not there to be timed.
    branching : sequence of int
        Children of each token by depth, for a tree that `prefix_tree` makes; empty for K i.i.d.
        paths.
    draft_temperature : float or None
        Of the draft alone; None: that of `sampling`.

    Raises
    ------
    InvalidInputError
        If a value is of another type or out of its range.

    Examples
    --------
    >>> from otlp import decode
    >>> from otlp_lab.tuning import Tuned
    >>> tuned = Tuned("large", "small", "cpu", "float32", decode.Sampling(), "block", 1, 3)
    >>> Tuned.from_json(tuned.to_json()) == tuned
    True
    >>> tuned.check_models("large", "other")
    Traceback (most recent call last):
    otlp.errors.InvalidInputError: the setting was tuned for target large with draft small, not ...
    """

    target: str
    draft: str
    device: str
    dtype: str
    sampling: Sampling
    algorithm: str
    paths: int
    length: int
    predicted: float | None = None
    measured: float | None = None
    branching: tuple[int, ...] = ()
    draft_temperature: float | None = None

    def __post_init__(self) -> None:
        for name in ("target", "draft", "device", "dtype", "algorithm"):
            is_a(getattr(self, name), str, name)
        is_a(self.sampling, Sampling, "sampling")
        if self.algorithm not in ALGORITHMS:
            raise InvalidInputError(
                f"algorithm is {self.algorithm!r:.60}: it must be one of {', '.join(ALGORITHMS)}"
            )
        least = 0 if self.algorithm == "autoregressive" else 1
        whole_number(self.paths, "paths", least)
        whole_number(self.length, "length", least)
        for name in ("predicted", "measured"):
            if getattr(self, name) is not None:
                number(getattr(self, name), name, 0.0)
        self.sampling.at(self.draft_temperature)
        object.__setattr__(self, "branching", tuple(self.branching))
        if self.branching:
            tree = prefix_tree(self.branching)
            if (tree.paths, tree.length) != (self.paths, self.length):
                raise InvalidInputError(
                    f"branching is {self.branching}, which has {tree.paths} paths of length "
                    f"{tree.length}, not {self.paths} of {self.length}"
                )

    @property
    def drafting(self) -> ShapedDrafting:
        """What is drafted."""
        if self.branching:
            return prefix_tree(self.branching)
        return iid_paths(self.paths, self.length) if self.paths else no_draft()

    def check_models(self, target: str, draft: str) -> None:
        """Refuse other models than it was tuned for, by the names that they were loaded by.

        Raises
        ------
        InvalidInputError
            Naming both pairs.
        """
        if not (_same(target, self.target) and _same(draft, self.draft)):
            raise InvalidInputError(
                f"the setting was tuned for target {self.target} with draft {self.draft}, not for "
                f"target {target} with draft {draft}: run otlp lab tune for these"
            )

    def check_loaded(self, device: object, dtype: object) -> None:
        """Refuse a device and a precision, as PyTorch calls them, that it was not measured on.

        Raises
        ------
        InvalidInputError
            Naming both.
        """
        own, here = self.device.partition(":")[0], str(device).partition(":")[0]
        given = str(dtype).removeprefix("torch.")
        if (here, given) != (own, self.dtype):
            raise InvalidInputError(
                f"the setting was tuned in {self.dtype} on {own}, and the target is loaded in "
                f"{given} on {here}: load it as it was tuned, or run otlp lab tune for this"
            )

    def to_json(self) -> str:
        """Write it as JSON."""
        return to_json(self, FORMAT)

    @classmethod
    def from_json(cls, text: str) -> Tuned:
        """Read what `to_json` wrote.

        Raises
        ------
        InvalidInputError
            If it is something else, or a value is out of its range.
        """

        def make(found: dict[str, Any]) -> Tuned:
            return cls(**{**found, "sampling": Sampling(**found["sampling"])})

        return from_json(text, FORMAT, make, "no setting of otlp lab tune ({reason})")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tuned:
        """Read a JSON file.

        Raises
        ------
        InvalidInputError
            If it cannot be read, or holds something else.
        """
        return read_as(cls.from_json, path)


def _same(given: str, own: str) -> bool:
    """Whether two names are of one model; those that ship have a folder, too."""
    return given == own or (own in TRAINED_PAIR and given == find_model(own))
