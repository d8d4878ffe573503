"""The page's differences equal those of the report: same words, same rules."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.presentation.visible import make_visible
from gapft_harness.report.rendering.differences import estimate_steps, find_differences

SCRIPT = (
    files("gapft_harness.report.rendering")
    .joinpath("templates", "explorer", "differences.js")
    .read_text("utf-8")
)
TEXTS = st.lists(
    st.sampled_from(["a", "b", "c ", "\n", " ", "dd\t", "é", "\xa0", "\u2003", "\ufeff", "𝛼 "]),
    max_size=30,
).map(lambda parts: make_visible("".join(parts)))


def compare_in_page(browser: Any, pairs: list[tuple[str, str]], most: float = 5e6) -> Any:
    return browser.execute_script(
        f"{SCRIPT}; const [pairs, most] = arguments; return JSON.stringify("
        "pairs.map(([a, b]) => findDifferences(a, b, most).map(side => side.map("
        "({text, changed}) => [text, changed]))))",
        pairs,
        most,
    )


@settings(max_examples=20)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30))
def test_page_marks_same_words_as_report(browser: Any, pairs: list[tuple[str, str]]) -> None:
    page_pieces = json.loads(compare_in_page(browser, pairs))
    report_pieces = [
        [[[piece.text, piece.changed] for piece in side] for side in find_differences(*pair)]
        for pair in pairs
    ]
    assert page_pieces == report_pieces


def test_long_texts_are_compared_by_lines_then_ends(browser: Any) -> None:
    a, b = (" ".join(f"{name}{i} x" for i in range(40)) for name in "ab")
    pair = (f"same\n{a}\nkept {a}", f"same\n{b}\nkept {a}")
    most = estimate_steps(["x"] * 39, ["x"] * 39)
    assert estimate_steps(pair[0].split(), pair[1].split()) > most
    (sides,) = json.loads(compare_in_page(browser, [pair], most))
    unchanged = "".join(text for text, changed in sides[0] if not changed)
    assert unchanged.split() == ["same", "kept", *a.split()]
    (sides,) = json.loads(compare_in_page(browser, [("s\na\nx\nb\ne", "s\nc\nx\nd\ne")], 0))
    assert [text for text, changed in sides[0] if changed] == ["a\nx\nb"]
