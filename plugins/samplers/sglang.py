"""SGLang's samplers, by the text of lm-eval's models ``sglang`` and ``sglang-generate``."""

from __future__ import annotations

from gapft_harness import hookimpl
from gapft_harness.core.records import Adapter
from gapft_harness.hooks.protocols import RegisterSampler, Sampler, SamplerSettings


def sglang(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """SGLang's engine or server through lm-eval's own models; text alone, tokenized again."""
    from gapft_harness.lm_eval_bridge.samplers.sglang import SglangSampler

    return SglangSampler(settings, adapter)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``sglang`` and ``sglang-generate``."""
    register("sglang", sglang, own_process=True)
    register("sglang-generate", sglang)
