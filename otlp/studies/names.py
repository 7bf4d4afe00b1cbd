"""Short names of rules in figures and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Shorten file names to the last parts that make them unique.

    Parameters
    ----------
    names : iterable of str
        Names of algorithms, which are not shortened, and FILE.py:FUNCTION.

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
        short_forms = {n: "/".join(own[-count:]).replace("//", "/") for n, own in parts.items()}
        counts = Counter(short_forms.values())
        for name, short in short_forms.items():
            if counts[short] == 1:
                shown[name] = short
                del parts[name]
    return shown
