"""Distil the draft `smollm2-draft` from SmolLM2-135M-Instruct, on text decoded from the target.

    python bench/distill.py --minutes 60

There are three steps; each continues from an earlier run of the command (``--work``):

1. *sample*: decode from the target at temperature 1 in batches, and store the 48 most likely tokens
   of each position with their probabilities.  The target completes HumanEval's problems 0 to 49
   and functions of installed packages from their signature and docstring, and generates chats
   including the prompts.
2. *learn*: minimise half the loss of the text plus half the Kullback-Leibler divergence from the
   target; in the last part of the time the total variation distance, because one draft is accepted
   with probability 1 - TV.
3. *measure*: sum min(p, q) on HumanEval's problems 70 to 99 and on our own chat prompts, which are
   not used for training, of the network with and without copying.  Problems 50 to 69 are for
   choices, 100 to 163 are not read.
"""

from __future__ import annotations

import math
import sysconfig
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from target_texts import functions, sample, write_texts
from torch import Tensor
from train_pair import Checkpoint, rate_factor
from transformers import LlamaConfig, LlamaModel

from otlp.cli.output import console, progress
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts
from otlp.data.whole_file import whole_file
from otlp.decode.models.copying import SHARES
from otlp.decode.models.frequent_draft import load_frequent_draft
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import SMOLLM2_DRAFT, load_model
from otlp.decode.tree import TokenTree
from otlp.device.copying import copied_logits
from otlp_lab.frequent_drafts import write_frequent_draft

MEASURED, WIDE, TEXTS = 64, 4096, 4
"""Of the measurement: tokens per text, stored tokens per position, and texts per prompt."""

BATCH, WINDOW = 16, 256
CORPUS = 20_000
"""Number of functions of installed packages for the first part of training, in `WINDOW`s."""

BEGINNING = 0.4
"""Share of the time in which every other batch is from these functions."""

DISTANCE = 0.9
"""Final weight of the total variation distance."""

HELD_OUT = {
    "HumanEval 50 to 69": "humaneval:50-69",
    "HumanEval 70 to 99": "humaneval:70-99",
    "chat": str(Path(__file__).parent / "data" / "chats.jsonl"),
}
FOLDER = Path(__file__).parents[1] / "otlp_models" / SMOLLM2_DRAFT
CARD = Path(__file__).with_name("distilled_card.md")
TEMPERATURES = (0.3, 0.6, 1.0)
DRAFTS = {"alone": (), "copying": SHARES}
COLUMNS = ("T = 0.3", "T = 0.6", "T = 1", "argmax")


@dataclass(frozen=True)
class Rows:
    """Training positions, with one text per row."""

    tokens: Tensor
    """Texts padded at the right with 0, shape (B, L)."""

    at: Tensor
    """Positions in the row before each token decoded from the target, shape (B, N)."""

    wrote: Tensor
    """Tokens decoded from the target, shape (B, N)."""

    live: Tensor
    """False after the end of a completion, shape (B, N)."""

    ids: Tensor
    mass: Tensor

    def __getitem__(self, chosen: Any) -> Rows:
        return Rows(*(one[chosen] for one in vars(self).values()))

    def to(self, device: Any) -> Rows:
        """Return the rows on a device."""
        return Rows(*(one.to(device) for one in vars(self).values()))


def as_rows(texts: dict[str, Any], chat: bool) -> Rows:
    """Return texts of `write_texts` as left-aligned rows."""
    tokens = torch.from_numpy(texts["tokens"]).long()
    ids = torch.from_numpy(texts["ids"].astype(np.int64))
    new = ids.shape[1]
    shift = (tokens < 0).sum(1, keepdim=True)
    size = tokens.shape[1]
    turned = tokens.gather(1, (torch.arange(size) + shift) % size).clamp(min=0)
    wrote = tokens[:, size - new :]
    ended = (wrote == 0) | ((wrote == 2) & (not chat))
    at = torch.arange(size - new - 1, size - 1) - shift
    mass = torch.from_numpy(texts["mass"]).float()
    return Rows(turned, at, wrote, ended.cumsum(1) - ended.int() == 0, ids, mass)


def read_texts(work: Path) -> list[Rows]:
    """Read all sampled texts, batch by batch."""
    return [
        as_rows(dict(np.load(path)), "chat" in path.name)
        for path in sorted(work.glob("texts-*.npz"))
    ]


