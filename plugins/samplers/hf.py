"""The ``hf`` sampler: lm-eval's Hugging Face model, with the exact token ids."""

from __future__ import annotations

from gapft_harness.api import Adapter, RegisterSampler, Sampler, SamplerSettings, hookimpl


def hf(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """Transformers models through lm-eval's own ``hf`` model, with exact token ids."""
    from gapft_harness.api import HfSampler

    return HfSampler(settings, adapter)


def check(settings: SamplerSettings) -> None:
    """Raises ``UserError`` for arguments that lm-eval's ``hf`` model does not take."""
    from gapft_harness.api import check_hf_arguments

    check_hf_arguments(settings.model_args)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``hf``."""
    register("hf", hf, check=check, start_tokens=True)
