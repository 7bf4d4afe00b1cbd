"""Train the small target and draft language models of the benchmarks.

Both are Llama-type causal models with one byte-level BPE tokenizer, trained from scratch on the
sources of Python's standard library, which are available on every machine with Python::

    python bench/train_pair.py --out otlp_models

The training ends after a time budget, not a number of steps, so the command takes the same time on
all machines; a slower machine produces a slightly worse pair.  With ``--distil`` the draft learns
from the target's next-token distributions at a temperature and from the text with equal weights,
like published drafts (DistillSpec, Zhou et al. 2024).  The state of the training is stored every
few minutes under ``--checkpoints``, and the same command continues from it.  So the time may be
split, and both models may be trained on a GPU (``--device cuda``)::

    python bench/train_pair.py --only target --target-minutes 240 --checkpoints build/pair
    python bench/train_pair.py --only draft --draft-minutes 120 --distil --checkpoints build/pair

``--bfloat16`` multiplies matrices in bfloat16 and keeps weights and sums in float32: more than
twice the tokens per second on a processor with bfloat16 instructions.  ``--compile`` compiles the
model first, in half a minute, for 1.5 times the tokens per second.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from corpus import corpus_files, is_held_out, read_source, standard_library
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from otlp.cli.output import console, progress
from otlp.data.whole_file import whole_file

END_OF_TEXT = "<|endoftext|>"
VOCABULARY = 4096
CONTEXT = 512
SEED = 20240613
MODEL_CARD = Path(__file__).with_name("model_card.md")

CARD_TEMPERATURES = (0.0, 0.6, 1.0)


@dataclass(frozen=True)
class Recipe:
    """Shape and training time of one model."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    learning_rate: float
    batch: int
    minutes: float


@dataclass(frozen=True)
class Checkpoint:
    """File and interval of stored training states; `path` None: no file."""

    path: Path | None
    minutes: float = 5.0

    def load(self, device: str) -> dict[str, Any]:
        """Return the stored state; empty if there is none."""
        if self.path is None or not self.path.exists():
            return {}
        found: dict[str, Any] = torch.load(self.path, map_location=device, weights_only=True)
        return found

    def save(self, content: dict[str, Any]) -> None:
        """Store a state atomically."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path) as temporary:
                torch.save(content, temporary)


TARGET = Recipe("target", 320, 864, 6, 5, learning_rate=5e-3, batch=4, minutes=36.0)
DRAFT = Recipe("draft", 64, 176, 2, 2, learning_rate=8e-3, batch=4, minutes=15.0)


def train_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE tokenizer of both models."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        texts, vocab_size=VOCABULARY, special_tokens=[END_OF_TEXT], show_progress=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        model_max_length=CONTEXT,
    )


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> torch.Tensor:
    """Encode texts as one stream of tokens; each text starts with the end-of-text token."""
    separator = tokenizer.eos_token_id
    stream: list[int] = []
    for text in texts:
        stream.append(separator)
        stream.extend(tokenizer.encode(text, add_special_tokens=False, verbose=False))
    return torch.tensor(stream, dtype=torch.long)


def build_model(recipe: Recipe, end_of_text: int) -> LlamaForCausalLM:
    """Build an untrained model of the recipe's shape."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        initializer_range=0.02,
    )
    torch.manual_seed(SEED)
    return LlamaForCausalLM(config)


