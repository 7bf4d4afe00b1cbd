"""Llama and its kin as one function of tensors, over the weights of a model of transformers.

The forward of transformers looks at its arguments, makes masks and grows a cache: on a small model
that takes longer than the arithmetic.  Here shapes are fixed and nothing is decided at run time, so
one call compiles to one graph.  On a CPU few tokens take the time of one, which is that of reading
the matrices (`otlp.device.products`), in attention as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from otlp.device.products import FEW, LANES, NATIVE, LinearLayer, few_each, packed
from otlp.errors import UnsupportedProblemError

KINDS = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures that `Llama` computes: rotary positions, gated feed-forward layers."""

FIXED_ROTARY = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the text."""

TRIED = 12
"""Tokens of the text that a model is tried on."""


Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer: tensors of their own, so that compiled code writes in place."""


class _Layer(NamedTuple):
    before: Tensor
    attended: LinearLayer
    out: LinearLayer
    query_norm: Tensor | None
    key_norm: Tensor | None
    between: Tensor
    gated: LinearLayer
    down: LinearLayer


class Llama:
    """A causal language model as a function of tokens, places and a cache with slots.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Of one of `KINDS`, in evaluation mode.  On a CPU its matrices are held twice more, as (in,
        out) and packed.

    Raises
    ------
    UnsupportedProblemError
        If it is of another kind, its layers slide, its rotary embedding changes with the length of
        the text, or its logits are not those of its own forward; says which.

    Examples
    --------
    >>> import torch
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.device import Llama
    >>> model = Llama(load_model("trained:draft", device="cpu").model)
    >>> cache = model.new_cache(batch=1, slots=4)
    >>> tokens, places = torch.tensor([[5, 9]]), torch.tensor([[0, 1]])
    >>> sees = torch.ones(1, 2, 4, dtype=torch.bool).tril()
    >>> model.logits(model.read(cache, tokens, places, places, sees)).shape
    torch.Size([1, 2, 4096])
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        _check_kind(model, config)
        self.vocab_size = int(config.vocab_size)
        self.heads = int(config.num_attention_heads)
        self.key_heads = int(config.num_key_value_heads)
        width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.width = int(width)
        self.epsilon = float(config.rms_norm_eps)
        inner = model.model
        self.embedding = inner.embed_tokens.weight.detach()
        self.layers = [_layer(one) for one in inner.layers]
        self.norm = inner.norm.weight.detach()
        self.head = _side_by_side(model.lm_head)
        self.frequencies = inner.rotary_emb.inv_freq.detach().float()
        self.rotary_scale = float(inner.rotary_emb.attention_scaling)
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        self.most_tokens = getattr(config, "max_position_embeddings", None)
        _try(self, model)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot of a cache, over all layers."""
        entry = self.key_heads * self.width * self.embedding.element_size()
        return int(2 * len(self.layers) * entry)

    def new_cache(self, batch: int, slots: int) -> Cache:
        """Zeros: keys and values of each layer, of shape (B, key heads, slots, head width)."""
        kind: Any = {"dtype": self.dtype, "device": self.device}
        shape = batch, self.key_heads, slots, self.width

        def keys() -> Tensor:
            if self.device.type != "cpu":
                return torch.zeros(shape, **kind)
            # slots side by side, as a product with queries reads them
            return torch.zeros(*shape[:2], self.width, slots, **kind).mT

        return [(keys(), torch.zeros(shape, **kind)) for _ in self.layers]

    def read(
        self, cache: Cache, tokens: Tensor, places: Tensor, slots: Tensor, sees: Tensor
    ) -> Tensor:
        """Hidden states of Q tokens a row, whose keys and values are written to the cache.

        Parameters
        ----------
        cache : list of (Tensor, Tensor)
            From `new_cache`, with S slots; written to in place.
        tokens, places, slots : Tensor of int64, shape (B, Q)
            Token ids, their positions in the text, and where in the cache they go.
        sees : Tensor of bool, shape (B, Q, S)
            Which slots each token attends to; its own among them.

        Returns
        -------
        Tensor, shape (B, Q, width)
            For `logits`.
        """
        batch, count = tokens.shape
        rows = torch.arange(batch, device=tokens.device)[:, None]
        angles = places[..., None].float() * self.frequencies
        angles = torch.cat([angles, angles], -1)[:, :, None]
        cos = (angles.cos() * self.rotary_scale).to(self.dtype)
        sin = (angles.sin() * self.rotary_scale).to(self.dtype)
        heads = [self.heads, self.key_heads, self.key_heads]
        few = self._few(tokens, cache)
        attend = attention_in_products if few else attention
        seen = _stored(terms_of(sees)) if few else sees
        hidden: Tensor = self.embedding[tokens]
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            x = self._normed(hidden, layer.before)
            mixed = layer.attended(x).view(batch, count, -1, self.width)
            q, k, v = torch.split(mixed, heads, 2)
            if layer.query_norm is not None and layer.key_norm is not None:
                q, k = self._normed(q, layer.query_norm), self._normed(k, layer.key_norm)
            keys[rows, :, slots] = _turned(k, cos, sin)
            values[rows, :, slots] = v
            mixed = attend(_turned(q, cos, sin), keys, values, seen)
            hidden = hidden + layer.out(mixed)
            gate, up = layer.gated(self._normed(hidden, layer.between)).chunk(2, -1)
            hidden = hidden + layer.down(silu(gate) * up)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of the next tokens, shape (..., V), from hidden states (..., width)."""
        return self.head(self._normed(hidden, self.norm))

    def _few(self, tokens: Tensor, cache: Cache) -> bool:
        """Whether compiled attention is the project's own, which is faster for few tokens."""
        fits = min(self.width, cache[0][0].shape[2]) >= LANES and tokens.numel() <= FEW
        here = NATIVE and self.device.type == "cpu" and self.dtype == torch.float32
        return fits and here and torch.compiler.is_compiling()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape, weight, self.epsilon)


