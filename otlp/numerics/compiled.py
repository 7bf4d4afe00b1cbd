"""Kernels: functions of arrays and numbers that numba compiles at their first call.

Importing numba costs more than all the rest of `import otlp`, so nothing is imported, looked up
or compiled before a kernel is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, update_wrapper
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from otlp.timing import loading

PACKAGE = Path(__file__).parent.parent

WITHOUT_KERNELS = frozenset(
    {"auditing", "cli", "export", "parallel", "report", "studies", "testing"}
)
"""Packages that no kernel and nothing that a kernel names stands in."""

REASSOCIATE = {"reassoc", "nsz", "contract"}
"""`fastmath` of sums whose terms may come in any order: these are vectorised."""

WITHOUT_NAN = REASSOCIATE | {"nnan"}
"""The same where no NaN comes in and none is made: comparisons are vectorised, too."""

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function that is compiled when it is first called, by Python or by another kernel.

    Machine code is kept in numba's cache, beside the file or in the user's cache folder, and
    loaded from there by later processes; where neither can be written it is compiled anew.
    """

    def __init__(self, function: Callable[P, R], options: dict[str, Any]) -> None:
        self.function, self.known = function, False
        self.options = {name: value for name, value in options.items() if name != "slp"}
        self.slp = options.get("slp", False)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function; what is compiled for new types is in no time limit."""
        if not self.known:
            with loading():
                self.known = bool(self.dispatcher)
        try:
            return self.dispatcher(*args, **kwargs)  # type: ignore[no-any-return]
        except SystemError as error:  # a Ctrl-C that came while the kernel ran and made an array
            if _interrupted(error):
                raise KeyboardInterrupt from None
            raise

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's compiled function; plain Python under NUMBA_DISABLE_JIT=1."""
        from numba import njit

        # Without the interpreter's lock threads run side by side; kernels touch no objects.
        dispatcher = njit(nogil=True, **self.options)(self.function)
        if dispatcher is self.function:
            return np.errstate(all="ignore")(self.function)  # as machine code has it
        if self.slp:
            dispatcher.compile = _with_slp(dispatcher.compile)
        dispatcher.compile = _without_its_files(dispatcher.compile, dispatcher)
        try:
            dispatcher.enable_caching()
        except RuntimeError:  # neither the package nor the user's cache folder can be written
            return dispatcher
        _forget_other_sources(Path(dispatcher.stats.cache_path))
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        # What numba asks of an object that a kernel names: let it see the compiled function.
        return self.dispatcher._numba_type_


def _interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


@cache
def _forget_other_sources(folder: Path) -> None:
    """Delete the machine code in a folder that other sources of the package were compiled to.

    It holds that of the kernels that a kernel calls, which may be in other files, and numba looks
    at a kernel's own file alone to see whether the code is out of date.
    """
    known, stamp = folder / "otlp-sources.txt", _package_stamp()
    with suppress(OSError):  # where nothing can be written nothing is kept either
        if known.exists() and known.read_text() == stamp:
            return
        for index in folder.glob("*.nbi"):
            index.unlink(missing_ok=True)
        known.write_text(stamp)


@cache
def _package_stamp() -> str:
    """Hash of the contents of all files that a kernel may depend on; O(files), once a process.

    Sizes and times would not do: where all files of an image bear one time, they stay.
    """
    stamp = sha256()
    for folder, inside, names in os.walk(PACKAGE):
        inside[:] = sorted(set(inside) - WITHOUT_KERNELS)
        for name in sorted(names):
            if name.endswith(".py"):
                stamp.update(name.encode() + sha256(Path(folder, name).read_bytes()).digest())
    return stamp.hexdigest()


def _with_slp(compile_for: Callable[..., Any]) -> Callable[..., Any]:
    """Turn on the vectors of lines side by side, which numba has one switch for in all."""

    def compile_vectors(signature: Any) -> Any:
        from numba import config
        from numba.core.compiler_lock import global_compiler_lock

        switches: Any = config
        with global_compiler_lock:  # so that no other thread compiles with it, or turns it back
            before = switches.SLP_VECTORIZE
            switches.SLP_VECTORIZE = 1
            try:
                return compile_for(signature)
            finally:
                switches.SLP_VECTORIZE = before

    return compile_vectors


def _without_its_files(compile_for: Callable[..., Any], dispatcher: Any) -> Callable[..., Any]:
    """Compile anew where what the cache holds is damaged, or nothing can be kept there."""

    def compile_anew(signature: Any) -> Any:
        from numba.core.errors import NumbaError

        # nobody could choose a time limit for it
        with loading():
            try:
                return compile_for(signature)
            except NumbaError:
                raise
            except Exception:  # a file that was cut short, of which Python makes any error
                name = dispatcher.py_func.__name__
                with suppress(OSError):
                    for file in Path(dispatcher.stats.cache_path).glob(f"*.{name}-*"):
                        file.unlink()
                # what was compiled and could not be kept is there
                return compile_for(signature)

    return compile_anew


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
        Of `numba.njit`: `fastmath`, `error_model`, `inline`; and `slp=True` to turn lines that
        do the same to neighbouring numbers into vectors (`otlp.numerics.lanes`), which numba
        leaves out.

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
