"""Decoding on the device with static caches; the host reads one flag per round.

`Llama` is a model as a function of tensors, and `LoopModels` is a target with its draft model.
`DeviceLoop` decodes by rounds: `IidRounds` (one path with block verification, K paths with the
two-slice rule, a prefix tree with the tournament) or `NoiseRounds` (draft trees from shared noise,
verified by equality).  `import otlp` imports neither this package nor torch.
"""

from otlp.batched import PADDING as _PADDING  # noqa: F401  raises a clear error without torch
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
