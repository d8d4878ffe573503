"""The ``vllm`` sampler: lm-eval's vLLM model, a seed for every sample, exact token ids."""

from __future__ import annotations

from gapft_harness import hookimpl
from gapft_harness.core.records import Adapter
from gapft_harness.hooks.protocols import RegisterSampler, Sampler, SamplerSettings


def vllm(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """The vLLM engine through lm-eval's own ``vllm`` model; adapters are served, not merged."""
    from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process

    # Before anything imports vllm: it reads its environment variables once.
    prepare_process(settings.threads)
    from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler

    return VllmSampler(settings, adapter)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``vllm``."""
    register("vllm", vllm, own_process=True)
