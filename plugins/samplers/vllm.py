"""The ``vllm`` sampler: lm-eval's vLLM model, a seed for every sample, exact token ids."""

from __future__ import annotations

from gapft_harness.api import Adapter, RegisterSampler, Sampler, SamplerSettings, hookimpl

#: With less memory requests may wait longer for each other, as they do on a smaller GPU.
MEMORY = ("gpu_memory_utilization", "kv_cache_memory_bytes")


def vllm(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """The vLLM engine through lm-eval's own ``vllm`` model; adapters are served, not merged."""
    from gapft_harness.api import prepare_vllm

    # Before anything imports vllm: it reads its environment variables once.
    prepare_vllm(settings.threads)
    from gapft_harness.api import VllmSampler

    return VllmSampler(settings, adapter)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``vllm``."""
    register("vllm", vllm, own_process=True, operational=MEMORY, start_tokens=True)
