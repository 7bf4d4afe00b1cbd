"""Decoding that stays on the device: one model function, static caches, one flag read a round.

`Llama` is the model as a function of tensors, `LoopModels` a target and its draft.  `DeviceLoop`
decodes by rounds: `IidRounds` (a chain and block verification, K paths and the two-slice rule, a
prefix tree and the tournament) or `NoiseRounds` (trees by shared noise and equality).
`import otlp` imports neither this package nor torch.
"""

from otlp.batched import PADDING as _PADDING  # noqa: F401  says what to install without torch
from otlp.device.compiling import captured
from otlp.device.decoded import Decoded
from otlp.device.iid_rounds import IidRounds
from otlp.device.llama import Llama
from otlp.device.loop import DeviceLoop
from otlp.device.loop_models import LoopModels
from otlp.device.noise_rounds import NoiseRounds
from otlp.device.verifying import verification_on_cpu, verify_on_cpu, verify_on_device

__all__ = [
    "Decoded",
    "DeviceLoop",
    "IidRounds",
    "Llama",
    "LoopModels",
    "NoiseRounds",
    "captured",
    "verification_on_cpu",
    "verify_on_cpu",
    "verify_on_device",
]
