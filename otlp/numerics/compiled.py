"""Kernels: functions of arrays and numbers, compiled by numba at their first call.

Importing numba costs more than the rest of `import otlp`, so nothing is imported, looked up in the
cache or compiled before a kernel is called.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
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
"""Packages that contain no kernel and nothing that a kernel uses."""

REASSOCIATE = {"reassoc", "nsz", "contract"}
"""`fastmath` flags for sums whose terms may be added in any order, so that they vectorise."""

WITHOUT_NAN = REASSOCIATE | {"nnan"}
"""`fastmath` flags for sums without NaN in input or results: comparisons vectorise too."""

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function that is compiled at its first call, from Python or from another kernel.

    Numba caches the machine code beside the file or in the user's cache folder, and later processes
    load it.  If neither folder is writable, every process compiles the function again.
    """

    def __init__(self, function: Callable[P, R], slp: bool = False, **options: Any) -> None:
        self.function, self.slp, self.options = function, slp, options
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function; time limits exclude the compilation for new types."""
        try:
            return self.dispatcher(*args, **kwargs)  # type: ignore[no-any-return]
        except SystemError as error:  # Ctrl-C while the kernel ran and created an array
            if _interrupted(error):
                raise KeyboardInterrupt from None
            raise

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's compiled function, or the Python function if NUMBA_DISABLE_JIT=1."""
        with loading(), _without_garbage_collection():
            from numba import njit

            # Release the GIL so that threads run in parallel; kernels use no Python objects.
            # Division by zero returns inf or NaN, since checks take long to compile and prevent
            # vectorisation.
            options = {"nogil": True, "error_model": "numpy", **self.options}
            dispatcher = njit(**options)(self.function)
            if dispatcher is self.function:
                return np.errstate(all="ignore")(self.function)  # machine code does not warn either
            dispatcher.compile = _ignoring_cache_errors(dispatcher, self.slp)
            try:
                dispatcher.enable_caching()
            except RuntimeError:  # neither the package nor the user's cache folder is writable
                return dispatcher
            _delete_stale_code(Path(dispatcher.stats.cache_path))
            return dispatcher

    def __getattr__(self, name: str) -> Any:
        # If a kernel calls another, numba reads these attributes of a compiled function.
        if name in ("_numba_type_", "targetoptions", "py_func"):
            return getattr(self.dispatcher, name)
        raise AttributeError(f"a Kernel has no attribute {name!r}")


def _interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


@cache
def _delete_stale_code(folder: Path) -> None:
    """Delete the machine code in a cache folder that was compiled from other package sources.

    The machine code of a kernel contains the kernels that it calls, possibly from other files, but
    numba checks only the kernel's own file for changes.
    """
    recorded, stamp = folder / "otlp-sources.txt", _package_stamp()
    with suppress(OSError):  # without write access nothing is cached either
        if recorded.exists() and recorded.read_text() == stamp:
            return
        for index in folder.glob("*.nbi"):
            index.unlink(missing_ok=True)
        recorded.write_text(stamp)


@cache
def _package_stamp() -> str:
    """Return a hash of the contents of all files a kernel may depend on; computed once per process.

    O(files).  Sizes and times are not sufficient: if all files of an image have the same time, they
    can match other sources.
    """
    stamp = sha256()
    for folder, inside, names in os.walk(PACKAGE):
        inside[:] = sorted(set(inside) - WITHOUT_KERNELS)
        for name in sorted(names):
            if name.endswith(".py"):
                stamp.update(name.encode() + sha256(Path(folder, name).read_bytes()).digest())
    return stamp.hexdigest()


@contextmanager
def _slp_vectorization() -> Iterator[None]:
    """Enable SLP vectorisation, for which numba has only a global switch."""
    from numba import config
    from numba.core.compiler_lock import global_compiler_lock

    switches: Any = config
    with global_compiler_lock:  # so that no other thread compiles with it, or resets it
        before = switches.SLP_VECTORIZE
        switches.SLP_VECTORIZE = 1
        try:
            yield
        finally:
            switches.SLP_VECTORIZE = before


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the collector, which would take a tenth of the time of a compilation.

    The first collection afterwards would take as long, so the new objects are moved to the oldest
    generation, which is collected rarely.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if gc.get_freeze_count() == 0:  # otherwise the caller's frozen objects would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _ignoring_cache_errors(dispatcher: Any, slp: bool) -> Callable[..., Any]:
    """Compile again if the cached files are damaged, or if the cache cannot be written."""
    compile_for = dispatcher.compile

    def compile_again(signature: Any) -> Any:
        from numba.core.errors import NumbaError

        # Exclude compilation from time limits, since users cannot know its duration.
        vectors = _slp_vectorization() if slp else nullcontext()
        with loading(), _without_garbage_collection(), vectors:
            try:
                return compile_for(signature)
            except NumbaError:
                raise
            except Exception:  # a truncated file can raise any error
                name = dispatcher.py_func.__name__
                with suppress(OSError):
                    for file in Path(dispatcher.stats.cache_path).glob(f"*.{name}-*"):
                        file.unlink()
                # If only saving failed, this returns the function compiled above.
                return compile_for(signature)

    return compile_again


@overload
def compiled(function: Callable[P, R], /) -> Kernel[P, R]: ...


@overload
def compiled(**options: Any) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...


def compiled(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Decorate a function as a `Kernel`.

    Parameters
    ----------
    function : callable
        Function of arrays and numbers, in the subset of Python that numba compiles; it may call
        other kernels.
    **options
        Options of `numba.njit`: `fastmath`; `inline="always"` to compile a kernel only as a part
        of its callers, because other kernels are compiled by themselves and again with each caller;
        `forceinline=True` for tiny kernels with many calls, which LLVM inlines in less time.
        Also `slp=True` to vectorise statements that do the same to neighbouring numbers
        (`otlp.numerics.lanes`), which numba does not do by default.

    Notes
    -----
    Floating-point division by zero returns inf or NaN, as in NumPy, and does not raise.

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
        return lambda kernel: Kernel(kernel, **options)
    return Kernel(function)
