"""Chats as prompts, through the tokenizer's template."""

from __future__ import annotations

import numpy as np
import pytest

from otlp.errors import InvalidInputError

pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
pytest.importorskip("transformers")

from otlp.decode.models.loading import TRAINED_PAIR, load_model

MESSAGES = [{"role": "user", "content": "def f(x):"}]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture
def model():
    found = load_model(TRAINED_PAIR[1], device="cpu")
    # a tokenizer that begins every text with one, as many do
    found.tokenizer.bos_token = found.tokenizer.convert_ids_to_tokens(0)
    found.tokenizer.add_bos_token = True
    return found


def test_a_chat_is_what_its_template_says_and_begins_once(model) -> None:
    model.tokenizer.chat_template = TEMPLATE
    ids = model.encode_chat(MESSAGES)
    assert ids.dtype == np.int64 and (ids == 0).sum() == 1 and ids[0] == 0
    assert model.tokenizer.decode(ids[1:]) == "user: def f(x):\nassistant:"


def test_a_model_without_a_template_says_so(model) -> None:
    with pytest.raises(InvalidInputError, match="has no chat template: give the prompt as text"):
        model.encode_chat(MESSAGES)


def test_what_a_template_refuses_is_named(model) -> None:
    model.tokenizer.chat_template = "{{ raise_exception('only users speak') }}"
    with pytest.raises(InvalidInputError, match="refuses the messages: only users speak"):
        model.encode_chat(MESSAGES)