def read_corpus(target: HuggingFaceModel, rng: np.random.Generator) -> list[Rows]:
    """Return functions of installed packages; each token has target probability 1."""
    every = functions(Path(sysconfig.get_path("stdlib")), whole=True)
    joined = "\n\n\n".join(every[i] for i in rng.permutation(len(every))[:CORPUS])
    stream = torch.tensor(target.tokenizer(joined, verbose=False)["input_ids"])
    windows = stream[: len(stream) // WINDOW * WINDOW].view(-1, WINDOW)
    found = []
    for tokens in windows.split(4 * BATCH):
        at = torch.arange(WINDOW - 1).expand(len(tokens), -1)
        wrote = tokens[:, 1:]
        certain = torch.ones(*wrote.shape, 1)
        found.append(Rows(tokens, at, wrote, wrote >= 0, wrote[..., None], certain))
    return found


def frequent(texts: list[Rows], vocab_size: int, size: int) -> Tensor:
    """Return the tokens with the largest mass; ties by lower id, which was merged earlier."""
    mass = torch.zeros(vocab_size)
    for rows in texts:
        mass.index_add_(0, rows.ids[rows.live].flatten(), rows.mass[rows.live].flatten())
    console.print(
        f"mass of the head's tokens: {mass.sort(descending=True)[0][:size].sum() / mass.sum():.4f}"
    )
    return (-mass).argsort(stable=True)[:size].sort()[0]


class Student(torch.nn.Module):
    """Draft during training: Llama layers between two uses of the target's embedding."""

    def __init__(self, config: LlamaConfig, embedding: Tensor, kept: Tensor) -> None:
        super().__init__()
        self.embedding: Tensor
        self.kept: Tensor
        self.where: Tensor
        self.register_buffer("embedding", embedding.float(), persistent=False)
        self.register_buffer("kept", kept, persistent=False)
        self.back = torch.nn.Parameter(0.1 * torch.eye(config.hidden_size))
        self.body = LlamaModel(config)
        del self.body.embed_tokens
        where = torch.full((len(embedding),), len(kept), device=kept.device)
        where[kept] = torch.arange(len(kept), device=kept.device)
        self.register_buffer("where", where, persistent=False)

    def forward(self, rows: Rows) -> Tensor:
        """Return the log probabilities of the draft at the live positions, shape (M, K)."""
        inputs = self.embedding[rows.tokens]
        hidden = self.body(inputs_embeds=inputs, use_cache=False).last_hidden_state
        wanted = hidden.gather(1, rows.at[..., None].expand(-1, -1, hidden.shape[-1]))
        head = self.embedding[self.kept] @ self.back
        logits: Tensor = (wanted[rows.live] @ head.t()).float()
        return logits.log_softmax(-1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors for `write_frequent_draft`."""
        found = {name: one.detach() for name, one in self.body.named_parameters()}
        return found | {"back": self.back.detach(), "kept": self.kept}


def losses(student: Student, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the mean of text loss and divergence from the target, and the total variation."""
    log_q = student(rows)
    size = log_q.shape[1]
    ids, wrote = student.where[rows.ids[rows.live]], student.where[rows.wrote[rows.live]]
    p = rows.mass[rows.live] * (ids < size)
    found = log_q.gather(1, ids.clamp(max=size - 1))
    text = -log_q.gather(1, wrote.clamp(max=size - 1)[:, None])[:, 0]
    text = (text * (wrote < size)).mean()
    divergence = (p * (p.clamp(min=1e-9).log() - found)).sum(-1).mean()
    distance = 1 - torch.minimum(p, found.exp()).sum(-1).mean()
    return 0.5 * text + 0.5 * divergence, distance


def learn(
    student: Student,
    texts: list[Rows],
    corpus: list[Rows],
    work: Path,
    minutes: float,
    seed: int,
    dtype: str,
) -> int:
    """Train until the end of the time; return the number of training tokens with repetitions."""
    matrices = [one for one in student.parameters() if one.ndim == 2]
    others = [one for one in student.parameters() if one.ndim != 2]
    steps: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=5e-3, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01),
    ]
    peaks = [group["lr"] for optimiser in steps for group in optimiser.param_groups]
    learning: dict[str, Any] = {"student": student, "matrices": steps[0], "others": steps[1]}
    checkpoint = Checkpoint(work / "draft.pt", 1.0)
    kept = checkpoint.load(str(student.back.device))
    for name in learning.keys() & kept:
        learning[name].load_state_dict(kept[name])
    elapsed, step, seen = (kept.get(name, 0) for name in ("seconds", "steps", "seen"))

    def keep() -> None:
        states = {name: one.state_dict() for name, one in learning.items()}
        checkpoint.save({**states, "seconds": elapsed, "steps": step, "seen": seen})

    rng = np.random.default_rng(seed + step)
    start, saved, average = time.monotonic() - elapsed, time.monotonic(), math.nan
    with progress("the draft", round(60 * minutes)) as show:
        while elapsed < 60 * minutes:
            share = elapsed / (60 * minutes)
            source = corpus if share < BEGINNING and step % 2 else texts
            rows = source[rng.integers(len(source))]
            chosen = rows[torch.from_numpy(rng.permutation(len(rows.tokens))[:BATCH])]
            chosen = chosen.to(student.back.device)
            weight = DISTANCE * min(max((share - BEGINNING) / 0.2, 0.0), 1.0)
            for peak, optimiser in zip(peaks, steps, strict=True):
                optimiser.param_groups[0]["lr"] = peak * rate_factor(share)
            with torch.autocast(
                student.back.device.type, torch.bfloat16, enabled=dtype == "bfloat16"
            ):
                likelihood, distance = losses(student, chosen)
            ((1 - weight) * likelihood + weight * distance).backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            for optimiser in steps:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            step, seen = step + 1, seen + int(chosen.live.sum())
            overlap = 1 - distance.item()
            average = overlap if math.isnan(average) else 0.98 * average + 0.02 * overlap
            elapsed = time.monotonic() - start
            show(f"step {step}, overlap {average:.3f}", elapsed)
            if time.monotonic() - saved > 60 * checkpoint.minutes:
                keep()
                saved = time.monotonic()
    keep()
    return int(seen)


