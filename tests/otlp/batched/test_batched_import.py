"""`import otlp` does not import torch, and otlp.batched without torch says what to install."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_otlp_does_not_import_torch() -> None:
    assert run("import sys, otlp; print('torch' in sys.modules)").strip() == "False"


def test_missing_torch_names_the_install_command() -> None:
    code = """
import sys
sys.modules["torch"] = None
import otlp
try:
    import otlp.batched
except otlp.errors.EngineNotFoundError as error:
    print(error)
"""
    assert 'pip install -e ".[torch]"' in run(code)


@pytest.mark.parametrize("module", ["otlp.batched", "otlp.device"])
def test_the_compiler_is_not_imported_with_torch(module: str) -> None:
    """It takes seconds, and with it Triton settles whether it compiles or interprets."""
    pytest.importorskip("torch")
    heavy = "{'torch._dynamo', 'torch._inductor', 'triton'}"
    assert run(f"import sys, {module}; print({heavy} & set(sys.modules))").strip() == "set()"
