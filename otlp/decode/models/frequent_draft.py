"""A draft network for one target: its embedding at both ends, few narrow layers in between.

Most of a small draft would be its embedding and its head over the whole vocabulary.  Both are the
target's own here: the head reads rows of the embedding, after one matrix that was learned, for
frequent tokens alone; the others have probability 0, which every rule of verification takes as it
is.
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
    """A linear layer that gives logits to some tokens, and minus infinity to all others.

    Parameters
    ----------
    weight : Tensor, shape (K, width)
    kept : Tensor of int64, shape (K,)
        The tokens that it knows.
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
        """Logits (..., V) of hidden states (..., width)."""
        found = hidden @ self.weight.t()
        every = found.new_full((*found.shape[:-1], self.vocab_size), -torch.inf)
        return every.index_copy(-1, self.get_buffer("kept"), found)


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of a tokenizer's vocabulary."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def load_frequent_draft(
    folder: str, target: HuggingFaceModel, sampling: Sampling | None = None, name: str | None = None
) -> HuggingFaceModel:
    """Load such a draft for its target, on the target's device and in its precision.

    Parameters
    ----------
    folder : str
    target : HuggingFaceModel
        Whose embedding it reads.
    sampling : Sampling, optional
        From logits to next-token distributions.
    name : str, optional
        What to call it; by default its folder.

    Raises
    ------
    InvalidInputError
        If it is damaged, was made for another tokenizer or another width of embedding, or its head
        knows tokens that the target does not have.
    """
    try:
        said = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        tokenizer = said.pop("tokenizer_sha256")
        config = LlamaConfig(**{**said, "model_type": "llama", "tie_word_embeddings": False})
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
            f"the draft in {folder} was made for {said.get('target')}, whose tokenizer is not that "
            f"of {target.name}: speculative decoding needs one tokenizer for both models"
        )
    if embedding.shape[1] != config.hidden_size:
        raise InvalidInputError(
            f"the draft in {folder} reads an embedding of width {config.hidden_size}, and that of "
            f"{target.name} has {embedding.shape[1]}: give the target that it was made for"
        )
    if len(kept) > target.vocab_size or not bool(((kept >= 0) & (kept < target.vocab_size)).all()):
        raise InvalidInputError(
            f"the head of the draft in {folder} knows {len(kept)} tokens up to {int(kept.max())}, "
            f"and {target.name} has {target.vocab_size}: it may know fewer, not more"
        )
    config.vocab_size = target.vocab_size
    try:
        model: Any = LlamaForCausalLM(config)
        body = {name: tensor.float() for name, tensor in tensors.items()}
        model.model.load_state_dict({**body, "embed_tokens.weight": embedding.float()})
        if len(set(kept.tolist())) != len(kept):
            raise RuntimeError("its head names a token twice")
        head = embedding[kept.to(embedding.device)].float() @ back.to(embedding.device).float()
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"the draft in {folder} is damaged: {reason:.200}") from error
    model.lm_head = FrequentHead(head.cpu(), kept, target.vocab_size)
    model = model.to(device=target.model.device, dtype=target.model.dtype).eval()
    # no second copy of the largest matrix
    model.model.embed_tokens.weight = target.model.get_input_embeddings().weight
    model.requires_grad_(False)
    return HuggingFaceModel(model, target.tokenizer, sampling, name or folder)
