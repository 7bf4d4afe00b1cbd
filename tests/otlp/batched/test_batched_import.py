"""otlp.batched without torch says what to install, and with it imports no compiler."""

import pytest

from tests.processes import run_python


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
    assert 'pip install -e ".[torch]"' in run_python(code)


@pytest.mark.parametrize("module", ["otlp.batched", "otlp.device"])
def test_the_compiler_is_not_imported_with_torch(module: str) -> None:
    """It takes seconds, and with it Triton settles whether it compiles or interprets."""
    pytest.importorskip("torch")
    heavy = "{'torch._dynamo', 'torch._inductor', 'triton'}"
    assert run_python(f"import sys, {module}; print({heavy} & set(sys.modules))") == "set()\n"
