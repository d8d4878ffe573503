"""Environment variables that decide how a library computes, and so what comes out."""

from __future__ import annotations

import os
import re

#: What torch and its libraries for linear algebra read: precision, kernels, instruction sets; then
#: Triton, NCCL (the order of sums over processes), transformers and accelerate.
#: Training takes no precision from accelerate's launcher, so that is not among them.
_LIBRARIES = re.compile(
    r"NVIDIA_TF32_OVERRIDE|CUBLAS(LT)?_WORKSPACE_(CONFIG|SIZE)|ATEN_CPU_CAPABILITY|CUDNN_.*"
    r"|TORCH_(ALLOW_TF32_CUBLAS_OVERRIDE|BLAS_PREFER_.*|LINALG_PREFER_.*|MKLDNN_.*|ROCM_.*)"
    r"|TORCH_CUDNN_(SDPA|V8_API_DISABLED).*|DISABLE_ADDMM_(CUDA|HIP)_LT|PYTORCH_(TUNABLEOP|MPS)_.*"
    r"|TORCH_COMPILE_DISABLE|TORCHDYNAMO_DISABLE|PYTORCH_JIT(_.*)?"
    r"|MKL_(CBWR|ENABLE_INSTRUCTIONS|DISABLE_FAST_MM)|OPENBLAS_CORETYPE"
    r"|(ONEDNN|DNNL)_(MAX_CPU_ISA|DEFAULT_FPMATH_MODE)|FLASH_ATTENTION_.*"
    r"|TRITON_(F32_DEFAULT|INTERPRET|DEFAULT_FP_FUSION)|NCCL_(ALGO|PROTO)"
    r"|USE_HUB_KERNELS|TRANSFORMERS_(SDPA|DISABLE_DEEPGEMM)_.*|XLA_(USE|DOWNCAST)_BF16"
    r"|ACCELERATE_TORCH_DEVICE"
)

#: The GPUs that a process sees, and in a worker those that its parent sees.
VISIBLE_GPUS, ALL_GPUS = "CUDA_VISIBLE_DEVICES", "GAPFT_VISIBLE_DEVICES"

#: Variables of vLLM for addresses, places, secrets, logs, patience, cores and memory; all others
#: decide results.
_OPERATIONAL = re.compile(
    r".*_(IP|HOST|PORT|RANK|RANK_LOCAL|PATH|ROOT|DIR|FOLDER|CACHE|KEY|TOKEN|LEVEL|LOGGING|PREFIX"
    r"|STATS|TRACK|INTERVAL|SECONDS|(TIMEOUT|LOGGING|USAGE)(_.*)?|THREADS_BIND|KVCACHE_SPACE)"
)

#: What this package sets where nothing else is set, before an engine is imported.
_DEFAULTS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def decides_results(name: str, uses_vllm: bool = True) -> bool:
    """Whether a variable decides how something is computed.

    Args:
        name: of the variable.
        uses_vllm: whether vLLM may be used.
    """
    is_of_vllm = uses_vllm and name.startswith("VLLM_") and not _OPERATIONAL.fullmatch(name)
    return bool(is_of_vllm or _LIBRARIES.fullmatch(name))


def describe_environment(uses_vllm: bool = False) -> dict[str, str]:
    """Return the variables of this process that decide how something is computed.

    Args:
        uses_vllm: as in ``decides_results``.
    """
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if decides_results(name, uses_vllm) and value != _DEFAULTS.get(name)
    }
