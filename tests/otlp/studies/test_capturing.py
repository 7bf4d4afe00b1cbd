"""Captures that are interrupted, refused, or written next to other files."""

from __future__ import annotations

import copy
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.data.capture_file import write
from otlp.data.captures import keep_top, load, save
from otlp.errors import CaptureError, InvalidInputError
from tests.example_captures import example, make, opened
from tests.otlp.cli.command import run

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from otlp.decode import Copying, Mixture, NGram, Sampling, random_pair
from otlp.decode.models.fingerprint import files_fingerprint, fingerprint
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import load_pair
from otlp.decode.models.skipped_layers import skip_layers
from otlp.decode.tree import ROOT
from otlp.studies.capturing import capture, capture_passage, parts_folder
from otlp.studies.decoding import Setting, measure
from otlp_lab.design.written_texts import write_text


def encoded(pair: Any, *texts: str) -> list[Any]:
    return [pair[1].encode(text) for text in texts]


def _interrupt(
    trained: tuple[Any, Any], prompts: Sequence[Any], path: Path, **options: Any
) -> None:
    """Start a capture of two steps per prompt, and stop after the first passage."""

    class StopError(Exception):
        pass

    def stop() -> None:
        raise StopError

    with pytest.raises(StopError):
        capture(*trained, prompts, path, steps=2, progress=stop, **options)


@pytest.fixture
def interrupted(trained: tuple[Any, Any], tmp_path: Path) -> tuple[Path, list[Any], Path]:
    """Return path and prompts of an interrupted capture, and the folder of its parts."""
    path, prompts = tmp_path / "mine", encoded(trained, "import", "def")
    _interrupt(trained, prompts, path)
    return path, prompts, parts_folder(path)


def test_two_processes_write_no_capture_together(
    trained: tuple[Any, Any], interrupted: Any
) -> None:
    path, prompts, folder = interrupted
    other = os.open(folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    kept = sorted(folder.iterdir())
    with pytest.raises(CaptureError, match="another process is writing this capture"):
        capture(*trained, prompts, path, steps=2)
    assert sorted(folder.iterdir()) == kept
    os.close(other)
    assert len(capture(*trained, prompts, path, steps=2)) == 4 and not folder.exists()


def test_a_capture_mixes_no_precisions(trained: tuple[Any, Any], interrupted: Any) -> None:
    path, prompts, folder = interrupted
    with pytest.raises(CaptureError, match=r"started with other .*dtype"):
        capture(*load_pair(dtype="bfloat16"), prompts, path, steps=2)
    with pytest.raises(CaptureError, match="other seed"):
        capture(*trained, prompts, path, steps=2, seed=2)
    assert len(list(folder.iterdir())) == 2


def test_a_capture_mixes_no_weights(trained: tuple[Any, Any], interrupted: Any) -> None:
    """Same names, but another target weight or tokenizer."""
    path, prompts, _ = interrupted
    draft, target = trained
    other = HuggingFaceModel(copy.deepcopy(target.model), target.tokenizer, name=target.name)
    weight = next(other.model.parameters())
    with torch.no_grad():
        weight.view(-1)[-1] += 1e-3
    with pytest.raises(CaptureError, match=r"other weights or tokenizer of the target; give"):
        capture(draft, other, prompts, path, steps=2)
    with torch.no_grad():
        weight.copy_(next(target.model.parameters()))
    assert fingerprint(other) == fingerprint(target) != fingerprint(draft)
    other.tokenizer = copy.deepcopy(target.tokenizer)
    other.tokenizer.add_tokens(["<one more>"])
    with pytest.raises(CaptureError, match=r"other weights or tokenizer of the target; give"):
        capture(draft, other, prompts, path, steps=2)
    assert len(capture(*trained, prompts, path, steps=2)) == 4


def test_fingerprints_of_mixtures_are_of_all_that_is_mixed(trained: tuple[Any, Any]) -> None:
    draft, _ = trained
    n_gram = NGram(draft.vocab_size)
    found = [
        fingerprint(model)
        for model in (
            draft, n_gram, NGram(draft.vocab_size, corpus=[1, 2]), NGram(draft.vocab_size, 3),
            NGram(draft.vocab_size, corpus=[1, 3], name="ngram"), Copying(draft),
            Copying(draft, [0.5]), Mixture([draft, n_gram]),
            Mixture([n_gram, draft]), Mixture([draft, n_gram], [0.9, 0.1]),
        )
    ]  # fmt: skip
    assert len(set(found)) == len(found)
    named = NGram(draft.vocab_size, corpus=[1, 2], name="other")
    assert fingerprint(named) == found[2]
    with pytest.raises(InvalidInputError, match=r"model must be .*, got TabularModel"):
        fingerprint(random_pair(2, 2, np.random.default_rng(0))[0])


def test_a_model_of_the_hub_is_known_by_its_files(tmp_path: Path) -> None:
    """The same name in the hub cache, with other weights."""
    from huggingface_hub import constants

    found = set()
    for revision, weights in (("a" * 40, b"1"), ("b" * 40, b"2")):
        place = tmp_path / "models--some--name"
        folder = place / "snapshots" / revision
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(weights)
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / "main").write_text(revision)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
            found.add(files_fingerprint("some/name"))
    assert len(found) == 2


