"""How likely each candidate of a Gumbel-perturbed draft is to be the target's draw: two numbers."""

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
"""What a file says it is."""

MOST_RANKS = 32
"""Candidates at a place that have chances of their own."""


@dataclass(frozen=True)
class Calibration:
    """Chances (1 - u) softmax((log q + G) / sigma) of the best candidates, sigma = scale / T.

    If the target's logits are the draft's and independent Gumbel errors, this is Luce's choice; so
    sigma T, the size of those errors, is one number of a pair at all temperatures T.

    Parameters
    ----------
    scale : float
        sigma T, greater than 0.
    unknown : float
        u in [0, 1): how often the target draws a token outside of the best `MOST_RANKS`.
    target, draft : str
        Names of the models that it was fitted to; empty for any.

    Raises
    ------
    InvalidInputError
        If a number is out of its range, or a name is none.

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
            raise InvalidInputError("the scale of a calibration is 0: it must be greater")
        if number(self.unknown, "unknown", 0.0, 1.0) == 1.0:
            raise InvalidInputError("unknown is 1: it must be less, or nothing is ever drafted")
        for name in ("target", "draft"):
            is_a(getattr(self, name), str, name)

    def check_models(self, target: str, draft: str) -> None:
        """Refuse other models than it was fitted to, by their names.

        Raises
        ------
        InvalidInputError
            Naming both pairs.
        """
        if (self.target, self.draft) not in ((target, draft), ("", "")):
            raise InvalidInputError(
                f"the calibration is of target {self.target} with draft {self.draft}, not of "
                f"target {target} with draft {draft}: fit one with otlp lab calibrate"
            )

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a file that holds what `to_json` wrote.

        Raises
        ------
        InvalidInputError
            If it cannot be read, or holds something else.
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
                f"{path!s:.200} holds no calibration of otlp lab calibrate "
                f"({type(error).__name__}: {error!s:.100})"
            ) from error

    def chances(self, ratios: FloatArray, temperature: float) -> tuple[IntArray, FloatArray]:
        """The best candidates, best first, and how likely the target is to draw each.

        Parameters
        ----------
        ratios : ndarray, shape (V,)
            q / E: the draft's probabilities over the exponential variables.
        temperature : float
            T of the draft's sampling; at 0 candidates are as likely as each other.

        Returns
        -------
        tokens, chances : ndarray, shape (m,)
            m up to `MOST_RANKS`; their sum is 1 - u.  O(V).
        """
        tokens = top_tokens(ratios, MOST_RANKS)
        tokens = tokens[ratios[tokens] > 0.0]
        weights = (ratios[tokens] / ratios[tokens[0]]) ** (temperature / self.scale)
        return tokens, (1.0 - self.unknown) * weights / weights.sum()


CALIBRATIONS = (
    Calibration(1.23, 0.18, "smollm2", "copying:smollm2-draft"),
    Calibration(0.73, 0.04, "trained:target", "trained:draft"),
)
"""Those of the pairs that ship."""


def calibration_of(target: str, draft: str) -> Calibration:
    """The calibration that ships for a pair, or else the default, which is none of its own."""
    known = [one for one in CALIBRATIONS if (one.target, one.draft) == (target, draft)]
    return known[0] if known else Calibration()
