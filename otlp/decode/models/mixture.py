"""Draft model that mixes other models, such as a small network and n-grams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otlp.checks import is_a, real_array
from otlp.decode.models.model import Model, Sampling
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray, as_distribution, logarithms
from otlp.errors import InvalidInputError


class Mixture(Model):
    """Weighted mean of the next-token distributions of several models over one vocabulary.

    Parameters
    ----------
    models : sequence of Model
        Models to mix, each with its own sampling.
    weights : array_like of float, shape (m,), optional
        Nonnegative weights with sum one; equal by default.
    sampling : Sampling, optional
        Sampling applied to the logarithms of the mixture.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If there is no model, the vocabularies differ, the number of weights differs from the number
        of models, or the weights are not a distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import Mixture, NGram, PromptLookup
    >>> from otlp.decode.tree import ROOT
    >>> model = Mixture([NGram(3), PromptLookup(3)], [0.25, 0.75])
    >>> model.start(np.array([0, 1, 0]))
    >>> model.distributions(ROOT, np.array([0])).round(3).tolist()
    [[0.067, 0.917, 0.017]]
    """

    def __init__(
        self,
        models: Sequence[Model],
        weights: npt.ArrayLike | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        is_a(models, Sequence, "models")
        if not models:
            raise InvalidInputError("models must have at least one model, got none")
        for model in models:
            is_a(model, Model, "a model of the mixture")
        if len({model.vocab_size for model in models}) > 1:
            sizes = ", ".join(f"{model.name} {model.vocab_size}" for model in models)
            raise InvalidInputError(f"the models must have the same vocabulary size, got {sizes}")
        given = np.full(len(models), 1.0 / len(models)) if weights is None else weights
        self.weights = as_distribution(real_array(given, "weights", 1), "weights")
        if self.weights.size != len(models):
            raise InvalidInputError(
                f"weights must have one weight per model ({len(models)}), got {self.weights.size}"
            )
        self.models = tuple(models)
        self.sampling = Sampling() if sampling is None else sampling
        is_a(self.sampling, Sampling, "sampling")

    @property
    def name(self) -> str:
        """Names of the models with their weights."""
        parts = zip(self.weights, self.models, strict=True)
        return "+".join(f"{weight:.3g}*{model.name}" for weight, model in parts)

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self.models[0].vocab_size

    @property
    def context_limit(self) -> int | None:
        """Smallest context limit of the models."""
        limits = [model.context_limit for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    def start(self, context: IntArray) -> None:
        """Start a text in all models."""
        for model in self.models:
            model.start(context)

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return logarithms of the mixture after the nodes, shape (m, V); one call per model."""
        parts = zip(self.weights, self.models, strict=True)
        return logarithms(sum(weight * model.distributions(tree, nodes) for weight, model in parts))

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append to the text in all models."""
        for model in self.models:
            model.advance(tree, node, token)
