"""Ctrl-C arrives where Python would drop it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = """
import ctypes, signal, sys, time
from otlp.cli import interrupts
from otlp.cli.interrupts import interrupts_arrive

def wait():
    for _ in range(500):
        time.sleep(0.01)
    print("lost")

class Left:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def callback():
    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()

def finalizer():
    Left()

def importing():
    import interrupted
    print(interrupted.whole)

def endless():
    interrupts.PATIENCE = 0.2
    import interrupted_for_ever

signal.signal(signal.SIGINT, signal.default_int_handler)
for action in (callback, finalizer, importing, endless):
    try:
        with interrupts_arrive():
            action()
            wait()
    except KeyboardInterrupt:
        print(action.__name__)
"""


def test_no_interrupt_is_lost(tmp_path: Path) -> None:
    module = "import signal\nsignal.raise_signal(signal.SIGINT)\nwhole = 'whole'\n"
    (tmp_path / "interrupted.py").write_text(module)
    module = (
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\nwhile True: time.sleep(0.01)\n"
    )
    (tmp_path / "interrupted_for_ever.py").write_text(module)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{HERE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["callback", "finalizer", "whole", "importing", "endless"]
    assert not done.stderr
