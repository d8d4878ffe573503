"""Skip a module's tests if vLLM is not installed; otherwise prepare the process.

Import this before ``vllm``, which reads its environment variables once.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("vllm") is None:
    pytest.skip(
        "vLLM is not installed in this environment: `make test-vllm` sets up one that has it",
        allow_module_level=True,
    )

from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process

prepare_process(threads=1)
