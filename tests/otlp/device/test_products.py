"""Products of a few tokens: packed matrices hold what was packed, compiled products are right."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install otlp[decode]")
from otlp.device.compiling import CompiledStep  # noqa: E402
from otlp.device.products import LinearLayer, few_each, few_tokens, packed  # noqa: E402

FORMATS = (torch.float16, torch.bfloat16, torch.float32)


def random(*shape: int):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def extreme(kind):
    """Numbers that only this format holds, denormals among them, and zeros of both signs."""
    numbers = random(33, 7) * torch.logspace(-40, 40, 7) if kind != FORMATS[0] else random(33, 7)
    numbers[0, :4] = torch.tensor([0.0, -0.0, torch.finfo(kind).tiny, torch.finfo(kind).tiny / 8])
    return numbers.to(kind).float()


@pytest.mark.parametrize("kind", FORMATS)
def test_packed_matrices_are_exact(kind) -> None:
    matrix = extreme(kind)
    found = packed(matrix)
    assert found.dtype == kind and found.shape == (3, 7, 16)
    rows = found.float().transpose(1, 2).flatten(0, 1)
    assert torch.equal(rows[:33], matrix) and not rows[33:].any()


def test_a_product_as_it_is() -> None:
    x, matrix = random(2, 3, 7), random(5, 7)
    assert torch.allclose(few_tokens(x[0], packed(matrix), 5), x[0] @ matrix.t(), atol=1e-5)
    bias = random(5)
    found = LinearLayer(matrix.t(), packed(matrix), bias)(x)
    assert torch.allclose(found, x @ matrix.t() + bias, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_products(threads: int) -> None:
    """Every number of tokens, outputs that end within a panel, all formats, and few inputs."""
    products = [
        (random(tokens, inputs), random(outputs, inputs).to(kind).float())
        for tokens, (outputs, inputs), kind in zip(
            [*range(1, 31), 28, 33, 57],
            [(1, 1), (5, 3), (16, 40), (17, 40), (70, 9), (130, 33)] * 6,
            FORMATS * 11,
            strict=False,
        )
    ]
    each = [(random(3, tokens, 20), random(3, 20, out)) for tokens, out in ((1, 16), (5, 37))]
    given = [(x, packed(matrix), len(matrix)) for x, matrix in products]
    found = torch.zeros(sum(x.shape[0] * n for x, _, n in given) + 3 * (16 + 5 * 37))

    def step(to) -> None:
        made = [few_tokens(*one) for one in given] + [few_each(*one) for one in each]
        to.copy_(torch.cat([one.flatten() for one in made]))

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = CompiledStep(step)
        with torch.inference_mode():
            for _ in range(3):  # compiled, called, called again without a look
                found.zero_()
                compiled(found)
    finally:
        torch.set_num_threads(before)
    assert compiled.compiled
    wanted = [x @ matrix.t() for x, matrix in products] + [x @ one for x, one in each]
    wanted = torch.cat([one.flatten() for one in wanted])
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_other_libraries_work_beside_the_kernel() -> None:
    """Were PyTorch open to all with it, OR-tools would call PyTorch's protobuf, and crash."""
    code = (
        "import otlp; from otlp.device.products import compiled_products; compiled_products();"
        "problem = otlp.Problem([0.5, 0.3, 0.2], otlp.IID([0.2, 0.3, 0.5], 2));"
        "print(otlp.solve(problem, 'max-flow').guarantee.name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "OPTIMAL\n", (done.returncode, done.stderr)
