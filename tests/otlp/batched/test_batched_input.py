"""Bad input to otlp.batched: errors of documented types that name the argument."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from otlp.errors import InvalidDistributionError, InvalidInputError, TokenOutOfRangeError

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from tests.otlp.batched.rows import RULES  # noqa: E402
from tests.processes import run_python  # noqa: E402

VERIFIERS = [
    *RULES.values(),
    batched.recursive_rejection_without_replacement,
    batched.verify_paths,
]
OTHERS = [batched.acceptance, batched.conditional]


def arguments(function: Callable) -> dict[str, object]:
    """Two rows of three tokens with two drafts, or one of two paths of two tokens."""
    if function is batched.verify_paths:
        rows = torch.full((1, 2, 3, 4), 0.25)
        tokens = torch.tensor([[[0, 1], [0, 3]]])
        return {"target": rows, "draft": rows[:, :, :2], "draft_tokens": tokens}
    rows = torch.full((2, 4), 0.25)
    return {"target": rows, "draft": rows, "draft_tokens": torch.tensor([[0, 1], [2, 3]])}


NO_TENSORS = [None, "rows", 3, [[0.25] * 4], np.full((2, 4), 0.25)]


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
@pytest.mark.parametrize("name", ["target", "draft", "draft_tokens"])
@pytest.mark.parametrize("value", NO_TENSORS, ids=lambda value: type(value).__name__)
def test_tensors_are_asked_for(function: Callable, name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} is a .*: it must be a torch.Tensor"):
        function(**arguments(function) | {name: value})


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
@pytest.mark.parametrize("name", ["target", "draft"])
def test_kinds_of_tensors(function: Callable, name: str) -> None:
    rows = arguments(function)[name]
    assert isinstance(rows, torch.Tensor)
    kinds = [rows.long(), rows.bool(), rows.to(torch.complex64), rows.to_sparse()]
    if hasattr(torch, "float8_e5m2"):
        kinds.append(rows.to(torch.float8_e5m2))
    for value in kinds:
        with pytest.raises(InvalidInputError, match=f"{name} has shape .*dense tensor of float16"):
            function(**arguments(function) | {name: value})
    for value in (rows[0], rows[None], rows[..., :0]):
        with pytest.raises(InvalidInputError, match=f"{name} has shape"):
            function(**arguments(function) | {name: value})
    with pytest.raises(InvalidInputError, match="has shape"):
        function(**arguments(function) | {name: rows[..., :-1]})


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
def test_kinds_of_tokens(function: Callable) -> None:
    tokens = arguments(function)["draft_tokens"]
    assert isinstance(tokens, torch.Tensor)
    for value in (tokens.float(), tokens.bool(), tokens[0], tokens[None], tokens[..., :0]):
        with pytest.raises(InvalidInputError, match="draft_tokens has shape"):
            function(**arguments(function) | {"draft_tokens": value})
    with pytest.raises(InvalidInputError, match="has shape"):
        function(**arguments(function) | {"draft_tokens": torch.cat([tokens, tokens])})


@pytest.mark.parametrize("function", [*VERIFIERS, batched.uniforms])
def test_random_numbers(function: Callable) -> None:
    """Numbers of a wrong shape, type or range, and what is no source of numbers at all."""
    given = arguments(function)
    tokens = given["draft_tokens"]
    good = batched.uniforms(tokens)
    call = (lambda source: function(**given, generator=source)) if function in VERIFIERS else (
        lambda source: function(tokens, source)
    )  # fmt: skip
    call(good)
    for source in (7, "seed", [0.5], np.random.default_rng(0), good.numpy()):
        with pytest.raises(InvalidInputError, match=r"generator is a .*torch\.Generator"):
            call(source)
    for source in (good.float(), good.half(), (9 * good).long()):
        with pytest.raises(InvalidInputError, match=r"generator has shape .*float64"):
            call(source)
    for source in (good[:, 1:], good[0], good[None], good.repeat(1, 2), good[:0]):
        with pytest.raises(InvalidInputError, match=r"numbers of shape .*: it must be \("):
            call(source)
    for entry in (1.0, -1e-300, float("nan"), float("inf")):
        wrong = good.clone()
        wrong[-1, -1] = entry
        with pytest.raises(InvalidInputError, match=r"outside \[0, 1\)"):
            call(wrong)


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_validate_is_a_bool(function: Callable, value: object) -> None:
    with pytest.raises(InvalidInputError, match="validate is"):
        function(**arguments(function), validate=value)


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
def test_rows_of_zeros_are_named(function: Callable) -> None:
    for name in ("target", "draft"):
        given = arguments(function)
        given[name] = torch.zeros_like(given[name])
        with pytest.raises(InvalidDistributionError, match=f"{name} row 0.* sums to 0"):
            function(**given)


@pytest.mark.parametrize("logits", [None, [1.0], np.ones(3), torch.ones(3).long()])
def test_logits(logits: object) -> None:
    with pytest.raises(InvalidInputError, match="logits"):
        batched.softmax(logits)
    with pytest.raises(InvalidInputError, match="temperature is 0"):
        batched.softmax(torch.zeros(2, 3), temperature=0.0)


# --- paths ------------------------------------------------------------------------------------


def test_padding_of_paths_is_refused() -> None:
    given = arguments(batched.verify_paths)
    for place in ((0, 1, 1), (0, 0, 0)):
        tokens = given["draft_tokens"].clone()
        tokens[place] = batched.PADDING
        with pytest.raises(TokenOutOfRangeError, match="a path has no padding"):
            batched.verify_paths(given["target"], given["draft"], tokens)


def test_no_rows_of_paths() -> None:
    rows = torch.empty(0, 2, 3, 4)
    found = batched.verify_paths(rows, rows[:, :, :2], torch.empty(0, 2, 2, dtype=torch.long))
    assert found.tokens.shape == (0, 3) and found.accepted.shape == found.path.shape == (0,)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_rows_after_equal_prefixes_are_equal(name: str) -> None:
    """Two paths begin with token 0, but a different distribution follows each."""
    given = arguments(batched.verify_paths)
    rows = given[name].clone()
    rows[0, 1, 1] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    with pytest.raises(InvalidInputError, match=f"{name} row 0: paths 0 and 1 share their first 1"):
        batched.verify_paths(**given | {name: rows})
    given["draft_tokens"] = torch.tensor([[[0, 1], [2, 3]]])
    batched.verify_paths(**given | {name: rows})


# --- memory -----------------------------------------------------------------------------------

MEMORY = """
import resource, torch
from otlp import batched
torch.set_num_threads(1)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

for rows, vocab in ((5_000, 2), (400, 20_000)):
    row = torch.full((rows, vocab), 1.0 / vocab)
    drafts = torch.zeros(rows, 4, dtype=torch.long)
    for certify in (batched.verify, batched.acceptance):
        certify(row[:2], row[:2], drafts[:2])
        before = peak()
        certify(row, row, drafts)
        print(peak() - before)
"""


def test_memory_is_bounded() -> None:
    """MiB beside the input, where all of 400 rows at once took 1.6 GiB."""
    small, small_bound, large, large_bound = map(int, run_python(MEMORY).split())
    assert max(small, small_bound) < 100
    assert max(large, large_bound) < 600
