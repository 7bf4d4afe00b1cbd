"""Greedy choice of skipped layers for self-speculative drafts.

    python bench/skipped_layers.py --target smollm2 --prompts humaneval:50-53 --json ladder.json

The target continues the prompts at temperature 1.  Then layers are removed one by one; each step
removes the layer with the largest remaining overlap, sum min(p, q), with the target, averaged over
the tokens of these texts.  A draft `skip:LAYERS` has this overlap on similar texts
(`otlp decode --draft skip:LAYERS`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import torch
from measuring import report
from torch import Tensor

from otlp.cli.options import json_option
from otlp.cli.output import progress
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import load_model
from otlp.decode.models.skipped_layers import without_layers


def texts_of(network: Any, prompts: list[Tensor], tokens: int, seed: int) -> list[Tensor]:
    """Return the prompts with the network's continuations, each of shape (1, T)."""
    torch.manual_seed(seed)
    found = []
    with progress("writing", len(prompts)) as step:
        for prompt in prompts:
            options = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
            mask = torch.ones_like(prompt)
            found.append(
                network.generate(prompt, attention_mask=mask, max_new_tokens=tokens, **options)
            )
            step()
    return found


def laws(network: Any, texts: list[Tensor], starts: list[int]) -> list[Tensor]:
    """Return the next-token distributions after each prompt and each new token but the last."""
    found = []
    with torch.inference_mode():
        for text, start in zip(texts, starts, strict=True):
            logits = network(text, use_cache=False).logits[0, start - 1 : -1]
            found.append(torch.softmax(logits.float(), -1))
    return found


def overlap(wanted: list[Tensor], found: list[Tensor]) -> float:
    pairs = zip(wanted, found, strict=True)
    each = torch.cat([torch.minimum(one, other).sum(1) for one, other in pairs])
    return float(each.mean())


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--target", default=SMOLLM2, help="Target as in otlp decode.")
@click.option("--prompts", default="humaneval:50-53", help="Prompts as in otlp decode.")
@click.option("--tokens", default=100, type=click.IntRange(1), help="New tokens per prompt.")
@click.option("--layers", default=10, type=click.IntRange(1), help="Number of skipped layers.")
@click.option("--seed", default=0)
@json_option("Write the drafts to this file.")
def main(
    target: str, prompts: str, tokens: int, layers: int, seed: int, json_path: Path | None
) -> None:
    model = load_model(target)
    encoded = [
        torch.tensor(ids)[None] for ids in encode_prompts(model, read_prompts(prompts, None))
    ]
    starts = [one.shape[1] for one in encoded]
    texts = texts_of(model.model, encoded, tokens, seed)
    wanted = laws(model.model, texts, starts)
    count = int(model.model.config.get_text_config().num_hidden_layers)
    layers = min(layers, count - 1)
    skipped: list[int] = []
    rows = []
    with progress("removing layers", sum(count - at for at in range(layers))) as step:
        for _ in range(layers):
            overlaps = {}
            for layer in sorted(set(range(count)) - set(skipped)):
                shorter = without_layers(model.model, [*skipped, layer], model.name)
                overlaps[layer] = overlap(wanted, laws(shorter, texts, starts))
                step()
            best = max(overlaps, key=overlaps.__getitem__)
            skipped.append(best)
            name = "skip:" + ",".join(map(str, skipped))
            rows.append({"layers": len(skipped), "overlap": overlaps[best], "draft": name})
    found = sum(len(one) for one in wanted)
    report(f"{model.name}, {count} layers, {found} tokens, temperature 1", rows, json_path)


if __name__ == "__main__":
    main()
