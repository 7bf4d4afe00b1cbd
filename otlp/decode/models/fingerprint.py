"""A fingerprint of a model: it changes with weights, configuration and tokenizer, not names."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from otlp.decode.models.cached import CachedModel
from otlp.decode.models.copying import Copying
from otlp.decode.models.mixture import Mixture
from otlp.decode.models.model import Model

DIGITS = 16
"""Hexadecimal digits."""

UNUSED = ("_name_or_path", "transformers_version")
"""What a configuration says that no logit depends on."""


def fingerprint(model: Model) -> str:
    """Hash what the distributions of a model depend on, beside the text.

    Parameters
    ----------
    model : Model
        A network, or a mixture of models, or one that copies, too; of another, its type and name.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Notes
    -----
    Reads each weight once: some .4 s for 500 MB.

    Examples
    --------
    >>> from otlp import decode
    >>> from otlp.decode.models.fingerprint import fingerprint
    >>> one, other = decode.NGram(5), decode.PromptLookup(5)
    >>> fingerprint(one) == fingerprint(decode.NGram(5)), fingerprint(one) == fingerprint(other)
    (True, False)
    """
    stamp = sha256(type(model).__name__.encode())
    match model:
        case Mixture():
            stamp.update(json.dumps([fingerprint(one) for one in model.models]).encode())
            stamp.update(model.weights.tobytes())
        case Copying():
            stamp.update(f"{fingerprint(model.model)} {model.shares}".encode())
        case CachedModel():
            _add_network(stamp, model.model)
            tokenizer = getattr(model, "tokenizer", None)
            if tokenizer is not None:
                stamp.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
        case _:
            stamp.update(model.name.encode())
    return stamp.hexdigest()[:DIGITS]


def _add_network(stamp: Any, network: Any) -> None:
    """Add configuration and weights; of tied weights, the first."""
    import torch

    settings = network.config.to_dict() if hasattr(network, "config") else {}
    known = {name: value for name, value in settings.items() if name not in UNUSED}
    stamp.update(json.dumps(known, sort_keys=True, default=str).encode())
    seen = set()
    for name, weight in sorted(network.state_dict().items()):
        place = weight.data_ptr(), weight.shape, weight.stride()
        stamp.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.numel() and place not in seen:
            seen.add(place)
            flat = weight.detach().cpu().contiguous().reshape(-1)
            stamp.update(flat.view(torch.uint8).numpy())
