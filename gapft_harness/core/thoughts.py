"""Remove reasoning blocks from responses, so that no answer is read from them."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Version of these rules, recorded so that a verdict that changed with them can be traced.
THOUGHT_RULES = 1

_NAMES = "think|thinking|thought|seed:think"
_TAG = re.compile(
    # a tag in quotes, such as '<think>' in a program, does not open or close a block
    rf"(?P<quote>[\"'`])(?:</?(?i:{_NAMES})>|\[/?THINK\])(?P=quote)"
    rf"|<(?P<end>/?)(?P<name>(?i:{_NAMES}))>"
    r"|\[(?P<mistral_end>/?)THINK\]"
    r"|<\|channel\|>(?P<channel>analysis|commentary)\b"
    r"|<\|channel\|>(?P<final>final)\b(?:[^<]{0,40}<\|message\|>)?"
)
#: Blank lines, and a single space (several spaces are indentation).
_LEADING = re.compile(r"(?:[^\S\n]*\n)*(?: (?! ))?")


@dataclass(frozen=True, slots=True)
class ThoughtScan:
    """The reasoning blocks of a text.

    Attributes:
        parts: start and end of each part of the text outside of the blocks; empty parts included.
        is_found: whether there is a block, complete or not.
        is_closed: whether there is a closing tag.
    """

    parts: tuple[tuple[int, int], ...]
    is_found: bool
    is_closed: bool


def scan_thoughts(text: str, think_end_token: str | None = None) -> ThoughtScan:
    """Find the reasoning blocks of a text; see ``remove_thoughts`` for the rules.

    Args:
        text: a response, or the end of a prompt.
        think_end_token: the end of the model's reasoning, besides the known tags.
    """
    start, is_closed = 0, False
    if think_end_token and (place := text.rfind(think_end_token)) >= 0:
        start = place + len(think_end_token)
        is_closed = True
    parts: list[tuple[int, int]] = []
    position = start
    open_kind = ""
    is_found = is_closed
    for tag in _TAG.finditer(text, start):
        if tag["quote"]:
            continue
        kind, closes = _read_tag(tag)
        if open_kind:
            if not (closes and kind == open_kind):
                continue
            open_kind, is_closed = "", True
        elif closes:
            parts = []  # the block began in the prompt
            is_closed = True
        else:
            parts.append((position, tag.start()))
            open_kind = kind
        is_found = True
        position = tag.end()
    if not open_kind:
        parts.append((position, len(text)))
    return ThoughtScan(tuple(parts), is_found, is_closed)


def remove_thoughts(response: str, think_end_token: str | None = None) -> str:
    r"""Return a response without its reasoning blocks.

    The known blocks are ``<think>``, ``<thinking>``, ``<thought>`` and ``<seed:think>`` (in any
    case) with their closing tags, Mistral's ``[THINK]``, and the ``analysis`` and ``commentary``
    channels of gpt-oss, which end where its ``final`` channel begins. An unclosed block extends to
    the end. A closing tag without an opening tag ends a block that began in the prompt. Within a
    block only its own closing tag counts. White space around the remaining text is removed, except
    for the indentation of its first line. Text without a tag is returned unchanged.

    The time is linear in the response's length, and a second call changes nothing.

    Args:
        response: the text that the model generated.
        think_end_token: as lm_eval's: first, all text up to its last occurrence is removed.

    >>> remove_thoughts("<think>Is it 7?</think>\n\nIt is 5.")
    'It is 5.'
    >>> remove_thoughts("Is it 7? No.</think> It is 5.")
    'It is 5.'
    >>> remove_thoughts("It is 5. <think>Or 7?")
    'It is 5.'
    >>> remove_thoughts("Is it 7? No. [end] It is 5.", "[end]")
    'It is 5.'
    """
    scan = scan_thoughts(response, think_end_token)
    if not scan.is_found:
        return response
    parts = [response[start:end] for start, end in scan.parts]
    text = "\n".join(part for part in parts if part.strip()).rstrip()
    leading = _LEADING.match(text)
    return text[leading.end() :] if leading else text


def _read_tag(tag: re.Match[str]) -> tuple[str, bool]:
    """Return the kind of a tag, and whether it closes a block."""
    if tag["name"]:
        return tag["name"].lower(), bool(tag["end"])
    if tag["channel"] or tag["final"]:
        return "channel", bool(tag["final"])
    return "THINK", bool(tag["mistral_end"])


def opens_thought(prompt: str) -> bool:
    """Return whether a prompt ends with the opening tag of a reasoning block.

    Args:
        prompt: the text of the prompt, with special tokens.
    """
    tail = prompt.rstrip()[-40:]
    return any(
        not tag["quote"] and tag.end() == len(tail) and not _read_tag(tag)[1]
        for tag in _TAG.finditer(tail)
    )
