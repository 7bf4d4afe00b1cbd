"""The three implementations of `otlp.batched.martingale` return the same tokens.

test_batched_lossless.py enumerates the law of the PyTorch implementation. The CPU kernel and the
GPU kernels, here in the interpreter of Triton, are compared with it token by token.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from otlp.errors import InvalidDistributionError, InvalidInputError
from tests.processes import run_python

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched import kernels  # noqa: E402
from otlp.batched.martingale_on_cpu import verify_on_cpu  # noqa: E402
from otlp.batched.martingale_rule import verify_in_pytorch  # noqa: E402
from otlp.batched.rows import prepare  # noqa: E402
from tests.otlp.batched.rows import DTYPES, degenerate_rows  # noqa: E402

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def random_rows(batch: int, vocab_size: int, most: int, dtype, seed: int):
    """Return random rows, flat to peaked, with masked tokens, up to `most` drafts, and numbers."""
    generator = torch.Generator().manual_seed(seed)
    shape = batch, vocab_size
    draft = (
        4.0 * torch.rand(batch, 1, generator=generator) * torch.randn(shape, generator=generator)
    )
    target = 0.8 * draft + torch.randn(shape, generator=generator)
    masked = torch.rand(shape, generator=generator) < 0.3 * torch.rand(
        batch, 1, generator=generator
    )
    masked[:, 0] = False
    p = batched.softmax(target.masked_fill(masked, -torch.inf)).to(dtype)
    q = batched.softmax(draft.masked_fill(masked.flip(0), -torch.inf)).to(dtype)
    tokens = batched.sample(q, most, generator, validate=False)
    tokens[torch.rand(batch, most, generator=generator) < 0.2] = batched.PADDING
    return p, q, tokens, batched.uniforms(tokens, generator)


def assert_alike(form, p, q, tokens, numbers) -> None:
    rows = prepare(p, q, tokens, validate=False)
    for one, other in zip(form(rows, numbers), verify_in_pytorch(rows, numbers), strict=True):
        assert torch.equal(one, other)


SIZES = [(3, 1), (50, 2), (1000, 4), (5000, 8), (300, 11)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("vocab_size", "most"), SIZES)
def test_the_kernel_of_the_cpu(vocab_size: int, most: int, dtype) -> None:
    assert_alike(verify_on_cpu, *random_rows(200, vocab_size, most, dtype, seed=vocab_size))


@needs_triton
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # 0 / 0, in NumPy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("vocab_size", "most"), SIZES)
def test_the_kernels_of_the_gpu(vocab_size: int, most: int, dtype) -> None:
    from otlp.batched.martingale_on_gpu import verify_on_gpu

    assert_alike(verify_on_gpu, *random_rows(8, vocab_size, most, dtype, seed=most))


@needs_triton
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_row_on_the_gpu_is_verified_alike_however_it_is_cut(monkeypatch) -> None:
    """In one part and in one part per tile, as a single row and with other rows."""
    from otlp.batched import martingale_on_gpu

    p, q, tokens, numbers = random_rows(6, 9000, 4, torch.float32, seed=12)
    rows = prepare(p, q, tokens, validate=False)
    found = []
    for programs in (1, 12, 1024):
        monkeypatch.setattr(martingale_on_gpu, "PROGRAMS", programs)
        found.append(martingale_on_gpu.verify_on_gpu(rows, numbers)[0])
    assert all(torch.equal(one, found[0]) for one in found)
    for row in range(6):
        some = slice(row, row + 1)
        alone = prepare(p[some], q[some], tokens[some], validate=False)
        token, _ = martingale_on_gpu.verify_on_gpu(alone, numbers[some])
        assert int(token) == int(found[0][row])


@needs_triton
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernels_of_the_gpu_from_logits(dtype) -> None:
    """Rows of three temperatures with masked tokens give the same tokens as their softmax."""
    from otlp.batched.martingale_on_gpu import verify_on_gpu

    p, q, tokens, numbers = random_rows(12, 3000, 3, torch.float32, seed=9)
    logits = (p.log() + 3.0).to(dtype)
    temperature = torch.tensor([0.5, 1.0, 1.7]).repeat(4)
    rows = prepare(logits, q, tokens, validate=False)
    found, accepted = verify_on_gpu(rows, numbers, temperature)
    wanted = batched.martingale(batched.softmax(logits, temperature), q, tokens, numbers)
    assert torch.equal(found, wanted[0]) and torch.equal(accepted, wanted[1])


@needs_triton
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "kinds", [("float32", "float64"), ("float64", "bfloat16"), ("float16", "float32")]
)
def test_rows_of_two_types(kinds: tuple[str, str]) -> None:
    from otlp.batched.martingale_on_gpu import verify_on_gpu

    p, q, tokens, numbers = random_rows(8, 300, 3, torch.float32, seed=13)
    target, draft = p.to(getattr(torch, kinds[0])), q.to(getattr(torch, kinds[1]))
    for form in (verify_on_cpu, verify_on_gpu):
        assert_alike(form, target, draft, tokens, numbers)


# --- from logits ----------------------------------------------------------------------------------


def test_logits_are_verified_as_their_softmax() -> None:
    p, q, tokens, numbers = random_rows(50, 300, 3, torch.float32, seed=10)
    logits = p.log()
    temperature = torch.linspace(0.3, 2.0, 50)
    for given in (0.7, temperature, temperature.double()):
        found = batched.martingale_from_logits(logits, q, tokens, numbers, temperature=given)
        wanted = batched.martingale(batched.softmax(logits, given), q, tokens, numbers)
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    each = torch.stack([batched.softmax(logits[row], float(temperature[row])) for row in range(50)])
    assert (batched.softmax(logits, temperature) - each).abs().max() < 1e-7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a finite number greater than 0, got 0.0"),
        ({"temperature": torch.ones(3)}, r"temperature must .*shape \(3,\) and type torch.float32"),
        (
            {"temperature": torch.ones(2).long()},
            "temperature must be a number or .* type torch.int64",
        ),
        (
            {"temperature": torch.tensor([1.0, 0.0])},
            "temperature row 1 must be finite in float32 and g",
        ),
        ({"temperature": torch.tensor([-1.0, 1.0])}, "temperature row 0 must be finite in float32"),
        ({"temperature": 1e-50}, "temperature row 0 must be finite in float32 and greater than 0"),
        ({"temperature": 1e300}, "temperature row 0 must be finite in float32"),
        ({"draft": torch.full((2, 4), 0.5)}, "draft row 0 must have .*, got sum 2"),
        ({"target_logits": torch.zeros(2, 5)}, r"target_logits must have .*, got \(2, 5\)"),
        ({"target_logits": torch.full((2, 4), -torch.inf)}, "row 0 must be finite, got -inf"),
        ({"target_logits": torch.full((2, 4), torch.nan)}, "row 0 must be finite, got nan"),
        ({"target_logits": torch.full((2, 4), torch.inf)}, "row 0 must be finite, got inf"),
    ],
)
def test_bad_logits_and_temperatures_are_named(change, message: str) -> None:
    rows = torch.full((2, 4), 0.25)
    given = {"target_logits": rows, "draft": rows, "draft_tokens": torch.tensor([[0], [1]])}
    with pytest.raises((InvalidInputError, InvalidDistributionError), match=message):
        batched.martingale_from_logits(**given | change)


CORNERS = (0.0, 0.5, 1.0 - 2**-53, None)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_degenerate_rows(dtype) -> None:
    target, draft, tokens, _ = degenerate_rows(dtype)
    for corner in CORNERS:
        numbers = batched.uniforms(tokens, torch.Generator().manual_seed(1))
        if corner is not None:
            numbers.fill_(corner)
        assert_alike(verify_on_cpu, target, draft, tokens, numbers)


@needs_triton
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_degenerate_rows_on_the_gpu() -> None:
    from otlp.batched.martingale_on_gpu import verify_on_gpu

    target, draft, tokens, _ = degenerate_rows(torch.float32)
    numbers = batched.uniforms(tokens, torch.Generator().manual_seed(1))
    assert_alike(verify_on_gpu, target, draft, tokens, numbers)


def test_a_row_is_verified_alike_beside_every_other() -> None:
    """A single row, and batches of 2 to 64 rows, with one and two threads: 10,000 times."""
    p, q, tokens, numbers = random_rows(64, 500, 4, torch.float32, seed=5)
    generator, seen, threads = torch.Generator().manual_seed(6), 0, torch.get_num_threads()
    try:
        while seen < 10_000:
            size = int(torch.randint(2, 65, (1,), generator=generator))
            some = torch.randperm(64, generator=generator)[:size]
            numbers = batched.uniforms(tokens, generator)
            torch.set_num_threads(1 + seen % 2)
            together, _ = batched.martingale(p[some], q[some], tokens[some], numbers[some])
            for row, token in zip(some.tolist(), together.tolist(), strict=True):
                one = slice(row, row + 1)
                alone, _ = batched.martingale(p[one], q[one], tokens[one], numbers[one])
                assert int(alone) == token
            seen += size
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_do_not_depend_on_the_batch_in_pytorch(threads: int) -> None:
    p, q, tokens, numbers = random_rows(64, 5000, 4, torch.float32, seed=7)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together, _ = verify_in_pytorch(prepare(p, q, tokens, validate=False), numbers)
        for row in range(64):
            some = slice(row, row + 1)
            rows = prepare(p[some], q[some], tokens[some], validate=False)
            assert int(verify_in_pytorch(rows, numbers[some])[0]) == int(together[row])
    finally:
        torch.set_num_threads(before)


def test_tokens_beyond_the_vocabulary_are_not_read() -> None:
    """Without validation, PyTorch still refuses to read beyond a row."""
    rows = torch.full((1, 4), 0.25)
    for form in (batched.martingale, batched.speculative_sampling):
        with pytest.raises(RuntimeError, match="out of bounds"):
            form(rows, rows, torch.tensor([[9, 1]]), validate=False)


@pytest.mark.parametrize("size", [5, 512, 1025])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e30])
def test_rows_that_are_not_looked_at_lead_nowhere_beyond(size: int, value: float) -> None:
    """Without validation, tokens may be wrong but are within the vocabulary."""
    generator = torch.Generator().manual_seed(size)
    rows = torch.rand(40, size, generator=generator)
    rows[:, ::3] = value
    tokens = torch.randint(0, size, (40, 3), generator=generator)
    for target, draft in product((rows, rows.nan_to_num(0.1, 0.1).clamp(0, 1) / size), repeat=2):
        found, _ = batched.martingale(target, draft, tokens, generator, validate=False)
        assert 0 <= int(found.min()) and int(found.max()) < size


# --- kernels ------------------------------------------------------------------------------------


def test_devices_without_kernels_are_named() -> None:
    assert batched.supports_kernels("cpu")
    assert batched.supports_kernels(torch.device("meta")).reason.endswith("of type meta")


@pytest.mark.parametrize(
    ("installed", "capability", "reason"),
    [
        (None, (9, 0), "Triton is not installed; run pip install triton"),
        ("2.3.1", (9, 0), "update Triton to 3.0 or later, got 2.3.1"),
        ("3.9.0", (7, 5), "Triton needs compute capability 8.0, the GPU has 7.5"),
        ("3.9.0", (9, 0), ""),
    ],
)
def test_gpus_without_kernels_are_named(installed, capability, reason: str) -> None:
    assert kernels.supports_triton(installed, capability, hip=False).reason == reason


def test_gpus_of_amd_are_named() -> None:
    assert "AMD" in kernels.supports_triton("3.9.0", (9, 0), hip=True).reason


@needs_triton
@pytest.mark.slow
def test_kernels_compile_for_gpus_and_fit_in_registers(tmp_path: Path) -> None:
    """For A100 and H100, without a GPU: no register spills, shared memory below 64 KiB."""
    path = tmp_path / "kernels.json"
    given = ["--drafts", "4", "--dtypes", "float32,bfloat16", "--gpus", "80,90"]
    run_python("bench/gpu_kernels.py", *given, "--json", path)
    rows = json.loads(path.read_text())
    assert len(rows) == (4 + 5) * 2 * 2, version("triton")
    for row in rows:
        assert row["spilled"] == 0 and row["shared"] < 65_536, row
    read = {(row["kernel"], row["rows"]): row["x one read"] for row in rows}
    for dtype, kernel in product(("float32", "bfloat16"), ("add_up", "weigh")):
        assert read[kernel, dtype] < 1.05
