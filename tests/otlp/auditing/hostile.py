"""Rules and samplers that never return or crash the process, for `otlp audit`."""

import os
import signal
import subprocess
import sys


def leaves(d, p, q, rng):
    sys.exit(0)


def ends(d, p, q, rng):
    os._exit(0)


def crashes(d, p, q, rng):
    os.kill(os.getpid(), signal.SIGTERM)


def loops(d, p, q, rng):
    while True:
        pass


def loops_without_alarm(d, p, q, rng):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    loops(d, p, q, rng)


def starts(d, p, q, rng):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open("pid", "w") as file:
        file.write(str(other.pid))
    loops(d, p, q, rng)


def loud(d, p, q, rng):
    raise ValueError("[/bold] m[v2] \x1b[31mred\x07")


def failing(q, rng):
    raise KeyError("[/bold]")


def leaving(q, rng):
    sys.exit(0)
