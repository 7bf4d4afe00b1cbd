"""The `martingale` rule for i.i.d. drafts: bins of p / q, prefix sums and binary searches."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, couple, scores
from otlp.batched.kernels import supports_kernels
from otlp.batched.martingale_on_cpu import verify_on_cpu
from otlp.batched.ratio_bins import SIZE, layout_for, masses
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import Rows, by_rows, prepare
from otlp.batched.sampling import uniforms

BIN_ARRAYS = 4
"""Number of arrays over the bins of a row per array over the vocabulary."""


def martingale(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify n i.i.d. drafts per row, losslessly and with the optimal acceptance rate.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V)
        Probabilities p and q in float16, bfloat16, float32 or float64, on one device; for
        logits see `otlp.batched.softmax`.  q must be the exact distribution, as stored, that the
        drafts were sampled from: sample with `otlp.batched.sample` and do not round q afterwards.
    draft_tokens : Tensor of int, shape (B, N)
        Drafted tokens.  -1 at any position is padding, so a row has n <= N drafts; with n = 0 the
        token is drawn from p.  The output follows p exactly if n was fixed before the drafts were
        drawn.  Drafts padded depending on their values (for example duplicates) are not i.i.d.
    generator : torch.Generator, Tensor or None
        Generator on the same device; None uses the default generator of PyTorch.  In compiled code
        and CUDA graphs pass random numbers instead, see `otlp.batched.uniforms`.
    validate : bool
        Whether to check the values of the input, which waits for the device.  Skipped under
        `torch.compile` and CUDA graph capture.

    Returns
    -------
    tokens : Tensor, shape (B,), int64
        Verified tokens, each distributed exactly as its row of p.
    accepted : Tensor, shape (B,), bool
        Whether the verified token is one of the drafted tokens.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        If an argument is invalid; the message names the argument and the row.

    Notes
    -----
    p and q of a row are read once to sum them in 2,048 bins of p / q, and once more if the selected
    draft is rejected.  The plan is that of `otlp.solvers.Martingale` on the bins.  If tokens of
    different ratios share a bin, some acceptance may be lost: at most 2^-8, and less than 1e-6 on
    the built-in capture (see `otlp.batched.acceptance`).  The output distribution is exact in every
    case.

    All sums are sums of integers, in units of 2^-60.  For the same random numbers, a row therefore
    gets the same token in every batch and in every run (batch invariance).

    On CPUs and NVIDIA GPUs the function runs compiled kernels; on other devices and in compiled
    code it runs PyTorch operations, see `otlp.batched.supports_kernels`.  The PyTorch operations
    process chunks of 2^22 entries (2^18 on a CPU) or of one row, so memory does not grow with B.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = batched.sample(draft, 2, generator)
    >>> tokens, accepted = batched.martingale(target, draft, drafts, generator)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    numbers = uniforms(draft_tokens, generator, validate=validate)
    if torch.compiler.is_compiling() or not supports_kernels(target.device):
        return verify_in_pytorch(rows, numbers)
    if target.device.type == "cpu":
        return verify_on_cpu(rows, numbers)
    # Importing Triton is slow, so it is imported only here.
    from otlp.batched.martingale_on_gpu import verify_on_gpu

    return verify_on_gpu(rows, numbers)


def verify_in_pytorch(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Verify rows, as passed by the caller, with PyTorch operations only, on any device."""
    tokens, accepted = by_rows(_verify, rows, numbers, extra=BIN_ARRAYS * SIZE)
    return tokens, accepted


def _verify(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    coupling, bins = martingale_plan(rows)
    own = rows.at_drafts(bins)
    ratio = coupling.ratios(own, rows.at_drafts(rows.target), rows.at_drafts(rows.draft))
    score = scores(coupling, coupling.cell(own), ratio, numbers[:, :-2])
    best = score.masked_fill(~rows.drafted, -1.0).argmax(1, keepdim=True)
    selected = rows.tokens.clamp(min=0).gather(1, best)
    level = coupling.level.gather(1, bins)
    return accept_or_replace(rows, level, selected, numbers[:, -2], numbers[:, -1])


def martingale_plan(rows: Rows, size: int = SIZE) -> tuple[Coupling, Tensor]:
    """Compute the plan of some rows, optimal except where tokens share one of `size` bins.

    Returns
    -------
    coupling : Coupling
        Coupling of the bins; the draft with the largest score is selected.
    bins : Tensor, shape (B, V), int64
        Bin of each token.
    """
    max_n = rows.tokens.shape[1]
    layout = layout_for(max_n, size)
    bins = layout.bins(rows.target, rows.draft)
    target, draft = (masses(part, bins, layout.size) for part in (rows.target, rows.draft))
    return couple(target, draft, rows.n.clamp(min=1), max_n, layout), bins
