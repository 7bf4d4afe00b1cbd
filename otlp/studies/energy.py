"""Energy that the processor says it has used, where the machine says it."""

from __future__ import annotations

from pathlib import Path

COUNTERS = Path("/sys/class/powercap")
"""Where Linux keeps the counters of processor packages (RAPL)."""


def joules(folder: Path = COUNTERS) -> float | None:
    """Energy of all processor packages since some time in the past.

    Parameters
    ----------
    folder : Path

    Returns
    -------
    float or None
        None where the machine does not say, or not to this user.  Counters start again at some
        hundred kilojoules, so a difference may come out negative: then it is not known.
    """
    found = []
    for counter in folder.glob("intel-rapl:?/energy_uj"):
        try:
            found.append(int(counter.read_text()) * 1e-6)
        except (OSError, ValueError):
            return None
    return sum(found) if found else None