def test_a_capture_deletes_only_what_it_made(trained: tuple[Any, Any], interrupted: Any) -> None:
    path, prompts, folder = interrupted
    (folder / "notes.txt").write_text("mine")
    (folder / "00007.safetensors").write_text("mine")
    (folder / ".00001.0a1b2c3d.safetensors").write_text("left by a process that was killed")
    assert len(capture(*trained, prompts, path, steps=2)) == 4
    assert sorted(entry.name for entry in folder.iterdir()) == ["00007.safetensors", "notes.txt"]


def test_passages_of_other_widths_are_not_joined(
    trained: tuple[Any, Any], interrupted: Any
) -> None:
    path, prompts, folder = interrupted
    part = folder / "00001.safetensors"
    for other in (example(), keep_top(load(folder / "00000.safetensors"), 5)):
        save(other, part)
        with pytest.raises(CaptureError, match=r"00001\.safetensors: its rows have other numbers"):
            capture(*trained, prompts, path, steps=2)
        assert not path.exists()
    part.unlink()
    assert len(capture(*trained, prompts, path, steps=2)) == 4


def test_a_capture_interrupted_at_its_end_is_done(
    trained: tuple[Any, Any], interrupted: Any, tmp_path: Path
) -> None:
    path, prompts, folder = interrupted
    straight = capture(*trained, prompts, tmp_path / "straight", steps=2)
    left = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    whole = capture(*trained, prompts, path, steps=2)
    assert not folder.exists()
    for part in ("target_logits", "draft_logits", "contexts"):
        np.testing.assert_array_equal(getattr(load(path), part), getattr(straight, part))
    folder.mkdir()
    for name, content in left.items():
        (folder / name).write_bytes(content)
    again = capture(*trained, prompts, path, steps=2)
    np.testing.assert_array_equal(again.target_logits, whole.target_logits)
    assert not folder.exists()
    with pytest.raises(CaptureError, match="already exists"):
        capture(*trained, prompts, path, steps=2)
    folder.mkdir()
    (folder / "plan.json").write_bytes(left["plan.json"])
    (folder / "00001.safetensors").write_bytes(left["00000.safetensors"])
    with pytest.raises(CaptureError, match="not made from the parts"):
        capture(*trained, prompts, path, steps=2)


@pytest.mark.parametrize("plan", ["[]", "3", "{", "null", "\xff", "[" * 99999, None])
def test_a_folder_that_is_no_interrupted_capture_is_left_alone(
    trained: tuple[Any, Any], tmp_path: Path, plan: str | None
) -> None:
    folder = parts_folder(tmp_path / "mine")
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    if plan is not None:
        (folder / "plan.json").write_text(plan, encoding="latin-1")
    with pytest.raises(CaptureError, match=r"mine\.parts"):
        capture(*trained, encoded(trained, "import"), tmp_path / "mine", steps=2)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_refused_capture_leaves_nothing(trained: tuple[Any, Any], tmp_path: Path) -> None:
    prompts = [trained[1].encode("import"), np.full(510, 7)]
    for steps, given in ((100_000, prompts[:1]), (4, prompts), (2, []), (0, prompts[:1])):
        with pytest.raises(InvalidInputError, match=r"context|empty|steps must be .*, got 0"):
            capture(*trained, given, tmp_path / "mine", steps=steps)
        assert not list(tmp_path.iterdir())
    assert len(capture(*trained, prompts[:1], tmp_path / "mine", steps=1)) == 1


@pytest.mark.parametrize("top_logprobs", [None, 20])
def test_what_was_kept_goes_on_where_it_stopped(
    trained: tuple[Any, Any], tmp_path: Path, top_logprobs: int | None
) -> None:
    prompts = encoded(trained, "import", "def", "class")
    whole = capture(*trained, prompts, tmp_path / "whole", steps=2)
    path = tmp_path / "mine.safetensors"
    _interrupt(trained, prompts, path, top_logprobs=top_logprobs)
    made = capture(*trained, prompts, path, steps=2, top_logprobs=top_logprobs)
    assert {entry.name for entry in tmp_path.iterdir()} == {"whole", "mine.safetensors"}
    assert tuple(made.contexts) == whole.contexts
    np.testing.assert_array_equal(np.asarray(made.next_tokens), whole.next_tokens)
    for row in range(6):
        p, q = whole.distributions(row, top_k=top_logprobs)
        found, drafted = made.distributions(row)
        np.testing.assert_allclose(drafted[: q.size], q, atol=1e-6)
        known = found[: p.size] > 0.0
        np.testing.assert_allclose(found[: p.size][known], p[known], rtol=1e-5)
    with pytest.raises(CaptureError, match="already exists"):
        capture(*trained, prompts, path, steps=2, top_logprobs=top_logprobs)


