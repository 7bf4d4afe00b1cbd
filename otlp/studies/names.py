"""Short names of rules in figures and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Each name, with as many folders as tell it apart from the others.

    Parameters
    ----------
    names : iterable of str
        Names of algorithms, which stay as they are, and FILE.py:FUNCTION.

    Examples
    --------
    >>> from otlp.studies.names import short_names
    >>> short_names(["naive", "my/old/rule.py:f", "my/new/rule.py:f", "my/b.py:f"]).values()
    dict_values(['naive', 'old/rule.py:f', 'new/rule.py:f', 'b.py:f'])
    """
    left = dict.fromkeys(names)
    shown = {name: name for name in left}
    parts = {name: PurePath(name).parts for name in left if ":" in name}
    for count in range(1, max(map(len, parts.values()), default=0) + 1):
        tried = {name: "/".join(own[-count:]).replace("//", "/") for name, own in parts.items()}
        times = Counter(tried.values())
        for name, short in tried.items():
            if times[short] == 1:
                shown[name] = short
                del parts[name]
    return shown
