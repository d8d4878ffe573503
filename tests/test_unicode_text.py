"""Lone surrogates are replaced one by one; everything else stays as it is."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.text import replace_surrogates, replace_text_surrogates

#: Any code points, halves of surrogate pairs among them.
TEXTS = st.text(st.characters() | st.characters(categories=["Cs"]))


@given(st.text())
def test_a_text_that_can_be_written_stays(text: str) -> None:
    assert replace_text_surrogates(text) == text


@given(TEXTS)
def test_any_text_can_be_written_after_and_no_other_character_changes(text: str) -> None:
    found = replace_text_surrogates(text)
    found.encode()
    # Two halves in a row that make a pair are that pair.
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert found == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in paired)


def values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    """JSON values of such texts."""
    return st.recursive(
        st.none() | st.integers() | texts, lambda v: st.lists(v) | st.dictionaries(texts, v)
    )


@given(values(TEXTS))
def test_every_text_of_a_json_value_can_be_written(value: object) -> None:
    json.dumps(replace_surrogates(value), ensure_ascii=False).encode()


@given(values(st.text()))
def test_a_json_value_that_can_be_written_stays(value: object) -> None:
    assert replace_surrogates(value) == value