def test_passages_of_two_precisions_keep_every_value(tmp_path: Path) -> None:
    """Rows of float16 are stored as float32 if other rows need it."""
    small = np.array([[1.0, 2.0]], dtype=np.float16)
    large = np.array([[1e6, 2.0]], dtype=np.float32)
    for index, one in enumerate((small, large)):
        save(make(one), tmp_path / str(index))
    write(tmp_path / "both", [opened(tmp_path / str(index)) for index in (0, 1)])
    joined = load(tmp_path / "both")
    assert joined.dtype == "float32"
    np.testing.assert_array_equal(np.asarray(joined.target_logits), [[1.0, 2.0], [1e6, 2.0]])
    np.testing.assert_array_equal(joined[0].target_logits, np.array([1.0, 2.0], dtype=np.float32))


def test_a_text_goes_on_to_the_end_of_a_context_and_no_further(trained: tuple[Any, Any]) -> None:
    prompt, rng = np.full(510, 7), np.random.default_rng(0)
    assert len(write_text(*trained, prompt, 3, rng)) == 3
    with pytest.raises(
        InvalidInputError, match=r"510 tokens and 4 new tokens exceed the context of .* 512"
    ):
        write_text(*trained, prompt, 4, rng)


def test_texts_end_with_an_end_token(
    trained: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In captures, in target texts for `design` and `tune`, and in decoding."""
    prompts = encoded(trained, "import", "def f", "class A")
    path, setting = tmp_path / "mine", Setting("block", 1, 3)

    def written() -> list[list[int]]:
        texts = [
            write_text(*trained, prompt, 8, np.random.default_rng([0, at])).tokens
            for at, prompt in enumerate(prompts)
        ]
        runs = measure(*trained, prompts, setting, max_tokens=12).runs
        return [found.tolist() for found in (*texts, *(run.tokens for run in runs))]

    free = written()
    ends = [free[1][3], free[3][2]]
    monkeypatch.setattr(trained[1].model.generation_config, "eos_token_id", ends)
    shorter = written()
    for found, longer in zip(shorter, free, strict=True):
        last = next((at for at, one in enumerate(longer) if one in ends), None)
        assert last is None or found == longer[: last + 1]
    assert len(shorter[1]) <= 4 and len(shorter[3]) <= 3
    made = capture(*trained, prompts, path, steps=8)
    assert np.asarray(made.next_tokens).tolist() == [*shorter[0], *shorter[1], *shorter[2]]
    with pytest.raises(CaptureError, match="already"):
        capture(*trained, prompts, path, steps=8)


def test_captured_logits_are_those_of_the_models(trained: tuple[Any, Any]) -> None:
    import torch

    prompt = trained[1].encode("import os\n")
    made = capture_passage(*trained, prompt, 3, np.random.default_rng(2))
    text = [*prompt.tolist(), *made.next_tokens.tolist()]
    for model, kept in zip(trained, (made.draft_logits, made.target_logits), strict=True):
        with torch.inference_mode():
            plain = model.model(input_ids=torch.tensor([text])).logits[0].numpy()
        np.testing.assert_allclose(kept, plain[prompt.size - 1 : -1], atol=0.02)
    np.testing.assert_array_equal(made.positions, prompt.size + np.arange(3))


def test_a_draft_without_a_network_is_refused(trained: tuple[Any, Any], tmp_path: Path) -> None:
    target, path = trained[1], tmp_path / "new.safetensors"
    draft = Copying(NGram(target.vocab_size))
    with pytest.raises(InvalidInputError, match="the network of the draft must be"):
        capture(draft, target, encoded(trained, "import os"), path, steps=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_captured_draft_may_copy(trained: tuple[Any, Any], temperature: float) -> None:
    """The temperature rescales the logarithms of the mixture, in a capture as in decoding."""
    target = trained[1]
    prompt = target.encode("import os\nimport")
    draft = Copying(skip_layers(target, [2]))
    made = capture_passage(draft, target, prompt, 6, np.random.default_rng(0))
    playing = Copying(draft.model, sampling=Sampling(temperature=temperature))
    playing.start(prompt)
    for row, token in enumerate(made.next_tokens.tolist()):
        wanted = playing.distributions(ROOT, np.array([0]))[0]
        assert np.abs(made.distributions(row, temperature)[1] - wanted).sum() < 0.005
        playing.advance(ROOT, 0, token)


def test_capture_writes_what_the_other_commands_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    assert "2 rows" in run("capture", path, *"--limit 1 --tokens 2 --device cpu".split()).output
    assert run("info", path).exit_code == 0
