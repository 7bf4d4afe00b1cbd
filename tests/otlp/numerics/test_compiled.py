"""Kernels: imports compile nothing, and a cache folder is not required."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Timer

import numpy as np
import pytest

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled
from otlp.timing import checkpoint, deadline
from tests.processes import ROOT, run_python

RUN_KERNELS = """
import otlp
marginals = otlp.IID([0.5, 0.3, 0.2], n=2).priority_marginals([2, 1, 0])
assert abs(marginals - [0.25, 0.39, 0.36]).max() < 1e-15
"""
KERNELS = """
import os, sys
import numba
numba.njit(lambda x: x + 1.0)(1.0)  # the first compilation loads most of numba
import otlp.numerics.compiled as compiled
sys.path.insert(0, sys.argv[1])
compiled.PACKAGE = compiled.Path(sys.argv[1])
for line in sys.stdin:
    if os.fork() == 0:
        import outer
        print(outer.outer(1.0), sum(outer.outer.dispatcher.stats.cache_hits.values()), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_machine_code_is_kept_and_not_out_of_date(tmp_path: Path) -> None:
    """Also if the new sources have the size and time stamp of the old ones."""
    head = "from otlp.numerics.compiled import compiled\n"
    inner = tmp_path / "inner.py"
    inner.write_text(head + "@compiled\ndef inner(x): return x + 1.0\n")
    os.utime(inner, (315532800, 315532800))
    (tmp_path / "outer.py").write_text(
        head + "from inner import inner\n@compiled\ndef outer(x): return inner(x)\n"
    )
    # -B: Python's own bytecode would be out of date, too.
    command = [sys.executable, "-B", "-c", KERNELS, str(tmp_path)]
    with Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as python:

        def run() -> list[str]:
            """Load the kernels in a process of their own, forked to import numba only once."""
            python.stdin.write("\n")
            return python.stdout.readline().split()

        assert run() == ["2.0", "0"]
        assert run() == ["2.0", "1"]
        inner.write_text(head + "@compiled\ndef inner(x): return x + 4.0\n")
        os.utime(inner, (315532800, 315532800))
        assert run() == ["5.0", "0"]
        # numba itself checks only one file, by time and size
        outer = tmp_path / "outer.py"
        before = outer.stat()
        outer.write_text(outer.read_text().replace("return inner", "return  inner")[:-1])
        os.utime(outer, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert run() == ["5.0", "0"]


@pytest.mark.slow  # recompiles everything that it calls
def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    """A file size limit makes writes fail as on a full disk."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    run_python(limit + RUN_KERNELS, NUMBA_CACHE_DIR=str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]


def test_kernels_run_as_python_where_numba_is_told_to_compile_nothing() -> None:
    code = RUN_KERNELS + "problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))\n"
    found = run_python(code + "print(otlp.solve(problem).acceptance)", NUMBA_DISABLE_JIT="1")
    assert abs(float(found) - 0.85) < 1e-12


@pytest.mark.parametrize(("suffix", "size"), [(".nbi", 0), (".nbc", 0), (".nbc", 500)])
def test_a_cut_file_of_the_cache_is_made_anew(suffix: str, size: int, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text("def twice(x): return 2 * x\n")
    namespace = runpy.run_path(str(tmp_path / "twice.py"))
    assert compiled(namespace["twice"])(2) == 4
    [file] = (file for file in tmp_path.rglob("*") if file.suffix == suffix)
    os.truncate(file, size)
    assert compiled(namespace["twice"])(3) == 6
    assert file.stat().st_size > size
    again = compiled(namespace["twice"])
    assert again(4) == 8 and sum(again.dispatcher.stats.cache_hits.values()) == 1


def test_an_inlined_kernel_is_compiled_only_with_its_caller(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "from otlp.numerics.compiled import compiled\n"
        "@compiled\ndef called(x): return x + 1.0\n"
        "@compiled(inline='always')\ndef inlined(x): return x + 1.0\n"
        "@compiled\ndef calling(x): return called(x) * inlined(x)\n"
    )
    kernels = runpy.run_path(str(tmp_path / "kernels.py"))
    assert kernels["calling"](1.0) == 4.0
    called, inlined = (kernels[name].dispatcher.signatures for name in ("called", "inlined"))
    assert len(called) == 1 and len(inlined) == 0


def test_the_first_compilation_is_in_no_time_limit() -> None:
    @compiled
    def add(x: float, y: float) -> float:
        return x + y

    with deadline(0.05):  # numba takes longer
        assert add(1.0, 2.0) == 3.0
        checkpoint()
        time.sleep(0.06)
        with pytest.raises(TimeoutError):
            checkpoint()


@compiled
def _long(steps: int) -> FloatArray:
    x = 0.0
    for i in range(steps):
        x += np.sin(i)
    return np.array([x])


def test_ctrl_c_while_a_kernel_runs_is_ctrl_c() -> None:
    """Numba raises SystemError instead if the kernel returns an array."""
    _long(1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Timer(0.01, signal.raise_signal, [signal.SIGINT]).start()
            _long(5_000_000)
            time.sleep(1.0)
    finally:
        signal.signal(signal.SIGINT, before)
