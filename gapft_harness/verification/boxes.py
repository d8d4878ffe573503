r"""Find the ``\boxed{...}`` of a text."""

from __future__ import annotations

import re
from bisect import bisect_left

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
#: Braces, and escaped characters such as \{, which are none.
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_MATHEMATICS = re.compile(r"\$|\\[(\[]")
_MAX_BARE = 1000


def last_box(text: str) -> str | None:
    r"""Return the content of the last ``\boxed`` or ``\fbox`` of a text.

    ``\boxed 5$`` counts too, up to the dollar sign or the end of the line (two solutions of MATH
    have this form).

    Args:
        text: a response, or a solution of the benchmark.

    Returns:
        The content; empty if the last box is not closed, as in a response that was cut at its
        length limit (an earlier box is not the answer then); None if there is no box.
    """
    boxes = find_boxes(text)
    return boxes[-1][2] if boxes else None


def find_boxes(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, content) of each box; see ``last_box``.

    Of a box in a box, the outer one counts; but if mathematics begins in it again, it holds text,
    and the inner ones count.
    """
    matches = [*_BOX.finditer(text)]
    if not matches:
        return []
    closings = _match_braces(text, matches[0].end())
    openings = [match.start() for match in _MATHEMATICS.finditer(text)]
    boxes: list[tuple[int, int, str]] = []
    covered = 0
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        if match.start() < covered:
            continue
        start = match.end()
        is_closed = start in closings
        end = closings.get(start, len(text))
        content = ""
        if not text.startswith("{", start):
            content = re.split(r"\$|\n", text[start : start + _MAX_BARE], maxsplit=1)[0]
            end = start + len(content)
        elif following is not None and following.start() < end:
            next_opening = bisect_left(openings, start)
            begins_again = next_opening < len(openings) and openings[next_opening] < end
            if begins_again or not is_closed:
                continue
        if is_closed:
            content = text[start + 1 : end - 1]
        boxes.append((match.start(), end, content))
        covered = end
    return boxes


def _match_braces(text: str, start: int) -> dict[int, int]:
    """Map the position of each opening brace to the position after its closing brace."""
    closings: dict[int, int] = {}
    open_braces: list[int] = []
    for match in _BRACE.finditer(text, start):
        if match[0] == "{":
            open_braces.append(match.start())
        elif match[0] == "}" and open_braces:
            closings[open_braces.pop()] = match.end()
    return closings
