"""Training on answers alone: remove the reasoning of responses (``evidence.keep_reasoning``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import AnswerOnly, Evidence, Response
from gapft_harness.core.thoughts import find_answer_ids, opens_thought
from gapft_harness.recipe.recipe import Recipe, resolve_model_args
from gapft_harness.run_directory.manifest import ReasoningFacts

#: Token ids of a prompt's end; its last tag is within them.
_PROMPT_END = 16


class AnswerCutter:
    """Removes the reasoning of responses by their token ids; see ``find_answer_ids``.

    Args:
        recipe: names the tokenizer, which is loaded at the first response.
        think_end_token: the end of the model's reasoning, besides the known tags.
    """

    def __init__(self, recipe: Recipe, think_end_token: str | None) -> None:
        self._model_args = resolve_model_args(recipe)
        self._think_end_token = think_end_token

    def cut(self, response: Response, prompt_ids: tuple[int, ...]) -> AnswerOnly:
        """See ``ReasoningCutter.cut``."""
        values = {field.name: getattr(response, field.name) for field in fields(Response)}
        if response.reasoning and response.tokens_from == "retokenized":
            ids = response.token_ids
            answer = tuple(self._tokenizer(response.text, add_special_tokens=False)["input_ids"])
            if not answer or ids[-len(answer) :] != answer:
                return AnswerOnly(**values, reasoning_cut="inseparable")
            start = len(ids) - len(answer)
            return AnswerOnly(
                **values | {"token_ids": answer}, removed=start, reasoning_cut="removed"
            )
        start, reasoning_cut = find_answer_ids(
            response.token_ids,
            self._decode,
            opens_thought(self._decode(prompt_ids[-_PROMPT_END:]), self._think_end_token),
            self._think_end_token,
        )
        ids = response.token_ids[start:]
        return AnswerOnly(**values | {"token_ids": ids}, removed=start, reasoning_cut=reasoning_cut)

    @cached_property
    def _tokenizer(self) -> Any:
        from gapft_harness.training.model import load_tokenizer

        return load_tokenizer(self._model_args)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return text


def count_cuts(evidence: Sequence[Evidence]) -> ReasoningFacts | None:
    """Count what was removed from the responses of a training set; None if reasoning is kept."""
    answers = [e.response for e in evidence if isinstance(e.response, AnswerOnly)]
    if not answers:
        return None
    counts = Counter(answer.reasoning_cut for answer in answers)
    return {
        "removed": counts["removed"],
        "none": counts["none"],
        "inseparable": counts["inseparable"],
        "tokens": sum(answer.removed for answer in answers),
    }


def require_exact_reasoning(evidence: Sequence[Evidence]) -> None:
    """Refuse to train on reasoning whose token ids are unknown.

    Raises:
        UserError: a server returned reasoning apart from the text, and no token ids.
    """
    responses = [e.response for e in evidence if e.response is not None and e.response.reasoning]
    inexact = [r for r in responses if r.tokens_from != "generator"]
    if inexact:
        raise UserError(
            f"evidence.keep_reasoning: the server returned the reasoning of {len(inexact)} kept "
            f"responses apart from their text, and no token ids (first: {inexact[0].problem_id}), "
            "so the responses as generated are unknown; set evidence.keep_reasoning: false to "
            "train on the answers alone, or use a server that returns token ids (vLLM)"
        )
