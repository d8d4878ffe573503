r"""Find the answer in the last ``\boxed{...}`` of a text."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")


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
    start = None
    for match in _BOX.finditer(text):
        start = match.end()
    if start is None:
        return None
    if not text.startswith("{", start):
        return re.split(r"\$|\n", text[start:], maxsplit=1)[0]
    depth, i = 0, start
    while i < len(text):
        if text[i] == "\\":
            i += 1  # skip the escaped character, such as \{
        elif text[i] == "{":
            depth += 1
        elif text[i] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : i]
        i += 1
    return ""
