"""Render chats by a tokenizer's template, with a clock that stands still.

A template that writes the current time would give other prompts in every command.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from gapft_harness.core.errors import UserError

#: The argument of a template with the time that it writes, in ISO format. It has the name of the
#: function by which transformers gives templates the current time.
CLOCK = "strftime_now"
_KEY = f"model.args.chat_template_args.{CLOCK}"


def render_template(
    tokenizer: Any,
    arguments: Mapping[str, Any] | None,
    chat: Sequence[Mapping[str, str]],
    **options: Any,
) -> str:
    """Render a chat.

    Args:
        tokenizer: a tokenizer with a chat template.
        arguments: ``model.args.chat_template_args``.
        chat: the turns.
        options: further options of ``apply_chat_template``.

    Raises:
        UserError: the template writes the current time, and the arguments have none; or that time
            is not in ISO format.
    """
    others = {key: value for key, value in (arguments or {}).items() if key != CLOCK}
    with _stop_clock((arguments or {}).get(CLOCK)):
        text: str = tokenizer.apply_chat_template(chat, tokenize=False, **options, **others)
    return text


#: Held while a chat is rendered: samplers of servers render in several threads.
_CLOCK_LOCK = threading.Lock()


@contextlib.contextmanager
def _stop_clock(time: Any) -> Iterator[None]:
    """Let templates read this time while the block runs; None: they are refused to read any."""
    from transformers.utils import chat_template_utils as library

    clock: Any = library
    stopped = _StoppedClock(time)
    with _CLOCK_LOCK:
        original = clock.datetime
        clock.datetime = stopped
        try:
            yield
        finally:
            clock.datetime = original


class _StoppedClock:
    """What transformers' templates read the time from, as from the class ``datetime``."""

    def __init__(self, time: Any) -> None:
        try:
            self._time = None if time is None else datetime.fromisoformat(str(time))
        except ValueError as error:
            raise UserError(
                f"{_KEY}: found {time!r}; expected a date or a time such as 2026-01-31T12:00"
            ) from error

    def now(self, timezone: Any = None) -> datetime:
        if self._time is None:
            raise UserError(
                "model.chat_template: the template writes the current time (strftime_now), so that "
                "prompts would differ between commands; set the time that it writes, e.g. --set "
                f"{_KEY}=2026-01-31T12:00"
            )
        return self._time
