"""Language models of Hugging Face: the cache, tree attention, and what they refuse."""

import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install otlp[decode]")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from otlp.decode import ALGORITHMS, Sampling, TokenTree, iid_paths, play_round  # noqa: E402
from otlp.decode.models.huggingface import HuggingFaceModel  # noqa: E402
from otlp.decode.models.loading import (  # noqa: E402
    TRAINED_PAIR,
    check_tokenizers,
    find_model,
    load_model,
    load_pair,
)
from otlp.errors import (  # noqa: E402
    InvalidInputError,
    SizeLimitError,
    UnsupportedProblemError,
)

CONTEXT = np.arange(300, 340)


@pytest.fixture(scope="module")
def pair():
    return load_pair(device="cpu")


def plain_logits(model, tokens):
    """Logits after a text, by one forward pass without a cache."""
    with torch.inference_mode():
        return model.model(input_ids=torch.tensor([list(map(int, tokens))])).logits[0, -1].numpy()


def random_tree(rng, nodes, vocab_size):
    parents = np.array([-1, *(rng.integers(n) for n in range(1, nodes))])
    return TokenTree(np.array([-1, *rng.integers(vocab_size, size=nodes - 1)]), parents)


def expected(model, context, tree):
    return np.stack(
        [plain_logits(model, [*context, *tree.path(node)]) for node in range(len(tree))]
    )


@pytest.mark.parametrize("tree_attention", [True, False])
def test_a_tree_call_gives_the_logits_of_the_plain_forward(pair, tree_attention):
    for source in pair:
        model = HuggingFaceModel(source.model, tree_attention=tree_attention)
        tree = random_tree(np.random.default_rng(5), 12, model.vocab_size)
        model.start(CONTEXT)
        found = model.logits(tree, np.arange(12))
        assert model.calls == 1
        np.testing.assert_allclose(found, expected(model, CONTEXT, tree), atol=1e-4)


def test_the_trained_pair_takes_a_tree_at_once(pair):
    assert all(model.tree_attention for model in pair)


@pytest.mark.parametrize("tree_attention", [True, False])
def test_a_rolled_back_cache_equals_a_fresh_forward(pair, tree_attention):
    model = HuggingFaceModel(pair[0].model, tree_attention=tree_attention)
    rng = np.random.default_rng(6)
    context = list(CONTEXT)
    model.start(CONTEXT)
    for nodes in (6, 9, 1, 9):
        tree = random_tree(rng, nodes, model.vocab_size)
        # level by level, as a draft model is called, the last nodes never scored
        for end in range(1, max(nodes - 2, 2)):
            model.logits(tree, np.arange(end))
        node, token = int(rng.integers(nodes)), int(rng.integers(model.vocab_size))
        model.advance(tree, node, token)
        context += [*tree.path(node), token]
        np.testing.assert_array_equal(model.context, context)
    tree = random_tree(rng, 4, model.vocab_size)
    found = model.logits(tree, np.arange(4))
    np.testing.assert_allclose(found, expected(model, context, tree), atol=1e-4)


