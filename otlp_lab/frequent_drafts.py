"""Writing of draft models that share their target's embedding; `otlp.decode.models` reads them."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig

from otlp.decode.models.frequent_draft import tokenizer_hash
from otlp.decode.models.frequent_kind import KIND
from otlp.decode.models.huggingface import HuggingFaceModel


def write_frequent_draft(
    folder: Path, config: LlamaConfig, tensors: dict[str, Tensor], target: HuggingFaceModel
) -> None:
    """Write a draft model for a target in bfloat16.

    Parameters
    ----------
    folder : Path
    config : LlamaConfig
        Configuration of the layers, with the target's vocabulary and width.
    tensors : dict of Tensor
        The layers and the last norm, named as in `LlamaModel`; `kept`, shape (K,), the tokens of
        the head; `back`, shape (width, width).  The weight of the head is the embedding of `kept`
        times `back`.
    target : HuggingFaceModel
    """
    folder.mkdir(parents=True, exist_ok=True)
    fields = config.to_dict() | {
        "model_type": KIND,
        "target": target.name,
        "tokenizer_sha256": target.tokenizer and tokenizer_hash(target.tokenizer),
    }
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    stored = {
        name: (tensor.int() if name == "kept" else tensor.bfloat16()).contiguous()
        for name, tensor in tensors.items()
    }
    save_file(stored, folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
