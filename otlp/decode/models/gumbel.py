"""Target that samples with the Gumbel-max trick, and a draft that shares the target's noise.

The next token is arg max (log p_i + G_i), where the Gumbel noise G depends only on the seed and the
position in the text: `otlp.numerics.exponentials`.  A draft with the same noise uses the tokens
with the largest log q_i + G_i as candidates for a position (Daliri, Musco and Suresh 2025 for one
candidate, Kobus and Gündüz 2025 for several).  The probabilities that a candidate is the target's
draw form a distribution, so deterministic draftings such as `otlp.decode.top_tree` can use it.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from otlp.checks import is_a
from otlp.decode.models.calibration import Calibration, calibration_of
from otlp.decode.models.model import Model, Sampling, check_pair
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray, logarithms
from otlp.errors import InvalidInputError
from otlp.numerics.exponentials import Seed, check_seed, noise_row


class WithNoise(Model):
    """Base class of models with noise: a model and the noise at each position of its text.

    Parameters
    ----------
    model : Model
    seed : int or sequence of int
        Seed of the noise: whole numbers in [0, 2^63).

    Raises
    ------
    InvalidInputError
        If `model` is not a model or already has noise, or the seed is invalid.
    """

    def __init__(self, model: Model, seed: Seed) -> None:
        is_a(model, Model, "the model with noise")
        if isinstance(model, WithNoise):
            raise InvalidInputError(f"{model.name} already has noise: pass its attribute model")
        self.model = model
        self.seed = check_seed(seed)
        self._position = 0

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self.model.vocab_size

    @property
    def context_limit(self) -> int | None:
        """Context limit of the model."""
        return self.model.context_limit

    @property
    def ends(self) -> tuple[int, ...]:
        """End tokens of the model."""
        return self.model.ends

    @property
    def sampling(self) -> Sampling:
        """Sampling of the model: defines the distribution that the noise samples from."""
        return self.model.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self.model.sampling = sampling

    def start(self, context: IntArray) -> None:
        """Start a text of T tokens; the next token uses the noise of position T."""
        self.model.start(context)
        self._position = len(context)

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return the logarithms of the distributions, given the noise."""
        return logarithms(self.distributions(tree, nodes))

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return next-token distributions after the given nodes, given the noise, shape (m, V)."""
        laws = self.model.distributions(tree, nodes)
        positions = (self._position + tree.depths[nodes]).tolist()
        found = np.zeros(laws.shape)
        for row, law, position in zip(found, laws, positions, strict=True):
            self._fill(row, law / self.noise(position))
        return found

    def noise(self, place: int) -> FloatArray:
        """Return the exponential variables of a position in the text, shape (V,), read-only."""
        return noise_row(self.seed, place, self.vocab_size)

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path to `node`, then `token`."""
        self.model.advance(tree, node, token)
        self._position += int(tree.depths[node]) + 1

    @abstractmethod
    def _fill(self, row: FloatArray, ratios: FloatArray) -> None:
        """Write a distribution, given probabilities divided by exponential variables."""


class GumbelMax(WithNoise):
    """Deterministic model with the token arg max (log p + G); ties go to the lowest id.

    Over random seeds the texts follow the model's distribution.  For a fixed seed the text is a
    function of the context, and every lossless verification rule generates this text.  See
    `WithNoise` for parameters and errors.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, target = decode.random_pair(4, 9, np.random.default_rng(0))
    >>> seeded, rng = decode.GumbelMax(target, seed=7), np.random.default_rng()
    >>> (plain,) = decode.decode(seeded, [[1]], 5, rng)
    >>> (text,) = decode.decode(
    ...     seeded, [[1]], 5, rng, draft=decode.Perturbed(draft, seed=7),
    ...     drafting=decode.top_tree(4, 3), verification=decode.Equality(),
    ... )
    >>> text.tokens.tolist() == plain.tokens.tolist(), len(text.rounds) < 5
    (True, True)
    """

    def _fill(self, row: FloatArray, ratios: FloatArray) -> None:
        row[np.argmax(ratios)] = 1.0


class Perturbed(WithNoise):
    """A draft model's distribution of the target's draw, given the noise of the target.

    Parameters
    ----------
    model : Model
        Draft model.
    seed : int or sequence of int
        Seed of the target; with another seed the noise does not help.
    calibration : Calibration, optional
        By default a calibration that suits most pairs.

    Raises
    ------
    InvalidInputError
        See `WithNoise`; also if `calibration` is not a Calibration.

    Notes
    -----
    One call of the draft model, O(V) time per node, and one row of noise per position.  Tokens
    outside the best candidates share the calibration's probability `unknown`.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.tree import ROOT
    >>> draft = decode.Perturbed(decode.random_pair(4, 9, np.random.default_rng(0))[0], seed=7)
    >>> draft.start(())
    >>> draft.distributions(ROOT, np.array([0])).round(2).tolist()
    [[0.03, 0.4, 0.17, 0.4]]
    """

    def __init__(self, model: Model, seed: Seed, calibration: Calibration | None = None) -> None:
        super().__init__(model, seed)
        self.calibration = Calibration() if calibration is None else calibration
        is_a(self.calibration, Calibration, "calibration")

    def _fill(self, row: FloatArray, ratios: FloatArray) -> None:
        tokens, chances = self.calibration.chances(ratios, self.sampling.temperature)
        if tokens.size < row.size:
            row[:] = self.calibration.unknown / (row.size - tokens.size)
        row[tokens] = chances if tokens.size < row.size else chances / chances.sum()


def with_shared_noise(
    draft: Model, target: Model, seed: Seed, calibration: Calibration | None = None
) -> tuple[Perturbed, GumbelMax]:
    """Return a draft and a target that share the noise of one seed.

    Parameters
    ----------
    draft, target : Model
    seed : int or sequence of int
    calibration : Calibration, optional
        By default the pair's calibration if it ships, otherwise one that suits most pairs.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, the calibration was fitted to another pair, or the seed is
        invalid.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> pair = decode.random_pair(4, 9, np.random.default_rng(0))
    >>> draft, target = decode.with_shared_noise(*pair, seed=7)
    >>> type(draft).__name__, type(target).__name__, draft.calibration.scale
    ('Perturbed', 'GumbelMax', 1.2)
    """
    check_pair(draft, target)
    if calibration is None:
        calibration = calibration_of(target.name, draft.name)
    is_a(calibration, Calibration, "calibration")
    calibration.check_models(target.name, draft.name)
    return Perturbed(draft, seed, calibration), GumbelMax(target, seed)