@torch.inference_mode()
def overlaps(
    student: Student, rows: Rows, temperatures: tuple[float, ...], shares: tuple[float, ...] = ()
) -> dict[str, float]:
    """Return the mean of sum min(p, q) by temperature, and the rate of equal most likely tokens.

    The target's distributions are limited to its `WIDE` most likely tokens; `shares` are those of
    `Copying`.
    """
    rows = rows.to(student.back.device)
    found: dict[str, list[Tensor]] = {}
    for number in range(len(rows.tokens)):
        row = rows[number : number + 1]
        log_q = student(row)
        logits = log_q.new_full((len(log_q), 1, len(student.where)), -torch.inf)
        logits[:, 0, student.kept] = log_q
        texts, held = row.tokens.expand(len(log_q), -1), row.at[row.live] + 1
        nothing = texts.new_empty(len(texts), 1, 0)
        q = copied_logits(logits, texts, held, nothing, shares)[:, 0].double()
        p, ids = row.mass[row.live].double(), row.ids[row.live]
        found.setdefault("argmax", []).append((q.argmax(-1) == ids[:, 0]).double())
        for temperature in temperatures:
            ours = (q / temperature).softmax(-1).gather(1, ids)
            theirs = p ** (1 / temperature)
            theirs /= theirs.sum(-1, keepdim=True)
            overlap = torch.minimum(ours, theirs).sum(-1)
            found.setdefault(f"T = {temperature:g}", []).append(overlap)
    return {name: float(torch.cat(each).mean()) for name, each in found.items()}


def held_out(target: HuggingFaceModel, source: str, work: Path, name: str) -> Rows:
    """Return texts of the target, `MEASURED` tokens each, after held-out prompts."""
    path = work / f"{name}-{TEXTS}.npz"
    if not path.exists():
        ids = [one.tolist() for one in encode_prompts(target, read_prompts(source, None))]
        generator = torch.Generator(target.model.device).manual_seed(1)
        texts = write_texts(target.model, ids, generator, repeated=TEXTS, new=MEASURED, top=WIDE)
        with whole_file(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, **texts)
    return as_rows(dict(np.load(path)), chat=False)


