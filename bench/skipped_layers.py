"""Greedy choice of skipped layers for self-speculative drafts.

    python bench/skipped_layers.py --target smollm2 --prompts humaneval:50-53 --json ladder.json

The target continues the prompts at temperature 1.  Then layers are removed one by one; each step
removes the layer with the largest remaining overlap, sum min(p, q), with the target, averaged over
the tokens of these texts; the 95% intervals are over texts.  A draft `skip:LAYERS` has this overlap
on similar texts (`otlp decode --draft skip:LAYERS`).  Each removed layer is stored at once, and the
same command continues if the weights and the texts are the same.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from draft_quality import Results
from measuring import report
from torch import Tensor

from otlp.cli.options import OutputFile
from otlp.cli.output import progress
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, silence_transformers
from otlp.decode.models.fingerprint import fingerprint
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import load_model
from otlp.decode.models.skipped_layers import without_layers
from otlp.studies.estimate import Estimate, ratio


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


def overlap(wanted: list[Tensor], found: list[Tensor]) -> Estimate:
    """Return the mean sum of min(p, q) over tokens, with an interval over texts."""
    pairs = zip(wanted, found, strict=True)
    sums = [float(torch.minimum(one, other).sum()) for one, other in pairs]
    return ratio(np.array(sums), np.array([len(one) for one in wanted]))


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--target", default=SMOLLM2, help="Target as in otlp decode.")
@click.option("--prompts", default="humaneval:50-53", help="Prompts as in otlp decode.")
@click.option("--tokens", default=100, type=click.IntRange(1), help="New tokens per prompt.")
@click.option("--layers", default=10, type=click.IntRange(1), help="Number of skipped layers.")
@click.option("--seed", default=0)
@click.option("--json", "json_path", type=OutputFile(), help="Store results, and continue.")
def main(
    target: str, prompts: str, tokens: int, layers: int, seed: int, json_path: Path | None
) -> None:
    silence_transformers()
    model = load_model(target)
    encoded = [
        torch.tensor(ids)[None] for ids in encode_prompts(model, read_prompts(prompts, None))
    ]
    starts = [one.shape[1] for one in encoded]
    texts = texts_of(model.model, encoded, tokens, seed)
    wanted = laws(model.model, texts, starts)
    written = sha256(json.dumps([text.tolist() for text in texts]).encode()).hexdigest()[:16]
    options = {"prompts": prompts, "tokens": tokens, "seed": seed}
    made = {"target": target, "weights": fingerprint(model), "texts": written}
    results = Results(json_path, options | made)
    count = int(model.model.config.get_text_config().num_hidden_layers)
    layers = min(layers, count - 1)
    skipped = [int(cell["layer"]) for cell in results.content["cells"].values()]
    steps = range(len(skipped), layers)
    with progress("removing layers", sum(count - at for at in steps)) as step:
        for _ in steps:
            overlaps = {}
            for layer in sorted(set(range(count)) - set(skipped)):
                shorter = without_layers(model.model, [*skipped, layer], model.name)
                overlaps[layer] = overlap(wanted, laws(shorter, texts, starts))
                step()
            best = max(overlaps, key=lambda layer: overlaps[layer].mean)
            skipped.append(best)
            name = "skip:" + ",".join(map(str, skipped))
            results.keep(name, {"layer": best, "overlap": overlaps[best].record()})
    cells = results.content["cells"].items()
    rows = [{"draft": name, "overlap": str(Estimate.of(cell["overlap"]))} for name, cell in cells]
    found = sum(len(one) for one in wanted)
    report(f"{model.name}, {count} layers, {found} tokens, temperature 1", rows)


if __name__ == "__main__":
    main()
