"""The page's data: all texts unchanged, once each, and always the same bytes."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import replace
from typing import Any

import pytest

from gapft_harness.report.explorer import packing
from gapft_harness.report.explorer.content import ProblemTexts
from gapft_harness.report.explorer.packing import pack_content
from tests.report.explorer.made import build_content, unpack_page


def test_page_holds_every_text_in_full() -> None:
    content = build_content()
    index, texts = unpack_page(packing.render_explorer(content))
    expected = [[e.prompt, e.gold, *e.responses] for e in content.entries()]
    assert texts == expected
    assert index["ids"] == content.ids
    words = index["verdicts"]
    assert [words[code] for code in index["source"]] == content.verdicts
    for packed_model, model in zip(index["models"], content.models, strict=True):
        assert (packed_model["condition"], packed_model["seed"]) == (model.condition, model.seed)
        assert [words[code] for code in packed_model["verdicts"]] == model.verdicts
        assert packed_model["outcomes"] == model.outcomes
    assert [[words[code] for code in row] for row in index["samples"]] == content.samples
    assert pack_content(content) == pack_content(build_content()), "the same bytes again"


def test_builds_field_filters_and_prompt_heads() -> None:
    index, _ = unpack_page(packing.render_explorer(build_content()))
    assert list(index["fields"]) == ["subject", "level"]
    level = index["fields"]["level"]
    assert [level["values"][code] for code in level["codes"]] == [str(i % 5) for i in range(120)]
    assert index["heads"][7] == "7: how many are 7 (times two)?"


@pytest.mark.parametrize(
    ("values", "is_filter"),
    [
        (["a", "b"] * 30, True),
        (["a"] * 60, False),
        ([f"{i}" for i in range(60)], False),
        ([f"{i % 41}" for i in range(60)], False),
        (["a", "b" * 61] * 30, False),
        (["a", {"of": "b"}] * 30, False),
        (["a", None] * 30, False),
        ([True, False] * 30, True),
    ],
    ids=str,
)
def test_selects_fields_for_filters(values: list[Any], is_filter: bool) -> None:
    base = build_content(60)
    pairs = list(zip(base.entries(), values, strict=True))
    content = replace(
        base,
        entries=lambda: (ProblemTexts(e.prompt, e.gold, e.responses, {"f": v}) for e, v in pairs),
    )
    assert list(unpack_page(packing.render_explorer(content))[0]["fields"]) == (
        ["f"] if is_filter else []
    )


def test_cuts_middle_of_texts_above_size_limit() -> None:
    content = build_content(60)
    whole = sum(map(len, pack_content(content).chunks))
    assert unpack_page(packing.render_explorer(content))[0]["cut"] is None
    assert pack_content(content, max_chars=whole).chunks == pack_content(content).chunks
    most = whole * 5 // 6
    assert sum(map(len, pack_content(content, most).chunks)) <= most
    smallest = pack_content(content, max_chars=1).chunks
    assert sum(map(len, smallest)) < most
    texts = zlib.decompress(base64.b64decode(smallest[0])).decode()
    assert re.search(r"First add 0 .*\n… [12],\d{3} characters left out …\n", texts)
    assert "So the source says 0." in texts, "the end of an answer is kept"
    text = "a" * 700 + "b" * 700
    assert (
        packing._cut_middle(text, 1000) == f"{'a' * 500}\n… 400 characters left out …\n{'b' * 500}"
    )
    assert packing._cut_middle(text, 1400) == text


@pytest.mark.parametrize(
    ("prompts", "heads"),
    [
        (
            ["Q: one\nA: 1\n\nQ: is it so?\nA:", "Q: two\nA: 2\n\nQ: is it\nQ too?\nA:"],
            ["is it so?", "is it Q too?"],
        ),
        (["Be brief.\nQ: why?\nA:", "Be brief.\nQ: one\nA: 1\n\nQ: how?\nA:"], ["why?", "how?"]),
        (
            ["The first.\nThe last.", "The second.\nThe end."],
            ["first. The last.", "second. The end."],
        ),
    ],
)
def test_heads_omit_few_shot_examples(prompts: list[str], heads: list[str]) -> None:
    entries = [ProblemTexts(prompt, "", ["x"], {}) for prompt in prompts]
    content = replace(build_content(2), models=[], k=0, samples=(), entries=lambda: iter(entries))
    assert unpack_page(packing.render_explorer(content))[0]["heads"] == heads
