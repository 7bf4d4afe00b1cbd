"""Fingerprint of a model: depends on weights, configuration and tokenizer, not on names."""

from __future__ import annotations

import json
from hashlib import file_digest, sha256
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
"""Number of hexadecimal digits of a fingerprint."""

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx")
"""Extensions of files with weights, of which only samples are read."""

BLOCK, BLOCKS = 2**12, 64
"""Bytes of a sampled block of a file, and number of blocks, evenly spaced over the file."""

UNUSED = ("_name_or_path", "transformers_version")
"""Configuration fields that do not affect the logits."""


def fingerprint(model: Model) -> str:
    """Hash everything besides the text that the distributions of a model depend on.

    Parameters
    ----------
    model : Model
        A network, an `NGram`, a `PromptLookup`, or a `Mixture` or `Copying` of these.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Raises
    ------
    InvalidInputError
        If `model` is of another kind, whose contents are unknown.

    Notes
    -----
    Reads each weight once: about 0.4 s for 500 MB.

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
            stamp.update(json.dumps([fingerprint(part) for part in model.models]).encode())
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
                "model must be a network, an NGram, a PromptLookup, or a Mixture or Copying of "
                f"these, got {type(model).__name__}"
            )
    return stamp.hexdigest()[:DIGITS]


def files_fingerprint(source: str) -> str:
    """Hash the files of a model, without loading the model; of weights, hash samples.

    Parameters
    ----------
    source : str
        Model source, as in `otlp.decode.models.loading.load_draft`.  For a name on the hub, the
        files in the hub's cache are hashed; if there are none, only the name is hashed.

    Notes
    -----
    Reads `BLOCKS` blocks of each file of weights: training changes nearly all weights, so nearly
    all blocks.  Reads other files whole: a corpus can change at one place.
    """
    stamp = sha256(source.encode())
    for path in map(hub_folder, parts_of(source)):
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in (entry for entry in files if entry.is_file()):
            size = file.stat().st_size
            stamp.update(f"{file.name} {size}".encode())
            with open(file, "rb") as opened:
                if file.suffix not in WEIGHTS:
                    stamp.update(file_digest(opened, "sha256").digest())
                    continue
                for block in range(BLOCKS):
                    opened.seek(max(0, size - BLOCK) * block // (BLOCKS - 1))
                    stamp.update(opened.read(BLOCK))
    return stamp.hexdigest()[:DIGITS]


def _add_network(stamp: Any, network: Any) -> None:
    """Add the configuration and the weights to a hash; add tied weights once."""
    import torch

    settings = network.config.to_dict() if hasattr(network, "config") else {}
    used = {name: value for name, value in settings.items() if name not in UNUSED}
    stamp.update(json.dumps(used, sort_keys=True, default=str).encode())
    seen = set()
    for name, weight in sorted(network.state_dict().items()):
        storage = weight.data_ptr(), weight.shape, weight.stride()
        stamp.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.numel() and storage not in seen:
            seen.add(storage)
            flat = weight.detach().cpu().contiguous().reshape(-1)
            stamp.update(flat.view(torch.uint8).numpy())
