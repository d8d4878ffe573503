"""Make model output safe to show: invisible characters and direction marks become visible.

A model may write control characters, and marks that reverse the direction of text. The renderers
escape HTML and Markdown.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile(
    r"[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def make_visible(text: str) -> str:
    """Replace control characters by pictures (``␀``), other invisible ones by ``<U+202E>``."""
    pictured = _CONTROL.sub(lambda match: _find_picture(ord(match[0])), text.replace("\r\n", "\n"))
    return _INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", pictured)


def shorten(text: str, max_chars: int) -> str:
    """Make a text visible, and cut it to ``max_chars`` characters with a note on the rest."""
    if len(text) <= max_chars:
        return make_visible(text)
    return f"{make_visible(text[:max_chars])} … ({len(text) - max_chars:,} more characters)"


def _find_picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"
