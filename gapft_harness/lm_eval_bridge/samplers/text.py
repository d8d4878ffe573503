"""Samplers for lm-eval models that return only text (``hf`` has its own sampler)."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from gapft_harness.core.errors import UserError, summarize_error
from gapft_harness.core.records import Adapter, Decoding, TokensFrom
from gapft_harness.core.streams import derive_key
from gapft_harness.core.text import replace_surrogates
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    Request,
    SamplerSettings,
)
from gapft_harness.lm_eval_bridge.samplers.endings import build_generated
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer


def build_generation_kwargs(decoding: Decoding) -> dict[str, Any]:
    """Convert a decoding to lm-eval's ``generation_kwargs``.

    ``do_sample`` is always set: without it, lm-eval samples if a temperature is given. ``top_k`` is
    passed even if 0, since transformers' default is 50.
    """
    kwargs: dict[str, Any] = {
        "do_sample": decoding.do_sample,
        "max_gen_toks": decoding.max_gen_toks,
        "until": list(decoding.until),
    }
    if decoding.do_sample:
        kwargs["temperature"] = decoding.temperature
        kwargs["top_p"] = decoding.top_p
        kwargs["top_k"] = decoding.top_k
    return kwargs


def find_fitting(
    requests: Sequence[Request], lengths: Sequence[int], decoding: Decoding, context: int | None
) -> list[bool]:
    """Return for each prompt whether it fits the context with ``max_gen_toks`` new tokens.

    Args:
        requests: the requests, for messages.
        lengths: the prompts' lengths in tokens.
        decoding: the decoding.
        context: the model's context in tokens; None if unknown: every prompt fits.

    Raises:
        UserError: a prompt is empty.
    """
    for request, length in zip(requests, lengths, strict=True):
        if not length:
            raise UserError(
                f"problem {request.problem_id}: empty prompt; expected at least one token"
            )
    return [context is None or length <= context - decoding.max_gen_toks for length in lengths]


def build_instances(
    requests: Sequence[Request], prompts: Sequence[str], decoding: Decoding
) -> list[Any]:
    """Build lm-eval's requests: one for each requested index, with its decoding."""
    clones: list[Any] = []
    for number, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
        request_instances = {
            used: Instance(
                "generate_until",
                {},
                (prompt, build_generation_kwargs(used)),
                idx=number,
                task_name="",
                doc_id=number,
            )
            for used in {decoding.for_index(index) for index in request.indices}
        }
        clones.extend(request_instances[decoding.for_index(index)] for index in request.indices)
    return clones


class LmEvalSampler:
    """Any registered lm-eval model; uses only the text that it returns.

    Token ids come from ``retokenizer`` (``tokens_from="retokenized"``); without one they are empty
    (``"none"``). lm-eval's models take no seed for a single response: before each call, the random
    generators of this process are seeded from the seeds of all its samples; the generators of an
    engine in another process are not.
    """

    def __init__(
        self, settings: SamplerSettings, adapter: Adapter | None, retokenizer: Retokenizer | None
    ) -> None:
        """Create the model as ``lm_eval --model BACKEND --model_args …`` does.

        Args:
            settings: ``backend`` is the lm-eval model's name.
            adapter: must be None; lm-eval has no common way to load one.
            retokenizer: gives token ids; None: responses have no ids, and cannot be trained on.

        Raises:
            UserError: an adapter was given, a chat template without a tokenizer, an unknown
                model name, or an argument that the model refuses.
        """
        name = settings.backend
        if adapter is not None:
            raise UserError(
                f"model.backend: {name!r} does not support trained adapters "
                f"({adapter.path}); use hf"
            )
        if settings.chat_template and retokenizer is None:
            raise UserError(
                f"model.chat_template: found true, but the backend {name!r} has no tokenizer on "
                "this machine; set it to false"
            )
        model_args = dict(settings.model_args)
        if retokenizer is not None:  # it renders the chats
            model_args.pop("chat_template_args", None)
        try:
            self._lm = get_model(name).create_from_arg_obj(model_args)
        except (TypeError, ValueError, OSError, ImportError, AssertionError) as error:
            raise UserError(
                f"model.args: cannot create the lm-eval model {name!r}: {summarize_error(error)}"
            ) from error
        self._settings = settings
        self._retokenizer = retokenizer

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Generate the responses to every request, in order; see ``protocols.Sampler``."""
        _seed_random_generators(
            derive_key(*(seed for request in requests for seed in request.seeds))
        )
        tokenizer = self._retokenizer
        prompts = [tokenizer.render(r) if tokenizer else r.text for r in requests]
        clones = build_instances(requests, prompts, decoding)
        # A server's texts may contain lone surrogates, which tokenizers and files do not accept.
        texts = replace_surrogates(list(self._lm.generate_until(clones, disable_tqdm=True)))
        no_ids: tuple[int, ...] = ()
        prompt_ids = tokenizer.prompt_ids(prompts) if tokenizer else [no_ids] * len(prompts)
        text_ids = tokenizer.response_ids(texts) if tokenizer else [no_ids] * len(texts)
        source: TokensFrom = "retokenized" if tokenizer else "none"
        responses = [
            Generation(text, ids, "unknown", source)
            for _, text, ids in zip(clones, texts, text_ids, strict=True)
        ]
        generated = []
        rest = iter(responses)
        for request, prompt, ids in zip(requests, prompts, prompt_ids, strict=True):
            own = islice(rest, len(request.indices))
            generated.append(build_generated(ids, prompt if tokenizer else "", own))
        return generated

    def describe(self) -> dict[str, Any]:
        """Return the model's name and arguments, and the version of lm-eval."""
        return {
            "backend": self._settings.backend,
            "model_args": {key: str(value) for key, value in self._settings.model_args.items()},
            "tokenizer": self._retokenizer.name if self._retokenizer else None,
            "versions": {"lm_eval": version("lm_eval")},
        }

    def close(self) -> None:
        """Release the model."""
        self._lm = None


def dummy_sampler(settings: SamplerSettings, adapter: Adapter | None) -> LmEvalSampler:
    """Return a sampler on lm-eval's ``dummy`` model: one constant response to every prompt.

    Args:
        settings: ``pretrained`` need not exist. If it is a folder, its tokenizer gives token ids;
            else nothing is tokenized, and torch and transformers are not imported.
        adapter: must be None.
    """
    folder = Path(str(settings.model_args.get("pretrained", "")))
    has_tokenizer = bool(folder.name) and folder.is_dir()
    return LmEvalSampler(settings, adapter, Retokenizer(settings) if has_tokenizer else None)


def _seed_random_generators(seed: int) -> None:
    """Seed the random generators that an lm-eval model may use, as ``lm_eval --seed`` does."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(seed >> 1)
