"""Samplers on servers: any OpenAI-compatible one, through lm-eval's API models."""

from __future__ import annotations

from gapft_harness import hookimpl
from gapft_harness.core.records import Adapter
from gapft_harness.hooks.protocols import RegisterSampler, Sampler, SamplerSettings


def server(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """An OpenAI-compatible server: a seed for each sample, and failed requests tried again."""
    from gapft_harness.lm_eval_bridge.samplers.server.sampler import ServerSampler

    return ServerSampler(settings, adapter)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``local-completions`` and ``local-chat-completions``."""
    register("local-completions", server)
    register("local-chat-completions", server)
