"""Formatted numbers and visible text."""

import json
from fractions import Fraction

import pytest

from gapft_harness.presentation.visible import make_visible
from gapft_harness.report.reading.columns import MAX_GOLD_CHARS, format_gold
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.markdown import escape_markdown


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Fraction(23, 1000), "+2.3"),
        (Fraction(-9, 1000), "−0.9"),
        (Fraction(0), "0.0"),
        (Fraction(-1, 10**6), "0.0"),
        (0.0004, "0.0"),
    ],
)
def test_formats_signed_differences(change, text):
    assert wording.points(change) == text


def test_makes_invisible_characters_visible():
    assert make_visible("a\x00b\x1bc\x7f") == "a␀b␛c␡"
    assert make_visible("a\tb\nc\r\nd") == "a\tb\nc\nd"
    assert make_visible("\u202egpj\u200b") == "<U+202E>gpj<U+200B>"
    assert make_visible("é 漢 👩‍🔬") == "é 漢 👩‍🔬"


def test_escapes_markdown_syntax():
    assert escape_markdown("κ_S [66.9, 71.7] <0.001") == "κ_S [66.9, 71.7] <0.001"
    assert escape_markdown("_a_ *b* `c` |d|") == r"\_a\_ \*b\* \`c\` \|d\|"
    assert escape_markdown("[x](y)") == r"[x]\(y)"
    assert escape_markdown("<b>") == r"\<b>"
    assert escape_markdown("# no heading") == r"\# no heading"


def test_formats_gold_as_text_or_shortened_json():
    long = "x" * (2 * MAX_GOLD_CHARS)
    assert format_gold(json.dumps(long)) == long
    assert format_gold('{"answer": "B"}') == '{"answer": "B"}'
    packed = json.dumps({"kind": "stdin", "hidden": long})
    assert format_gold(packed) == packed[:MAX_GOLD_CHARS] + "…"


def test_gold_hides_and_counts_hidden_tests():
    public, secret = {"input": "1", "output": "2"}, {"input": "770077", "output": "9"}
    gold = {"kind": "stdin", "function": None, "tests": [public, secret], "public": 1}
    text = format_gold(json.dumps(gold))
    assert text == f"{json.dumps([public])} as public tests and 1 hidden ones"
    assert "770077" not in format_gold(json.dumps({**gold, "tests": [public], "hidden": "770077"}))
    assert format_gold(json.dumps({**gold, "tests": [public]})).endswith("as public tests")
