"""Scoring token trees with a key-value cache that rolls back.

The cache holds the context and, behind it, the nodes of the round's token tree in the order they
were scored.  A call feeds only what the cache lacks.  Where the model takes a four-dimensional
attention mask, all nodes go through it at once, each attending to the context and to its own
ancestors; elsewhere the tree is unrolled into a batch of paths, still one call.
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
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, SizeLimitError


def cache_argument(model: Any) -> str:
    """Name that the model's forward has for its cache; transformers 5.24 renamed it.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    """
    named = "cache" in inspect.signature(model.forward).parameters
    return "cache" if named else "past_key_values"


class CachedModel(Model):
    """A causal language model of transformers, in the middle of a text.

    It believes what it is told of the model; `otlp.decode.models.fitting` finds out.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    name : str
        What to call it.

    Attributes
    ----------
    calls : int
        How often the model was called.
    tree_attention : bool
        Whether a tree goes through the model at once.
    slides : bool
        Whether the model's own cache would drop what slides out of a window.
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
        self._kept = 0
        self.reset()

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedModel:
        """Another text of the same network."""
        other = copy(self)
        other.reset()
        return other

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V: the width of the logits, or what `keep_tokens` left of it."""
        return self._kept or int(self.model.config.get_text_config().vocab_size)

    def keep_tokens(self, size: int) -> None:
        """Cut the logits to the first `size`: the tokens behind have probability 0."""
        self._kept = size

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a text, as ``generate`` of transformers knows them.

        Ids that are none of its tokens, such as the -1 of some configurations, are left out.
        """
        settings = getattr(self.model, "generation_config", None) or self.model.config
        found = getattr(settings, "eos_token_id", None)
        ids = [] if found is None else np.atleast_1d(found).tolist()
        return tuple(token for token in ids if 0 <= token < self.vocab_size)

    @property
    def context_limit(self) -> int | None:
        """How many tokens the present text may grow to; None if the model does not say."""
        return context_limit(self.model.config.get_text_config(), len(self._context))

    @property
    def context(self) -> IntArray:
        """Token ids so far, shape (T,)."""
        return np.array(self._context, dtype=np.int64)

    def start(self, context: IntArray) -> None:
        """Begin a text; see `Model.start`.

        Raises
        ------
        InvalidInputError
            If the context is empty, holds no token ids, or is longer than the model's.
        """
        tokens = token_ids(context, f"the context of {self.name}", self.vocab_size)
        if not tokens.size:
            raise InvalidInputError(f"the context is empty: {self.name} needs at least one token")
        self._check_length(tokens.size, tokens.size, "the prompt has")
        self.reset(tokens)

    def logits(self, tree: TokenTree, nodes: IntArray) -> npt.NDArray[np.float32]:
        """Logits after the given nodes in one forward pass, shape (m, V); see `Model.logits`.

        Nodes that were scored earlier in the round cost nothing.

        Raises
        ------
        InvalidInputError
            If a node lies beyond the model's context.
        SizeLimitError
            If the device runs out of memory; says what would fit.
        """
        missing = {a for node in nodes.tolist() for a in tree.ancestry(node)} - self._rows.keys()
        if missing:
            new = sorted(missing - {0})
            deepest = max((int(tree.depths[node]) for node in new), default=0)
            held = len(self._context)
            self._check_length(held, held + deepest, "context and draft have")
            pending = len(self._context) - self._cached
            try:
                (self._score_tree if self.tree_attention else self._score_paths)(tree, new)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self.reset(self.context)
                raise SizeLimitError(
                    f"{self.name} ran out of memory on {pending} tokens of the context and "
                    f"{len(new)} drafted ones{tokens_that_fit(self.model)}; shorten the prompt, "
                    "draft fewer or shorter paths, or load it in half precision"
                ) from error
        return np.stack([self._rows[node] for node in nodes.tolist()])

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append a path and a token; the cache of all other nodes goes; see `Model.advance`."""
        path = tree.path(node).tolist()
        kept = self._held(path)
        self._keep(kept)
        self._cached += len(kept)
        self._context += [*path, int(token)]
        self._rows, self._slots = {}, {}

    def _held(self, path: list[int]) -> list[int]:
        """Where the cache holds the first tokens of a path, in a tree that may leave others out."""
        at, held = 0, []
        for token in path:
            below = [
                node
                for node in self._slots
                if self._tree.parents[node] == at and self._tree.tokens[node] == token
            ]
            if not below:
                break
            at = below[0]
            held.append(self._slots[at])
        return held

    def reset(self, context: IntArray | None = None) -> None:
        """Forget everything but, if there is one, a context."""
        self._context = [] if context is None else context.tolist()
        self._cache = self._new_cache()
        # how much of the context the cache holds, then where it holds which node of the tree
        self._cached = 0
        self._slots = {}
        self._tree = ROOT
        self._rows = {}

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        # layers with a sliding window keep their whole past here: their mask knows the window,
        # and what a window drops could not be rolled back
        return DynamicCache() if self.slides else DynamicCache(config=self.model.config)

    def _score_tree(self, tree: TokenTree, new: list[int]) -> None:
        """Feed the rest of the context and the new nodes, each seeing only its ancestors."""
        import torch

        pending = self._context[self._cached :]
        held, rest = self._cached + len(self._slots), len(pending)
        # with nodes in the cache the context is there too, so `held` counts no node if rest > 0
        slots = {**self._slots, **{node: held + rest + i for i, node in enumerate(new)}}
        size = rest + len(new)
        sees = np.zeros((size, held + size), dtype=bool)
        sees[:, : self._cached] = True
        sees[:rest, held : held + rest] = np.tri(rest, dtype=bool)
        sees[rest:, self._cached : self._cached + rest] = True
        for row, node in enumerate(new, start=rest):
            sees[row, [slots[member] for member in tree.ancestry(node)[1:]]] = True
        behind = len(self._context) - 1 + tree.depths[new]
        logits = self._forward(
            [pending + tree.tokens[new].tolist()],
            [*range(self._cached, self._cached + rest), *behind.tolist()],
            torch.from_numpy(sees)[None, None],
            slice(max(rest - 1, 0), None),
        )[0]
        first = [0] if rest else []
        self._rows.update(zip([*first, *new], logits, strict=True))
        self._slots, self._tree = slots, tree
        self._cached += rest

    def _score_paths(self, tree: TokenTree, new: list[int]) -> None:
        """Feed the rest of the context and, from its end, all paths to the new nodes as a batch."""
        pending = self._context[self._cached :] or [self._context[-1]]
        if self._cached == len(self._context):
            # the last token's logits are needed again, to begin the paths with
            self._cached -= 1
            if self._cached:
                self._cache.crop(-1)
            else:
                # an empty layer of a cache does not grow to a batch
                self._cache = self._new_cache()
        inner = {int(tree.parents[node]) for node in new}
        paths = [tree.ancestry(node)[1:] for node in new if node not in inner] or [[]]
        longest = max(map(len, paths))
        ids = [
            [*pending, *tree.tokens[path].tolist(), *[0] * (longest - len(path))] for path in paths
        ]
        places = list(range(self._cached, self._cached + len(ids[0])))
        if len(paths) > 1:
            self._cache.batch_repeat_interleave(len(paths))
        logits = self._forward(ids, places, None, slice(len(pending) - 1, None))
        if len(paths) > 1:
            self._cache.batch_select_indices(self.tensor([0]))
        if longest:
            self._cache.crop(-longest)
        self._cached = len(self._context)
        for rows, path in zip(logits, paths, strict=True):
            self._rows.update(zip([0, *path], rows, strict=False))

    def _forward(
        self, ids: list[list[int]], places: list[int], sees: Any, wanted: slice
    ) -> npt.NDArray[np.float32]:
        """One call of the model; logits of shape (batch, wanted positions, V)."""
        import torch

        given = {self._cache_name: self._cache}
        if sees is not None:
            given["attention_mask"] = self._additive(sees)
        with torch.inference_mode():
            logits = self.model(
                input_ids=self.tensor(ids),
                position_ids=self.tensor(places).expand(len(ids), -1),
                use_cache=True,
                **given,
            ).logits[:, wanted, : self.vocab_size]
            self.calls += 1
            found: npt.NDArray[np.float32] = logits.float().cpu().numpy()
        return found

    def tensor(self, values: Sequence[Any]) -> Any:
        """Token ids, or places, as a tensor on the model's device."""
        import torch

        return torch.tensor(values, dtype=torch.long, device=self.model.device)

    def _additive(self, sees: Any) -> Any:
        import torch

        dtype = self.model.dtype
        mask = torch.full(sees.shape, torch.finfo(dtype).min, dtype=dtype)
        return mask.masked_fill_(sees, 0.0).to(self.model.device)

    def _keep(self, slots: list[int]) -> None:
        """Move these entries of the cache behind the context and crop what lies behind them."""
        import torch

        total = self._cached + len(self._slots)
        end = self._cached + len(slots)
        with torch.inference_mode():
            if slots != list(range(self._cached, end)):
                chosen = self.tensor(slots)
                for layer in self._cache.layers:
                    for held in (layer.keys, layer.values):
                        held[..., self._cached : end, :] = held[..., chosen.to(held.device), :]
            if total > end:
                self._cache.crop(end - total)

    def _check_length(self, held: int, tokens: int, what: str) -> None:
        config = self.model.config.get_text_config()
        limit = context_limit(config, held)
        if limit is not None and tokens > limit:
            why = ", where its rotary embedding changes" if limit == rotary_switch(config) else ""
            raise BeyondContextError(
                f"{what} {tokens} tokens and the context of {self.name} is {limit}{why}: shorten "
                "the prompt, generate less or draft shorter paths"
            )
