"""Lone surrogates are replaced one by one; everything else stays as it is."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.text import replace_surrogates, replace_text_surrogates

#: Any code points, including halves of surrogate pairs.
TEXTS = st.text(st.characters() | st.characters(categories=["Cs"]))


@given(st.text())
def test_valid_text_is_unchanged(text: str) -> None:
    assert replace_text_surrogates(text) == text


@given(TEXTS)
def test_replaces_only_surrogates(text: str) -> None:
    replaced = replace_text_surrogates(text)
    replaced.encode()
    # Two adjacent halves that form a pair count as the pair.
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert replaced == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in paired)


def json_values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    """Build JSON values that contain these texts."""
    return st.recursive(
        st.none() | st.integers() | texts, lambda v: st.lists(v) | st.dictionaries(texts, v)
    )


@given(json_values(TEXTS))
def test_json_texts_become_encodable(value: object) -> None:
    json.dumps(replace_surrogates(value), ensure_ascii=False).encode()


@given(json_values(st.text()))
def test_valid_json_value_is_unchanged(value: object) -> None:
    assert replace_surrogates(value) == value
