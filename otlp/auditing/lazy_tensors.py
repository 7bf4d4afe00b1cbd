"""PyTorch tensors of `LazyUniform` numbers, for the enumeration of a program's draws.

`LazyTensors` intercepts PyTorch's functions.  A tensor of lazy numbers is an ordinary tensor of
NaN, recognized by its identity; functions are applied to the numbers, element by element, as
objects in a NumPy array.  Unsupported functions end the enumeration; an operation that is not
intercepted changes the result when the path is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from otlp.auditing.lazy_uniform import LazyUniform, exp, log
from otlp.auditing.random_source import RandomSource

Numbers = npt.NDArray[Any]

_SCRATCH = torch.Generator()
"""Used to check arguments with PyTorch; its draws are discarded."""

DESCRIBES = frozenset(
    "shape dtype device ndim is_cuda requires_grad layout dim size numel is_floating_point stride "
    "is_contiguous __len__ element_size type is_sparse grad_fn is_leaf".split()
)
"""Functions and attributes that do not depend on the values of a tensor."""

REARRANGES = frozenset(
    "__getitem__ view reshape squeeze unsqueeze expand expand_as flatten contiguous clone detach "
    "to float double cpu T mT H data t transpose permute gather index_select take unbind split "
    "chunk cat concat stack where repeat repeat_interleave select narrow masked_select flip roll "
    "take_along_dim view_as reshape_as movedim swapaxes ravel unflatten tile".split()
)
"""Functions that rearrange numbers without changing them."""

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "__radd__", "__add__"), np.add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), np.subtract),
    **dict.fromkeys(("rsub", "__rsub__"), lambda a, b: np.subtract(b, a)),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), np.multiply),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__"), np.true_divide),
    **dict.fromkeys(("__rtruediv__", "__rdiv__"), lambda a, b: np.true_divide(b, a)),
    **dict.fromkeys(("neg", "negative"), np.negative),
    "reciprocal": lambda a: np.true_divide(1.0, a),
    "log": np.frompyfunc(log, 1, 1),
    "exp": np.frompyfunc(exp, 1, 1),
}

COMPARES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("lt", "less", "__lt__"), np.less),
    **dict.fromkeys(("le", "less_equal", "__le__"), np.less_equal),
    **dict.fromkeys(("gt", "greater", "__gt__"), np.greater),
    **dict.fromkeys(("ge", "greater_equal", "__ge__"), np.greater_equal),
}

UNFOLLOWED = frozenset(
    "randn randn_like normal normal_ cauchy_ log_normal_ geometric_ poisson random_ binomial "
    "dropout dropout_ gumbel_softmax rrelu rrelu_ alpha_dropout".split()
)
"""Unsupported draws: they have no finite set of outcomes."""


class LazyTensors(TorchFunctionMode):
    """Context that draws PyTorch's random numbers from a source and tracks operations on them.

    Parameters
    ----------
    source : RandomSource
    """

    def __init__(self, source: RandomSource) -> None:
        super().__init__()
        self._source = source
        self._known: dict[int, tuple[Tensor, Numbers]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Handle one call of a PyTorch function."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = func.__self__.__name__
        if name in UNFOLLOWED:
            self._source.give_up(f"it uses torch.{name}, which has no finite set of outcomes")
        draw = getattr(self, f"_draw_{name.rstrip('_')}", None)
        if draw is not None and kwargs.get("out") is None:
            if (generator := kwargs.get("generator")) is not None:
                self._source.generators.add(generator)
            try:
                return draw(func, *args, **kwargs)
            except TypeError:
                self._source.give_up(f"it calls torch.{name} with unsupported arguments")
        if not self._contains_lazy([args, kwargs]):
            return func(*args, **kwargs)
        return self._follow(name, func, args, kwargs)

    def _follow(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        if name in DESCRIBES:
            return func(*args, **kwargs)
        if name in REARRANGES:
            return self._rearrange(func, args, kwargs)
        plain = name.removesuffix("_") if not name.startswith("__") else name
        if name.startswith("__i") and name[3:] in ("add__", "sub__", "mul__", "truediv__"):
            plain, name = f"__{name[3:]}", f"{name}_"
        if not kwargs and plain in ELEMENTWISE:
            return self._elementwise(ELEMENTWISE[plain], args, in_place=plain != name)
        if not kwargs and name in COMPARES:
            self._check(self._result_dtype(args))
            found = COMPARES[name](*map(self._numbers, args))
            return torch.from_numpy(np.array(found, dtype=bool))
        special = getattr(self, f"_of_{name.strip('_')}", None)
        if special is None:
            self._source.give_up(f"it uses torch.{name} on random numbers")
        return special(*args, **kwargs)

    # Access to the lazy numbers of tensors.

    def _contains_lazy(self, argument: Any) -> bool:
        """Return whether an argument contains lazy numbers."""
        if isinstance(argument, Tensor):
            return id(argument) in self._known
        if isinstance(argument, list | tuple):
            return any(map(self._contains_lazy, argument))
        return isinstance(argument, LazyUniform) or (
            isinstance(argument, dict) and any(map(self._contains_lazy, argument.values()))
        )

    def _numbers(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            known = self._known.get(id(argument))
            if known is not None:
                return known[1]
            return argument.detach().to(torch.float64).numpy()
        return argument

    def _check(self, dtype: torch.dtype) -> None:
        """Give up on dtypes below 32 bits, whose resolution is not negligible."""
        if dtype.is_floating_point and torch.finfo(dtype).bits < 32:
            name = str(dtype).removeprefix("torch.")
            self._source.give_up(f"it draws or compares in {name}, whose rounding is not followed")

    def _result_dtype(self, args: Any) -> torch.dtype:
        """Return the dtype of PyTorch's result for these arguments."""
        given = [arg if isinstance(arg, Tensor | int | float) else 0.5 for arg in args]
        if not any(isinstance(arg, Tensor) for arg in given):
            return torch.get_default_dtype()
        return torch.result_type(given[0], given[-1])

    def _remember(self, tensor: Tensor, numbers: Any) -> Tensor:
        """Associate a tensor with numbers; copy them into the tensor if all are ordinary."""
        numbers = np.asarray(numbers, dtype=object)
        if not any(isinstance(number, LazyUniform) for number in numbers.flat):
            self._known.pop(id(tensor), None)
            return tensor.copy_(torch.from_numpy(numbers.astype(np.float64)))
        self._check(tensor.dtype)
        self._known[id(tensor)] = tensor, numbers
        return tensor.fill_(math.nan)

    def _rearrange(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Apply the function to a tensor of indices, then gather the numbers."""
        pool: list[Numbers] = []
        dtypes: list[torch.dtype] = []

        def indices_of(argument: Any) -> Any:
            if isinstance(argument, Tensor) and argument.is_floating_point():
                numbers = np.asarray(self._numbers(argument), dtype=object)
                first = sum(part.size for part in pool)
                pool.append(numbers.reshape(-1))
                dtypes.append(argument.dtype)
                return torch.arange(first, first + numbers.size).view(argument.shape).double()
            if isinstance(argument, list | tuple):
                return type(argument)(map(indices_of, argument))
            return argument

        found = func(*indices_of(args), **{key: indices_of(value) for key, value in kwargs.items()})
        numbers = np.concatenate(pool)

        def gather(indices: Any) -> Any:
            if not isinstance(indices, Tensor):
                return tuple(map(gather, indices))
            dtype = indices.dtype if indices.dtype != torch.float64 else dtypes[0]
            at = indices.to(torch.float64).numpy().astype(np.int64)
            chosen = np.asarray(numbers[at], dtype=object)
            return self._remember(torch.empty(indices.shape, dtype=dtype), chosen)

        return gather(found)

    def _elementwise(self, function: Callable[..., Any], args: Any, in_place: bool) -> Tensor:
        numbers = np.asarray(function(*map(self._numbers, args)), dtype=object)
        if in_place:
            return self._remember(args[0], numbers)
        return self._remember(torch.empty(numbers.shape, dtype=self._result_dtype(args)), numbers)

    # Conversions from PyTorch, and selections among numbers.

    def _of_item(self, tensor: Tensor) -> Any:
        return self._numbers(tensor).item()

    def _of_tolist(self, tensor: Tensor) -> Any:
        return self._numbers(tensor).tolist()

    def _of_numpy(self, tensor: Tensor, *_: Any, **__: Any) -> Any:
        return self._numbers(tensor)

    _of_array = _of_numpy

    def _chosen(
        self, function: Any, tensor: Tensor, dim: int | None = None, keepdim: bool = False
    ) -> Tensor:
        found = function(self._numbers(tensor), axis=dim, keepdims=keepdim)
        return torch.from_numpy(np.asarray(found, dtype=np.int64))

    _of_argmax = partialmethod(_chosen, np.argmax)
    _of_argmin = partialmethod(_chosen, np.argmin)

    def _of_cumprod(self, tensor: Tensor, dim: int, **kwargs: Any) -> Tensor:
        numbers = np.multiply.accumulate(self._numbers(tensor), axis=dim)
        return self._remember(torch.empty(numbers.shape, dtype=tensor.dtype), numbers)

    def _of_searchsorted(
        self, steps: Any, values: Any, *, right: bool = False, side: str | None = None, **_: Any
    ) -> Tensor:
        if self._contains_lazy(steps):
            self._source.give_up("it searches among random numbers")
        where = "right" if right or side == "right" else "left"
        search = np.vectorize(partial(np.searchsorted, side=where), signature="(n),(m)->(m)")
        wanted = np.asarray(self._numbers(values), dtype=object)
        found = search(self._numbers(steps), np.atleast_1d(wanted))
        return torch.from_numpy(found.reshape(wanted.shape))

    # Random draws.

    def _draw_rand(self, func: Any, *size: Any, generator: Any = None, **form: Any) -> Tensor:
        wanted = torch.empty(*size, **form)
        return self._remember(wanted, self._source.random(tuple(wanted.shape)))

    def _draw_rand_like(
        self, func: Any, tensor: Tensor, *, generator: Any = None, **form: Any
    ) -> Tensor:
        wanted = torch.empty_like(tensor, **form)
        return self._remember(wanted, self._source.random(tuple(wanted.shape)))

    def _draw_uniform(
        self, func: Any, tensor: Tensor, low: float = 0.0, high: float = 1.0, **form: Any
    ) -> Tensor:
        low, high = form.get("from", low), form.get("to", high)
        return self._remember(tensor, self._source.uniform(low, high, tuple(tensor.shape)))

    def _draw_exponential(
        self, func: Any, tensor: Tensor, lambd: float = 1.0, *, generator: Any = None
    ) -> Tensor:
        return self._remember(tensor, self._source.exponential(1.0 / lambd, tuple(tensor.shape)))

    def _draw_multinomial(
        self,
        func: Any,
        weights: Tensor,
        num_samples: int,
        replacement: bool = False,
        *,
        generator: Any = None,
    ) -> Tensor:
        self._check(weights.dtype)
        # Raises PyTorch's errors; the draws are discarded.
        func(weights, num_samples, replacement, generator=_SCRATCH)
        rows = self._numbers(weights).reshape(-1, weights.shape[-1])
        drawn = [
            self._source.choice(law.size, num_samples, replacement, law / law.sum()) for law in rows
        ]
        found = np.array(drawn, dtype=np.int64).reshape(*weights.shape[:-1], num_samples)
        return torch.from_numpy(found)

    def _draw_bernoulli(
        self, func: Any, tensor: Tensor, p: Any = None, *, generator: Any = None
    ) -> Tensor:
        if self._contains_lazy([tensor, p]):
            self._source.give_up("it uses torch.bernoulli on random numbers")
        self._check(tensor.dtype)
        in_place = func.__name__ == "bernoulli_"
        probabilities = tensor if p is None and not in_place else (0.5 if p is None else p)
        mass = np.broadcast_to(self._numbers(probabilities), tensor.shape)
        drawn = [self._source.category(np.array([1.0 - chance, chance])) for chance in mass.flat]
        found = torch.tensor(drawn, dtype=tensor.dtype).view(tensor.shape)
        return tensor.copy_(found) if in_place else found

    def _draw_randint(self, func: Any, *given: Any, generator: Any = None, **form: Any) -> Tensor:
        named = [form.pop(name) for name in ("low", "high", "size") if name in form]
        *bounds, shape = *given, *named
        low, high = (0, *bounds)[-2:]
        form.setdefault("dtype", torch.int64)
        return torch.as_tensor(self._source.integers(low, high, size=tuple(shape)), **form)

    def _draw_randperm(self, func: Any, n: int, *, generator: Any = None, **form: Any) -> Tensor:
        return torch.as_tensor(self._source.permutation(n), **form)