def attention(q: Tensor, keys: Tensor, values: Tensor, sees: Tensor) -> Tensor:
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


def attention_in_products(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Attend as `attention`, by two products and a softmax, which is faster for few tokens.

    What is seen are terms of the scores, from `terms_of`.
    """
    batch, count, _, width = q.shape
    grouped = (q * width**-0.5).view(batch, count, keys.shape[1], -1, width).transpose(1, 2)
    rows = grouped.flatten(2, 3).flatten(0, 1).contiguous()
    scores = few_each(rows, keys.transpose(2, 3).flatten(0, 1)).view(*grouped.shape[:-1], -1)
    weights = (scores + seen[:, None, :, None]).softmax(-1)
    weights = weights.view(batch * keys.shape[1], -1, keys.shape[2])
    found: Tensor = few_each(weights, values.flatten(0, 1))
    return found.view(grouped.shape).transpose(1, 2).flatten(2)


def terms_of(sees: Tensor) -> Tensor:
    """Terms of scores, 0 for the slots that tokens see and -inf for others."""
    return torch.zeros_like(sees, dtype=torch.float32).masked_fill(~sees, -torch.inf)


def _stored(x: Tensor) -> Tensor:
    """Have a compiler store these values, that it would work out anew where they are read."""
    return x.as_strided(x.shape, x.stride())


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def _layer(one: Any) -> _Layer:
    attention, mlp = one.self_attn, one.mlp

    def norm(name: str) -> Tensor | None:
        found = getattr(attention, name, None)
        return None if found is None else found.weight.detach()

    return _Layer(
        one.input_layernorm.weight.detach(),
        _side_by_side(attention.q_proj, attention.k_proj, attention.v_proj),
        _side_by_side(attention.o_proj),
        norm("q_norm"),
        norm("k_norm"),
        one.post_attention_layernorm.weight.detach(),
        _side_by_side(mlp.gate_proj, mlp.up_proj),
        _side_by_side(mlp.down_proj),
    )


def _side_by_side(*parts: Any) -> LinearLayer:
    """Linear layers of one input as one product; all of them have a bias, or none does."""
    matrix = torch.cat([one.weight.detach() for one in parts])
    biases = [one.bias.detach() for one in parts if one.bias is not None]
    bias = torch.cat(biases) if biases else None
    if matrix.device.type != "cpu":
        return LinearLayer(matrix.t(), None, bias)
    few = packed(matrix) if NATIVE and matrix.dtype != torch.float64 else None
    return LinearLayer(matrix.t().contiguous(), few, bias)


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


@torch.inference_mode()
def _try(llama: Llama, model: Any) -> None:
    """Refuse a model whose logits are others than those of its plain forward."""
    tokens = torch.arange(TRIED, device=llama.device)[None] % llama.vocab_size
    sees = torch.ones(1, TRIED, TRIED, dtype=torch.bool, device=llama.device).tril()
    places = torch.arange(TRIED, device=llama.device)[None]
    found = llama.logits(llama.read(llama.new_cache(1, TRIED), tokens, places, places, sees))
    found = found.float()
    wanted = model(input_ids=tokens, use_cache=False).logits.float()
    rounding = max(torch.finfo(kind).eps for kind in (llama.dtype, torch.float32))
    tolerance = min(1e3 * rounding, 0.25) * float(wanted.abs().max())
    if not float((found - wanted).abs().max()) <= tolerance:
        raise UnsupportedProblemError(
            f"the logits of {type(model).__name__} are not those of its own forward: decode with "
            "otlp.decode, which calls that"
        )
