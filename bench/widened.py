"""A model that costs more and says the same: for experiments on what a costly target changes.

Speed depends on what a target call costs beside a draft call, acceptance on what the two models
say.  A widened model moves the first and keeps the second.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from otlp.checks import whole_number
from otlp.errors import InvalidInputError, UnsupportedProblemError


def widened(model: Any, factor: int) -> Any:
    """Copy a model with more neurons in its feed-forward layers, whose outputs weigh nothing.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        With gated feed-forward layers: Llama, Qwen, Mistral, Gemma and their kin.
    factor : int
        How many times as many neurons; 1 is a plain copy.

    Returns
    -------
    transformers.PreTrainedModel
        In the mode of the given one.  Its logits are the same but for the rounding of longer sums;
        a call computes `factor` times the feed-forward products.

    Raises
    ------
    InvalidInputError
        If `factor` is no whole number of at least 1.
    UnsupportedProblemError
        If the model has no gated feed-forward layers.

    Notes
    -----
    The new neurons read weights of the present ones, shifted, so no time is saved on zeros.
    """
    whole_number(factor, "factor")
    if not callable(getattr(model, "modules", None)):
        raise InvalidInputError(f"model is a {type(model).__name__}: give a model of transformers")
    wide = deepcopy(model)
    layers = [one for one in wide.modules() if _is_gated(one)]
    if not layers:
        raise UnsupportedProblemError(
            f"{type(model).__name__} has no gated feed-forward layers (gate_proj, up_proj, "
            "down_proj): only those are widened"
        )
    for layer in layers:
        for read in (layer.gate_proj, layer.up_proj):
            _repeat(read, factor, axis=0)
            read.out_features *= factor
        _repeat(layer.down_proj, factor, axis=1)
        layer.down_proj.in_features *= factor
    wide.config.get_text_config().intermediate_size *= factor
    return wide


def _is_gated(module: Any) -> bool:
    parts = ("gate_proj", "up_proj", "down_proj")
    return all(hasattr(getattr(module, part, None), "in_features") for part in parts)


def _repeat(linear: Any, factor: int, axis: int) -> None:
    """Put copies of a layer's neurons beside them; those that it writes from weigh nothing."""
    import torch

    weight = linear.weight.data
    new = [
        weight.roll(shift, 0) if axis == 0 else torch.zeros_like(weight)
        for shift in range(1, factor)
    ]
    linear.weight = torch.nn.Parameter(torch.cat([weight, *new], axis), requires_grad=False)
    if axis == 0 and linear.bias is not None:
        linear.bias = torch.nn.Parameter(linear.bias.data.repeat(factor), requires_grad=False)
