"""Token ids for backends that return only text: the model's tokenizer, applied afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import dropwhile
from typing import Any

from gapft_harness.core.chat_template import render_template
from gapft_harness.core.errors import UserError, summarize_error
from gapft_harness.core.pretrained import load_tokenizer
from gapft_harness.core.records import Problem, Turn
from gapft_harness.hooks.protocols import Request, SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.endings import find_end_ids, find_turn_end_ids


class Retokenizer:
    """Renders prompts and tokenizes texts as lm-eval's ``hf`` model would.

    These ids may differ from the generated ones, since a text has many tokenizations; such
    responses have ``tokens_from="retokenized"``.

    Args:
        settings: the sampler's settings; ``tokenizer`` or else ``pretrained`` is loaded.
    """

    def __init__(self, settings: SamplerSettings) -> None:
        """Load the tokenizer that ``model_args`` names (``tokenizer``, else ``pretrained``).

        Raises:
            UserError: there is none, or it lacks the requested start token.
        """
        check_chat_settings(settings)
        args = settings.model_args
        self.name = str(args.get("tokenizer") or args["pretrained"])
        self._settings = settings
        self._tokenizer = load_tokenizer(args)
        self._add_bos = args.get("add_bos_token")
        self._turn_ends = find_turn_end_ids(self._tokenizer, settings)
        self.start_ids = find_start_ids(self._tokenizer, settings)

    def render(self, request: Request) -> str:
        """Return the text of a request's prompt, rendered as a chat if requested."""
        arguments = self._settings.model_args.get("chat_template_args")
        return render_request(self._tokenizer, arguments, self._settings, request)

    def prompt_ids(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the ids of rendered prompts, with the tokenizer's own special tokens.

        As in lm-eval, no start token is added to a text that already begins with it. If the recipe
        sets the number of start tokens, they replace the tokenizer's.
        """
        bos = self._tokenizer.bos_token
        by_start: dict[bool, list[str]] = {True: [], False: []}
        for prompt in dict.fromkeys(prompts):
            by_start[bool(bos) and prompt.startswith(bos)].append(prompt)
        ids: dict[str, tuple[int, ...]] = {}
        for starts, members in by_start.items():
            special = False if starts else True if self._add_bos is None else self._add_bos
            ids.update(zip(members, self._encode(members, special), strict=True))
        return [tuple(replace_start_ids(ids[prompt], self.start_ids)) for prompt in prompts]

    def response_ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the ids of responses, without special tokens."""
        unique = list(dict.fromkeys(texts))
        ids = dict(zip(unique, self._encode(unique, False), strict=True))
        return [ids[text] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def special_ids(self, texts: Sequence[str]) -> list[int]:
        """Return the sorted ids of the turn's end and of texts that are one special token."""
        return find_end_ids(self._tokenizer, self._turn_ends, texts)

    def _encode(self, texts: list[str], special: bool) -> list[tuple[int, ...]]:
        if not texts:
            return []
        encoded = self._tokenizer(texts, add_special_tokens=special)
        return [tuple(ids) for ids in encoded["input_ids"]]


def prompt_lengths(settings: SamplerSettings, problems: Sequence[Problem]) -> list[int]:
    """Count the tokens of each problem's prompt as the model sees it.

    Args:
        settings: the sampler's settings, with the tokenizer and the chat template.
        problems: the problems.

    Raises:
        UserError: as in ``Retokenizer``.
    """
    tokenizer = Retokenizer(settings)
    requests = [Request(p.id, p.prompt, (), (), turns=p.turns) for p in problems]
    return [len(ids) for ids in tokenizer.prompt_ids([*map(tokenizer.render, requests)])]


def build_chat_turns(request: Request, system_instruction: str | None) -> list[dict[str, str]]:
    """Build the chat of one request: the turns of its task, and those of earlier attempts.

    Args:
        request: the request.
        system_instruction: the system turn of a request without its own turns.
    """
    attempts = [
        turn
        for attempt in request.attempts
        for turn in (
            {"role": "assistant", "content": attempt.text},
            {"role": "user", "content": attempt.feedback},
        )
    ]
    if request.turns:
        return [*map(dict, request.turns), *attempts]
    system = [{"role": "system", "content": system_instruction}] if system_instruction else []
    return [*system, {"role": "user", "content": request.prompt}, *attempts]


def is_answer_begun(turns: Sequence[Turn]) -> bool:
    """Return whether a chat ends inside the assistant's turn, which the response continues."""
    return turns[-1]["role"] == "assistant"


#: The beginning of an answer when a chat template is tested.
_TRIAL_BEGINNING = "gapft-beginning-of-an-answer"


def render_request(
    tokenizer: Any,
    template_args: Mapping[str, Any] | None,
    settings: SamplerSettings,
    request: Request,
) -> str:
    """Render a request's prompt as lm-eval does, up to the beginning of the response.

    Args:
        tokenizer: the model's tokenizer.
        template_args: arguments of its chat template.
        settings: the sampler's settings; without ``chat_template`` a prompt is its own text.
        request: the request; a final assistant turn is left open.

    Raises:
        UserError: the template refuses the turns, cannot leave the last one open, or writes the
            current time.
    """
    if not settings.chat_template:
        return request.text
    turns = build_chat_turns(request, settings.system_instruction)
    apply_template = partial(render_template, tokenizer, template_args)
    continued = is_answer_begun(turns)
    arguments = {"add_generation_prompt": not continued, "continue_final_message": continued}
    try:
        if continued:  # a template that drops the turn may contain the same words elsewhere
            apply_template([*turns[:-1], {**turns[-1], "content": _TRIAL_BEGINNING}], **arguments)
        return apply_template([*turns], **arguments)
    except UserError:
        raise
    except Exception as error:  # a template may raise anything
        roles = ", ".join(turn["role"] for turn in turns)
        raise UserError(
            f"the model's chat template refuses the turns {roles}"
            f"{' with the last one left open' if continued else ''} ({summarize_error(error)}); "
            "set model.chat_template to false, or change what makes these turns: the task's "
            "gen_prefix or description, model.system_instruction, or model.fewshot_as_multiturn"
        ) from error


def check_chat_settings(settings: SamplerSettings) -> None:
    """Refuse a system turn without a chat template.

    Raises:
        UserError: ``system_instruction`` is set and ``chat_template`` is not.
    """
    if settings.system_instruction and not settings.chat_template:
        raise UserError(
            "model.system_instruction: needs a chat template; set model.chat_template to true, or "
            "put the text into the task's prompt"
        )


def has_chat_template(settings: SamplerSettings) -> bool:
    """Return whether the tokenizer in ``model_args`` has a chat template.

    Args:
        settings: of the sampler.

    Raises:
        UserError: the tokenizer is not found.
    """
    return load_tokenizer(settings.model_args).chat_template is not None


def find_start_ids(tokenizer: Any, settings: SamplerSettings) -> list[int] | None:
    """Return the ids that every prompt begins with.

    The paper's main protocol has two start tokens, its older one has one (Appendix A, "Logic run
    families").

    Args:
        tokenizer: the model's tokenizer.
        settings: ``start_tokens`` is the number; None leaves prompts as lm-eval encodes them.

    Returns:
        The start token's id ``start_tokens`` times; None if the number is None.

    Raises:
        UserError: the tokenizer has no start token.
    """
    if settings.start_tokens is None:
        return None
    start = tokenizer.bos_token_id
    if start is None:
        raise UserError(
            f"model.start_tokens: found {settings.start_tokens}, but the tokenizer "
            f"{tokenizer.name_or_path!r} has no start token (bos_token); remove the key"
        )
    return [int(start)] * settings.start_tokens


def replace_start_ids(ids: Sequence[int], start: Sequence[int] | None) -> list[int]:
    """Replace the start tokens of a prompt by ``start``; None changes nothing."""
    if start is None:
        return list(ids)
    return [*start, *dropwhile(start[0].__eq__, ids)]