def tiny(kind, **settings):
    """A model of another architecture with random weights."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, **settings
    )
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("gpt2", {}),
        ("bloom", {}),
        ("qwen2", {"intermediate_size": 32, "num_key_value_heads": 1}),
        ("mistral", {"intermediate_size": 32, "num_key_value_heads": 2, "sliding_window": 5}),
    ],
)
def test_other_architectures_score_trees(kind, settings):
    model = HuggingFaceModel(tiny(kind, **settings))
    assert kind not in ("bloom", "mistral") or not model.tree_attention
    rng = np.random.default_rng(7)
    context = rng.integers(50, size=12)
    model.start(context)
    tree = random_tree(rng, 8, 50)
    np.testing.assert_allclose(
        model.logits(tree, np.arange(8)), expected(model, context, tree), atol=1e-4
    )
    model.advance(tree, 5, 3)
    after = [*context, *tree.path(5), 3]
    root = TokenTree(np.array([-1]), np.array([-1]))
    np.testing.assert_allclose(
        model.logits(root, np.array([0]))[0], plain_logits(model, after), atol=1e-4
    )


def test_a_recurrent_model_is_refused():
    config = transformers.AutoConfig.for_model(
        "mamba", vocab_size=50, hidden_size=32, num_hidden_layers=1
    )
    with pytest.raises(UnsupportedProblemError, match="rolled back"):
        HuggingFaceModel(transformers.AutoModelForCausalLM.from_config(config).eval(), name="m")


@pytest.mark.parametrize("name", ["martingale", "traversal", "k-seq", "optimal"])
def test_rounds_go_on_where_the_last_one_ended(pair, name):
    sampling = Sampling(temperature=0.7, top_k=20)
    draft, target = (HuggingFaceModel(model.model, None, sampling) for model in pair)
    rng = np.random.default_rng(8)
    for model in (draft, target):
        model.start(CONTEXT)
    context = list(CONTEXT)
    for _ in range(3):
        context += play_round(draft, target, iid_paths(3, 3), ALGORITHMS[name], rng).tokens.tolist()
    for model in (draft, target):
        np.testing.assert_array_equal(model.context, context)
    assert target.calls == 3 and draft.calls == 9


def test_prompts_that_do_not_fit_are_refused(pair):
    model = pair[1]
    with pytest.raises(InvalidInputError, match=r"600 tokens .* 512"):
        model.start(np.zeros(600, dtype=np.int64))
    with pytest.raises(InvalidInputError, match="at least one"):
        model.start(np.empty(0, dtype=np.int64))
    with pytest.raises(InvalidInputError, match="4096"):
        model.start(np.array([4096]))
    model.start(np.full(511, 7))
    with pytest.raises(InvalidInputError, match="513 tokens"):
        model.logits(TokenTree(np.array([-1, 1, 1]), np.array([-1, 0, 1])), np.array([2]))


def test_missing_models_are_named(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="no model folder"):
        load_model(str(tmp_path / "absent"))
    with pytest.raises(InvalidInputError, match=r"config\.json"):
        load_model(str(tmp_path))
    with pytest.raises(InvalidInputError, match="dtype is 'int4'"):
        load_model(TRAINED_PAIR[0], dtype="int4")
    with pytest.raises(InvalidInputError, match="on 'tpu9'"):
        load_model(TRAINED_PAIR[1], device="tpu9")


def test_different_vocabularies_and_tokenizers_are_named(pair, tmp_path: Path):
    draft, target = pair
    with pytest.raises(InvalidInputError, match=r"50 tokens .* 4096"):
        check_tokenizers(HuggingFaceModel(tiny("gpt2"), name="other"), target)
    folder = tmp_path / "swapped"
    shutil.copytree(find_model(TRAINED_PAIR[1]), folder)
    path = folder / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    vocabulary = draft.tokenizer.get_vocab()
    first, second = "def", "return"
    one, two = f'"{first}": {vocabulary[first]}', f'"{second}": {vocabulary[second]}'
    assert one in text and two in text
    swapped = text.replace(one, f'"{first}": {vocabulary[second]}')
    path.write_text(swapped.replace(two, f'"{second}": {vocabulary[first]}'), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"differ in 4 entries, first in '(def|return)'"):
        load_pair(draft=str(folder), device="cpu")


@pytest.mark.parametrize("fail", ["accelerator", "allocator"])
def test_out_of_memory_says_what_would_fit(pair, monkeypatch, fail):
    model = HuggingFaceModel(pair[1].model, name="big")

    def exhausted(*_, **__):
        if fail == "accelerator":
            raise torch.OutOfMemoryError("out of memory")
        torch.empty(2**60)

    monkeypatch.setattr(type(model.model), "forward", exhausted)
    model.start(CONTEXT)
    words = (
        rf"{len(CONTEXT)} tokens of the context and 0 drafted.*"
        r"at most some \d+ tokens fit in one call; shorten the prompt, draft fewer"
    )
    with pytest.raises(SizeLimitError, match=words):
        model.logits(TokenTree(np.array([-1]), np.array([-1])), np.array([0]))


def test_other_failures_are_not_taken_for_a_lack_of_memory(pair, monkeypatch):
    model = HuggingFaceModel(pair[1].model, name="odd")

    def broken(*_, **__):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(type(model.model), "forward", broken)
    model.start(CONTEXT)
    with pytest.raises(RuntimeError, match="shapes differ"):
        model.logits(TokenTree(np.array([-1]), np.array([-1])), np.array([0]))
