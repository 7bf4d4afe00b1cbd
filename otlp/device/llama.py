"""Llama and its kin as one function of tensors, over the weights of a model of transformers.

The forward of transformers looks at its arguments, makes masks and grows a cache: on a small model
that takes longer than the arithmetic.  Here shapes are fixed and nothing is decided at run time, so
one call compiles to one graph.
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
"""Architectures that `Llama` computes: rotary positions, gated feed-forward layers."""

FIXED_ROTARY = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the text."""

TRIED = 12
"""Tokens of the text that a model is tried on."""

EPSILON = torch.finfo(torch.float32).eps

Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer: tensors of their own, so that compiled code writes in place."""


class Llama(torch.nn.Module):
    """A causal language model as a function of tokens, places and a cache with slots.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Of one of `KINDS`, in evaluation mode; its weights are used where and as they are.
    shares : sequence of float
        Of what it copies where it drafts, as `otlp.decode.Copying` has them; by default it does
        not copy.

    Raises
    ------
    InvalidInputError
        If a share is no number in [0, 1].
    UnsupportedProblemError
        If it is of another kind, its layers slide, its rotary embedding changes with the length of
        the text, or its logits are not those of its own forward; says which.
    SizeLimitError
        If there is no room for a float32 copy of a model in half precision, that it is tried on.

    Notes
    -----
    It is tried on a dozen tokens.  In half precision what is wanted are the logits of the model in
    float32, within twice the rounding of its own forward.

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
        _try(self, model)

    @property
    def embedding(self) -> Tensor:
        """Input vectors of the tokens, shape (V, width)."""
        found: Tensor = self.model.embed_tokens.weight
        return found

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights, and of caches."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are, and caches."""
        return self.embedding.device

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot of a cache, over all layers."""
        entry = self.key_heads * self.width * self.embedding.element_size()
        return int(2 * len(self.model.layers) * entry)

    def new_cache(self, batch: int, slots: int) -> Cache:
        """Zeros: keys and values of each layer, of shape (B, key heads, slots, head width)."""
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
        """Hidden states of Q tokens a row, whose keys and values are written to the cache.

        Parameters
        ----------
        cache : list of (Tensor, Tensor)
            From `new_cache`, with S slots; written to in place.
        tokens, positions, cache_slots : Tensor of int64, shape (B, Q)
            Token ids, their positions in the text, and the slots of the cache that they go to.
        attn_mask : Tensor of bool, shape (B, Q, S)
            Which slots each token attends to; its own among them.

        Returns
        -------
        Tensor, shape (B, Q, width)
            For `logits`.
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
            x = self._normed(hidden, layer.input_layernorm)
            q, k, v = (part(x).view(heads) for part in (own.q_proj, own.k_proj, own.v_proj))
            if hasattr(own, "q_norm"):
                q, k = self._normed(q, own.q_norm), self._normed(k, own.k_norm)
            keys[rows, :, cache_slots] = _rotated(k, cos, sin)
            values[rows, :, cache_slots] = v
            hidden = hidden + own.o_proj(_attended(_rotated(q, cos, sin), keys, values, attn_mask))
            x = self._normed(hidden, layer.post_attention_layernorm)
            hidden = hidden + mlp.down_proj(silu(mlp.gate_proj(x)) * mlp.up_proj(x))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of the next tokens, shape (..., V), from hidden states (..., width)."""
        found: Tensor = self.head(self._normed(hidden, self.model.norm))
        return found

    def _normed(self, x: Tensor, norm: Any) -> Tensor:
        return rms_norm(x, norm.weight.shape, norm.weight, self.epsilon)


def _attended(q: Tensor, keys: Tensor, values: Tensor, sees: Tensor) -> Tensor:
    """Attend to the slots that each token sees.

    Parameters
    ----------
    q : Tensor, shape (B, Q, heads, head width)
    keys, values : Tensor, shape (B, key heads, S, head width)
    sees : Tensor of bool, shape (B, Q, S)

    Returns
    -------
    Tensor, shape (B, Q, heads * head width)
    """
    grouped = q.shape[2] != keys.shape[1]
    found = scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, attn_mask=sees[:, None], enable_gqa=grouped
    )
    return found.transpose(1, 2).flatten(2)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def _check_kind(model: Any, config: Any) -> None:
    kind = getattr(config, "model_type", type(model).__name__)
    if kind not in KINDS:
        raise UnsupportedProblemError(
            f"{type(model).__name__} is of the kind {kind!r}, and the loop on the device computes "
            f"{', '.join(KINDS)}: decode with otlp.decode, which takes every causal model"
        )
    windows = getattr(config, "layer_types", None) or []
    slides = "sliding_attention" in windows or (
        not windows and getattr(config, "sliding_window", None) is not None
    )
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    rotary = rope.get("rope_type", rope.get("type", "default"))
    why = None
    if slides:
        why = "has layers with a sliding window"
    elif rotary not in FIXED_ROTARY:
        why = f"has rotary embeddings of the kind {rotary!r}, which change with the text's length"
    elif getattr(config, "hidden_act", "silu") != "silu":
        why = f"has the activation {config.hidden_act!r}"
    elif model.training:
        why = "is in training mode: call model.eval()"
    if why:
        raise UnsupportedProblemError(
            f"{type(model).__name__} {why}; the loop on the device does not compute that: decode "
            "with otlp.decode"
        )


@torch.no_grad()
def _try(llama: Llama, model: Any) -> None:
    """Refuse a model whose logits are others than those of its plain forward."""
    device = llama.device
    # spread over the vocabulary: special tokens lie at its ends, where models are no measure
    tokens = torch.arange(1, TRIED + 1, device=device)[None] * llama.vocab_size // (TRIED + 1)
    sees = torch.ones(1, TRIED, TRIED, dtype=torch.bool, device=device).tril()
    places = torch.arange(TRIED, device=device)[None]
    found = llama.logits(llama.forward(llama.new_cache(1, TRIED), tokens, places, places, sees))
    own = wanted = model(input_ids=tokens, use_cache=False).logits.double()
    if torch.finfo(llama.dtype).eps > EPSILON:
        wanted = _in_float32(model)(input_ids=tokens, use_cache=False).logits.double()

    # tokens that a head does not know
    unknown = wanted == -torch.inf
    same = bool((unknown == (found == -torch.inf)).all())

    def size(values: Tensor) -> float:
        return float(values.masked_fill(unknown, 0.0).square().mean().sqrt())

    allowed = 2.0 * size(own - wanted) + 1e3 * EPSILON * size(wanted)
    if not (same and size(found.double() - wanted) <= allowed):
        raise UnsupportedProblemError(
            f"the logits of {type(model).__name__} are not those of its own forward: decode with "
            "otlp.decode, which calls that"
        )


def _in_float32(model: Any) -> Any:
    try:
        # a model that was stored in 4 bits refuses `float` of its own
        return torch.nn.Module.float(deepcopy(model))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        size = sum(4 * one.numel() for one in model.parameters())
        raise SizeLimitError(
            f"{type(model).__name__} is tried beside itself in float32, and {model.device} has no "
            f"room for these {size / 2**20:,.0f} MiB: decode with otlp.decode"
        ) from error
