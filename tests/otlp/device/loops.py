"""Loops on the device over models with random weights, and the numbers of their rounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from otlp.decode import Sampling
from otlp.decode.models.calibration import Calibration
from otlp.device import (
    DeviceLoop,
    IidRounds,
    Llama,
    LoopModels,
    NoiseRounds,
    verify_on_cpu,
    verify_on_device,
)
from tests.tiny_models import tiny

PROMPTS = ([5, 9, 3], [7], [2, 2, 8, 40, 1])


def pair(**settings: Any) -> tuple[Any, Any]:
    """Return target and draft with random weights, in float64; their laws are similar."""
    target = tiny("llama", 0, **settings).double()
    draft = tiny("llama", 1, num_hidden_layers=1, **settings).double()
    return target, draft


def loop_of(
    *models: Llama,
    branching: Any = None,
    verify: Any = None,
    sampling: Sampling | None = None,
    draft_temperature: float | None = None,
    **options: Any,
) -> DeviceLoop:
    """Return a loop over one target and an optional draft, by rounds of i.i.d. children."""
    target, draft = (*models, None)[:2]
    both = LoopModels(target, draft, sampling or Sampling(), draft_temperature)
    return DeviceLoop(IidRounds(both, branching, verify=verify), **options)


def raced(
    *models: Llama,
    drafting: Any = None,
    calibration: Calibration | None = None,
    sampling: Sampling | None = None,
    draft_temperature: float | None = None,
    **options: Any,
) -> DeviceLoop:
    """Return a loop with shared noise."""
    target, draft = (*models, None)[:2]
    both = LoopModels(target, draft, sampling or Sampling(), draft_temperature)
    return DeviceLoop(NoiseRounds(both, drafting, calibration), **options)


def uncompiled(*models: Any, make: Any = loop_of, **options: Any) -> DeviceLoop:
    """Return a loop over networks without compilation."""
    return make(*map(Llama, models), compiled=False, **options)


def numbers(loop: DeviceLoop, batch: int, seed: int):
    rng = np.random.default_rng(seed)
    while True:
        yield torch.from_numpy(rng.random((batch, loop.numbers_a_round)))


def verifiers(branching: tuple[int, ...]) -> list[Any]:
    """Return the verifiers of a shape: on the CPU and, for paths, on other devices."""
    paths = all(children == 1 for children in branching[1:])
    both = (verify_on_cpu, verify_on_device) if paths else (verify_on_cpu,)
    return [partial(one, branching) for one in both]
