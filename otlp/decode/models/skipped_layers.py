"""Self-speculative decoding: the draft is the target network without some of its layers.

The draft needs no training and no additional weights (Zhang et al. 2024, Draft & Verify,
arXiv:2309.08168; Elhoushi et al. 2024, LayerSkip, arXiv:2404.16710; Xia et al. 2025, SWIFT,
arXiv:2410.06916).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Sampling
from otlp.decode.models.weights import reason_of
from otlp.errors import InvalidInputError, UnsupportedProblemError


def skip_layers(
    model: HuggingFaceModel, layers: Sequence[int], sampling: Sampling | None = None
) -> HuggingFaceModel:
    """Make a draft from a loaded model by skipping some of its layers.

    Parameters
    ----------
    model : HuggingFaceModel
        A transformers decoder whose layers are in one list.
    layers : sequence of int
        Indices of the skipped layers, starting at 0; at least one layer must remain.
    sampling : Sampling, optional
        Map from logits to next-token distributions.

    Returns
    -------
    HuggingFaceModel
        Draft with its own cache; it shares the weights of `model` without a copy.  Its
        distributions equal those of a model saved after deleting the layers.

    Raises
    ------
    InvalidInputError
        If an index is invalid or repeated, if no layer is skipped, or if no layer remains.
    UnsupportedProblemError
        If the network does not have one list of layers, or cannot be built with fewer layers.

    Examples
    --------
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.decode.models.skipped_layers import skip_layers
    >>> target = load_model("trained:target", device="cpu")
    >>> draft = skip_layers(target, [1])
    >>> draft.name, draft.vocab_size == target.vocab_size
    ('skip:1@trained:target', True)
    """
    shorter = without_layers(model.model, layers, model.name)
    name = f"skip:{','.join(map(str, layers))}@{model.name}"
    draft = HuggingFaceModel(shorter, model.tokenizer, sampling, name)
    if model.vocab_size < draft.vocab_size:
        draft.keep_tokens(model.vocab_size)
    return draft


def without_layers(network: Any, layers: Sequence[int], name: str) -> Any:
    """Return a transformers network without some of its layers, sharing the weights.

    Parameters and errors are those of `skip_layers`; `name` names the network in an error.
    """
    import torch

    count = int(network.config.get_text_config().num_hidden_layers)
    lists = {
        path: part
        for path, part in network.named_modules()
        if isinstance(part, torch.nn.ModuleList) and len(part) == count
    }
    if len(lists) != 1:
        raise UnsupportedProblemError(
            f"{name} has {len(lists)} lists of {count} layers: layers can be skipped only in a "
            "decoder with one list of layers"
        )
    (list_path,) = lists
    integers = all(isinstance(index, int) and not isinstance(index, bool) for index in layers)
    if not integers or not set(layers) <= set(range(count)) or len(set(layers)) < len(layers):
        raise InvalidInputError(
            f"layers must be distinct layers of {name}, 0 to {count - 1}, got {list(layers)}"
        )
    if not 0 < len(layers) < count:
        raise InvalidInputError(
            f"the number of skipped layers of {name} must be 1 to {count - 1}, got {len(layers)}"
        )
    kept = [layer for layer in range(count) if layer not in layers]
    try:
        return _keep_layers(network, list_path, kept, count)
    except Exception as error:  # A model may run any code and raise any exception.
        raise UnsupportedProblemError(
            f"{name} cannot be built without layers {list(layers)}: {reason_of(error)}"
        ) from error


def _keep_layers(network: Any, list_path: str, kept: list[int], count: int) -> Any:
    """Return a network with only the kept layers of another network, sharing its weights."""
    import torch

    config = deepcopy(network.config)
    text = config.get_text_config()
    for name, value in vars(text).items():
        if isinstance(value, list) and len(value) == count:  # One setting per layer.
            setattr(text, name, [value[layer] for layer in kept])
    text.num_hidden_layers = len(kept)
    with torch.device("meta"):
        shorter = type(network)(config)
    new_index = {str(layer): str(number) for number, layer in enumerate(kept)}
    layer_name = re.compile(rf"^({re.escape(list_path)}\.)(\d+)(\..*)$")

    def renamed(entries: Any) -> dict[str, Any]:
        found = {}
        for name, value in entries:
            match = layer_name.match(name)
            if match is None:
                found[name] = value
            elif match[2] in new_index:
                found[match[1] + new_index[match[2]] + match[3]] = value
        return found

    shorter.load_state_dict(renamed(network.state_dict().items()), assign=True)
    # Buffers that are not stored with the weights, such as rotary frequencies.
    buffers = renamed(network.named_buffers())
    for name, value in list(shorter.named_buffers()):
        if value.is_meta:
            owner, _, leaf = name.rpartition(".")
            shorter.get_submodule(owner).register_buffer(leaf, buffers[name], persistent=False)
    return shorter.eval().requires_grad_(False)
