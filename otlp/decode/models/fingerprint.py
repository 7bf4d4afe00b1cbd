"""A fingerprint of a model: it changes with weights, configuration and tokenizer, not names."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from otlp.decode.models.cached import CachedModel
from otlp.decode.models.copying import Copying
from otlp.decode.models.hub import hub_folder
from otlp.decode.models.loading import parts_of
from otlp.decode.models.mixture import Mixture
from otlp.decode.models.model import Model
from otlp.decode.models.n_gram import NGram
from otlp.decode.models.prompt_lookup import PromptLookup
from otlp.errors import InvalidInputError

DIGITS = 16
"""Hexadecimal digits."""

BLOCK, BLOCKS = 2**12, 64
"""Bytes of a sample of a file, and how many are taken, evenly from its beginning to its end."""

UNUSED = ("_name_or_path", "transformers_version")
"""What a configuration says that no logit depends on."""


def fingerprint(model: Model) -> str:
    """Hash what the distributions of a model depend on, beside the text.

    Parameters
    ----------
    model : Model
        A network, n-grams, a lookup, a mixture of these, or one of these that copies, too.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Raises
    ------
    InvalidInputError
        If it is a model of another kind, of whose contents nothing is known.

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
        case NGram():
            stamp.update(f"{model.vocab_size} {model.order}".encode() + model.corpus.tobytes())
        case PromptLookup():
            stamp.update(f"{model.vocab_size} {model.longest}".encode())
        case _:
            raise InvalidInputError(
                f"model is a {type(model).__name__}: it must be a network, an NGram, a "
                "PromptLookup, or a Mixture or Copying of these"
            )
    return stamp.hexdigest()[:DIGITS]


def files_fingerprint(source: str) -> str:
    """Hash the files behind the name of a model without loading it: their sizes, and samples.

    Parameters
    ----------
    source : str
        As of `otlp.decode.models.loading.load_draft`.  A name on the hub stands for the files of
        the hub's cache; without these, for itself.

    Notes
    -----
    Reads `BLOCKS` blocks of each file: training changes nearly all weights, so nearly all blocks.
    """
    stamp = sha256(source.encode())
    for path in map(hub_folder, parts_of(source)):
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in (one for one in files if one.is_file()):
            size = file.stat().st_size
            stamp.update(f"{file.name} {size}".encode())
            with open(file, "rb") as opened:
                for at in range(BLOCKS):
                    opened.seek(max(0, size - BLOCK) * at // (BLOCKS - 1))
                    stamp.update(opened.read(BLOCK))
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
