"""Lone surrogates are replaced one by one; everything else stays as it is."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.text import replace_surrogates, replace_text_surrogates

#: Any code points, including halves of surrogate pairs.
TEXTS = st.text(st.characters() | st.characters(categories=["Cs"]))


@given(TEXTS)
def test_replaces_only_surrogates(text: str) -> None:
    replaced = replace_text_surrogates(text)
    replaced.encode()
    # Two adjacent halves that form a pair count as the pair.
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert replaced == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in paired)
    assert replace_text_surrogates(replaced) == replaced


@given(st.recursive(st.integers() | TEXTS, lambda v: st.lists(v) | st.dictionaries(TEXTS, v)))
def test_json_values_become_encodable(value: object) -> None:
    replaced = replace_surrogates(value)
    json.dumps(replaced, ensure_ascii=False).encode()
    assert replace_surrogates(replaced) == replaced
