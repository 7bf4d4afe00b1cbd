"""Random options of generate, beside transformers' own loop forced to the same tokens."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
pytest.importorskip("transformers", reason="needs transformers")

from torch.overrides import TorchFunctionMode  # noqa: E402

from otlp.decode import generate  # noqa: E402
from tests.tiny_models import PROMPTS, SIZE, tiny_pair  # noqa: E402

pytestmark = pytest.mark.slow

PADDED = torch.tensor(PROMPTS)
MASK = (torch.arange(5) >= torch.tensor([[2], [0], [4]])).long()
OPTIONS: dict[str, list[Any]] = {
    "temperature": [0.3, 0.9, 1.7],
    "top_k": [3, 20],
    "top_p": [0.5, 0.95],
    "min_p": [0.05],
    "typical_p": [0.8],
    "epsilon_cutoff": [1e-3],
    "repetition_penalty": [1.3, 3.0],
    "encoder_repetition_penalty": [0.5],
    "no_repeat_ngram_size": [1, 2],
    "bad_words_ids": [[[31], [30, 7]]],
    "suppress_tokens": [list(range(20))],
    "sequence_bias": [[[[5], 4.0], [[5, 8], 9.0]]],
    "forced_eos_token_id": [6],
    "eos_token_id": [6, list(range(12))],
    "min_new_tokens": [4],
    "renormalize_logits": [True],
    "num_return_sequences": [2],
}
RULES = ["two-slice", "tournament", "traversal", "k-seq", "greedy-multipath"]


class Forced(TorchFunctionMode):  # type: ignore[misc]
    """Draws that come out as given, a column at a time."""

    def __init__(self, columns: Any) -> None:
        self.columns = iter(columns.T)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.multinomial:
            return next(self.columns)[:, None]
        return func(*args, **(kwargs or {}))


pair = pytest.fixture(tiny_pair, scope="module")


@pytest.mark.parametrize("seed", range(24))
def test_random_options(pair: tuple[Any, Any], seed: int) -> None:
    """The same end, the same scores at every place, and no token that was ruled out."""
    rng = np.random.default_rng(seed)
    names = rng.choice(sorted(OPTIONS), size=rng.integers(1, 6), replace=False)
    asked = {name: OPTIONS[name][rng.integers(len(OPTIONS[name]))] for name in names}
    rows = slice(None) if rng.random() < 0.5 else slice(1, 2)
    given = {
        "max_new_tokens": int(rng.integers(1, 12)), "do_sample": True, "pad_token_id": 0,
        "attention_mask": MASK[rows], "return_dict_in_generate": True, "output_scores": True,
        "output_logits": True, **asked,
    }  # fmt: skip
    torch.manual_seed(seed)
    found = pair[1].generate(
        PADDED[rows], custom_generate=generate, draft_model=pair[0], paths=int(rng.integers(1, 4)),
        length=int(rng.integers(1, 5)), verification=str(rng.choice(RULES)), **copy.deepcopy(given),
    )  # fmt: skip
    tokens = found.sequences[:, PADDED.shape[1] :]
    with Forced(tokens):
        plain = pair[1].generate(PADDED[rows], **copy.deepcopy(given))
    assert torch.equal(plain.sequences, found.sequences)
    going = torch.ones(len(tokens), dtype=torch.bool)
    ends = torch.as_tensor(asked.get("eos_token_id", SIZE)).reshape(-1)
    for at, (ours, theirs) in enumerate(zip(found.scores, plain.scores, strict=True)):
        torch.testing.assert_close(ours[going], theirs[going], atol=1e-3, rtol=1e-4)
        chosen = ours.gather(1, tokens[:, at : at + 1])[going]
        assert torch.isfinite(chosen).all()
        going &= ~torch.isin(tokens[:, at], ends)
