"""What a CPU computes slowly."""

from __future__ import annotations

from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
#: Flags of processors that compute in bfloat16: two of x86, one of ARM.
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def describe_slow_dtype(device: str, dtype: str, remedy: str) -> str:
    """Say that this CPU has no instructions for a model's bfloat16; empty if it has, or needs none.

    Args:
        device: the type of the model's device.
        dtype: the dtype of its weights, such as ``torch.bfloat16``.
        remedy: the option that sets float32.
    """
    if device != "cpu" or dtype.rpartition(".")[2] != "bfloat16" or not _CPU_INFO.is_file():
        return ""
    if _BFLOAT16_FLAGS & {*_CPU_INFO.read_text("utf-8", "replace").split()}:
        return ""
    return (
        "this CPU has no instructions for bfloat16, so that float32 is several times faster: "
        f"{remedy}"
    )
