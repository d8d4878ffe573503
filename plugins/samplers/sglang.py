"""SGLang's samplers, by the text of lm-eval's models ``sglang`` and ``sglang-generate``."""

from __future__ import annotations

from gapft_harness.api import Adapter, RegisterSampler, Sampler, SamplerSettings, hookimpl
from gapft_harness.plugins.samplers.server import OPERATIONAL


def sglang(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """SGLang's engine or server through lm-eval's own models; text alone, tokenized again."""
    from gapft_harness.api import SglangSampler

    return SglangSampler(settings, adapter)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``sglang`` and ``sglang-generate``."""
    register("sglang", sglang, own_process=True, operational=("mem_fraction_static",))
    register("sglang-generate", sglang, operational=OPERATIONAL)
