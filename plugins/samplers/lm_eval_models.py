"""Samplers on lm-eval's own models: transformers, vLLM, servers, and the dummy."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import (
    Adapter,
    Problem,
    Register,
    Sampler,
    SamplerSettings,
    hookimpl,
)
from gapft_harness.lm_eval_bridge.samplers.retokenizer import has_chat_template, prompt_lengths

#: Operational arguments of servers: address and retries. ``model`` and ``pretrained`` decide which
#: model answers, so they are fixed, and a server without that model is rejected. ``header`` is
#: fixed because a gateway may choose a model by it.
SERVER_ARGUMENTS = (
    "base_url", "num_concurrent", "max_retries", "timeout", "verify_certificate", "ca_cert_path",
)  # fmt: skip

#: Operational arguments of engines: with less memory, requests only wait longer for each other, as
#: on a smaller GPU.
MEMORY_ARGUMENTS = ("gpu_memory_utilization", "kv_cache_memory_bytes")


def hf(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """Create a sampler on lm-eval's own ``hf`` model (Transformers), with exact token ids."""
    from gapft_harness.api import HfSampler

    return HfSampler(settings, adapter)


def check_hf(settings: SamplerSettings) -> None:
    """Raise ``UserError`` for arguments that lm-eval's ``hf`` model does not take."""
    from gapft_harness.lm_eval_bridge.samplers.hf_arguments import check_arguments

    check_arguments(settings.model_args)


def hf_has_chat_template(settings: SamplerSettings) -> bool:
    """Check the arguments, and return whether the model's tokenizer has a chat template."""
    check_hf(settings)
    return has_chat_template(settings)


def vllm(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """Create a sampler on lm-eval's own ``vllm`` model; adapters are served, not merged."""
    from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process as prepare_vllm

    # Before anything imports vllm: it reads its environment variables once.
    prepare_vllm(settings.threads)
    from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler

    return VllmSampler(settings, adapter)


def server(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """Create a sampler on an OpenAI-compatible server: one seed per sample, with retries."""
    from gapft_harness.lm_eval_bridge.samplers.server.sampler import ServerSampler

    return ServerSampler(settings, adapter)


def check_server(settings: SamplerSettings) -> None:
    """Raise ``UserError`` for wrong arguments, or if the server does not list the model."""
    from gapft_harness.lm_eval_bridge.samplers.server.sampler import find_model

    find_model(settings)


def server_has_chat_template(settings: SamplerSettings) -> bool:
    """Return whether a server's prompts are chats if the recipe does not decide it."""
    from gapft_harness.lm_eval_bridge.samplers.server.sampler import renders_chats

    return renders_chats(settings)


def dummy(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """Create a sampler on lm-eval's ``dummy`` model: one constant response, no weights."""
    from gapft_harness.lm_eval_bridge.samplers.text import dummy_sampler

    return dummy_sampler(settings, adapter)


def count_server_prompt_tokens(
    settings: SamplerSettings, problems: Sequence[Problem]
) -> Sequence[int] | None:
    """Count the tokens of prompts if the arguments name the tokenizer of a server's model."""
    return prompt_lengths(settings, problems) if settings.model_args.get("tokenizer") else None


@hookimpl
def register_samplers(register: Register) -> None:
    """Register each sampler under lm-eval's name of the model."""
    register(
        "hf", hf, check=check_hf, start_tokens=True, prompt_lengths=prompt_lengths,
        chat_template=hf_has_chat_template,
    )  # fmt: skip
    register(
        "vllm", vllm, own_process=True, operational=MEMORY_ARGUMENTS, start_tokens=True,
        prompt_lengths=prompt_lengths, chat_template=has_chat_template,
    )  # fmt: skip
    for name, sends_ids in (("local-completions", True), ("local-chat-completions", False)):
        register(
            name, server, operational=SERVER_ARGUMENTS, check=check_server, start_tokens=sends_ids,
            prompt_lengths=count_server_prompt_tokens, chat_template=server_has_chat_template,
        )  # fmt: skip
    register("dummy", dummy)
