"""Language models of Hugging Face: the cache, tree attention, chats, and refused models."""

import gc
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
transformers = pytest.importorskip("transformers", reason="needs transformers")

import otlp  # noqa: E402
from otlp.decode import (  # noqa: E402
    ALGORITHMS,
    RandomChooser,
    Sampling,
    TokenTree,
    iid_paths,
    play_round,
    top_tree,
)
from otlp.decode.models.huggingface import HuggingFaceModel  # noqa: E402
from otlp.decode.models.loading import (  # noqa: E402
    TRAINED_PAIR,
    check_tokenizers,
    find_model,
    load_model,
    load_pair,
)
from otlp.decode.models.skipped_layers import skip_layers  # noqa: E402
from otlp.decode.tree import ROOT  # noqa: E402
from otlp.errors import (  # noqa: E402
    InvalidInputError,
    SizeLimitError,
    UnsupportedProblemError,
)
from tests.tiny_models import AS_PATHS, AT_ONCE, REFUSED, SIZE, generated, tiny  # noqa: E402

CONTEXT = np.arange(300, 340)


def plain_logits(model, tokens):
    """Return the logits after a text, from one forward pass without a cache."""
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
def test_a_tree_call_gives_the_logits_of_the_plain_forward(trained, tree_attention):
    for source in trained:
        model = HuggingFaceModel(source.model)
        model.tree_attention = tree_attention
        tree = random_tree(np.random.default_rng(5), 12, model.vocab_size)
        model.start(CONTEXT)
        found = model.logits(tree, np.arange(12))
        assert model.calls == 1
        np.testing.assert_allclose(found, expected(model, CONTEXT, tree), atol=1e-4)


@pytest.mark.parametrize("kind", ["gemma2", "mistral"])
def test_a_window_counts_positions_and_not_entries_of_the_cache(kind):
    """The window has 6 positions; the second tree follows a path of the first one."""
    model = HuggingFaceModel(tiny(kind))
    assert model.tree_attention and model.window == 6
    rng, context = np.random.default_rng(8), list(range(3, 10))
    model.start(np.array(context))
    for _ in range(2):
        tree = random_tree(rng, 12, SIZE)
        for nodes in (np.arange(5), np.arange(12)):
            found = model.logits(tree, nodes)
            np.testing.assert_allclose(found, expected(model, context, tree)[nodes], atol=1e-5)
        model.advance(tree, 11, 4)
        context += [*tree.path(11), 4]


def test_a_window_that_no_layer_uses_keeps_trees():
    whole = tiny("gemma2")
    windows = [kind == "sliding_attention" for kind in whole.config.layer_types]
    model = skip_layers(HuggingFaceModel(whole), np.flatnonzero(windows).tolist())
    assert model.window == 6 and model.tree_attention


def test_hooks_that_know_their_layers_by_identity_are_kept():
    """The check of a window uses a copy of the network, whose layers such a hook does not know."""
    network, context = tiny("mistral"), [3, 4, 5]
    known = {id(layer) for layer in network.model.layers}

    def hook(layer, inputs, output):
        assert id(layer) in known

    for layer in network.model.layers:
        layer.register_forward_hook(hook)
    model, tree = HuggingFaceModel(network), random_tree(np.random.default_rng(8), 12, SIZE)
    model.start(np.array(context))
    found = model.logits(tree, np.arange(12))
    np.testing.assert_allclose(found, expected(model, context, tree), atol=1e-5)


def test_the_trained_pair_takes_a_tree_at_once(trained):
    assert all(model.tree_attention for model in trained)


