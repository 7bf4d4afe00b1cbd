"""Scoring of token trees with a key-value cache that can be rolled back.

The cache holds the context, followed by the nodes of the round's token tree in the order they were
scored.  A call processes only tokens that are not in the cache.  If the model accepts a
four-dimensional attention mask, one call scores all nodes, and each node attends to the context and
its own ancestors, within the window where a layer has one.  Otherwise the tree is unrolled into a
batch of paths, also in one call.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.checks import token_ids
from otlp.decode.models.context_limit import BeyondContextError, context_limit, rotary_switch
from otlp.decode.models.memory import is_out_of_memory, tokens_that_fit
from otlp.decode.models.model import Model
from otlp.decode.tree import ROOT, TokenTree
from otlp.distribution import IntArray, Mask
from otlp.errors import InvalidInputError, SizeLimitError


def cache_argument(model: Any) -> str:
    """Return the name of the cache argument of a model's forward; transformers 5.24 renamed it.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    """
    named = "cache" in inspect.signature(model.forward).parameters
    return "cache" if named else "past_key_values"


class CachedModel(Model):
    """Causal language model of transformers with a cache for the current text.

    The attributes `tree_attention`, `slides` and `window` are not checked here;
    `otlp.decode.models.fitting` determines them.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    name : str
        Name of the model.

    Attributes
    ----------
    calls : int
        Number of calls of the model.
    tree_attention : bool
        Whether the model scores a tree with an attention mask.
    slides : bool
        Whether the model's own cache would drop entries outside a sliding window.
    window : int or None
        Number of positions that a layer with a sliding window attends to; None if there is no such
        layer.
    """

    _context: list[int]
    _slots: dict[int, int]
    _tree: TokenTree
    _rows: dict[int, npt.NDArray[np.float32]]

    def __init__(self, model: Any, name: str) -> None:
        self.model = model
        self._name = name
        self._cache_name = cache_argument(model)
        self.calls = 0
        self.tree_attention = False
        self.slides = False
        self.window: int | None = None
        self._cut_size = 0
        self.reset()

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedModel:
        """Return an object for another text that shares the network."""
        other = copy(self)
        other.reset()
        return other

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._name

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V: the width of the logits, or the size set by `keep_tokens`."""
        return self._cut_size or int(self.model.config.get_text_config().vocab_size)

    def keep_tokens(self, size: int) -> None:
        """Cut the logits to the first `size` tokens; later tokens have probability 0."""
        self._cut_size = size

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a text, as in ``generate`` of transformers.

        Ids outside the vocabulary, such as -1 in some configurations, are left out.
        """
        settings = getattr(self.model, "generation_config", None) or self.model.config
        found = getattr(settings, "eos_token_id", None)
        ids = [] if found is None else np.atleast_1d(found).tolist()
        return tuple(token for token in ids if 0 <= token < self.vocab_size)

    @property
    def context_limit(self) -> int | None:
        """Maximum length of the current text in tokens; None if the configuration states none."""
        return context_limit(self.model.config.get_text_config(), len(self._context))

    @property
    def context(self) -> IntArray:
        """Token ids so far, shape (T,)."""
        return np.array(self._context, dtype=np.int64)

    def start(self, context: IntArray) -> None:
        """Start a text; see `Model.start`.

        Raises
        ------
        InvalidInputError
            If the context is empty, is not a list of token ids, or exceeds the model's context.
        """
        tokens = token_ids(context, f"the context of {self.name}", self.vocab_size)
        if not tokens.size:
            raise InvalidInputError(f"the context is empty: {self.name} needs at least one token")
        self._check_length(tokens.size, tokens.size, "the prompt has")
        self.reset(tokens)

    def logits(self, tree: TokenTree, nodes: IntArray) -> npt.NDArray[np.float32]:
        """Return logits after the nodes in one forward pass, shape (m, V); see `Model.logits`.

        Nodes scored earlier in the round are not computed again.

        Raises
        ------
        InvalidInputError
            If a node is beyond the model's context.
        SizeLimitError
            If the device runs out of memory; the message states how many tokens fit.
        """
        missing = {a for node in nodes.tolist() for a in tree.ancestry(node)} - self._rows.keys()
        if missing:
            new = sorted(missing - {0})
            deepest = max((int(tree.depths[node]) for node in new), default=0)
            length = len(self._context)
            self._check_length(length, length + deepest, "context and draft have")
            pending = len(self._context) - self._cached
            try:
                (self._score_tree if self.tree_attention else self._score_paths)(tree, new)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self.reset(self.context)
                raise SizeLimitError(
                    f"{self.name} ran out of memory on {pending} tokens of the context and "
                    f"{len(new)} draft tokens{tokens_that_fit(self.model)}; shorten the prompt, "
                    "draft fewer or shorter paths, or load the model in half precision"
                ) from error
        return np.stack([self._rows[node] for node in nodes.tolist()])

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append a path and a token and drop the cache of other nodes; see `Model.advance`."""
        path = tree.path(node).tolist()
        kept = self._path_slots(path)
        self._compact(kept)
        self._cached += len(kept)
        self._context += [*path, int(token)]
        self._rows, self._slots = {}, {}

    def _path_slots(self, path: list[int]) -> list[int]:
        """Return the cache slots of the first tokens of a path, up to the first uncached token."""
        current, slots = 0, []
        for token in path:
            below = [
                node
                for node in self._slots
                if self._tree.parents[node] == current and self._tree.tokens[node] == token
            ]
            if not below:
                break
            current = below[0]
            slots.append(self._slots[current])
        return slots

    def reset(self, context: IntArray | None = None) -> None:
        """Clear the cache and set the context; without a context, start empty."""
        self._context = [] if context is None else context.tolist()
        self._cache = self._new_cache()
        # `_cached` counts context tokens in the cache; `_slots` maps tree nodes to cache slots.
        self._cached = 0
        self._slots = {}
        self._tree = ROOT
        self._rows = {}

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        # Layers with a sliding window keep all entries here: their mask applies the window, and
        # entries that a windowed cache drops could not be rolled back.
        return DynamicCache() if self.slides else DynamicCache(config=self.model.config)

    def _score_tree(self, tree: TokenTree, new: list[int]) -> None:
        """Feed the rest of the context and the new nodes, each attending only to its ancestors."""
        pending = self._context[self._cached :]
        filled, rest = self._cached + len(self._slots), len(pending)
        # If nodes are cached, the whole context is too, so `filled` counts no node if rest > 0.
        slots = {**self._slots, **{node: filled + rest + i for i, node in enumerate(new)}}
        size = rest + len(new)
        mask = np.zeros((size, filled + size), dtype=bool)
        mask[:, : self._cached] = True
        mask[:rest, filled : filled + rest] = np.tri(rest, dtype=bool)
        mask[rest:, self._cached : self._cached + rest] = True
        for row, node in enumerate(new, start=rest):
            mask[row, [slots[member] for member in tree.ancestry(node)[1:]]] = True
        positions = np.arange(filled + size)  # of the context; nodes follow
        nodes = list(slots)
        positions[[slots[node] for node in nodes]] = len(self._context) - 1 + tree.depths[nodes]
        logits = self._forward(
            [pending + tree.tokens[new].tolist()],
            positions[filled:].tolist(),
            self._masks(mask, positions),
            slice(max(rest - 1, 0), None),
        )[0]
        first = [0] if rest else []
        self._rows.update(zip([*first, *new], logits, strict=True))
        self._slots, self._tree = slots, tree
        self._cached += rest

    def _score_paths(self, tree: TokenTree, new: list[int]) -> None:
        """Feed the rest of the context, followed by all paths to the new nodes, as a batch."""
        pending = self._context[self._cached :] or [self._context[-1]]
        if self._cached == len(self._context):
            # The logits of the last context token are needed again as the root of the paths.
            self._cached -= 1
            if self._cached:
                self._cache.crop(-1)
            else:
                # An empty cache layer does not extend to a batch.
                self._cache = self._new_cache()
        inner = {int(tree.parents[node]) for node in new}
        paths = [tree.ancestry(node)[1:] for node in new if node not in inner] or [[]]
        longest = max(map(len, paths))
        ids = [
            [*pending, *tree.tokens[path].tolist(), *[0] * (longest - len(path))] for path in paths
        ]
        positions = list(range(self._cached, self._cached + len(ids[0])))
        if len(paths) > 1:
            self._cache.batch_repeat_interleave(len(paths))
        logits = self._forward(ids, positions, None, slice(len(pending) - 1, None))
        if len(paths) > 1:
            self._cache.batch_select_indices(self.tensor([0]))
        if longest:
            self._cache.crop(-longest)
        self._cached = len(self._context)
        for rows, path in zip(logits, paths, strict=True):
            self._rows.update(zip([0, *path], rows, strict=False))

    def _forward(
        self, ids: list[list[int]], positions: list[int], masks: Any, wanted: slice
    ) -> npt.NDArray[np.float32]:
        """Call the model once; return logits of shape (batch, wanted positions, V)."""
        import torch

        options = {self._cache_name: self._cache}
        if masks is not None:
            options["attention_mask"] = masks
        with torch.inference_mode():
            logits = self.model(
                input_ids=self.tensor(ids),
                position_ids=self.tensor(positions).expand(len(ids), -1),
                use_cache=True,
                **options,
            ).logits[:, wanted, : self.vocab_size]
            self.calls += 1
            found: npt.NDArray[np.float32] = logits.float().cpu().numpy()
        return found

    def tensor(self, values: Sequence[Any]) -> Any:
        """Return token ids or positions as a tensor on the model's device."""
        import torch

        return torch.tensor(values, dtype=torch.long, device=self.model.device)

    def _masks(self, mask: Mask, positions: IntArray) -> Any:
        """Return the mask as `attention_mask` of the model: one for all layers, or by layer type.

        Parameters
        ----------
        mask : ndarray of bool, shape (m, S)
            Whether each token of the call attends to each entry of the cache.
        positions : ndarray of int64, shape (S,)
            Positions of the entries; the last m are the tokens of the call.
        """
        if self.window is None:
            return self._additive(mask)
        near = positions > positions[-len(mask) :, None] - self.window
        sliding = self._additive(mask & near)
        if not getattr(self.model.config.get_text_config(), "layer_types", None):
            return sliding
        return {"full_attention": self._additive(mask), "sliding_attention": sliding}

    def _additive(self, mask: Mask) -> Any:
        import torch

        dtype = self.model.dtype
        additive = torch.full((1, 1, *mask.shape), torch.finfo(dtype).min, dtype=dtype)
        return additive.masked_fill_(torch.from_numpy(mask), 0.0).to(self.model.device)

    def _compact(self, slots: list[int]) -> None:
        """Move the given cache entries behind the context and crop the entries after them."""
        import torch

        total = self._cached + len(self._slots)
        end = self._cached + len(slots)
        with torch.inference_mode():
            if slots != list(range(self._cached, end)):
                chosen = self.tensor(slots)
                for layer in self._cache.layers:
                    for rows in (layer.keys, layer.values):
                        rows[..., self._cached : end, :] = rows[..., chosen.to(rows.device), :]
            if total > end:
                self._cache.crop(end - total)

    def _check_length(self, length: int, tokens: int, what: str) -> None:
        config = self.model.config.get_text_config()
        limit = context_limit(config, length)
        if limit is not None and tokens > limit:
            why = ", where its rotary embedding changes" if limit == rotary_switch(config) else ""
            raise BeyondContextError(
                f"{what} {tokens} tokens and the context of {self.name} is {limit}{why}: shorten "
                "the prompt, generate less or draft shorter paths"
            )
