"""The ``dummy`` sampler: lm-eval's model that answers every prompt alike, for timing a pipeline."""

from __future__ import annotations

from gapft_harness.api import Adapter, RegisterSampler, Sampler, SamplerSettings, hookimpl


def dummy(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """lm-eval's ``dummy`` model: one constant response, no weights."""
    from gapft_harness.api import dummy_sampler

    return dummy_sampler(settings, adapter)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``dummy``."""
    register("dummy", dummy)
