"""Products with a matrix: of a few tokens, compiled on a CPU, by one pass over its packed entries.

Reading the matrix is what a few tokens cost there, so it lies in the order in which it is read, in
the smallest format that holds each of its entries exactly; sums are in float32.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otlp.errors import EngineNotFoundError

LANES = 16
"""Outputs of a panel; as in few_tokens.cpp."""

FEW = 28
"""Tokens that gain by the packed matrix, measured against MKL."""

FORMATS = (torch.float16, torch.bfloat16, torch.float32)
"""What packed entries may be, the first that holds all of them."""

NATIVE = torch.__version__ >= "2.8" and sys.platform == "linux"  # a version, not letters
"""Whether compiled code can call C++ of the project's."""

CONTRACTED: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": "fast"}
"""Has a product and a sum be one instruction."""


class LinearLayer(NamedTuple):
    """One or several linear layers side by side.

    Attributes
    ----------
    turned : Tensor, shape (in, out)
        The matrix.
    packed : Tensor, shape (ceil(out / 16), in, 16), optional
        The same for a few tokens; on a CPU, but in float64.
    bias : Tensor, shape (out,), optional
    """

    turned: Tensor
    packed: Tensor | None
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (..., out) of inputs (..., in)."""
        count, outputs = x.shape[:-1].numel(), self.turned.shape[1]
        if self.packed is not None and torch.compiler.is_compiling() and count <= FEW:
            rows = x.reshape(count, -1).float().contiguous()
            found: Tensor = few_tokens(rows, self.packed, outputs)
            found = found.to(x.dtype).view(*x.shape[:-1], outputs)
        else:
            found = x @ self.turned
        return found if self.bias is None else found + self.bias


def packed(matrix: Tensor) -> Tensor:
    """Reorder a matrix (out, in) into panels of 16 outputs, in the smallest format that is exact.

    Parameters
    ----------
    matrix : Tensor, shape (out, in)

    Returns
    -------
    Tensor, shape (ceil(out / 16), in, 16)
        Zeros where there is no output.
    """
    exact = (one for one in FORMATS if torch.equal(matrix.to(one).to(matrix.dtype), matrix))
    kind = next(exact, FORMATS[-1])  # NaN is equal to nothing
    rows = torch.nn.functional.pad(matrix.to(kind), (0, 0, 0, -len(matrix) % LANES))
    return rows.view(-1, LANES, rows.shape[1]).transpose(1, 2).contiguous()


@torch.library.custom_op("otlp::few_tokens", mutates_args=(), device_types="cpu")
def few_tokens(x: Tensor, packed: Tensor, outputs: int) -> Tensor:
    """Compute x @ matrix.T with a packed matrix, which compiled code does in C++.

    Parameters
    ----------
    x : Tensor of float32, shape (N, in)
        Contiguous.
    packed : Tensor
        From `packed`.
    outputs : int

    Returns
    -------
    Tensor of float32, shape (N, outputs)
    """
    matrix = packed.transpose(1, 2).flatten(0, 1)[:outputs]
    return x @ matrix.t().float()


@few_tokens.register_fake
def _(x: Tensor, packed: Tensor, outputs: int) -> Tensor:
    return x.new_empty(len(x), outputs)


@torch.library.custom_op("otlp::few_each", mutates_args=(), device_types="cpu")
def few_each(x: Tensor, matrices: Tensor) -> Tensor:
    """Compute x @ matrices for a batch, which compiled code does in C++.

    Parameters
    ----------
    x : Tensor of float32, shape (B, N, in)
    matrices : Tensor of float32, shape (B, in, out)
        Contiguous, as `x` is; out is at least 16.

    Returns
    -------
    Tensor of float32, shape (B, N, out)
    """
    return x @ matrices


@few_each.register_fake
def _(x: Tensor, matrices: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], matrices.shape[2])


@cache
def compiled_products() -> dict[str, Any]:
    """Compile the C++ of `few_tokens`; the options that have a compiler call it.

    Returns
    -------
    dict
        For `torch.compile`.

    Raises
    ------
    EngineNotFoundError
        If PyTorch is built in a way that the kernel does not know.
    """
    from torch._inductor import config
    from torch._inductor.codecache import CppCodeCache  # which takes a second

    source = Path(__file__).with_name("few_tokens.cpp").read_text("utf-8")
    with config.patch(CONTRACTED):
        library = CppCodeCache.load(source, extra_flags=("-Wl,--as-needed",))
    if not library.few_tokens_can_be_called():
        raise EngineNotFoundError("PyTorch's own library is not where a release of it has it")
    ctypes.CDLL(library._name, ctypes.RTLD_GLOBAL)  # compiled code finds it by its name
    operators = torch.ops.otlp
    x, made = "AOTITorchError aoti_torch_cpu_{}(AtenTensorHandle x, ", ", AtenTensorHandle* made)"
    calls = {
        operators.few_tokens.default: ("few_tokens", "AtenTensorHandle packed, int64_t outputs"),
        operators.few_each.default: ("few_each", "AtenTensorHandle matrices"),
    }
    shims = {one: [x.format(name) + rest + made] for one, (name, rest) in calls.items()}
    return CONTRACTED | {"aot_inductor.custom_ops_to_c_shims": shims}
