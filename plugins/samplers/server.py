"""Samplers on servers: any OpenAI-compatible one, through lm-eval's API models."""

from __future__ import annotations

from gapft_harness.api import Adapter, RegisterSampler, Sampler, SamplerSettings, hookimpl


def server(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """An OpenAI-compatible server: a seed for each sample, and failed requests tried again."""
    from gapft_harness.api import ServerSampler

    return ServerSampler(settings, adapter)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``local-completions`` and ``local-chat-completions``."""
    register("local-completions", server)
    register("local-chat-completions", server)
