"""A model that drafts for itself: its network without some of its layers.

Such a draft needs no training and no weights of its own (self-speculative decoding: Zhang et al.
2024, Draft & Verify, arXiv:2309.08168; Elhoushi et al. 2024, LayerSkip, arXiv:2404.16710; Xia et
al. 2025, SWIFT, arXiv:2410.06916).
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
    """Make a draft of a loaded model, without some of its layers.

    Parameters
    ----------
    model : HuggingFaceModel
        A decoder of transformers whose layers are one list.
    layers : sequence of int
        Numbers of the layers that are left out, from 0; not all of them.
    sampling : Sampling, optional
        From logits to next-token distributions.

    Returns
    -------
    HuggingFaceModel
        With a cache of its own.  It shares the weights of `model`, which are not copied.  Its
        distributions are those of a model whose layers were deleted and which was saved then.

    Raises
    ------
    InvalidInputError
        If a number is none of a layer's or is there twice, no layer is left out, or none is left.
    UnsupportedProblemError
        If the network has no list of its layers, or cannot be built with fewer.

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
    """A network of transformers without some of its layers, over the same weights.

    Parameters and errors are those of `skip_layers`; `name` is that of the network in an error.
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
            f"{name} has {len(lists)} lists of {count} layers: layers can be left out of a decoder "
            "whose layers are one list"
        )
    (listed,) = lists
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in layers)
    if not whole or not set(layers) <= set(range(count)) or len(set(layers)) < len(layers):
        raise InvalidInputError(
            f"layers must be different layers of {name}, 0 to {count - 1}, got {list(layers)}"
        )
    if not 0 < len(layers) < count:
        raise InvalidInputError(
            f"layers must be at least one of the {count} layers of {name} and not all, got "
            f"{len(layers)}"
        )
    kept = [layer for layer in range(count) if layer not in layers]
    try:
        return _of_layers(network, listed, kept, count)
    except Exception as error:  # any code may be behind a model, and raise anything
        raise UnsupportedProblemError(
            f"{name} cannot be built without layers {list(layers)}: {reason_of(error)}"
        ) from error


def _of_layers(network: Any, listed: str, kept: list[int], count: int) -> Any:
    """A network of some layers of another, with its weights."""
    import torch

    config = deepcopy(network.config)
    text = config.get_text_config()
    for name, value in vars(text).items():
        if isinstance(value, list) and len(value) == count:  # what each layer is
            setattr(text, name, [value[layer] for layer in kept])
    text.num_hidden_layers = len(kept)
    with torch.device("meta"):
        shorter = type(network)(config)
    place = {str(layer): str(number) for number, layer in enumerate(kept)}
    layer = re.compile(rf"^({re.escape(listed)}\.)(\d+)(\..*)$")

    def renamed(entries: Any) -> dict[str, Any]:
        found = {}
        for name, value in entries:
            match = layer.match(name)
            if match is None:
                found[name] = value
            elif match[2] in place:
                found[match[1] + place[match[2]] + match[3]] = value
        return found

    shorter.load_state_dict(renamed(network.state_dict().items()), assign=True)
    # what is not stored with the weights, such as the frequencies of positions
    buffers = renamed(network.named_buffers())
    for name, value in list(shorter.named_buffers()):
        if value.is_meta:
            owner, _, leaf = name.rpartition(".")
            shorter.get_submodule(owner).register_buffer(leaf, buffers[name], persistent=False)
    return shorter.eval().requires_grad_(False)
