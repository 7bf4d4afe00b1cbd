"""An engine's verifier as a rule to audit: found where installed, called, never copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeAlias

from otlp.auditing.subject import Progress
from otlp.distribution import FloatArray
from otlp.errors import EngineNotFoundError
from otlp_lab.engines.beside import Beside

Tables: TypeAlias = Sequence[FloatArray]


@dataclass(frozen=True)
class EngineRounds:
    """An engine's verifier, and the draft sampler that it shares its random state with.

    Attributes
    ----------
    verify : callable
        As a rule of `otlp.audit_rounds`.
    draft : callable
        As its `drafter`.
    """

    verify: Callable[..., Any]
    draft: Callable[..., Any]


def as_they_are(target: Tables, draft: Tables) -> Tables:
    """The law of a lossless verifier: the target's."""
    return target


@dataclass(frozen=True)
class Engine:
    """A verifier of a serving engine.

    Attributes
    ----------
    name : str
        As in ``otlp lab audit-engine NAME``.
    package : str
        The distribution that it comes in.
    function : str
        What is called.
    known : tuple of str
        Versions that it was audited in: whole ones, or their beginnings with a dot at the end.
    load : callable
        Gives the rule, as for `otlp.audit_rounds` on one path, or `EngineRounds`; raises
        ImportError, AttributeError or OSError where the engine lacks it.
    batch : int or None
        EngineRounds that the rule takes at once.
    beside : callable
        Tests the engine's own drafting or texts, given samples, a seed, a false-alarm rate and what
        reports progress; without it nothing is tested.
    aims : callable
        From the tables of target and draft to those of the law that its text has to follow.
    """

    name: str
    package: str
    function: str
    known: tuple[str, ...]
    load: Callable[[], Callable[..., Any] | EngineRounds]
    batch: int | None = None
    beside: Callable[[int, int, float, Progress], tuple[Beside, ...]] = lambda *_: ()
    aims: Callable[[Tables, Tables], Tables] = as_they_are

    @property
    def version(self) -> str:
        """The installed version.

        Raises
        ------
        EngineNotFoundError
            If the package is not installed.
        """
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            raise EngineNotFoundError(
                f"the engine {self.name} needs {self.package}, which is not installed: pip install "
                f"{self.package}"
            ) from None

    @property
    def label(self) -> str:
        """What is called, of which version, and whether that version is known."""
        version = self.version
        known = any(
            version == one or (one.endswith(".") and version.startswith(one)) for one in self.known
        )
        doubt = "" if known else f", a version not tried before (known: {', '.join(self.known)})"
        return f"{self.package} {version}: {self.function}{doubt}"

    def rule(self) -> Callable[..., Any] | EngineRounds:
        """The engine's verifier, as `otlp.audit_rounds` calls it, with its draft sampler if known.

        Raises
        ------
        EngineNotFoundError
            If the package is not installed, something that it needs is missing, or this version
            has no such function.
        """
        label = self.label
        try:
            return self.load()
        except (ImportError, AttributeError, OSError) as error:
            raise EngineNotFoundError(
                f"the engine {self.name} cannot be loaded from {label}: "
                f"{type(error).__name__}: {error}"
            ) from error
