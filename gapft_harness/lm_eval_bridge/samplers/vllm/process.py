"""The process a vLLM engine lives in: what is set before vLLM is imported, and how it is left."""

from __future__ import annotations

import gc
import os
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.extras import has, installed

#: What vLLM reads of the environment. A value that is set already is left alone.
_ENVIRONMENT = {
    # The engine in this very process. In one of its own, requests reach it one by one, batches
    # depend on the moment, and with them rounding: the same seeds then give other samples.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # It would pin its threads to cores of its own choice, the same ones in every process.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # A run reports to nobody.
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def prepare_process(threads: int | None, asked_by: str = "model.backend: vllm") -> None:
    """Checks that vLLM is there and sets the process up for it; imports nothing of it.

    Args:
        threads: CPU threads of this process; None: as many as there are. The CPU engine keeps
            the number that it finds.
        asked_by: what asks for vLLM, as messages say it.

    Raises:
        UserError: vLLM is not installed, or only in part.
    """
    if not has("vllm"):
        raise UserError(
            f"{asked_by} is not installed here; with a GPU, pip install "
            "'gapft-harness[vllm]'; without one, docs/samplers.md says how to set up its CPU engine"
        )
    if not installed("vllm"):
        raise UserError(
            f"{asked_by}: the package vllm can be imported, but no distribution named vllm is "
            "installed, and lm_eval asks for its version; for vllm-cpu, docs/samplers.md says what "
            "to do"
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def release_engine(lm: Any) -> None:
    """Shuts an engine down and frees what it held: memory, worker processes, process groups.

    Args:
        lm: lm-eval's model; the caller drops its own reference as well.
    """
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    lm.model.llm_engine.engine_core.shutdown()
    del lm.model
    gc.collect()
    cleanup_dist_env_and_memory()
