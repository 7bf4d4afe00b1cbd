"""Causal language models of Hugging Face behind the `Model` protocol, with a cache that rolls back.

The key-value cache holds the context and, behind it, the nodes of the round's token tree in the
order they were scored.  A call feeds only what the cache lacks.  Where the model takes a
four-dimensional attention mask, all nodes go through it at once, each attending to the context and
to its own ancestors; elsewhere the tree is unrolled into a batch of paths, still one call.

transformers and torch are imported when a model is loaded, not before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.decode.models.fitting import choose_tree_attention, has_sliding_windows, rotary_switch
from otlp.decode.models.model import Model, Sampling
from otlp.decode.tree import TokenTree
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, SizeLimitError

__all__ = ["HuggingFaceModel", "is_out_of_memory"]


class HuggingFaceModel(Model):
    """A causal language model of transformers, in the middle of a text.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        In evaluation mode, on the device where it shall run.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        For text prompts and for `check_tokenizers`.
    sampling : Sampling
        From logits to laws.
    name : str, optional
        What to call it; by default where it was loaded from.
    tree_attention : bool, optional
        Whether a tree goes through the model at once.  Left out, the model is tried on a tree of
        three tokens, and a batch of paths is used if that does not give the plain logits.

    Attributes
    ----------
    calls : int
        How often the model was called.

    Raises
    ------
    UnsupportedProblemError
        If the model's cache cannot be rolled back, as in recurrent models.

    Notes
    -----
    A call costs one forward pass over the tokens that the cache lacks.  `advance` moves the
    accepted entries of the cache together and crops the rest, without a call.
    """

    _context: list[int]
    _slots: dict[int, int]
    _rows: dict[int, npt.NDArray[np.float32]]

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        sampling: Sampling | None = None,
        name: str | None = None,
        tree_attention: bool | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.sampling = Sampling() if sampling is None else sampling
        self._name = name or model.config._name_or_path or type(model).__name__
        if model.training:
            raise InvalidInputError(
                f"{self.name} is in training mode, where it drops out at random: call model.eval()"
            )
        self.calls = 0
        self._slides = False
        self._reset(np.empty(0, dtype=np.int64))
        self._slides = has_sliding_windows(self)
        self.tree_attention = choose_tree_attention(self, tree_attention)
        self.calls = 0
        self._reset(np.empty(0, dtype=np.int64))

    @property
    def name(self) -> str:
        """Where it was loaded from, unless it was named otherwise."""
        return self._name

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V: the width of the logits."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def context_limit(self) -> int | None:
        """How many tokens the present text may grow to; None if the model does not say.

        What the model was made for, and, until the text is longer than that, the length at which
        its rotary embedding changes.
        """
        return self._limit(len(self._context))

    def _limit(self, tokens: int) -> int | None:
        config = self.model.config.get_text_config()
        made_for = getattr(config, "max_position_embeddings", None)
        switch = rotary_switch(config)
        if switch is not None and tokens <= switch:
            return switch if made_for is None else min(switch, int(made_for))
        return None if made_for is None else int(made_for)

    @property
    def context(self) -> IntArray:
        """Token ids so far, shape (T,)."""
        return np.array(self._context, dtype=np.int64)

    def encode(self, text: str) -> IntArray:
        """Token ids of a text, shape (T,).

        Raises
        ------
        InvalidInputError
            If the model came without a tokenizer, or the text has no tokens.
        """
        if self.tokenizer is None:
            raise InvalidInputError(f"{self.name} has no tokenizer: give token ids, not text")
        ids = np.asarray(self.tokenizer(text)["input_ids"], dtype=np.int64)
        if not ids.size:
            raise InvalidInputError("the prompt is empty: give at least one token")
        return ids

    def start(self, context: IntArray) -> None:
        """Begin a text; see `Model.start`.

        Raises
        ------
        InvalidInputError
            If the context is empty, holds no token ids, or is longer than the model's.
        """
        tokens = np.asarray(context, dtype=np.int64)
        if tokens.ndim != 1 or not tokens.size:
            raise InvalidInputError(
                f"the context has shape {tokens.shape}: {self.name} needs at least one token"
            )
        if tokens.min() < 0 or tokens.max() >= self.vocab_size:
            raise InvalidInputError(
                f"the context holds token {int(tokens.min() if tokens.min() < 0 else tokens.max())}"
                f": the tokens of {self.name} are in [0, {self.vocab_size})"
            )
        self._check_length(tokens.size, tokens.size, "the prompt has")
        self._reset(tokens)

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
                self._reset(self.context)
                raise SizeLimitError(self._what_fits(pending, len(new))) from error
        return np.stack([self._rows[node] for node in nodes.tolist()])

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append a path and a token; the cache of all other nodes goes; see `Model.advance`."""
        path = tree.ancestry(node)[1:]
        kept = [self._slots[member] for member in path if member in self._slots]
        self._keep(kept)
        self._cached += len(kept)
        self._context += [*tree.tokens[path].tolist(), int(token)]
        self._rows, self._slots = {}, {}

    def _reset(self, context: IntArray) -> None:
        self._context = context.tolist()
        self._cache = self._new_cache()
        # how much of the context the cache holds, then where it holds which node of the tree
        self._cached = 0
        self._slots = {}
        self._rows = {}

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        # layers with a sliding window keep their whole past here: their mask knows the window,
        # and what a window drops could not be rolled back
        return DynamicCache() if self._slides else DynamicCache(config=self.model.config)

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
        logits = self._forward(
            [pending + tree.tokens[new].tolist()],
            [list(range(self._cached, self._cached + rest)), *self._places(tree, new)],
            torch.from_numpy(sees)[None, None],
            slice(max(rest - 1, 0), None),
        )[0]
        first = [0] if rest else []
        self._rows.update(zip([*first, *new], logits, strict=True))
        self._slots = slots
        self._cached += rest

    def _places(self, tree: TokenTree, new: list[int]) -> list[list[int]]:
        """Position of each new node, as lists to be joined: behind the whole context."""
        return [[len(self._context) - 1 + int(tree.depths[node])] for node in new]

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
        logits = self._forward(ids, [places], None, slice(len(pending) - 1, None))
        if len(paths) > 1:
            self._cache.batch_select_indices(self.tensor([0]))
        if longest:
            self._cache.crop(-longest)
        self._cached = len(self._context)
        for rows, path in zip(logits, paths, strict=True):
            self._rows.update(zip([0, *path], rows, strict=False))

    def _forward(
        self, ids: list[list[int]], places: list[list[int]], sees: Any, wanted: slice
    ) -> npt.NDArray[np.float32]:
        """One call of the model; logits of shape (batch, wanted positions, V)."""
        import torch

        positions = self.tensor([place for part in places for place in part])
        given = {} if sees is None else {"attention_mask": self._additive(sees)}
        with torch.inference_mode():
            logits = self.model(
                input_ids=self.tensor(ids),
                position_ids=positions.expand(len(ids), -1),
                past_key_values=self._cache,
                use_cache=True,
                **given,
            ).logits[:, wanted]
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
        limit = self._limit(held)
        if limit is not None and tokens > limit:
            switch = rotary_switch(self.model.config.get_text_config())
            why = ", where its rotary embedding changes" if limit == switch else ""
            raise InvalidInputError(
                f"{what} {tokens} tokens and the context of {self.name} is {limit}{why}: shorten "
                "the prompt, generate less or draft shorter paths"
            )

    def _what_fits(self, pending: int, drafted: int) -> str:
        import torch

        problem = (
            f"{self.name} ran out of memory on {pending} tokens of the context and {drafted} "
            "drafted ones"
        )
        advice = "shorten the prompt, draft fewer or shorter paths, or load it in half precision"
        free = _free_bytes(self.model.device)
        if free is None:
            return f"{problem}: {advice}"
        config = self.model.config.get_text_config()
        size = torch.finfo(self.model.dtype).bits // 8
        entry = 2 * config.num_hidden_layers * config.hidden_size * size
        fits = free // (entry + self.vocab_size * (size + 4))
        return (
            f"{problem}, with {free / 2**20:.0f} MiB free: at most some {fits} tokens fit in one "
            f"call; {advice}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the CPU's allocator, ran out of memory."""
    import torch

    # the CPU's allocator raises a plain RuntimeError
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or "can't allocate memory" in str(error)


def _free_bytes(device: Any) -> int | None:
    """Free memory of a device; None where the system does not say."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
