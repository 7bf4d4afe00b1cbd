"""Probability that a candidate of a Gumbel-perturbed draft is the target's draw: two parameters."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from otlp.checks import is_a, number
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.numerics.top_tokens import top_tokens

FORMAT = "otlp calibration 1"
"""Format name in calibration files."""

MOST_RANKS = 32
"""Number of candidates per node with an individual chance."""


@dataclass(frozen=True)
class Calibration:
    """Chances (1 - u) softmax((log q + G) / sigma) of the best candidates, sigma = scale / T.

    If the target's logits are the draft's logits plus independent Gumbel errors, this is Luce's
    choice model.  The scale of the errors, sigma T, is then one number per pair of models, the same
    at all temperatures T.

    Parameters
    ----------
    scale : float
        sigma T, greater than 0.
    unknown : float
        u in [0, 1): probability that the target draws a token outside the best `MOST_RANKS`.
    target, draft : str
        Names of the models that the calibration was fitted to; empty for any models.

    Raises
    ------
    InvalidInputError
        If a number is out of range, or a name is not a string.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import Calibration
    >>> ratios = np.array([0.0, 2.0, 1.0])                    # q / E: log q + G is their logarithm
    >>> tokens, chances = Calibration(scale=1.0, unknown=0.25).chances(ratios, temperature=1.0)
    >>> tokens.tolist(), chances.round(3).tolist()
    ([1, 2], [0.5, 0.25])
    """

    scale: float = 1.2
    unknown: float = 0.18
    target: str = ""
    draft: str = ""

    def __post_init__(self) -> None:
        if number(self.scale, "the scale of a calibration", 0.0) == 0.0:
            raise InvalidInputError("the scale of a calibration must be greater than 0, got 0")
        if number(self.unknown, "unknown", 0.0, 1.0) == 1.0:
            raise InvalidInputError("unknown must be less than 1, got 1: nothing would be drafted")
        for name in ("target", "draft"):
            is_a(getattr(self, name), str, name)

    def check_models(self, target: str, draft: str) -> None:
        """Raise InvalidInputError if the calibration was fitted to models with other names.

        Raises
        ------
        InvalidInputError
            Names both pairs of models.
        """
        if (self.target, self.draft) not in ((target, draft), ("", "")):
            raise InvalidInputError(
                f"the calibration was fitted to target {self.target} with draft {self.draft}, not "
                f"to target {target} with draft {draft}: fit a new one with otlp lab calibrate"
            )

    def to_json(self) -> str:
        """Return the calibration as JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a file with the output of `to_json`.

        Raises
        ------
        InvalidInputError
            If the file cannot be read or has other contents.
        """
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
            if found.pop("format") != FORMAT:
                raise KeyError("format")
            if missing := {"scale", "unknown", "target", "draft"} - found.keys():
                raise KeyError(*sorted(missing))
            return cls(**found)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path!s:.200}: {error}") from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidInputError(
                f"cannot read {path!s:.200} as a calibration of otlp lab calibrate "
                f"({type(error).__name__}: {error!s:.100})"
            ) from error

    def chances(self, ratios: FloatArray, temperature: float) -> tuple[IntArray, FloatArray]:
        """Return the best candidates, best first, and their probabilities of being the draw.

        Parameters
        ----------
        ratios : ndarray, shape (V,)
            q / E: the draft's probabilities divided by the exponential variables.
        temperature : float
            Temperature T of the draft; at 0 all candidates are equally likely.

        Returns
        -------
        tokens, chances : ndarray, shape (m,)
            m <= `MOST_RANKS` candidates; their chances sum to 1 - u.  O(V) time.
        """
        tokens = top_tokens(ratios, MOST_RANKS)
        tokens = tokens[ratios[tokens] > 0.0]
        weights = (ratios[tokens] / ratios[tokens[0]]) ** (temperature / self.scale)
        return tokens, (1.0 - self.unknown) * weights / weights.sum()


CALIBRATIONS = (
    Calibration(1.23, 0.18, "smollm2", "copying:smollm2-draft"),
    Calibration(0.73, 0.04, "trained:target", "trained:draft"),
)
"""Calibrations of the model pairs that ship with the library."""


def calibration_of(target: str, draft: str) -> Calibration:
    """Return the calibration that ships for a pair of models, or the default calibration."""
    known = [entry for entry in CALIBRATIONS if (entry.target, entry.draft) == (target, draft)]
    return known[0] if known else Calibration()
