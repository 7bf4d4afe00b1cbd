"""Draft network for one target: a few narrow layers that share the target's embedding.

In a small draft, the embedding and the head over the whole vocabulary have most of the weights.
Here both come from the target: the input embedding is the target's, and the head multiplies a
learned matrix by the embedding rows of frequent tokens.  Other tokens have probability 0; every
verification rule accepts this.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Sampling
from otlp.errors import InvalidInputError


class FrequentHead(torch.nn.Module):
    """Linear layer with logits for some tokens and minus infinity for all others.

    Parameters
    ----------
    weight : Tensor, shape (K, width)
    kept : Tensor of int64, shape (K,)
        Tokens with finite logits.
    vocab_size : int
        Vocabulary size V.

    Examples
    --------
    >>> import torch
    >>> from otlp.decode.models.frequent_draft import FrequentHead
    >>> head = FrequentHead(torch.ones(2, 1), torch.tensor([3, 0]), 4)
    >>> head(torch.tensor([[5.0]])).tolist()
    [[5.0, -inf, -inf, 5.0]]
    """

    def __init__(self, weight: Tensor, kept: Tensor, vocab_size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.bias = None
        self.register_buffer("kept", kept)
        self.vocab_size = vocab_size

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) of hidden states (..., width)."""
        found = hidden @ self.weight.t()
        every = found.new_full((*found.shape[:-1], self.vocab_size), -torch.inf)
        return every.index_copy(-1, self.get_buffer("kept"), found)


def tokenizer_hash(tokenizer: Any) -> str:
    """Return the SHA-256 of a tokenizer's vocabulary."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def load_frequent_draft(
    folder: str, target: HuggingFaceModel, sampling: Sampling | None = None, name: str | None = None
) -> HuggingFaceModel:
    """Load a frequent-token draft for its target, on the target's device and in its precision.

    Parameters
    ----------
    folder : str
        Folder of the draft.
    target : HuggingFaceModel
        Target whose embedding the draft uses.
    sampling : Sampling, optional
        Map from logits to next-token distributions.
    name : str, optional
        Name of the draft; by default its folder.

    Raises
    ------
    InvalidInputError
        If the draft is damaged, if it was made for another tokenizer or embedding width, or if its
        head contains tokens that the target does not have.
    """
    try:
        settings = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        tokenizer = settings.pop("tokenizer_sha256")
        config = LlamaConfig(**{**settings, "model_type": "llama", "tie_word_embeddings": False})
        tensors = load_file(Path(folder) / "model.safetensors")
        back, kept = tensors.pop("back"), tensors.pop("kept").long()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error).strip()
        raise InvalidInputError(
            f"the draft in {folder} is damaged: {reason.splitlines()[0]:.200}"
        ) from error
    embedding: Tensor = target.model.get_input_embeddings().weight.detach()
    if tokenizer and target.tokenizer and tokenizer != tokenizer_hash(target.tokenizer):
        raise InvalidInputError(
            f"the draft in {folder} was made for {settings.get('target')}, whose tokenizer differs "
            f"from that of {target.name}: speculative decoding needs the same tokenizer for both"
        )
    if embedding.shape[1] != config.hidden_size:
        raise InvalidInputError(
            f"the draft in {folder} needs an embedding of width {config.hidden_size}, and that of "
            f"{target.name} has {embedding.shape[1]}: pass the target that the draft was made for"
        )
    if len(kept) > target.vocab_size or not bool(((kept >= 0) & (kept < target.vocab_size)).all()):
        raise InvalidInputError(
            f"the head of the draft in {folder} has {len(kept)} tokens up to {int(kept.max())}, "
            f"and {target.name} has {target.vocab_size}: the head must not have more tokens"
        )
    config.vocab_size = target.vocab_size
    try:
        model: Any = LlamaForCausalLM(config)
        body = {name: tensor.float() for name, tensor in tensors.items()}
        model.model.load_state_dict({**body, "embed_tokens.weight": embedding.float()})
        if len(set(kept.tolist())) != len(kept):
            raise RuntimeError("its head repeats a token")
        head = embedding[kept.to(embedding.device)].float() @ back.to(embedding.device).float()
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"the draft in {folder} is damaged: {reason:.200}") from error
    model.lm_head = FrequentHead(head.cpu(), kept, target.vocab_size)
    model = model.to(device=target.model.device, dtype=target.model.dtype).eval()
    # Share the target's embedding, to avoid a second copy of the largest matrix.
    model.model.embed_tokens.weight = target.model.get_input_embeddings().weight
    model.requires_grad_(False)
    return HuggingFaceModel(model, target.tokenizer, sampling, name or folder)
