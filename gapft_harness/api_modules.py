"""Which module has what ``gapft_harness.api`` loads when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable

#: Names by module; NAME:THERE is THERE in it.
_FROM = {
    "executors.local": "LocalExecutor",
    "executors.ray": "RayExecutor",
    "lm_eval_bridge.samplers.hf.arguments": "check_hf_arguments:check_arguments",
    "lm_eval_bridge.samplers.hf.sampler": "HfSampler",
    "lm_eval_bridge.samplers.retokenizer": "Retokenizer",
    "lm_eval_bridge.samplers.server.sampler": "ServerSampler find_model",
    "lm_eval_bridge.samplers.sglang": "SglangSampler",
    "lm_eval_bridge.samplers.text": "LmEvalSampler dummy_sampler",
    "lm_eval_bridge.samplers.vllm.process": "prepare_vllm:prepare_process",
    "lm_eval_bridge.samplers.vllm.sampler": "VllmSampler",
    "lm_eval_bridge.stock": "StockTask",
    "sandbox": "InfrastructureError Limits Program Result Sandbox Test TestResult",
    "training.lora": "train_lora:train train_together",
    "verdicts.places": "Log",
    "verdicts.sample_logs": "LogRow",
    "verification.boxes": "last_box",
    "verification.feedback": "NO_PROGRAM failure_feedback without_paths",
    "verification.judging": "once_each",
    "verification.math": "compare_math:compare prepare_math:prepare",
    "verification.packed_tests": "MAX_DECODED_BYTES",
    "verification.pool": "Outcome WorkerPool",
    "verification.programs": (
        "Suite check_calls importable last_program last_program_lcb read_suite"
    ),
}


def when_asked(of_experiments: Iterable[str]) -> dict[str, str]:
    """The place of each name, ``MODULE`` or ``MODULE:THERE``.

    Args:
        of_experiments: the names that ``experiments.kit`` gives.
    """
    every = {**_FROM, "experiments.kit": " ".join(of_experiments)}
    return {
        name: f"gapft_harness.{module}{colon}{there}"
        for module, names in every.items()
        for name, colon, there in (each.partition(":") for each in names.split())
    }
