"""A target that samples by the Gumbel-max trick, and a draft that knows its noise.

The next token is arg max (log p_i + G_i), where the Gumbel noise G is a function of seed and place
in the text alone: `otlp.numerics.exponentials`.  Of a draft that races with the same noise the
candidates of a place are the tokens with the largest log q_i + G_i (Daliri, Musco and Suresh 2025
for one, Kobus and Gündüz 2025 for more), and how likely each is to be the target's own draw is a
distribution: so deterministic draftings, such as `otlp.decode.top_tree`, grow by the noise.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from otlp.checks import is_a
from otlp.decode.models.calibration import Calibration, calibration_of
from otlp.decode.models.model import Model, Sampling, check_pair
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.numerics.exponentials import Seed, check_seed, noise_row


class WithNoise(Model):
    """Another model, and the noise of the places of its text: the base of both.

    Parameters
    ----------
    model : Model
    seed : int or sequence of int
        Of the noise: whole numbers in [0, 2^63).

    Raises
    ------
    InvalidInputError
        If the model is none or has noise already, or the seed is none.
    """

    def __init__(self, model: Model, seed: Seed) -> None:
        is_a(model, Model, "the model with noise")
        if isinstance(model, WithNoise):
            raise InvalidInputError(f"{model.name} has noise already: give the model behind it")
        self.model = model
        self.seed = check_seed(seed)
        self._place = 0

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    @property
    def vocab_size(self) -> int:
        """The model's."""
        return self.model.vocab_size

    @property
    def context_limit(self) -> int | None:
        """The model's."""
        return self.model.context_limit

    @property
    def ends(self) -> tuple[int, ...]:
        """The model's."""
        return self.model.ends

    @property
    def sampling(self) -> Sampling:
        """The model's, of the distribution that the noise samples from."""
        return self.model.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self.model.sampling = sampling

    def start(self, context: IntArray) -> None:
        """Begin a text; the noise of its next token is that of the place T."""
        self.model.start(context)
        self._place = len(context)

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Logarithms of the distributions, given the noise."""
        with np.errstate(divide="ignore"):
            return np.log(self.distributions(tree, nodes))

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Next-token distributions after the given nodes, given the noise, shape (m, V)."""
        laws = self.model.distributions(tree, nodes)
        places = (self._place + tree.depths[nodes]).tolist()
        found = np.zeros(laws.shape)
        for row, law, place in zip(found, laws, places, strict=True):
            self._fill(row, law / self.noise(place))
        return found

    def noise(self, place: int) -> FloatArray:
        """Exponential variables of a place in the text, shape (V,), read-only."""
        return noise_row(self.seed, place, self.vocab_size)

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path to `node`, then `token`."""
        self.model.advance(tree, node, token)
        self._place += int(tree.depths[node]) + 1

    @abstractmethod
    def _fill(self, row: FloatArray, ratios: FloatArray) -> None:
        """Write a distribution, given the probabilities over the exponential variables."""


class GumbelMax(WithNoise):
    """A model that is certain of what it draws: arg max (log p + G), ties to the lowest id.

    Over random seeds its texts follow the model's law; for one seed they are a function of the
    context, and what any lossless rule of verification accepts are tokens of that text.  See
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
    """A draft's distribution of what the target will draw, given the noise of the target.

    Parameters
    ----------
    model : Model
        The draft.
    seed : int or sequence of int
        That of the target, else nothing is gained.
    calibration : Calibration, optional
        By default one that suits most pairs.

    Raises
    ------
    InvalidInputError
        See `WithNoise`; or if the calibration is none.

    Notes
    -----
    A call of the draft, and O(V) a node; a row of noise a place.  Tokens outside of the best
    candidates share what the calibration says is unknown.

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
    """A pair that shares the noise of one seed.

    Parameters
    ----------
    draft, target : Model
    seed : int or sequence of int
    calibration : Calibration, optional
        By default that of the pair if it ships, or else one that suits most.

    Raises
    ------
    InvalidInputError
        If the vocabularies differ, the calibration is of another pair, or the seed is none.

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
