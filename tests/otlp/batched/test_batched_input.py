"""Invalid input to otlp.batched raises documented errors; memory use; imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    OTLPError,
    TokenOutOfRangeError,
    ZeroProbabilityError,
)

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from tests.otlp.batched.rows import RULES  # noqa: E402
from tests.processes import run_python  # noqa: E402

VERIFIERS = [*RULES.values(), batched.recursive_rejection_without_replacement, batched.verify_paths]
OTHERS = [batched.acceptance]


def arguments(function: Callable) -> dict[str, Any]:
    """Return two rows with two drafts, or one row of two paths of two tokens."""
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
    with pytest.raises(InvalidInputError, match=f"{name} must be a torch.Tensor of .*, got "):
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
        with pytest.raises(InvalidInputError, match=f"{name} must be a dense tensor of float16"):
            function(**arguments(function) | {name: value})
    for value in (rows[0], rows[None], rows[..., :0]):
        with pytest.raises(InvalidInputError, match=f"{name} must have shape"):
            function(**arguments(function) | {name: value})
    with pytest.raises(InvalidInputError, match=r"must have (the )?shape"):
        function(**arguments(function) | {name: rows[..., :-1]})


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
def test_kinds_of_tokens(function: Callable) -> None:
    tokens = arguments(function)["draft_tokens"]
    assert isinstance(tokens, torch.Tensor)
    for value in (tokens.float(), tokens.bool(), tokens[0], tokens[None], tokens[..., :0]):
        with pytest.raises(InvalidInputError, match=r"draft_tokens must (have|be a dense)"):
            function(**arguments(function) | {"draft_tokens": value})
    with pytest.raises(InvalidInputError, match=r"must have (the )?shape"):
        function(**arguments(function) | {"draft_tokens": torch.cat([tokens, tokens])})


@pytest.mark.parametrize("function", [*VERIFIERS, batched.uniforms])
def test_random_numbers(function: Callable) -> None:
    """Numbers of a wrong shape, type or range, and invalid sources of numbers."""
    given = arguments(function)
    tokens = given["draft_tokens"]
    good = batched.uniforms(tokens)
    call = (lambda source: function(**given, generator=source)) if function in VERIFIERS else (
        lambda source: function(tokens, source)
    )  # fmt: skip
    call(good)
    for source in (7, "seed", [0.5], np.random.default_rng(0), good.numpy()):
        with pytest.raises(InvalidInputError, match=r"must be a torch\.Generator.*, got "):
            call(source)
    for numbers in (good.float(), good.half(), (9 * good).long()):
        with pytest.raises(InvalidInputError, match=r"generator must be a dense tensor of float64"):
            call(numbers)
    for numbers in (good[:, 1:], good[0], good[None], good.repeat(1, 2), good[:0]):
        with pytest.raises(InvalidInputError, match=r"in generator must have shape \(.*, got \("):
            call(numbers)
    for entry in (1.0, -1e-300, float("nan"), float("inf")):
        wrong = good.clone()
        wrong[-1, -1] = entry
        with pytest.raises(InvalidInputError, match=r"must lie in \[0, 1\)"):
            call(wrong)


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_validate_is_a_bool(function: Callable, value: object) -> None:
    with pytest.raises(InvalidInputError, match="validate must be True or False, got"):
        function(**arguments(function), validate=value)


@pytest.mark.parametrize("function", [*VERIFIERS, *OTHERS])
def test_rows_of_zeros_are_named(function: Callable) -> None:
    for name in ("target", "draft"):
        given = arguments(function)
        given[name] = torch.zeros_like(given[name])
        with pytest.raises(InvalidDistributionError, match=f"{name} row 0.* must .*, got sum 0"):
            function(**given)


@pytest.mark.parametrize("logits", [None, [1.0], np.ones(3), torch.ones(3).long()])
def test_logits(logits: object) -> None:
    with pytest.raises(InvalidInputError, match="logits"):
        batched.softmax(logits)


# --- invalid arguments -------------------------------------------------------------------------

NAN = float("nan")
EVEN, APART = torch.full((2, 4), 0.25), torch.device("meta")
Change = tuple[str, dict[tuple[int, ...], float]]
"""Entries of an argument to change."""
REFUSED: list[tuple[Callable, Change | dict[str, object], type[OTLPError], str]] = [
    *((batched.verify, (name, {(1, 0): entry}), InvalidDistributionError, f"{name} row 1 must have")
      for name in ("target", "draft") for entry in (NAN, float("inf"), -0.5, 0.9)),
    (batched.verify, {"target": batched.softmax(EVEN.log() * torch.tensor([[1.0], [torch.inf]]))},
     InvalidDistributionError, "target row 1"),
    *((batched.verify, ("draft_tokens", {(1, 1): token}), TokenOutOfRangeError,
       f"row 1: token id {token} ") for token in (4, -2, 10**9)),
    (batched.verify, ("draft", {(1, 2): 0.0, (1, 3): 0.5}), ZeroProbabilityError,
     "row 1: token 2 has draft probability 0"),
    (batched.verify, {"draft": EVEN.to(APART), "validate": False}, InvalidInputError,
     r"one device, got .*draft on meta"),
    (batched.verify, {"generator": torch.empty(2, 8, device=APART).double()}, InvalidInputError,
     r"generator must be on the device of the rows, cpu, got meta"),
    (batched.verify_paths, {"draft_tokens": torch.zeros(1, 10_001, 2).long()}, InvalidInputError,
     "draft_tokens must have at most 10,000 paths per row, got 10,001"),
    (batched.verify_paths, {"target": torch.full((1, 2, 2, 4), 0.25)}, InvalidInputError,
     "target must have shape"),
    (batched.verify_paths, {"draft": torch.full((1, 2, 2, 4), 0.25, device=APART)},
     InvalidInputError, "one device"),
    (batched.verify_paths, ("target", {(0, 1, 2, 0): NAN}), InvalidDistributionError,
     "target row 0, 1, 2"),
    (batched.verify_paths, ("draft_tokens", {(0, 1, 1): 4}), TokenOutOfRangeError,
     "row 0, path 1, level 1"),
    *((batched.verify_paths, ("draft_tokens", {place: batched.PADDING}), TokenOutOfRangeError,
       "paths must have no padding") for place in ((0, 1, 1), (0, 0, 0))),
    (batched.verify_paths, ("draft", {(0, path, 0, token): 0.5 * token
                                      for path in range(2) for token in range(2)}),
     ZeroProbabilityError, "row 0, path 0, level 0"),
]  # fmt: skip


def changed(function: Callable, change: Change | dict[str, object]) -> dict[str, object]:
    given = arguments(function)
    if isinstance(change, dict):
        return given | change
    name, entries = change
    tensor = given[name].clone()
    for place, value in entries.items():
        tensor[place] = value
    return given | {name: tensor}


@pytest.mark.parametrize(
    ("function", "change", "kind", "message"),
    REFUSED,
    ids=[f"{function.__name__}: {message}" for function, *_, message in REFUSED],
)
def test_bad_input_is_named(function: Callable, change: Any, kind: Any, message: str) -> None:
    function(**arguments(function))
    with pytest.raises(kind, match=message):
        function(**changed(function, change))


# --- paths ------------------------------------------------------------------------------------


def test_no_rows_of_paths() -> None:
    rows = torch.empty(0, 2, 3, 4)
    found = batched.verify_paths(rows, rows[:, :, :2], torch.empty(0, 2, 2, dtype=torch.long))
    assert found.tokens.shape == (0, 3) and found.accepted.shape == found.path.shape == (0,)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_rows_after_equal_prefixes_are_equal(name: str) -> None:
    """Two paths begin with token 0, but have different distributions after it."""
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
    """MiB in addition to the input; 400 rows at once used 1.6 GiB."""
    small, small_bound, large, large_bound = map(int, run_python(MEMORY).split())
    assert max(small, small_bound) < 100
    assert max(large, large_bound) < 600


# --- imports -----------------------------------------------------------------------------------


def test_missing_torch_names_the_install_command() -> None:
    code = """
import sys
sys.modules["torch"] = None
import otlp
try:
    import otlp.batched
except otlp.errors.EngineNotFoundError as error:
    print(error)
"""
    assert 'pip install -e ".[torch]"' in run_python(code)


@pytest.mark.parametrize("module", ["otlp.batched", "otlp.device"])
def test_the_compiler_is_not_imported_with_torch(module: str) -> None:
    """The import takes seconds, and with it Triton decides between compiler and interpreter."""
    heavy = "{'torch._dynamo', 'torch._inductor', 'triton'}"
    assert run_python(f"import sys, {module}; print({heavy} & set(sys.modules))") == "set()\n"
