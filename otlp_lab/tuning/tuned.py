"""Setting chosen by ``otlp lab tune`` for a pair of models, stored as a JSON file."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.checks import is_a, number, whole_number
from otlp.decode.drafting import ShapedDrafting, iid_paths, no_draft, prefix_tree
from otlp.decode.models.loading import TRAINED_PAIR, find_model
from otlp.decode.models.model import Sampling
from otlp.decode.verification import ALGORITHMS
from otlp.errors import InvalidInputError
from otlp_lab.json_files import JsonFile


@dataclass(frozen=True)
class Tuned(JsonFile):
    """Best setting found for a target and a draft.

    Parameters
    ----------
    target, draft : str
        Names from which the models were loaded.
    device, dtype : str
        Device and precision of the measurement.
    sampling : Sampling
    algorithm : str
        ``"autoregressive"`` (no draft), ``"block"``, ``"two-slice"`` or ``"tournament"``.
    paths, length : int
        Number of paths K and path length L; 0 without a draft.
    predicted, measured : float or None
        Tokens per second; None if the models were not timed.
    branching : sequence of int
        Children of each token by depth, for a tree of `prefix_tree`; empty for K i.i.d. paths.
    draft_temperature : float or None
        Temperature of the draft; None: the temperature of `sampling`.

    Raises
    ------
    InvalidInputError
        If a value has the wrong type or is out of range.

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

    format = "otlp lab tuned 1"
    refusal = "must be a setting of otlp lab tune ({reason})"

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
                f"algorithm must be one of {', '.join(ALGORITHMS)}; got {self.algorithm!r:.60}"
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
                    f"branching must have {self.paths} paths of length {self.length}, got "
                    f"{self.branching} with {tree.paths} paths of length {tree.length}"
                )

    @property
    def drafting(self) -> ShapedDrafting:
        """Drafting of the setting."""
        if self.branching:
            return prefix_tree(self.branching)
        return iid_paths(self.paths, self.length) if self.paths else no_draft()

    def check_models(self, target: str, draft: str) -> None:
        """Check that the setting was tuned for these models, by the names they were loaded from.

        Raises
        ------
        InvalidInputError
            If not; the message names both pairs.
        """
        if not (_same(target, self.target) and _same(draft, self.draft)):
            raise InvalidInputError(
                f"the setting was tuned for target {self.target} with draft {self.draft}, not for "
                f"target {target} with draft {draft}: run otlp lab tune for these models"
            )

    def check_loaded(self, device: object, dtype: object) -> None:
        """Check that the setting was measured on this PyTorch device and dtype.

        Raises
        ------
        InvalidInputError
            If not; the message names both devices and dtypes.
        """
        own, here = self.device.partition(":")[0], str(device).partition(":")[0]
        loaded = str(dtype).removeprefix("torch.")
        if (here, loaded) != (own, self.dtype):
            raise InvalidInputError(
                f"the setting was tuned in {self.dtype} on {own}, and the target is loaded in "
                f"{loaded} on {here}: load the target as it was tuned, or run otlp lab tune again"
            )


def _same(name: str, own: str) -> bool:
    """Return whether two names are of one model; bundled models also have a folder name."""
    return name == own or (own in TRAINED_PAIR and name == find_model(own))
