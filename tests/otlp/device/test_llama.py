"""The model's own forms of a product and of attention, for few tokens, against the library's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install otlp[decode]")
pytest.importorskip("transformers", reason="needs transformers: pip install otlp[decode]")
from otlp.device.compiling import CompiledStep  # noqa: E402
from otlp.device.llama import (  # noqa: E402
    Llama,
    attention,
    attention_in_products,
    terms_of,
)
from tests.tiny_models import tiny  # noqa: E402


def random(*shape: int):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("heads", "key_heads"), [(1, 1), (4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize(("batch", "count"), [(1, 1), (1, 5), (2, 3)])
def test_attention_in_products(batch: int, count: int, heads: int, key_heads: int) -> None:
    """Scores of any size, tokens that see themselves only, and some that see all."""
    slots, width = 11, 8
    q = 100.0 * random(batch, count, heads, width)
    keys, values = random(2, batch, key_heads, slots, width)
    sees = random(batch, count, slots) < 0.0
    sees[:, 0], sees[:, -1] = False, True
    sees[:, :, 0] = True
    found = attention_in_products(q, keys, values, terms_of(sees))
    wanted = attention(q, keys, values, sees)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_compiled_logits_are_those_as_it_is(kind: str) -> None:
    """With biases, normed queries and shared keys; few tokens of a batch, and more than few."""
    model = Llama(tiny(kind))
    for batch, count in ((1, 1), (2, 3), (1, 9), (3, 10)):
        tokens = torch.arange(batch * count).view(batch, count)
        places = torch.arange(count).expand(batch, -1)
        sees = torch.ones(batch, count, 19, dtype=torch.bool).tril()

        def logits(cache, *given):
            return model.logits(model.read(cache, *given))

        with torch.inference_mode():
            caches = [model.new_cache(batch, 19) for _ in range(2)]
            step, given = CompiledStep(logits), (tokens, places, places, sees)
            found, wanted = step(caches[0], *given), logits(caches[1], *given)
            assert step.compiled
            assert torch.allclose(found, wanted, rtol=0, atol=1e-5)
            for one, other in zip(*caches, strict=True):
                assert torch.allclose(torch.stack(one), torch.stack(other), rtol=0, atol=1e-5)
