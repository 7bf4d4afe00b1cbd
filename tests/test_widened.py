"""A widened model says what it said before, and has the neurons it claims to have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench.widened import widened  # noqa: E402
from otlp.decode.models.loading import load_model  # noqa: E402
from otlp.errors import InvalidInputError, UnsupportedProblemError  # noqa: E402
from tests.tiny_models import tiny  # noqa: E402


def test_the_logits_stay_and_the_neurons_do_not() -> None:
    target = load_model("trained:target", device="cpu").model
    wide = widened(target, 5)
    tokens = torch.arange(40)[None]
    with torch.no_grad():
        plain, other = target(tokens).logits, wide(tokens).logits
    torch.testing.assert_close(plain, other, atol=1e-4, rtol=0.0)
    before, after = (
        sum(w.numel() for name, w in model.named_parameters() if "mlp" in name)
        for model in (target, wide)
    )
    assert after == 5 * before
    assert not any(
        bool((w == 0).all(1).any()) for n, w in wide.named_parameters() if "up_proj" in n
    )
    assert target.config.intermediate_size * 5 == wide.config.intermediate_size


def test_what_cannot_be_widened_is_refused() -> None:
    with pytest.raises(UnsupportedProblemError, match="gated"):
        widened(tiny("gpt2"), 2)
    with pytest.raises(InvalidInputError, match="factor"):
        widened(tiny("llama"), 0)
    with pytest.raises(InvalidInputError, match="str"):
        widened("trained:target", 2)
