"""Make model output safe to show: invisible characters and direction marks become visible.

A model may write control characters, and marks that reverse the direction of text. The renderers
escape HTML and Markdown.
"""

from __future__ import annotations

import re

#: Longer texts are folded on the page, or cut where the complete text is not needed.
LONGEST = 1200

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNSEEN = re.compile(
    r"[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Replace control characters by pictures (``␀``), other invisible ones by ``<U+202E>``."""
    pictured = _CONTROL.sub(lambda found: _picture(ord(found[0])), text.replace("\r\n", "\n"))
    return _UNSEEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", pictured)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Make a text visible, and cut it to ``max_chars`` characters with a note on the rest."""
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])} … ({len(text) - longest:,} more characters)"


def _picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"
