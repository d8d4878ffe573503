"""The last box of a text, as used by the verifier and for MATH's gold answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.verification.boxes import last_box


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so $\boxed{5}$.", "5"),
        (r"\boxed{1} and then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        (r"\boxed 5$.", "5"),
        ("\\boxed 5\nand more", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{1\right.}", r"\left\{1\right."),
        (r"\boxed{x = \boxed{5}}", r"x = \boxed{5}"),
        (r"\boxed{so $x = \boxed{5}$}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{1} but \boxed{2", ""),
        (r"\boxed", ""),
        (r"\boxedfigure{5}", None),
        ("5", None),
        ("", None),
    ],
)
def test_last_box(text, content):
    assert last_box(text) == content


@given(st.text())
def test_box_returns_content_of_balanced_braces(text):
    inner = text.replace("{", "").replace("}", "").replace("\\", "")
    assert last_box(f"so \\boxed{{a{{{inner}}}}} }}{{") == f"a{{{inner}}}"
