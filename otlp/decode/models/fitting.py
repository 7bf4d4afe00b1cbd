"""Compatibility check of a model: cached logits must match the plain forward without a cache.

A model is tested by running it; its name does not matter.  A short text is scored as in a round,
with a tree, a roll-back and a second tree; every logit must match that of the plain forward over
the same text.  The check fails for models that keep state outside the cache (recurrent models), do
not accept a cache, or attend to tokens that the mask excludes.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from otlp.decode.models.cached import CachedModel
from otlp.decode.models.memory import is_out_of_memory
from otlp.decode.tree import TokenTree
from otlp.errors import SizeLimitError, UnsupportedProblemError

CONTEXT = (5, 3, 7, 4, 6)
BRANCHES = TokenTree(np.array([-1, 8, 9, 8, 5]), np.array([-1, 0, 0, 2, 3]))
LEAVES = (1, 4)
ACCEPTED = 3
"""Node of `BRANCHES` that the probe accepts after its first round."""

PROBED_WINDOW = 3
"""Sliding window during the probe, so that its short texts are longer than the window."""

CLEARLY = 4.0
"""Factor by which the differences from the plain forward grow if a mask leaves the window out."""

_CHECKED: WeakKeyDictionary[Any, tuple[object, bool]] = WeakKeyDictionary()


def has_sliding_windows(model: CachedModel) -> bool:
    """Return whether the model's cache drops entries outside a sliding window.

    Raises
    ------
    UnsupportedProblemError
        If some layer's cache cannot be rolled back.
    """
    from transformers import DynamicCache

    layers = {type(layer).__name__ for layer in DynamicCache(config=model.model.config).layers}
    unsupported = layers - {"DynamicLayer", "DynamicSlidingWindowLayer"}
    if unsupported:
        raise UnsupportedProblemError(
            f"{model.name} caches its state in {', '.join(sorted(unsupported))}, which cannot be "
            "rolled back to an accepted prefix: use a model with attention in every layer"
        )
    return "DynamicSlidingWindowLayer" in layers


def choose_tree_attention(model: CachedModel) -> None:
    """Set `window`, and whether a model scores trees with a mask or as a batch of paths.

    Raises
    ------
    UnsupportedProblemError
        If neither reproduces the logits of the plain forward.

    Notes
    -----
    Windows and chunks of attention count entries of the cache, and a tree occupies one entry per
    node.  A model whose layers have one sliding window gets a mask that counts positions; the probe
    uses a copy with a shorter window, which shares the weights.  A model with other local attention
    always uses the batch of paths.  A model is checked again only if something besides its weights
    has changed.
    """
    model.window = _sliding_window(model.model.config.get_text_config())
    signature = _call_signature(model.model)
    known = _CHECKED.get(model.model)
    if known is None or known[0] != signature:
        known = _CHECKED[model.model] = signature, _check_attention(model)
    model.tree_attention = known[1]


def _call_signature(model: Any) -> object:
    """Return the properties that decide how a model is called, without a reference to the model."""
    modules = [
        (type(part), id(vars(part).get("forward")), *part._forward_hooks, *part._forward_pre_hooks)
        for part in model.modules()
    ]
    config = model.config
    attention = getattr(config, "_attn_implementation", None)
    return model.dtype, model.device, attention, config.to_dict(), modules


def _check_attention(model: CachedModel) -> bool:
    """Return whether the model scores trees with a mask; see `choose_tree_attention`."""
    if model.window is None:
        return _probe(model)
    probed = copy(model)
    try:
        probed.model, probed.window = _with_window(model.model, PROBED_WINDOW), PROBED_WINDOW
        _plain_logits(probed)
    except Exception:  # A model or its hooks may contain objects that cannot be copied.
        probed = copy(model)
        probed.window = None  # Only a batch of paths.
    return _probe(probed)


def _with_window(network: Any, window: int) -> Any:
    """Return a copy of a network with another sliding window, which shares the weights.

    Raises
    ------
    UnsupportedProblemError
        If weights are offloaded (on PyTorch's meta device), because the copy would duplicate them.
    """
    if any(weight.is_meta for weight in network.parameters()):
        raise UnsupportedProblemError("a network with offloaded weights must not be copied")
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    other = deepcopy(network, shared)
    other.config.get_text_config().sliding_window = window
    return other


def _probe(model: CachedModel) -> bool:
    try:
        plain = _plain_logits(model)
    except Exception as error:  # A model may run any code and raise any exception.
        if is_out_of_memory(error):
            raise SizeLimitError(f"{model.name} ran out of memory on a dozen tokens") from error
        raise _mismatch(model, error) from error
    import torch

    kind = str(model.model.dtype).removeprefix("torch.")
    if not (plain < np.inf).all():
        others = " or ".join(sorted({"bfloat16", "float32"} - {kind}))
        raise UnsupportedProblemError(
            f"{model.name} returns NaN or infinite logits in {kind}: the model overflows in {kind} "
            f"or its weights are damaged; try the dtype {others}"
        )
    size = float(np.abs(plain[np.isfinite(plain)]).max(initial=0.0))
    tolerance = size * torch.finfo(model.model.dtype).eps ** 0.5
    reason: object = None
    only_paths = model.window is None and _is_local(model.model.config.get_text_config())
    for model.tree_attention in (False,) if only_paths else (True, False):
        try:
            difference = _difference(model, plain)
            if model.tree_attention and model.window is not None and model.slides:
                _check_window(model, plain, difference)
        except SizeLimitError:
            raise
        except Exception as error:
            reason = error
            continue
        if difference <= tolerance:
            return model.tree_attention
        reason = f"a logit differs by {difference:.3g}; the largest logit is {size:.3g}"
    raise _mismatch(model, reason)


def _difference(model: CachedModel, plain: npt.NDArray[np.float32]) -> float:
    """Return the largest difference of a logit from the plain forward."""
    found = _round_logits(model)
    # The logits of a frequent-token head are -inf for the same tokens in both.
    same = np.isneginf(found) & np.isneginf(plain)
    differences = np.subtract(found, plain, out=np.zeros_like(plain), where=~same)
    return float(np.abs(differences).max())


def _check_window(model: CachedModel, plain: npt.NDArray[np.float32], difference: float) -> None:
    """Raise if a mask without the window is about as good: the model does not apply the window.

    The tolerance of low precision is too large to detect this.
    """
    window, model.window = model.window, None
    try:
        without = _difference(model, plain)
    finally:
        model.window = window
    if CLEARLY * difference > without:
        raise UnsupportedProblemError(f"{model.name} does not apply its sliding window")


def _sliding_window(config: Any) -> int | None:
    """Return the sliding window of a configuration; None without one, or with other limits too."""
    local = "local" in str(getattr(config, "attention_types", ""))
    if local or set(_local_sizes(config)) != {"sliding_window"}:
        return None
    return int(config.sliding_window)


def _is_local(config: Any) -> bool:
    """Return whether a configuration has local attention (a window or chunks)."""
    local = "local" in str(getattr(config, "attention_types", ""))
    sliding = any("sliding" in str(kind) for kind in getattr(config, "layer_types", None) or ())
    return local or sliding or bool(_local_sizes(config))


def _local_sizes(config: Any) -> list[str]:
    """Return the names of the window and chunk sizes of a configuration."""
    return [
        name
        for name, value in vars(config).items()
        if any(word in name for word in ("window", "chunk"))
        and name != "max_window_layers"
        and not name.endswith("_pattern")
        and isinstance(value, int)
        and value > 0
        and not isinstance(value, bool)
    ]


def _mismatch(model: CachedModel, reason: object) -> UnsupportedProblemError:
    lines = str(reason).strip().splitlines()
    return UnsupportedProblemError(
        f"{model.name} does not reproduce the logits of its plain forward when called with a cache "
        f"that is rolled back ({lines[0] if lines else type(reason).__name__}): use a causal model "
        "with attention in every layer"
    )


def _texts(model: CachedModel) -> tuple[list[int], TokenTree]:
    """Return context and tree of the probe, in the model's vocabulary.

    The first tokens of a vocabulary are skipped: they mark files and turns, and the logits after a
    text of such marks may be sensitive to rounding.
    """
    size = model.vocab_size
    stride = max(1, size // 512)
    tokens = np.minimum(BRANCHES.tokens * stride, size - 1)
    tokens[0] = BRANCHES.tokens[0]  # The root has no token.
    return [min(t * stride, size - 1) for t in CONTEXT], TokenTree(tokens, BRANCHES.parents)


def _round_logits(model: CachedModel) -> npt.NDArray[np.float32]:
    """Return the logits of two rounds; the first is scored level by level, as for a draft model."""
    context, tree = _texts(model)
    model.start(np.array(context))
    model.logits(tree, np.array([0]))
    first = model.logits(tree, np.arange(len(tree)))
    model.advance(tree, ACCEPTED, context[0])
    return np.concatenate([first, model.logits(tree, np.arange(len(tree)))])


def _plain_logits(model: CachedModel) -> npt.NDArray[np.float32]:
    """Return the same logits from plain forwards over whole texts, without a cache."""
    import torch

    context, tree = _texts(model)
    longer = [*context, *tree.path(ACCEPTED).tolist(), context[0]]
    rows = {}
    for text in (context, longer):
        for leaf in LEAVES:
            ids = [*text, *tree.path(leaf).tolist()]
            with torch.inference_mode():
                called = model.model(input_ids=model.tensor([ids]), use_cache=False)
            nodes = tree.ancestry(leaf)
            found = called.logits[0, -len(nodes) :].float().cpu().numpy()
            rows.update({(len(text), node): row for node, row in zip(nodes, found, strict=True)})
    return np.stack([rows[key] for key in sorted(rows)])
