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
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.decode.models.model import Model, Sampling, check_pair
from otlp.decode.tree import TokenTree
from otlp.distribution import IntArray
from otlp.errors import (
    EngineNotFoundError,
    InvalidInputError,
    SizeLimitError,
    UnsupportedProblemError,
)

__all__ = ["TRAINED_PAIR", "HuggingFaceModel", "check_tokenizers", "load_model", "load_pair"]

TRAINED_PAIR = ("trained:target", "trained:draft")
"""Names of the pair that ships with the package: target and draft."""

MISSING = 'language models need torch and transformers: pip install "otlp[decode]"'


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
        self.calls = 0
        self._slides = self._check_cache()
        if tree_attention is None:
            tree_attention = not self._slides and self._takes_tree_masks()
        self.tree_attention = tree_attention
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
        """How many tokens the model was made for; None if it does not say."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return None if limit is None else int(limit)

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
        self._check_length(tokens.size, "the prompt has")
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
            self._check_length(len(self._context) + deepest, "context and draft have")
            pending = len(self._context) - self._cached
            try:
                (self._score_tree if self.tree_attention else self._score_paths)(tree, new)
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
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
            self._cache.crop(-1)
            self._cached -= 1
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
            self._cache.batch_select_indices(self._tensor([0]))
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

        positions = self._tensor([place for part in places for place in part])
        given = {} if sees is None else {"attention_mask": self._additive(sees)}
        with torch.inference_mode():
            logits = self.model(
                input_ids=self._tensor(ids),
                position_ids=positions.expand(len(ids), -1),
                past_key_values=self._cache,
                use_cache=True,
                **given,
            ).logits[:, wanted]
            self.calls += 1
            found: npt.NDArray[np.float32] = logits.float().cpu().numpy()
        return found

    def _tensor(self, values: Sequence[Any]) -> Any:
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
                chosen = self._tensor(slots)
                for layer in self._cache.layers:
                    for held in (layer.keys, layer.values):
                        held[..., self._cached : end, :] = held[..., chosen.to(held.device), :]
            if total > end:
                self._cache.crop(end - total)

    def _check_cache(self) -> bool:
        """Whether some layers have a sliding window; refuse caches that cannot be rolled back."""
        from transformers import DynamicCache

        layers = {type(layer).__name__ for layer in DynamicCache(config=self.model.config).layers}
        odd = layers - {"DynamicLayer", "DynamicSlidingWindowLayer"}
        if odd:
            raise UnsupportedProblemError(
                f"{self.name} keeps its past in {', '.join(sorted(odd))}, which cannot be rolled "
                "back to any accepted prefix: use a model with attention in every layer"
            )
        return "DynamicSlidingWindowLayer" in layers

    def _check_length(self, tokens: int, what: str) -> None:
        limit = self.context_limit
        if limit is not None and tokens > limit:
            raise InvalidInputError(
                f"{what} {tokens} tokens and the context of {self.name} is {limit}: shorten the "
                "prompt, generate less or draft shorter paths"
            )

    def _takes_tree_masks(self) -> bool:
        """Try a tree whose two leaves are siblings: must equal the two plain sequences."""
        tree = TokenTree(np.array([-1, 1, 2, 1]), np.array([-1, 0, 0, 2]))
        top = self.vocab_size - 1
        tree.tokens[1:] = np.minimum(tree.tokens[1:], top)
        found = []
        for self.tree_attention in (False, True):
            self._reset(np.array([0, min(3, top)]))
            try:
                found.append(self.logits(tree, np.arange(4)))
            except (TypeError, ValueError, RuntimeError, IndexError):
                if not self.tree_attention:
                    raise
                return False
            finally:
                self.calls = 0
        scale = float(np.abs(found[0]).max())
        import torch

        tolerance = scale * torch.finfo(self.model.dtype).eps ** 0.5
        return bool(np.abs(found[0] - found[1]).max() <= tolerance)

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


def load_model(
    source: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    sampling: Sampling | None = None,
    tree_attention: bool | None = None,
) -> HuggingFaceModel:
    """Load a causal language model and its tokenizer.

    Parameters
    ----------
    source : str
        A folder, a name on the hub, or one of `TRAINED_PAIR`, which ships with the package.
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...; ``"auto"`` takes a GPU where there is one.
    dtype : str
        ``"float32"``, ``"bfloat16"`` or ``"float16"``; ``"auto"`` is float32 on the CPU and the
        precision of the stored weights elsewhere.
    sampling : Sampling, optional
        From logits to laws.
    tree_attention : bool, optional
        See `HuggingFaceModel`.

    Raises
    ------
    EngineNotFoundError
        If torch or transformers is not installed.
    InvalidInputError
        If there is no such model, device or precision.
    SizeLimitError
        If the weights do not fit.
    """
    torch, transformers = _engines()
    folder = find_model(source)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise InvalidInputError(
            f"dtype is {dtype!r}: it must be auto, float32, bfloat16 or float16"
        )
    if dtype == "auto" and device == "cpu":
        dtype = "float32"
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = model.to(device).eval()
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInputError(f"cannot load {source}: {reason}") from error
    except (RuntimeError, MemoryError, AssertionError) as error:
        if _is_out_of_memory(error):
            raise SizeLimitError(
                f"{source} does not fit on {device}: load it in half precision or on another device"
            ) from error
        reason = str(error).strip().splitlines()[0]
        raise InvalidInputError(
            f"cannot run {source} on {device!r}: {reason}; give cpu, cuda or auto"
        ) from error
    return HuggingFaceModel(model, tokenizer, sampling, source, tree_attention)


def load_pair(
    draft: str = TRAINED_PAIR[1],
    target: str = TRAINED_PAIR[0],
    *,
    device: str = "auto",
    dtype: str = "auto",
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
) -> tuple[HuggingFaceModel, HuggingFaceModel]:
    """Load a draft and a target model over one tokenizer; by default the trained pair.

    Parameters
    ----------
    draft, target : str
        See `load_model`.
    device, dtype : str
        For both.
    sampling : Sampling, optional
        Of the target, and of the draft unless `draft_sampling` is given.
    draft_sampling : Sampling, optional
        Of the draft.

    Raises
    ------
    InvalidInputError
        If their vocabularies or tokenizers differ, and whatever `load_model` raises.
    """
    found = (
        load_model(draft, device=device, dtype=dtype, sampling=draft_sampling or sampling),
        load_model(target, device=device, dtype=dtype, sampling=sampling),
    )
    check_tokenizers(*found)
    return found


def find_model(source: str) -> str:
    """Folder of a model of the package, or the folder or hub name itself.

    Raises
    ------
    InvalidInputError
        If it is written as a path and there is no such folder.
    """
    if source in TRAINED_PAIR:
        kind = source.removeprefix("trained:")
        return str(resources.files("otlp") / "data" / "models" / kind)
    written_as_path = source.startswith((".", "/", "~")) or source.count("/") > 1 or not source
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InvalidInputError(
                f"the folder {source} holds no config.json: give the folder of a Hugging Face model"
            )
        return str(folder)
    if written_as_path or folder.exists():
        raise InvalidInputError(
            f"there is no model folder {source!r}: give a folder, a name on the hub, or "
            f"{' or '.join(TRAINED_PAIR)}"
        )
    return source


def check_tokenizers(draft: HuggingFaceModel, target: HuggingFaceModel) -> None:
    """Refuse two models whose token ids do not mean the same.

    Raises
    ------
    InvalidInputError
        If the vocabulary sizes differ, or the tokenizers; says which token differs.
    """
    check_pair(draft, target)
    if draft.tokenizer is None or target.tokenizer is None:
        return
    ours, theirs = draft.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    odd = sorted(set(ours.items()) ^ set(theirs.items()), key=lambda item: (item[1], item[0]))
    if odd:
        token, number = odd[0]
        raise InvalidInputError(
            f"the tokenizers of {draft.name} and {target.name} differ in {len(odd)} entries, first "
            f"in {token!r}, which is {ours.get(token, 'absent')} and {theirs.get(token, 'absent')}"
            f" (token {number}): speculative decoding needs one tokenizer for both models"
        )


def _engines() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EngineNotFoundError(MISSING) from error
    return torch, transformers


def _is_out_of_memory(error: BaseException) -> bool:
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