@pytest.mark.parametrize("tree_attention", [True, False])
def test_a_rolled_back_cache_equals_a_fresh_forward(trained, tree_attention):
    model = HuggingFaceModel(trained[0].model)
    model.tree_attention = tree_attention
    rng = np.random.default_rng(6)
    context = list(CONTEXT)
    model.start(CONTEXT)
    for nodes in (6, 9, 1, 9):
        tree = random_tree(rng, nodes, model.vocab_size)
        # Level by level, as for a draft model; the last nodes are not scored.
        for end in range(1, max(nodes - 2, 2)):
            model.logits(tree, np.arange(end))
        node, token = int(rng.integers(nodes)), int(rng.integers(model.vocab_size))
        model.advance(tree, node, token)
        context += [*tree.path(node), token]
        np.testing.assert_array_equal(model.context, context)
    tree = random_tree(rng, 4, model.vocab_size)
    found = model.logits(tree, np.arange(4))
    np.testing.assert_allclose(found, expected(model, context, tree), atol=1e-4)


def assert_decodes_greedily(kind, prompts, **settings):
    """Uses a different draft model, so that drafts are accepted and rejected."""
    draft, target = tiny(kind, 1, **settings), tiny(kind, 2, **settings)
    with torch.no_grad():
        for ours, theirs in zip(draft.parameters(), target.parameters(), strict=True):
            ours.mul_(0.1).add_(theirs, alpha=0.9)
    for tokens in prompts:
        prompt = torch.from_numpy(np.random.default_rng(tokens).integers(3, SIZE, (1, tokens)))
        assert torch.equal(*generated((draft, target), prompt))


FAST = ("bloom", "gemma2", "gpt_neo", "llama4_text", "mistral", "mpt")
LONG = ("olmoe",)
KINDS = [
    pytest.param(kind, marks=() if kind in FAST else pytest.mark.slow)
    for kind in [*AT_ONCE, *AS_PATHS]
    if kind not in LONG
] + [pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.long]) for kind in LONG]


@pytest.mark.parametrize("kind", KINDS)
def test_architectures_decode_greedily(kind):
    """Greedy text equals that of plain `generate`, also with sliding windows."""
    assert HuggingFaceModel(tiny(kind)).tree_attention == (kind in AT_ONCE)
    assert_decodes_greedily(kind, (1, 2, 5, 9, 11))


@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_do_not_give_their_plain_logits_are_refused(kind):
    with pytest.raises(UnsupportedProblemError, match="rolled back"):
        HuggingFaceModel(tiny(kind), name="odd")


