"""What an OpenAI-compatible server answers: one reply's text, its end, and token ids if it has any.

Token ids are those of vLLM's ``return_token_ids`` (read in vllm 0.32.0): ``token_ids`` of a choice
holds all generated ids, those of the end and of the stop string included; ``stop_reason`` is the
stop string, the id that ended the text, or null for the model's end of sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.lm_eval_bridge.samplers.endings import ids_of_text
from gapft_harness.lm_eval_bridge.samplers.server.errors import PassingError, ServerError, from_json

_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ServerReply:
    """One generated text.

    Attributes:
        text: without its stop string.
        finish_reason: ``stop``, ``length`` or ``unknown``.
        prompt_ids: the ids that the server generated on; None where it does not say.
        token_ids: all generated ids, see above; None where the server does not say.
        stop: the stop string that ended the text; None for any other end.
    """

    text: str
    finish_reason: str
    prompt_ids: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None
    stop: str | None

    def ids_of_text(self, decode: Callable[[Sequence[int]], str] | None) -> tuple[int, ...] | None:
        """The ids that make up ``text``, or None where that cannot be known exactly.

        Args:
            decode: gives the text of ids, special tokens left out; needed after a stop string.
        """
        if self.token_ids is None:
            return None
        if self.stop is not None:
            return tuple(ids_of_text(self.token_ids, self.text, decode)) if decode else None
        return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids


def read_reply(reply: bytes) -> ServerReply:
    """Reads the reply to a completion or chat completion of one choice.

    Raises:
        PassingError: it is torn or has no such form, or the server broke the generation off.
        ServerError: the server keeps a part of the generated text apart.
    """
    body = from_json(reply)
    try:
        [choice] = body["choices"]
        message = choice.get("message")
        text = choice["text"] if message is None else message.get("content")
        finish = choice.get("finish_reason")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise PassingError("no OpenAI reply", f"found {str(body)[:80]!r}") from error
    if message is not None and any(message.get(key) for key in _REASONING):
        raise ServerError(
            "reasoning apart",
            "the server splits reasoning off the text; start it without a reasoning parser",
        )
    if finish in ("abort", "error"):
        raise PassingError("aborted", f"finish_reason {finish!r}")
    if text is not None and not isinstance(text, str):
        raise PassingError("no OpenAI reply", f"its text is {str(text)[:80]!r}")
    # Ids are trusted where the server also says what ended them.
    exact = "stop_reason" in choice
    stop = choice.get("stop_reason")
    return ServerReply(
        text or "",
        finish if finish in ("stop", "length") else "unknown",
        _ids(choice.get("prompt_token_ids", body.get("prompt_token_ids"))),
        _ids(choice.get("token_ids")) if exact else None,
        stop if isinstance(stop, str) else None,
    )


def _ids(found: Any) -> tuple[int, ...] | None:
    if isinstance(found, list) and all(type(number) is int for number in found):
        return tuple(found)
    return None
