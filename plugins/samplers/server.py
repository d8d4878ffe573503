"""Samplers on servers: any OpenAI-compatible one, through lm-eval's API models."""

from __future__ import annotations

from gapft_harness.api import Adapter, RegisterSampler, Sampler, SamplerSettings, hookimpl

#: How a server is reached, and how patiently. Which model answers is ``model``'s and
#: ``pretrained``'s to say; they are bound, and a server that serves no such model is refused.
#: ``header`` is bound, since a gateway may choose a model by it.
OPERATIONAL = (
    "base_url", "num_concurrent", "max_retries", "timeout", "verify_certificate", "ca_cert_path",
)  # fmt: skip


def server(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """An OpenAI-compatible server: a seed for each sample, and failed requests tried again."""
    from gapft_harness.api import ServerSampler

    return ServerSampler(settings, adapter)


def check(settings: SamplerSettings) -> None:
    """Raises ``UserError`` for wrong arguments, and where no server lists the model."""
    from gapft_harness.api import find_model

    find_model(settings)


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Registers ``local-completions`` and ``local-chat-completions``."""
    for name, of_ids in (("local-completions", True), ("local-chat-completions", False)):
        register(name, server, operational=OPERATIONAL, check=check, start_tokens=of_ids)
