"""Requests of different lengths are verified as in batches of their own length."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[torch]")

from otlp import batched  # noqa: E402
from otlp.errors import OTLPError  # noqa: E402

COUNTS = (3, 0, 1, 4, 2, 0, 4)


def models(vocab: int, kind: Any, seed: int, counts: tuple[int, ...] = COUNTS) -> Any:
    """Return target, draft, draft tokens and lengths; some tokens are unlikely in one model."""
    generator, total = torch.Generator().manual_seed(seed), sum(counts)
    rows = torch.rand(2 * total + len(counts), vocab, generator=generator).double() ** 3 + 1e-4
    rows = (rows / rows.sum(1, keepdim=True)).to(kind)
    target, draft = rows[total:], rows[:total]
    tokens = torch.multinomial(draft.double(), 1, generator=generator)[:, 0]
    return target, draft, tokens, torch.tensor(counts).cumsum(0)


def alone(target: Any, draft: Any, tokens: Any, numbers: Any) -> list[int]:
    """Verify one request with `verify_paths`, using the same numbers for the same prefixes."""
    length = len(tokens)
    own = torch.cat([numbers[: length + 2], numbers[-1:]])
    target, draft, tokens = (one[None, None] for one in (target, draft, tokens))
    found = batched.verify_paths(target, draft, tokens, own[None])
    return found.tokens[0].tolist()


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [2, 5, 300])
@pytest.mark.parametrize("most", [None, 4, 6])
def test_each_request_is_verified_as_it_is_alone(vocab: int, kind: Any, most: int | None) -> None:
    for seed in range(20):
        target, draft, tokens, ends = models(vocab, kind, seed)
        numbers = batched.uniforms(
            torch.zeros(len(COUNTS), 1, most or 4, dtype=torch.long),
            torch.Generator().manual_seed(seed),
        )
        found = batched.verify(
            target, draft, tokens, numbers, cu_num_draft_tokens=ends, max_spec_len=most
        )
        assert found.tokens.shape == (len(COUNTS), (most or 4) + 1) and not found.path.any()
        start = 0
        for row, count in enumerate(COUNTS):
            here = slice(start, start + count)
            rows = target[start + row : start + row + count + 1]
            own = found.tokens[row].tolist()
            if count:
                assert own[: count + 1] == alone(rows, draft[here], tokens[here], numbers[row])
            else:
                assert rows[0, own[0]] > 0
            accepted = int(found.accepted[row])
            assert own[:accepted] == tokens[here][:accepted].tolist() and own[accepted] >= 0
            assert set(own[accepted + 1 :]) <= {batched.PADDING}
            start += count


def test_a_path_ends_at_padding() -> None:
    """Tokens after padding have no effect; the next token is drawn from the target there."""
    target, draft, tokens, ends = models(6, torch.float64, 0, (3, 2))
    numbers = torch.rand(2, 6, dtype=torch.float64)
    padded = tokens.clone()
    padded[1], padded[3] = -1, -1
    found = batched.verify_requests(target, draft, padded, ends, numbers)
    wanted = alone(target[:2], draft[:1], tokens[:1], numbers[0])
    assert found.tokens[0, :2].tolist() == wanted and found.tokens[0, 2:].tolist() == [-1, -1]
    assert int(found.accepted[1]) == 0
    first = torch.searchsorted(target[4].cumsum(0), numbers[1, -1])
    assert int(found.tokens[1, 0]) == int(first)


def test_certain_drafts_are_point_masses() -> None:
    target, _, tokens, ends = models(6, torch.float64, 1)
    points = torch.nn.functional.one_hot(tokens, 6).double()
    numbers = torch.rand(len(COUNTS), 7, dtype=torch.float64)
    certain = batched.verify(target, None, tokens, numbers, cu_num_draft_tokens=ends)
    passed = batched.verify(target, points, tokens, numbers, cu_num_draft_tokens=ends)
    assert (certain.tokens == passed.tokens).all()
    # The probability of the first token is that of the target.
    assert certain.accepted[2] == int(numbers[2, 2] < target[5, tokens[3]])


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_is_drafted(count: int) -> None:
    target = torch.eye(4, dtype=torch.float64)[:count]
    empty = torch.empty(0, dtype=torch.long)
    for draft in (None, torch.empty(0, 4, dtype=torch.float64)):
        found = batched.verify_requests(target, draft, empty, torch.zeros(count, dtype=torch.long))
        assert found.tokens.tolist() == [[row] for row in range(count)]


GOOD = models(5, torch.float64, 2, (2, 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": GOOD[0][:4]}, r"target must have shape \(5, V\)"),
        ({"target": 2.0 * GOOD[0]}, "target row 0 must have .*, got sum 2"),
        ({"draft": GOOD[1][:, :4]}, r"draft must have shape \(3, 5\)"),
        ({"draft": 2.0 * GOOD[1]}, "draft row 0 must have .*, got sum 2"),
        ({"draft_tokens": GOOD[2][None]}, r"draft_tokens must have shape \(T\)"),
        ({"draft_tokens": GOOD[2].double()}, "draft_tokens"),
        ({"draft_tokens": torch.tensor([0, 5, 1])}, "draft_tokens token 1: token id 5"),
        ({"draft_tokens": torch.tensor([0, -2, 1])}, "draft_tokens token 1: token id -2"),
        ({"draft": torch.eye(5)[[0, 0, 4]]}, "probability 0"),
        ({"cu_num_draft_tokens": torch.tensor([2, 2])}, "number of drafted tokens, 3, got"),
        ({"cu_num_draft_tokens": torch.tensor([4, 3])}, "must be nondecreasing"),
        ({"cu_num_draft_tokens": torch.tensor([3])}, r"target must have shape \(4, V\)"),
        ({"cu_num_draft_tokens": [2, 3]}, "cu_num_draft_tokens"),
        ({"max_spec_len": 1}, "max_spec_len must be at least 2, .*, got 1"),
        ({"max_spec_len": -1}, "max_spec_len"),
        ({"generator": torch.rand(2, 3, dtype=torch.float64)}, r"\(2, 5\)"),
        ({"validate": 1}, "validate"),
    ],
)  # fmt: skip
def test_bad_input_is_named(change: dict[str, Any], words: str) -> None:
    names = "target", "draft", "draft_tokens", "cu_num_draft_tokens"
    with pytest.raises(OTLPError, match=words):
        batched.verify(**(dict(zip(names, GOOD, strict=True)) | change))


def test_options_of_requests_alone_are_refused_elsewhere() -> None:
    row = torch.tensor([[0.5, 0.5]])
    with pytest.raises(OTLPError, match="max_spec_len must be left out"):
        batched.verify(row, row, torch.tensor([[0]]), max_spec_len=1)
    with pytest.raises(OTLPError, match="draft must be a tensor, got None"):
        batched.verify(row, None, torch.tensor([[0]]))


def test_what_is_behind_padding_is_not_looked_at() -> None:
    target, draft, tokens, ends = models(6, torch.float64, 3, (3, 2))
    tokens[[0, 2]] = torch.tensor([-1, 9])
    draft[2] = 0.0
    assert batched.verify_requests(target, draft, tokens, ends).accepted[0] == 0
    tokens[4] = 9
    with pytest.raises(OTLPError, match="token 4: token id 9"):
        batched.verify_requests(target, draft, tokens, ends)


def test_longer_paths_than_are_asked_for_are_cut_where_nothing_is_checked() -> None:
    target, draft, tokens, ends = models(6, torch.float64, 4, (3, 2))
    target[[0, 1, 2, 4, 5]] = draft  # all drafts are accepted
    for most in (0, 1, 2):
        given = {"max_spec_len": most, "validate": False}
        found = batched.verify_requests(target, draft, tokens, ends, **given)
        assert found.tokens.shape == (2, most + 1) and found.accepted.tolist() == [most, most]
        assert (found.tokens.gather(1, found.accepted[:, None]) >= 0).all()
