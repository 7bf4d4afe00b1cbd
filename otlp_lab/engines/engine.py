"""Verifier of an inference engine as a rule to audit, called from the installed package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeAlias

from otlp.auditing.audited_rule import Progress
from otlp.distribution import FloatArray
from otlp.errors import EngineNotFoundError
from otlp_lab.engines.beside import SampleTests

Tables: TypeAlias = Sequence[FloatArray]


@dataclass(frozen=True)
class EngineRounds:
    """An engine's verifier and draft sampler with a shared random state.

    Attributes
    ----------
    verify : callable
        The `rule` of `otlp.audit_rounds`.
    draft : callable
        The `drafter` of `otlp.audit_rounds`.
    """

    verify: Callable[..., Any]
    draft: Callable[..., Any]


def target_tables(target: Tables, draft: Tables) -> Tables:
    """Return the tables of the target, the output distribution of a lossless verifier."""
    return target


@dataclass(frozen=True)
class Engine:
    """A verifier of an inference engine.

    Attributes
    ----------
    name : str
        NAME of ``otlp lab audit-engine NAME``.
    package : str
        Name of the distribution package.
    function : str
        Called function.
    known : tuple of str
        Audited versions, or prefixes of versions that end with a dot.
    load : callable
        Returns the rule for `otlp.audit_rounds` on one path, or `EngineRounds`.  Raises
        ImportError, AttributeError or OSError if the engine does not have the function.
    batch : int or None
        Number of rounds per call of the rule.
    sample_tests : callable
        Tests the engine's own drafts or texts, given the number of samples, a seed, a false-alarm
        rate and a progress callable; by default there are no such tests.
    expected_tables : callable
        Maps the tables of target and draft to those of the expected output distribution.
    """

    name: str
    package: str
    function: str
    known: tuple[str, ...]
    load: Callable[[], Callable[..., Any] | EngineRounds]
    batch: int | None = None
    sample_tests: Callable[[int, int, float, Progress], tuple[SampleTests, ...]] = lambda *_: ()
    expected_tables: Callable[[Tables, Tables], Tables] = target_tables

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
        """Package, version and function, with a note if this version was not audited before."""
        version = self.version
        known = any(
            version == one or (one.endswith(".") and version.startswith(one)) for one in self.known
        )
        note = "" if known else f", a version not audited before (known: {', '.join(self.known)})"
        return f"{self.package} {version}: {self.function}{note}"

    def rule(self) -> Callable[..., Any] | EngineRounds:
        """Load the verifier as a rule of `otlp.audit_rounds`, or with its draft sampler.

        Raises
        ------
        EngineNotFoundError
            If the package or one of its dependencies is not installed, or this version does not
            have the function.
        """
        label = self.label
        try:
            return self.load()
        except (ImportError, AttributeError, OSError) as error:
            raise EngineNotFoundError(
                f"the engine {self.name} cannot be loaded from {label}: "
                f"{type(error).__name__}: {error}"
            ) from error
