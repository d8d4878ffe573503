"""The page's differences are those of the report: the same words are marked, by the same rules."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.report.rendering.differences import estimate_steps, find_differences
from gapft_harness.report.rendering.visible import make_visible

SCRIPT = (
    files("gapft_harness.report.rendering")
    .joinpath("templates", "explorer", "differences.js")
    .read_text("utf-8")
)
TEXTS = st.lists(
    st.sampled_from(["a", "b", "c ", "\n", " ", "dd\t", "é", "\xa0", "\u2003", "\ufeff", "𝛼 "]),
    max_size=30,
).map(lambda parts: make_visible("".join(parts)))


def in_page(browser: Any, pairs: list[tuple[str, str]], most: float = 5e6) -> Any:
    return browser.execute_script(
        f"{SCRIPT}; const [pairs, most] = arguments; return JSON.stringify("
        "pairs.map(([a, b]) => findDifferences(a, b, most).map(side => side.map("
        "({text, changed}) => [text, changed]))))",
        pairs,
        most,
    )


@settings(max_examples=20)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30))
def test_the_page_marks_the_words_that_the_report_marks(
    browser: Any, pairs: list[tuple[str, str]]
) -> None:
    found = json.loads(in_page(browser, pairs))
    wanted = [
        [[[piece.text, piece.changed] for piece in side] for side in find_differences(*pair)]
        for pair in pairs
    ]
    assert found == wanted


def test_long_texts_are_compared_by_lines_and_then_by_their_ends(browser: Any) -> None:
    a, b = (" ".join(f"{name}{i} x" for i in range(40)) for name in "ab")
    pair = (f"same\n{a}\nkept {a}", f"same\n{b}\nkept {a}")
    most = estimate_steps(["x"] * 39, ["x"] * 39)
    assert estimate_steps(pair[0].split(), pair[1].split()) > most
    (sides,) = json.loads(in_page(browser, [pair], most))
    kept = "".join(text for text, changed in sides[0] if not changed)
    assert kept.split() == ["same", "kept", *a.split()]
    (sides,) = json.loads(in_page(browser, [("s\na\nx\nb\ne", "s\nc\nx\nd\ne")], 0))
    assert [text for text, changed in sides[0] if changed] == ["a\nx\nb"]
