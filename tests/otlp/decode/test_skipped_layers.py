"""A draft that is its target without some layers, against a model saved without the layers."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from otlp import decode  # noqa: E402
from otlp.decode.models.copying import Copying  # noqa: E402
from otlp.decode.models.fingerprint import files_fingerprint, fingerprint  # noqa: E402
from otlp.decode.models.huggingface import HuggingFaceModel  # noqa: E402
from otlp.decode.models.loading import TRAINED_PAIR, load_draft, load_model, parts_of  # noqa: E402
from otlp.decode.models.skipped_layers import skip_layers, without_layers  # noqa: E402
from otlp.decode.tree import TokenTree  # noqa: E402
from otlp.errors import InvalidInputError, UnsupportedProblemError  # noqa: E402
from tests.tiny_models import AS_PATHS, AT_ONCE, tiny  # noqa: E402

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "vocab_size": 40}
MORE = SIZES | {"intermediate_size": 24, "num_hidden_layers": 4, "num_key_value_heads": 1}
WINDOWS = MORE | {"head_dim": 8, "sliding_window": 4}
KINDS = {
    "llama": transformers.LlamaConfig(**MORE),
    "gpt2": transformers.GPT2Config(n_embd=16, n_head=2, n_layer=4, vocab_size=40),
    "gpt-neox": transformers.GPTNeoXConfig(**SIZES, intermediate_size=24, num_hidden_layers=4),
    "gemma3, of two kinds of layers": transformers.Gemma3TextConfig(
        **WINDOWS,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    ),
}


def network(kind: str):
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(KINDS[kind]).eval()


def deleted(whole, layers: list[int], folder: Path):
    """Delete layers, renumber the others, save the model and load it again."""
    config = deepcopy(whole.config)
    kept = [layer for layer in range(4) if layer not in layers]
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in kept]
    made = transformers.AutoModelForCausalLM.from_config(config).eval()
    state = {}
    for name, value in whole.state_dict().items():
        parts = name.split(".")
        numbers = [at for at, part in enumerate(parts) if part.isdigit()]
        if numbers:
            if int(parts[numbers[0]]) in layers:
                continue
            parts[numbers[0]] = str(kept.index(int(parts[numbers[0]])))
        state[".".join(parts)] = value.clone()
    made.load_state_dict(state)
    made.save_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("layers", [[0], [3], [2, 1], [0, 1, 3]])
@pytest.mark.parametrize("kind", KINDS)
def test_laws_are_those_of_a_model_without_the_layers(
    kind: str, layers: list[int], tmp_path: Path
) -> None:
    """Bitwise equal, in one call over the text and with a cache over trees and rollbacks."""
    whole = network(kind)
    before = {name: value.clone() for name, value in whole.state_dict().items()}
    draft = skip_layers(HuggingFaceModel(whole, name="whole"), layers)
    wanted = HuggingFaceModel(deleted(whole, layers, tmp_path), name="cut")
    tokens = torch.tensor([[5, 3, 7, 4, 6, 11, 2, 39]])
    with torch.inference_mode():
        assert torch.equal(draft.model(tokens).logits, wanted.model(tokens).logits)
    tree = TokenTree(np.array([-1, 8, 9, 8, 5]), np.array([-1, 0, 0, 2, 3]))
    for model in (draft, wanted):
        model.start(np.array([5, 3, 7]))
    for accepted in (4, 2, 1):
        one, other = (model.distributions(tree, np.arange(5)) for model in (draft, wanted))
        assert np.array_equal(one, other)
        for model in (draft, wanted):
            model.advance(tree, accepted, 7)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.slow
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", [*AT_ONCE, *AS_PATHS])
def test_every_architecture_runs_without_a_layer(kind: str, layer: int) -> None:
    """As if the layer were removed from the list of layers; or the architecture is refused."""
    whole = tiny(kind)
    try:
        shorter = without_layers(whole, [layer], kind)
    except UnsupportedProblemError:
        assert kind in ("bart", "llama4_text")  # for two lists, and for a list of some layers
        return
    config = whole.config.get_text_config()
    count = config.num_hidden_layers
    lists = (part for part in whole.modules() if isinstance(part, torch.nn.ModuleList))
    del next(part for part in lists if len(part) == count)[layer]
    config.num_hidden_layers = count - 1
    if getattr(config, "layer_types", None):
        config.layer_types = [one for at, one in enumerate(config.layer_types) if at != layer]
    tokens = torch.tensor([[5, 3, 7, 4, 6, 11, 2, 39, 9, 8, 1, 2, 3]])
    with torch.inference_mode():
        found, wanted = (one(tokens, use_cache=False).logits for one in (shorter, whole))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_shared(kind: str) -> None:
    whole = network(kind)
    shorter = without_layers(whole, [1], "whole")
    places = {value.data_ptr() for value in whole.parameters()}
    assert all(value.data_ptr() in places for value in shorter.parameters())
    assert not any(value.is_meta for value in [*shorter.parameters(), *shorter.buffers()])
    assert whole.config.num_hidden_layers == 4


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([4], r"layers must be distinct layers of whole, 0 to 3, got \[4\]"),
        ([-1], "distinct layers of whole, 0 to 3"),
        ([1, 1], "distinct layers of whole, 0 to 3"),
        ([1.0], "distinct layers of whole, 0 to 3"),
        ([True], "distinct layers of whole, 0 to 3"),
        ([], "number of skipped layers of whole must be 1 to 3, got 0"),
        ([0, 1, 2, 3], "number of skipped layers of whole must be 1 to 3, got 4"),
    ],
)
def test_layers_that_make_no_sense_are_named(layers: list, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        without_layers(network("llama"), layers, "whole")


def test_a_network_without_a_list_of_layers_is_named() -> None:
    class Two(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self, whole) -> None:
            super().__init__()
            self.config, self.one, self.other = whole.config, whole, deepcopy(whole)

    with pytest.raises(UnsupportedProblemError, match="whole has 2 lists of 4 layers"):
        without_layers(Two(network("llama")), [1], "whole")


def test_a_network_that_cannot_be_built_anew_is_named() -> None:
    class Odd(transformers.LlamaForCausalLM):  # type: ignore[name-defined]
        def __init__(self, config, other) -> None:
            super().__init__(config)

    with pytest.raises(UnsupportedProblemError, match="whole cannot be built without layers"):
        without_layers(Odd(KINDS["llama"], None), [1], "whole")


# --- by name ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target() -> HuggingFaceModel:
    return load_model(TRAINED_PAIR[0], device="cpu")


def test_drafts_by_name(target: HuggingFaceModel) -> None:
    own = load_draft("skip:2,4", target)
    assert own.name == f"skip:2,4@{TRAINED_PAIR[0]}"
    other = load_draft(f"skip:2,4@{TRAINED_PAIR[0]}", target, device="cpu")
    copying = load_draft("copying:skip:2,4", target)
    mixed = load_draft("0.5*skip:2,4+0.5*lookup", target)
    assert isinstance(copying, Copying) and isinstance(mixed, decode.Mixture)
    assert fingerprint(own) == fingerprint(other) == fingerprint(copying.model)
    assert fingerprint(own) != fingerprint(target) != fingerprint(load_draft("skip:2", target))
    tree = TokenTree(np.array([-1, 17]), np.array([-1, 0]))
    for model in (own, other, target):
        model.start(np.array([300, 301]))
    laws = [model.distributions(tree, np.arange(2)) for model in (own, other, target)]
    assert np.array_equal(laws[0], laws[1]) and np.abs(laws[0] - laws[2]).max() > 1e-3


def test_the_sampling_of_a_draft_is_its_own(target: HuggingFaceModel) -> None:
    """With `copying:` and in mixtures, the wrapper truncates the laws of the network once."""
    cool = load_model(TRAINED_PAIR[0], device="cpu", sampling=decode.Sampling(temperature=0.5))
    copying = load_draft("copying:skip:2", cool, sampling=decode.Sampling(temperature=0.5))
    assert isinstance(copying, Copying) and copying.model.sampling == decode.Sampling()
    assert load_draft("skip:2", cool).sampling == decode.Sampling()


@pytest.mark.parametrize("place", [{"device": "cuda"}, {"dtype": "bfloat16"}])
def test_a_target_without_layers_runs_where_the_target_does(
    target: HuggingFaceModel, place: dict[str, str]
) -> None:
    with pytest.raises(InvalidInputError, match="shares weights of trained:target and must run"):
        load_draft("skip:2", target, **place)


@pytest.mark.parametrize("name", ["skip:", "skip:x", "skip:1,,2", "skip:1;2@trained:target"])
def test_names_without_layers_are_named(target: HuggingFaceModel, name: str) -> None:
    with pytest.raises(InvalidInputError, match="must list numbers of layers, as in skip:7,8"):
        load_draft(name, target)


def test_a_model_after_the_at_sign_is_named(target: HuggingFaceModel) -> None:
    with pytest.raises(InvalidInputError, match="must have the name of a model after @"):
        load_draft("skip:2@", target)


def test_what_a_name_stands_for(tmp_path: Path) -> None:
    assert parts_of("skip:1,2") == []
    assert parts_of(f"copying:skip:1@{TRAINED_PAIR[1]}") == parts_of(TRAINED_PAIR[1])
    assert files_fingerprint("skip:1") != files_fingerprint("skip:2")
