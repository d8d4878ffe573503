"""Remove reasoning blocks from responses, so that no answer is read from them."""

from __future__ import annotations

import re

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


def remove_thoughts(response: str) -> str:
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

    >>> remove_thoughts("<think>Is it 7?</think>\n\nIt is 5.")
    'It is 5.'
    >>> remove_thoughts("Is it 7? No.</think> It is 5.")
    'It is 5.'
    >>> remove_thoughts("It is 5. <think>Or 7?")
    'It is 5.'
    """
    parts: list[str] = []
    position, open_kind = 0, ""
    for tag in _TAG.finditer(response):
        if tag["quote"]:
            continue
        kind, closes = _read_tag(tag)
        if open_kind:
            if not (closes and kind == open_kind):
                continue
            open_kind = ""
        elif closes:
            parts = []  # the block began in the prompt
        else:
            parts.append(response[position : tag.start()])
            open_kind = kind
        position = tag.end()
    if position == 0:
        return response
    if not open_kind:
        parts.append(response[position:])
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
