"""Child processes of commands."""

from __future__ import annotations

import signal
import time

from otlp.cli.child import child_process


def test_a_child_is_killed_at_the_end_of_the_block() -> None:
    with child_process(lambda _: time.sleep(600.0)) as (child, _):
        assert child.is_alive()
    assert child.exitcode == -signal.SIGKILL


def test_a_child_works_during_the_block() -> None:
    with child_process(lambda _: 3) as (_, receiver):
        assert receiver.recv() == ("result", 3)
