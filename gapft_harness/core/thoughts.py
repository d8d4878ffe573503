"""Remove reasoning blocks from responses, so that no answer is read from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

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
        is_open: whether the last block is not closed.
        last_close: the start and the end of the last closing tag; None without one.
        began_before: whether a closing tag ends a block that the text did not open.
    """

    parts: tuple[tuple[int, int], ...]
    is_found: bool
    is_open: bool
    last_close: tuple[int, int] | None
    began_before: bool


def scan_thoughts(text: str, think_end_token: str | None = None) -> ThoughtScan:
    """Find the reasoning blocks of a text; see ``remove_thoughts`` for the rules.

    Args:
        text: a response, or the end of a prompt.
        think_end_token: the end of the model's reasoning, besides the known tags.
    """
    start, last_close, began_before = 0, None, False
    if think_end_token and (place := text.rfind(think_end_token)) >= 0:
        start = place + len(think_end_token)
        last_close = (place, start)
    parts: list[tuple[int, int]] = []
    position, open_kind = start, ""
    is_found = last_close is not None
    for tag in _TAG.finditer(text, start):
        if tag["quote"]:
            continue
        kind, closes = _read_tag(tag)
        if open_kind:
            if not (closes and kind == open_kind):
                continue
            open_kind, last_close = "", tag.span()
        elif closes:
            parts, began_before = [], True  # the block began in the prompt
            last_close = tag.span()
        else:
            parts.append((position, tag.start()))
            open_kind = kind
        is_found, position = True, tag.end()
    if not open_kind:
        parts.append((position, len(text)))
    return ThoughtScan(tuple(parts), is_found, bool(open_kind), last_close, began_before)


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


#: What ``find_answer_ids`` found: reasoning before the answer; no block; or a block that cannot be
#: separated from the answer.
ReasoningCut = Literal["removed", "none", "inseparable"]


def find_answer_ids(
    ids: Sequence[int],
    decode: Callable[[Sequence[int]], str],
    opened_by_prompt: bool = False,
    think_end_token: str | None = None,
) -> tuple[int, ReasoningCut]:
    """Find where the answer begins in the token ids of a response with reasoning before it.

    No text is tokenized: the answer's ids are a suffix of the generated ones. White space between
    the block and the answer belongs to neither, so the suffix begins at the last token boundary
    from the end of the block to the answer's first character. If the prompt opened the block, the
    suffix begins with the closing tag, so that prompt and answer together are an empty block.

    Args:
        ids: the generated ids.
        decode: returns the text of ids, with special tokens.
        opened_by_prompt: whether the prompt ends inside a block (``opens_thought``).
        think_end_token: the end of the model's reasoning, besides the known tags.

    Returns:
        The number of ids before the answer, and what was found. The number is 0 except for
        ``removed``. ``inseparable``: text precedes the block, no answer follows it, or no token
        begins where the answer may begin.
    """
    text = decode(ids)
    scan = scan_thoughts(text, think_end_token)
    if not scan.is_found:
        return 0, "none"
    visible = [(start, end) for start, end in scan.parts if text[start:end].strip()]
    if scan.is_open or len(visible) != 1 or scan.last_close is None:
        return 0, "inseparable"
    (first, last), (close_start, close_end) = visible[0], scan.last_close
    if last != len(text) or first != close_end:
        return 0, "inseparable"
    if opened_by_prompt:
        earliest = latest = close_start
    else:
        leading = _LEADING.match(text, close_end)
        earliest, latest = close_end, leading.end() if leading else close_end
    low, high = 0, len(ids)
    while low < high:  # the longest prefix that does not reach into the answer
        middle = (low + high + 1) // 2
        if len(decode(ids[:middle])) <= latest:
            low = middle
        else:
            high = middle - 1
    prefix = decode(ids[:low])
    if low and earliest <= len(prefix) <= latest and text.startswith(prefix):
        return low, "removed"
    return 0, "inseparable"


def opens_thought(prompt: str, think_end_token: str | None = None) -> bool:
    """Return whether a prompt ends with the opening tag of a reasoning block.

    Args:
        prompt: the text of the prompt, with special tokens.
        think_end_token: a closing tag such as ``</reason>``, whose opening tag then also counts.
    """
    end = prompt.rstrip()
    if think_end_token and "/" in think_end_token:
        opening = think_end_token.replace("/", "", 1)
        if end.endswith(opening):
            return True
    tail = end[-40:]
    return any(
        not tag["quote"] and tag.end() == len(tail) and not _read_tag(tag)[1]
        for tag in _TAG.finditer(tail)
    )