def test_longrope_is_not_crossed():
    """The embedding of every position changes at a length; both sides of this length work."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [5.0] * 8, "type": "longrope"}
    settings = {"original_max_position_embeddings": 16, "rope_scaling": factors}
    assert_decodes_greedily("phi3", (1, 6), **settings)
    assert_decodes_greedily("phi3", (17, 20), **settings)
    model = HuggingFaceModel(tiny("phi3", **settings), name="m")
    assert model.context_limit == 16
    model.start(np.arange(14))
    tree = TokenTree(np.array([-1, 1, 2, 3]), np.array([-1, 0, 1, 2]))
    model.logits(tree, np.array([2]))
    with pytest.raises(InvalidInputError, match=r"17 tokens .* is 16, where its rotary embedding"):
        model.logits(tree, np.array([3]))
    model.start(np.arange(17))
    assert model.context_limit == 128
    target, prompt = tiny("phi3", **settings), torch.ones((1, 10), dtype=torch.long)
    with pytest.raises(InvalidInputError, match=r"20 tokens .* at most 6"):
        generated((target, target), prompt)


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(InvalidInputError, match=r"model\.eval\(\)"):
        HuggingFaceModel(tiny("gpt2").train())


def test_a_model_is_tried_once_and_again_when_it_was_changed():
    model, called = tiny("gpt2"), []
    model.transformer.register_forward_hook(lambda *_: called.append(1))

    def calls():
        called.clear()
        HuggingFaceModel(model)
        return len(called)

    assert calls() > 0 and calls() == 0
    model.to(torch.bfloat16)
    assert calls() > 0 and calls() == 0
    model.config.layer_norm_epsilon *= 2.0
    assert calls() > 0 and calls() == 0
    model.transformer.h[0].mlp = torch.nn.Identity()
    assert calls() > 0 and calls() == 0
    model.forward = model.forward
    assert calls() > 0 and calls() == 0


def test_a_tried_model_is_not_kept_alive():
    model = tiny("gpt2")
    HuggingFaceModel(model)
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", ["two-slice", "traversal", "k-seq", "optimal"])
def test_rounds_go_on_where_the_last_one_ended(trained, name):
    sampling = Sampling(temperature=0.7, top_k=20)
    draft, target = (HuggingFaceModel(model.model, None, sampling) for model in trained)
    rng = np.random.default_rng(8)
    for model in (draft, target):
        model.start(CONTEXT)
    context = list(CONTEXT)
    for _ in range(3):
        context += play_round(draft, target, iid_paths(3, 3), ALGORITHMS[name], rng).tokens.tolist()
    for model in (draft, target):
        np.testing.assert_array_equal(model.context, context)
    assert target.calls == 3 and draft.calls == 9


@pytest.mark.parametrize("tree_attention", [True, False])
def test_a_tree_may_leave_out_what_was_scored(tree_attention):
    """A tree of the most likely nodes has other node numbers than the tree it was grown from."""
    draft = HuggingFaceModel(tiny("llama"), None, Sampling(0.05))
    draft.tree_attention = tree_attention
    chooser = RandomChooser(np.random.default_rng(0))
    for nodes in (2, 4, 7):
        draft.start(CONTEXT % SIZE)
        for _ in range(3):
            tree = top_tree(nodes, 3).draft(draft, chooser)
            draft.advance(tree, int(tree.depths.argmax()), 1)
            found = draft.logits(ROOT, np.array([0]))[0]
            np.testing.assert_allclose(found, plain_logits(draft, draft.context), atol=1e-5)


def test_prompts_that_do_not_fit_are_refused(trained):
    model = trained[1]
    with pytest.raises(InvalidInputError, match=r"600 tokens .* 512"):
        model.start(np.zeros(600, dtype=np.int64))
    with pytest.raises(InvalidInputError, match="at least one"):
        model.start(np.empty(0, dtype=np.int64))
    with pytest.raises(InvalidInputError, match="4096"):
        model.start(np.array([4096]))
    with pytest.raises(InvalidInputError, match="integer token ids"):
        model.start(np.array([1.5]))
    model.start(np.full(511, 7))
    with pytest.raises(InvalidInputError, match="513 tokens"):
        model.logits(TokenTree(np.array([-1, 1, 1]), np.array([-1, 0, 1])), np.array([2]))


def test_missing_models_are_named(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="no model folder"):
        load_model(str(tmp_path / "absent"))
    with pytest.raises(InvalidInputError, match=r"config\.json"):
        load_model(str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"dtype must be .*, got 'int4'"):
        load_model(TRAINED_PAIR[0], dtype="int4")
    with pytest.raises(InvalidInputError, match="on 'tpu9'"):
        load_model(TRAINED_PAIR[1], device="tpu9")


def test_different_vocabularies_and_tokenizers_are_named(trained, tmp_path: Path):
    draft, target = trained
    with pytest.raises(InvalidInputError, match=r"64 tokens .* 4096"):
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


WOULD_FIT = (
    rf"{len(CONTEXT)} tokens of the context and 0 draft tokens.*"
    r"at most about \d+ tokens fit in one call; shorten the prompt, draft fewer"
)


def accelerator():
    raise torch.OutOfMemoryError("out of memory")


def allocator():
    torch.empty(2**60)


def another():
    raise RuntimeError("shapes differ")


@pytest.mark.parametrize(
    ("fail", "kind", "words"),
    [
        (accelerator, SizeLimitError, WOULD_FIT),
        (allocator, SizeLimitError, WOULD_FIT),
        (another, RuntimeError, "^shapes differ"),
    ],
)
def test_out_of_memory_says_what_would_fit(trained, monkeypatch, fail, kind, words):
    model = HuggingFaceModel(trained[1].model, name="big")
    monkeypatch.setattr(type(model.model), "forward", lambda *_, **__: fail())
    model.start(CONTEXT)
    with pytest.raises(kind, match=words):
        model.logits(TokenTree(np.array([-1]), np.array([-1])), np.array([0]))


# --- chats as prompts, through the tokenizer's template ----------------------------------------

MESSAGES = [{"role": "user", "content": "def f(x):"}]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture
def chatting():
    found = load_model(TRAINED_PAIR[1], device="cpu")
    # a tokenizer that adds a start token to every text, as many do
    found.tokenizer.bos_token = found.tokenizer.convert_ids_to_tokens(0)
    found.tokenizer.add_bos_token = True
    return found


def test_a_chat_is_what_its_template_says_and_begins_once(chatting):
    chatting.tokenizer.chat_template = TEMPLATE
    ids = chatting.encode_chat(MESSAGES)
    assert ids.dtype == np.int64 and (ids == 0).sum() == 1 and ids[0] == 0
    assert chatting.tokenizer.decode(ids[1:]) == "user: def f(x):\nassistant:"


def test_a_model_without_a_template_says_so(chatting):
    with pytest.raises(InvalidInputError, match="has no chat template: pass the prompt as text"):
        chatting.encode_chat(MESSAGES)


def test_what_a_template_refuses_is_named(chatting):
    chatting.tokenizer.chat_template = "{{ raise_exception('only users speak') }}"
    with pytest.raises(InvalidInputError, match="rejects the messages: only users speak"):
        chatting.encode_chat(MESSAGES)


@pytest.mark.parametrize(("end_tokens", "ends"), [([-1, 3, SIZE], (3,)), (-1, ()), (5, (5,))])
def test_ends_are_tokens_whatever_the_configuration_says(end_tokens, ends):
    model = HuggingFaceModel(tiny("llama", eos_token_id=end_tokens))
    assert model.ends == ends
    texts = otlp.decode.decode(model, [[1, 2]], 4, np.random.default_rng(0), ends=model.ends)
    assert texts[0].tokens.size <= 4


def test_the_hub_is_asked_once_and_only_for_names_with_an_owner(monkeypatch):
    from huggingface_hub import HfApi

    asked = []

    def unreachable(self, source, timeout):
        assert timeout <= 10.0
        asked.append(source)
        raise ConnectionError("no network")

    monkeypatch.setattr(HfApi, "model_info", unreachable)
    with pytest.raises(InvalidInputError, match="the hub cannot be reached"):
        load_model("nobody/nothing")
    with pytest.raises(InvalidInputError, match=r"\(owner/name\); did you mean 'smollm2'\?"):
        load_model("smolm2")
    with pytest.raises(InvalidInputError, match=r"\(owner/name\)$"):
        load_model("foo")
    for draft in ("lookup", "prompt-lookup", "skip:7,8", "copying:smollm2", "smollm2+lookup"):
        with pytest.raises(InvalidInputError, match="cannot run alone: pass it as a draft"):
            load_model(draft)
    assert asked == ["nobody/nothing"]


def test_a_window_that_the_model_does_not_apply_is_not_applied(monkeypatch):
    """In low precision the tolerance of the probe is larger than the effect of a window."""
    model = tiny("mistral").to(torch.bfloat16)
    assert HuggingFaceModel(model).tree_attention
    plain = transformers.models.mistral.modeling_mistral.create_causal_mask
    monkeypatch.setattr(
        "transformers.models.mistral.modeling_mistral.create_sliding_window_causal_mask", plain
    )
    assert not HuggingFaceModel(tiny("mistral").to(torch.bfloat16)).tree_attention
