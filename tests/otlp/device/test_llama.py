"""The model as a function: equal when compiled, and tested within its own rounding error."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
from otlp.device.compiling import CompiledStep  # noqa: E402
from otlp.device.llama import Llama  # noqa: E402
from otlp.errors import UnsupportedProblemError  # noqa: E402
from tests.tiny_models import tiny  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["llama", *(pytest.param(one, marks=pytest.mark.long) for one in ("qwen2", "qwen3"))]
)
def test_compiled_logits_are_those_as_it_is(kind: str) -> None:
    """With biases, normalised queries and shared keys; several tokens of several texts."""
    model, batch, count = Llama(tiny(kind)), 2, 3
    tokens = torch.arange(batch * count).view(batch, count)
    places = torch.arange(count).expand(batch, -1)
    sees = torch.ones(batch, count, 19, dtype=torch.bool).tril()

    def logits(cache, *given):
        return model.logits(model.forward(cache, *given))

    with torch.no_grad():
        caches = [model.new_cache(batch, 19) for _ in range(2)]
        step, given = CompiledStep(logits), (tokens, places, places, sees)
        found, wanted = step(caches[0], *given), logits(caches[1], *given)
        assert step.compiled
        assert torch.allclose(found, wanted, rtol=0, atol=1e-5)
        for one, other in zip(*caches, strict=True):
            assert torch.allclose(torch.stack(one), torch.stack(other), rtol=0, atol=1e-5)


def test_half_precision_is_judged_by_ordinary_tokens_and_the_models_own_rounding() -> None:
    """The first ids are often special tokens, whose half-precision logits are no measure."""
    model = tiny("llama", vocab_size=512).bfloat16()

    def rough(model, given, named, found):
        if named["input_ids"].max() < 12 and found.logits.dtype == torch.bfloat16:
            found.logits += 34.0

    model.register_forward_hook(rough, with_kwargs=True)
    assert Llama(model).dtype == torch.bfloat16


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float32", "float64"])
def test_another_function_is_refused(precision: str) -> None:
    model = tiny("llama", vocab_size=512).to(getattr(torch, precision))

    def scaled(model, given, found):
        found.logits *= 1.2

    model.register_forward_hook(scaled)
    with pytest.raises(UnsupportedProblemError, match="not those of its own forward"):
        Llama(model)
