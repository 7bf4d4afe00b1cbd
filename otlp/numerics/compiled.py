"""Kernels: functions of arrays and numbers that numba compiles at their first call.

Importing numba costs more than all the rest of `import otlp`, so nothing is imported, looked up
or compiled before a kernel is called.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

__all__ = ["Kernel", "compiled"]

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function that is compiled when it is first called, by Python or by another kernel.

    Machine code is kept in numba's cache, beside the file or in the user's cache folder, and
    loaded from there by later processes; where neither can be written it is compiled anew.
    """

    def __init__(self, function: Callable[P, R], options: dict[str, Any]) -> None:
        self.function, self.options = function, options
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function."""
        return self.dispatcher(*args, **kwargs)  # type: ignore[no-any-return]

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's compiled function."""
        from numba import njit

        # Without the interpreter's lock threads run side by side; kernels touch no objects.
        dispatcher = njit(nogil=True, **self.options)(self.function)
        try:
            dispatcher.enable_caching()
        except RuntimeError:  # neither the package nor the user's cache folder can be written
            return dispatcher
        dispatcher._cache.save_overload = _unless_it_fails(dispatcher._cache.save_overload)
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        # What numba asks of an object that a kernel names: let it see the compiled function.
        return self.dispatcher._numba_type_


def _unless_it_fails(save: Callable[..., None]) -> Callable[..., None]:
    """Keep no machine code where the disk is full or the folder has gone, instead of raising."""

    def attempt(*args: Any) -> None:
        with suppress(OSError):
            save(*args)

    return attempt


@overload
def compiled(function: Callable[P, R], /) -> Kernel[P, R]: ...


@overload
def compiled(**options: Any) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...


def compiled(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Decorate a function as a `Kernel`.

    Parameters
    ----------
    function : callable
        Of arrays and numbers, in the part of Python that numba compiles; it may call kernels.
    **options
        Of `numba.njit`: `fastmath`, `error_model`.

    Examples
    --------
    >>> from otlp.numerics.compiled import compiled
    >>> @compiled
    ... def square(x):
    ...     return x * x
    >>> square(3)
    9
    """
    if function is None:
        return lambda kernel: Kernel(kernel, options)
    return Kernel(function, options)
