"""Prepare the process for a vLLM engine before vLLM is imported, and release the engine."""

from __future__ import annotations

import gc
import os
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.extras import find_version, is_installed

#: Environment variables that vLLM reads; values that are already set are kept.
_ENVIRONMENT = {
    # Run the engine in this process. In a separate process, requests arrive one by one, so batches
    # and rounding depend on timing, and the same seeds give different samples.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Otherwise vLLM pins its threads to cores, the same ones in every process.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Send no usage reports.
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def prepare_process(threads: int) -> None:
    """Check that vLLM is installed, and set the process up for it without importing it.

    Args:
        threads: CPU threads of this process, which the CPU engine uses too.

    Raises:
        UserError: vLLM is not installed, or its distribution is incomplete.
    """
    if not is_installed("vllm"):
        raise UserError(
            "model.backend: vllm: the package vllm is not installed; with a GPU, run pip install "
            "'gapft-harness[vllm]'; without one, see docs/samplers.md for its CPU engine"
        )
    if not find_version("vllm"):
        raise UserError(
            "model.backend: vllm: the package vllm can be imported, but no distribution named vllm "
            "is installed, and lm_eval needs its version; for vllm-cpu, see docs/samplers.md"
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import torch

    torch.set_num_threads(threads)


def release_engine(lm: Any) -> None:
    """Shut an engine down, and release its memory, worker processes and process groups.

    Args:
        lm: lm-eval's model; the caller must drop its own reference too.
    """
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    lm.model.llm_engine.engine_core.shutdown()
    del lm.model
    gc.collect()
    cleanup_dist_env_and_memory()