def target_texts(
    target: HuggingFaceModel, work: Path, seconds: float, seed: int
) -> dict[str, Rows]:
    """Sample the training texts; return the texts for measurement, by name."""
    attention = target.model.config._attn_implementation
    target.model.set_attn_implementation("grouped")
    sample(target, work, seconds, seed)
    found = {
        name: held_out(target, source, work, name.replace(" ", "-").lower())
        for name, source in HELD_OUT.items()
    }
    target.model.set_attn_implementation(attention)
    return found


def narrow(config: Any, layers: int, heads: int, inner: int) -> LlamaConfig:
    """Return the configuration of the draft's layers for a target, with one key head."""
    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=config.max_position_embeddings,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        tie_word_embeddings=False,
    )


def call_cost(model: HuggingFaceModel) -> float:
    """Return the seconds of a call on one token after 128 tokens, the median of 20."""
    spent = []
    tree, root = TokenTree(np.array([-1]), np.array([-1])), np.array([0])
    model.start(np.arange(100, 228))
    for _ in range(21):
        start = time.perf_counter()
        model.logits(tree, root)
        spent.append(time.perf_counter() - start)
        model.advance(tree, 0, 300)
    return float(np.median(spent[1:]))


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--target", default=SMOLLM2, help="Target as in otlp decode.")
@click.option("--out", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/distill"))
@click.option("--sample-minutes", default=60.0, help="Minutes for decoding the target's texts.")
@click.option("--minutes", default=60.0, help="Minutes for training.")
@click.option("--device", default="auto")
@click.option(
    "--dtype",
    default="bfloat16",
    type=click.Choice(["bfloat16", "float32"]),
    help="Precision of products; float32 is several times faster without bfloat16 units.",
)
@click.option("--threads", default=2, help="Number of CPU threads.")
@click.option("--seed", default=0)
@click.option("--layers", default=2)
@click.option("--heads", default=3, help="Attention heads per layer, of width 64.")
@click.option("--inner", default=512, help="Hidden width of a layer's MLP.")
@click.option("--known", default=4096, help="Number of tokens in the head.")
def main(
    target: str,
    out: Path,
    work: Path,
    sample_minutes: float,
    minutes: float,
    device: str,
    dtype: str,
    threads: int,
    seed: int,
    layers: int,
    heads: int,
    inner: int,
    known: int,
) -> None:
    """Sample, learn, measure, and write the draft with its card."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    work.mkdir(parents=True, exist_ok=True)
    teacher = load_model(target, device=device, dtype=dtype)
    measured = target_texts(teacher, work, 60 * sample_minutes, seed)
    texts = read_texts(work)
    config = narrow(teacher.model.config, layers, heads, inner)
    embedding = teacher.model.get_input_embeddings().weight.detach()
    kept = frequent(texts, teacher.vocab_size, known)
    student = Student(config, embedding, kept.to(embedding.device)).to(embedding.device)
    corpus = read_corpus(teacher, np.random.default_rng(seed))
    seen = learn(student, texts, corpus, work, minutes, seed, dtype)
    write_frequent_draft(out, config, student.tensors(), teacher)
    draft = load_frequent_draft(str(out), teacher)
    # Measure the stored weights.
    student.load_state_dict({k: v.bfloat16().float() for k, v in student.state_dict().items()})
    table = ["| texts | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for (name, rows), (how, shares) in product(measured.items(), DRAFTS.items()):
        found = overlaps(student, rows, TEMPERATURES, shares)
        cells = " | ".join(f"{found[one]:.3f}" for one in COLUMNS)
        table.append(f"| {name}, {how} | {cells} |")
    card = CARD.read_text(encoding="utf-8").format(
        layers=layers,
        heads=heads,
        inner=inner,
        known=known,
        parameters=sum(one.numel() for one in student.parameters()),
        size=(out / "model.safetensors").stat().st_size / 1e6,
        sampled=sum(int(rows.live.sum()) for rows in texts),
        seen=seen,
        minutes=minutes,
        threads=threads,
        seed=seed,
        where=teacher.model.device.type,
        measured=MEASURED,
        texts=TEXTS,
        dtype=dtype,
        cost=call_cost(draft) / call_cost(teacher),
        table="\n".join(table),
    )
    (out / "README.md").write_text(card, encoding="utf-8")
    console.print("\n".join(table))


if __name__ == "__main__":
    main()
