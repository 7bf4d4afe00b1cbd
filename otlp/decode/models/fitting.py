"""Whether a model fits: its cache and masks give the logits of its plain forward, without a cache.

What is asked of a model is decided by trying it, not by its name.  A short text is scored as a
round would score it, with a tree, a roll-back and a second tree; every logit must be that of the
plain forward over the same text.  Whatever keeps its past elsewhere than in the cache (recurrent
models), takes no cache, or sees tokens that it must not see, fails that.
"""

from __future__ import annotations

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
"""Node of `BRANCHES` that the probe goes on from."""

_TRIED: WeakKeyDictionary[Any, tuple[object, bool]] = WeakKeyDictionary()


def has_sliding_windows(model: CachedModel) -> bool:
    """Whether its cache drops what slides out of a window.

    Raises
    ------
    UnsupportedProblemError
        If some layer's cache cannot be rolled back.
    """
    from transformers import DynamicCache

    layers = {type(layer).__name__ for layer in DynamicCache(config=model.model.config).layers}
    odd = layers - {"DynamicLayer", "DynamicSlidingWindowLayer"}
    if odd:
        raise UnsupportedProblemError(
            f"{model.name} keeps its past in {', '.join(sorted(odd))}, which cannot be rolled "
            "back to any accepted prefix: use a model with attention in every layer"
        )
    return "DynamicSlidingWindowLayer" in layers


def choose_tree_attention(model: CachedModel) -> bool:
    """Find out whether trees go through a model at once, or as a batch of paths.

    Raises
    ------
    UnsupportedProblemError
        If neither gives the logits of the plain forward.

    Notes
    -----
    A window, or a chunk, of attention is counted in entries of the cache, where a tree lies node
    by node: no short probe would show that, so such models always take the batch of paths.
    A model is tried again only when something else than its weights has changed.
    """
    made_of = _made_of(model.model)
    known = _TRIED.get(model.model)
    if known is None or known[0] != made_of:
        known = _TRIED[model.model] = made_of, _try(model)
    return known[1]


def _made_of(model: Any) -> object:
    """What decides how a model is to be called; holds no reference to it."""
    modules = [
        (type(part), id(vars(part).get("forward")), *part._forward_hooks, *part._forward_pre_hooks)
        for part in model.modules()
    ]
    config = model.config
    attention = getattr(config, "_attn_implementation", None)
    return model.dtype, model.device, attention, config.to_dict(), modules


def _try(model: CachedModel) -> bool:
    """Whether trees go through the model at once; see `choose_tree_attention`."""
    try:
        plain = _plain_logits(model)
    except Exception as error:  # any code may be behind a model, and raise anything
        if is_out_of_memory(error):
            raise SizeLimitError(f"{model.name} ran out of memory on a dozen tokens") from error
        raise _misfit(model, error) from error
    import torch

    kind = str(model.model.dtype).removeprefix("torch.")
    if not (plain < np.inf).all():
        others = " or ".join(sorted({"bfloat16", "float32"} - {kind}))
        raise UnsupportedProblemError(
            f"{model.name} gives logits that are NaN or infinite in {kind}: it overflows there, or "
            f"its weights are damaged; try the dtype {others}"
        )
    size = float(np.abs(plain[np.isfinite(plain)]).max(initial=0.0))
    tolerance = size * torch.finfo(model.model.dtype).eps ** 0.5
    reason: object = None
    local = _is_local(model.model.config.get_text_config())
    for model.tree_attention in (False,) if local else (True, False):
        try:
            found = _round_logits(model)
        except SizeLimitError:
            raise
        except Exception as error:
            reason = error
            continue
        # a head may know fewer tokens than the vocabulary has: the same ones in both
        same = np.isneginf(found) & np.isneginf(plain)
        apart = np.subtract(found, plain, out=np.zeros_like(plain), where=~same)
        off = float(np.abs(apart).max())
        if off <= tolerance:
            return model.tree_attention
        reason = f"a logit is off by {off:.3g}, of at most {size:.3g}"
    raise _misfit(model, reason)


def _is_local(config: Any) -> bool:
    """Whether something in a configuration says that attention is local."""
    local = "local" in str(getattr(config, "attention_types", ""))
    sized = any(
        any(word in name for word in ("window", "chunk"))
        and name != "max_window_layers"
        and isinstance(value, int)
        and value > 0
        and not isinstance(value, bool)
        for name, value in vars(config).items()
    )
    sliding = any("sliding" in str(kind) for kind in getattr(config, "layer_types", None) or ())
    return local or sized or sliding


def _misfit(model: CachedModel, reason: object) -> UnsupportedProblemError:
    words = str(reason).strip().splitlines()
    return UnsupportedProblemError(
        f"{model.name} does not give the logits of its plain forward when it is called with a "
        f"cache that is rolled back ({words[0] if words else type(reason).__name__}): use a "
        "causal model with attention in every layer"
    )


def _texts(model: CachedModel) -> tuple[list[int], TokenTree]:
    """Context and tree of the probe, in the model's vocabulary.

    Beyond its first tokens, which mark files and turns: what a model says of a text of marks alone
    may be another with every rounding.
    """
    size = model.vocab_size
    apart = max(1, size // 512)
    tokens = np.minimum(BRANCHES.tokens * apart, size - 1)
    tokens[0] = BRANCHES.tokens[0]  # the root has none
    return [min(t * apart, size - 1) for t in CONTEXT], TokenTree(tokens, BRANCHES.parents)


def _round_logits(model: CachedModel) -> npt.NDArray[np.float32]:
    """Logits of two rounds, the first scored level by level as a draft model is."""
    context, tree = _texts(model)
    model.start(np.array(context))
    model.logits(tree, np.array([0]))
    first = model.logits(tree, np.arange(len(tree)))
    model.advance(tree, ACCEPTED, context[0])
    return np.concatenate([first, model.logits(tree, np.arange(len(tree)))])


def _plain_logits(model: CachedModel) -> npt.NDArray[np.float32]:
    """The same logits by plain forwards over whole texts, without a cache."""
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
