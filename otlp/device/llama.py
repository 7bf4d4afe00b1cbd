"""Llama and related architectures as a function of tensors, with the weights of transformers.

The forward of transformers inspects its arguments, creates masks and grows a cache, which is slower
than the arithmetic of a small model.  In this file shapes are fixed and no control flow depends on
values, so one call compiles to one graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from otlp.decode.models.copying import check_shares
from otlp.decode.models.memory import is_out_of_memory
from otlp.errors import SizeLimitError, UnsupportedProblemError

KINDS = ("llama", "mistral", "qwen2", "qwen3")
"""Supported values of `model_type`: rotary embeddings and gated feed-forward layers."""

FIXED_ROTARY = ("default", "linear", "llama3", "yarn")
"""Types of rotary embeddings whose frequencies do not depend on the length of the text."""

CHECKED = 12
"""Length of the text on which the logits are compared with the forward of transformers."""

EPSILON = torch.finfo(torch.float32).eps

Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, in separate tensors so that compiled code writes in place."""


class Llama(torch.nn.Module):
    """A causal language model as a function of tokens, positions and a cache with slots.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Model in evaluation mode, of type llama, mistral, qwen2 or qwen3.  Its weights are shared,
        not copied.
    shares : sequence of float
        Weights of copied tokens in drafts, as for `otlp.decode.Copying`; default no copying.

    Raises
    ------
    InvalidInputError
        If a share is not a number in [0, 1].
    UnsupportedProblemError
        If the model type is not supported, a layer has a sliding window, the rotary embedding
        depends on the length of the text, or the logits differ from those of the forward of the
        model; the message names the reason.
    SizeLimitError
        If the device has no memory for the float32 copy of a half-precision model that its logits
        are compared with.

    Notes
    -----
    The logits are compared on twelve tokens.  For half precision the reference is the model in
    float32, and the tolerance is twice the rounding error of its own forward.

    Examples
    --------
    >>> import torch
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.device import Llama
    >>> model = Llama(load_model("trained:draft", device="cpu").model)
    >>> cache = model.new_cache(batch=1, slots=4)
    >>> tokens, places = torch.tensor([[5, 9]]), torch.tensor([[0, 1]])
    >>> sees = torch.ones(1, 2, 4, dtype=torch.bool).tril()
    >>> model.logits(model.forward(cache, tokens, places, places, sees)).shape
    torch.Size([1, 2, 4096])
    """

    def __init__(self, model: Any, shares: Sequence[float] = ()) -> None:
        config = model.config.get_text_config()
        _check_kind(model, config)
        super().__init__()
        self.shares = check_shares(shares) if len(shares) else ()
        self.vocab_size = int(config.vocab_size)
        self.heads = int(config.num_attention_heads)
        self.key_heads = int(config.num_key_value_heads)
        width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.width = int(width)
        self.epsilon = float(config.rms_norm_eps)
        self.model = model.model
        self.head = model.lm_head
        self.rotary_scale = float(model.model.rotary_emb.attention_scaling)
        self.most_tokens = getattr(config, "max_position_embeddings", None)
        _check_logits(self, model)

    @property
    def embedding(self) -> Tensor:
        """Input vectors of the tokens, shape (V, width)."""
        found: Tensor = self.model.embed_tokens.weight
        return found

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights and the caches."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights and the caches."""
        return self.embedding.device

    @property
    def slot_bytes(self) -> int:
        """Size of one slot of a cache over all layers, in bytes."""
        entry = self.key_heads * self.width * self.embedding.element_size()
        return int(2 * len(self.model.layers) * entry)

    def new_cache(self, batch: int, slots: int) -> Cache:
        """Return a cache of zeros: keys and values (B, key heads, slots, head width) per layer."""
        shape = batch, self.key_heads, slots, self.width

        def zeros() -> Tensor:
            return torch.zeros(shape, dtype=self.dtype, device=self.device)

        return [(zeros(), zeros()) for _ in self.model.layers]

    def forward(
        self,
        cache: Cache,
        tokens: Tensor,
        positions: Tensor,
        cache_slots: Tensor,
        attn_mask: Tensor,
    ) -> Tensor:
        """Compute the hidden states of Q tokens per row and write their keys and values.

        Parameters
        ----------
        cache : list of (Tensor, Tensor)
            Cache from `new_cache` with S slots, changed in place.
        tokens, positions, cache_slots : Tensor of int64, shape (B, Q)
            Token ids, their positions in the text, and their slots in the cache.
        attn_mask : Tensor of bool, shape (B, Q, S)
            Mask of the slots that each token attends to, including its own slot.

        Returns
        -------
        Tensor, shape (B, Q, width)
            Hidden states, the input of `logits`.
        """
        batch, count = tokens.shape
        rows = torch.arange(batch, device=tokens.device)[:, None]
        angles = positions[..., None].float() * self.model.rotary_emb.inv_freq.float()
        angles = torch.cat([angles, angles], -1)[:, :, None]
        cos = (angles.cos() * self.rotary_scale).to(self.dtype)
        sin = (angles.sin() * self.rotary_scale).to(self.dtype)
        heads = batch, count, -1, self.width
        hidden: Tensor = self.model.embed_tokens(tokens)
        for layer, (keys, values) in zip(self.model.layers, cache, strict=True):
            own, mlp = layer.self_attn, layer.mlp
            x = self._norm(hidden, layer.input_layernorm)
            q, k, v = (part(x).view(heads) for part in (own.q_proj, own.k_proj, own.v_proj))
            if hasattr(own, "q_norm"):
                q, k = self._norm(q, own.q_norm), self._norm(k, own.k_norm)
            keys[rows, :, cache_slots] = _rotate(k, cos, sin)
            values[rows, :, cache_slots] = v
            hidden = hidden + own.o_proj(_attend(_rotate(q, cos, sin), keys, values, attn_mask))
            x = self._norm(hidden, layer.post_attention_layernorm)
            hidden = hidden + mlp.down_proj(silu(mlp.gate_proj(x)) * mlp.up_proj(x))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute the logits of the next tokens (..., V) from hidden states (..., width)."""
        found: Tensor = self.head(self._norm(hidden, self.model.norm))
        return found

    def _norm(self, x: Tensor, norm: Any) -> Tensor:
        return rms_norm(x, norm.weight.shape, norm.weight, self.epsilon)


def _attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Compute attention over the slots selected by a mask.

    Parameters
    ----------
    q : Tensor, shape (B, Q, heads, head width)
    keys, values : Tensor, shape (B, key heads, S, head width)
    mask : Tensor of bool, shape (B, Q, S)

    Returns
    -------
    Tensor, shape (B, Q, heads * head width)
    """
    grouped = q.shape[2] != keys.shape[1]
    found = scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, attn_mask=mask[:, None], enable_gqa=grouped
    )
    return found.transpose(1, 2).flatten(2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def _check_kind(model: Any, config: Any) -> None:
    kind = getattr(config, "model_type", type(model).__name__)
    if kind not in KINDS:
        raise UnsupportedProblemError(
            f"model type must be one of {', '.join(KINDS)} for the loop on the device, got "
            f"{kind!r}; decode with otlp.decode, which accepts every causal model"
        )
    windows = getattr(config, "layer_types", None) or []
    slides = "sliding_attention" in windows or (
        not windows and getattr(config, "sliding_window", None) is not None
    )
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    rotary = rope.get("rope_type", rope.get("type", "default"))
    reason = None
    if slides:
        reason = "has layers with a sliding window"
    elif rotary not in FIXED_ROTARY:
        reason = f"has rotary embeddings of type {rotary!r}, which depend on the text length"
    elif getattr(config, "hidden_act", "silu") != "silu":
        reason = f"has the activation {config.hidden_act!r}"
    elif model.training:
        reason = "is in training mode (call model.eval())"
    if reason:
        raise UnsupportedProblemError(
            f"{type(model).__name__} {reason}, which the loop on the device does not support; "
            "decode with otlp.decode"
        )


@torch.no_grad()
def _check_logits(llama: Llama, model: Any) -> None:
    """Raise UnsupportedProblemError if the logits differ from those of the forward of the model."""
    device = llama.device
    # Spread the tokens over the vocabulary: logits of special tokens, at its ends, are unreliable.
    tokens = torch.arange(1, CHECKED + 1, device=device)[None] * llama.vocab_size // (CHECKED + 1)
    mask = torch.ones(1, CHECKED, CHECKED, dtype=torch.bool, device=device).tril()
    at = torch.arange(CHECKED, device=device)[None]
    found = llama.logits(llama.forward(llama.new_cache(1, CHECKED), tokens, at, at, mask))
    own = reference = model(input_ids=tokens, use_cache=False).logits.double()
    if torch.finfo(llama.dtype).eps > EPSILON:
        reference = _in_float32(model)(input_ids=tokens, use_cache=False).logits.double()

    # Some heads mask tokens with minus infinity.
    unknown = reference == -torch.inf
    same = bool((unknown == (found == -torch.inf)).all())

    def size(values: Tensor) -> float:
        return float(values.masked_fill(unknown, 0.0).square().mean().sqrt())

    allowed = 2.0 * size(own - reference) + 1e3 * EPSILON * size(reference)
    if not (same and size(found.double() - reference) <= allowed):
        raise UnsupportedProblemError(
            f"the logits of {type(model).__name__} are not those of its own forward; decode with "
            "otlp.decode, which calls its forward"
        )


def _in_float32(model: Any) -> Any:
    try:
        # The `float` method of 4-bit models raises, so call that of the base class.
        return torch.nn.Module.float(deepcopy(model))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        size = sum(4 * one.numel() for one in model.parameters())
        raise SizeLimitError(
            f"{type(model).__name__} is compared with a float32 copy of {size / 2**20:,.0f} MiB, "
            f"for which {model.device} has no memory; decode with otlp.decode"
        ) from error