def batches(stream: torch.Tensor, batch: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield shuffled windows of the stream without end, with a new offset each epoch."""
    rng = np.random.default_rng(seed)
    while True:
        offset = int(rng.integers(CONTEXT))
        rows = (len(stream) - offset) // CONTEXT
        windows = stream[offset : offset + rows * CONTEXT].view(rows, CONTEXT)
        order = torch.from_numpy(rng.permutation(rows))
        for chosen in order.split(batch):
            if len(chosen) == batch:
                yield windows[chosen]


def optimisers(model: LlamaForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Build Muon for the layers' matrices (Jordan et al. 2024) and AdamW for other parameters."""
    layers = [p for p in model.model.layers.parameters() if p.ndim >= 2]
    chosen = set(layers)
    others = [p for p in model.parameters() if p not in chosen]
    rate = recipe.learning_rate
    return [
        # Match the size of AdamW's updates, so that both use the same learning rate.
        torch.optim.Muon(layers, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def rate_factor(done: float) -> float:
    """Return the factor of the learning rate after a share `done` of the time."""
    warmup, floor = 0.03, 0.02
    if done < warmup:
        return max(done / warmup, 0.01)
    cosine = 0.5 * (1 + math.cos(math.pi * min((done - warmup) / (1 - warmup), 1.0)))
    return floor + (1 - floor) * cosine


def text_loss(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of the text, in nats per token."""
    loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
    return loss


def distillation_loss(
    model: LlamaForCausalLM, teacher: LlamaForCausalLM, tokens: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Return half the cross-entropy of the text plus half the KL divergence from the teacher.

    The divergence is between distributions at the temperature, times the squared temperature, to
    keep the size of gradients (Hinton et al. 2015).
    """
    with torch.no_grad():
        wanted = teacher(input_ids=tokens).logits / temperature
    found = model(input_ids=tokens, labels=tokens)
    divergence = torch.nn.functional.kl_div(
        (found.logits / temperature).flatten(0, 1).log_softmax(-1),
        wanted.flatten(0, 1).log_softmax(-1),
        log_target=True,
        reduction="batchmean",
    )
    loss: torch.Tensor = 0.5 * found.loss + 0.5 * temperature**2 * divergence
    return loss


def train(
    recipe: Recipe,
    model: LlamaForCausalLM,
    stream: torch.Tensor,
    checkpoint: Checkpoint,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    bfloat16: bool,
) -> int:
    """Train the model until the end of its time budget; return the number of tokens seen.

    The state of an earlier run includes its time, its tokens and its windows, which the same seed
    shuffles in the same order.
    """
    steps = optimisers(model, recipe)
    model.train()
    budget = recipe.minutes * 60
    kept = checkpoint.load(str(model.device))
    if kept:
        model.load_state_dict(kept["model"])
        for optimiser, state in zip(steps, kept["optimisers"], strict=True):
            optimiser.load_state_dict(state)
    before, done = float(kept.get("seconds", 0.0)), int(kept.get("steps", 0))
    average = float(kept.get("loss", math.nan))
    seen = done * recipe.batch * CONTEXT

    def keep(seconds: float, step: int) -> None:
        checkpoint.save(
            {
                "model": model.state_dict(),
                "optimisers": [optimiser.state_dict() for optimiser in steps],
                "seconds": seconds,
                "steps": step,
                "loss": average,
            }
        )

    elapsed, step, saved = before, done, time.monotonic()
    with progress(recipe.name, round(budget)) as show:
        start = time.monotonic() - before
        for step, tokens in enumerate(batches(stream, recipe.batch, SEED)):
            if step < done:
                continue
            elapsed = time.monotonic() - start
            if elapsed >= budget:
                break
            rate = recipe.learning_rate * rate_factor(elapsed / budget)
            for group in (group for optimiser in steps for group in optimiser.param_groups):
                group["lr"] = rate
            with torch.autocast(model.device.type, torch.bfloat16, enabled=bfloat16):
                loss = loss_of(tokens.to(model.device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimiser in steps:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            seen += tokens.numel()
            value = loss.item()
            average = value if math.isnan(average) else 0.98 * average + 0.02 * value
            show(f"{recipe.name}, step {step + 1}, loss {average:.3f}", elapsed)
            if time.monotonic() - saved > 60 * checkpoint.minutes:
                keep(elapsed, step + 1)
                saved = time.monotonic()
    keep(elapsed, step)
    return seen


@torch.inference_mode()
def held_out_loss(model: LlamaForCausalLM, stream: torch.Tensor) -> float:
    """Return the mean loss in nats per token, over windows without overlap."""
    model.eval()
    rows = len(stream) // CONTEXT
    windows = stream[: rows * CONTEXT].view(rows, CONTEXT)
    total = 0.0
    for batch in windows.to(model.device).split(8):
        total += model(input_ids=batch, labels=batch).loss.item() * len(batch)
    return total / rows


@torch.inference_mode()
def held_out_acceptance(
    target: LlamaForCausalLM, draft: LlamaForCausalLM, stream: torch.Tensor, temperature: float
) -> float:
    """Return the mean of sum min(p, q), the acceptance of one draft, after held-out text.

    At temperature 0 this is the share of positions where both models have the same most likely
    token.
    """
    rows = len(stream) // CONTEXT
    total = 0.0
    for batch in stream[: rows * CONTEXT].view(rows, CONTEXT).split(8):
        p, q = (model(input_ids=batch).logits.flatten(0, 1) for model in (target, draft))
        if temperature == 0:
            total += float((p.argmax(-1) == q.argmax(-1)).sum())
        else:
            p, q = ((logits / temperature).softmax(-1) for logits in (p, q))
            total += float(torch.minimum(p, q).sum())
    return total / (rows * CONTEXT)


def write_model(
    folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> LlamaForCausalLM:
    """Save the model as float16, and return the saved model in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    # save_pretrained makes the weights readable only by their owner.
    (folder / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(folder)
    # Write a config that every version of transformers reads, without local paths.
    config = folder / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    for key in ("name_or_path", "backend"):
        settings.pop(key, None)
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    config.write_text(json.dumps(settings, indent=2) + "\n")
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


def distils(recipe: Recipe, how: dict[str, Any]) -> bool:
    """Return whether a model is distilled from the target."""
    return bool(how["distil"]) and recipe.name == DRAFT.name


def loss_function(
    recipe: Recipe, model: LlamaForCausalLM, out: Path, how: dict[str, Any]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the loss function of a model, optionally compiled."""
    if how["compiled"]:
        model.compile()
    if not distils(recipe, how):
        return partial(text_loss, model)
    teacher = LlamaForCausalLM.from_pretrained(out / TARGET.name, dtype=torch.float32)
    teacher.to(how["device"]).eval()
    if how["compiled"]:
        teacher.compile()
    return partial(distillation_loss, model, teacher, temperature=how["temperature"])


def acceptances(recipe: Recipe, saved: LlamaForCausalLM, out: Path, held: torch.Tensor) -> str:
    """Return the line of acceptances in the draft's card; empty for the target."""
    if recipe.name != DRAFT.name:
        return ""
    target = LlamaForCausalLM.from_pretrained(out / TARGET.name, dtype=torch.float32)
    found = (
        f"{held_out_acceptance(target, saved, held, level):.3f} at T = {level:g}"
        for level in CARD_TEMPERATURES
    )
    return f"\n| held-out acceptance of one draft | {', '.join(found)} |"


def write_card(folder: Path, recipe: Recipe, measured: dict[str, Any], how: dict[str, Any]) -> None:
    """Write the model card with the training options and results."""
    distilled, more = "", ""
    if distils(recipe, how):
        distilled = (
            "; loss: half the text's, half the KL divergence from the target at temperature "
            f"{how['temperature']:g}"
        )
        more = f" --distil --temperature {how['temperature']:g}"
    card = MODEL_CARD.read_text().format(
        **asdict(recipe),
        **measured,
        vocabulary=VOCABULARY,
        context=CONTEXT,
        python=".".join(map(str, sys.version_info[:3])),
        threads=how["threads"],
        seed=SEED,
        distilled=distilled,
        precision="bfloat16 products" if how["bfloat16"] else "float32",
        more=more + " --bfloat16" * how["bfloat16"] + " --compile" * how["compiled"],
    )
    (folder / "README.md").write_text(card)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(__file__).parents[1] / "otlp_models",
    help="Output folder with the folders target and draft.",
)
@click.option("--target-minutes", default=TARGET.minutes, help="Minutes to train the target.")
@click.option("--draft-minutes", default=DRAFT.minutes, help="Minutes to train the draft.")
@click.option("--threads", default=2, help="Number of CPU threads.")
@click.option(
    "--only",
    type=click.Choice(["target", "draft"]),
    help="Train only this model and keep the other (the tokenizer is the same).",
)
@click.option("--distil", is_flag=True, help="Distil the draft from the target in --out.")
@click.option("--temperature", default=1.0, help="Temperature of the distillation.")
@click.option(
    "--checkpoints",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for training states; training continues from these.",
)
@click.option("--device", default="cpu")
@click.option("--bfloat16", is_flag=True, help="Multiply matrices in bfloat16.")
@click.option("--compile", "compiled", is_flag=True, help="Compile the model before training.")
def main(out: Path, only: str | None, checkpoints: Path | None, **how: Any) -> None:
    """Train the tokenizer and both models, and write them with their model cards."""
    torch.set_num_threads(how["threads"])
    logging.disable_progress_bar()
    root = standard_library()
    files = corpus_files(root)
    training = [read_source(root / path) for path in files if not is_held_out(path)]
    held_out = [read_source(root / path) for path in files if is_held_out(path)]
    tokenizer = train_tokenizer(training)
    train_stream, held_stream = encode(tokenizer, training), encode(tokenizer, held_out)
    console.print(
        f"{len(training)} files, {len(train_stream):,} tokens to train on; "
        f"{len(held_out)} files, {len(held_stream):,} tokens held out"
    )
    sizes = {
        "train_files": len(training),
        "train_tokens": len(train_stream),
        "held_files": len(held_out),
        "held_tokens": len(held_stream),
    }
    for recipe in (TARGET, DRAFT):
        if only not in (None, recipe.name):
            continue
        recipe = replace(recipe, minutes=how[f"{recipe.name}_minutes"])
        kept = None if checkpoints is None else checkpoints / f"{recipe.name}.pt"
        model = build_model(recipe, tokenizer.eos_token_id).to(how["device"])
        loss_of = loss_function(recipe, model, out, how)
        seen = train(recipe, model, train_stream, Checkpoint(kept), loss_of, how["bfloat16"])
        saved = write_model(out / recipe.name, model.cpu(), tokenizer)
        nats = held_out_loss(saved, held_stream)
        held_bytes = sum(len(text.encode()) for text in held_out)
        measured = {
            "parameters": sum(p.numel() for p in saved.parameters()),
            "perplexity": math.exp(nats),
            "bits": nats / math.log(2) * len(held_stream) / held_bytes,
            "acceptance": acceptances(recipe, saved, out, held_stream),
            "seen": seen,
            "epochs": seen / len(train_stream),
        }
        write_card(out / recipe.name, recipe, {**sizes, **measured}, how)
        console.print(
            f"{recipe.name}: {measured['parameters']:,} parameters, "
            f"held-out perplexity {measured['perplexity']:.2f}"
        )


if __name__ == "__main__":
    main()
