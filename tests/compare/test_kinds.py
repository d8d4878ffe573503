"""Logs of two formats before and after: joined by prompt and gold answer, with a note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import Comparison, compare
from gapft_harness.compare.mixed import normalise
from gapft_harness.core.errors import UserError
from tests.compare.logs import row, write_log
from tests.verdicts.made import copy_details


def build_rows(numbers: list[int], **changes: Any) -> list[dict[str, Any]]:
    """Build lm_eval rows for the sums of the other logs: right below three, with a template."""
    return [
        {
            **row(number, int(number < 3)),
            "doc": {"question": f"{number}+{number}? ", "level": number % 2},
            "arguments": {"gen_args_0": {"arg_0": f"Question: {number}+{number}?\nAnswer:"}},
            "target": str(2 * number),
            **changes,
        }
        for number in numbers
    ]


def compare_mixed(
    tmp_path: Path, rows: list[dict[str, Any]], *, turned: bool = False, **choice: Any
) -> Comparison:
    """Compare lm_eval's rows with lighteval's details, or the other way round."""
    before = str(write_log(tmp_path / "before", rows=rows))
    after = str(copy_details(tmp_path / "after", "lighteval_after"))
    sides = (after, before) if turned else (before, after)
    return compare(sides[0], [f"tuned={sides[1]}"], CompareChoice(**choice))


def join_notes(comparison: Comparison) -> str:
    return "\n".join(str(note.text) for note in comparison.notes)


@pytest.mark.parametrize("turned", [False, True])
def test_joins_two_formats_by_question_and_gold(turned: bool, tmp_path: Path) -> None:
    """Either format may be before, in any order; each has its own metric; a note explains it."""
    comparison = compare_mixed(tmp_path, build_rows([4, 2, 1, 3]), turned=turned)
    (paired,) = comparison.findings.models.values()
    # before: 1 and 2 are right; after: 2 and 4
    assert (paired.before, paired.after, paired.gained, paired.lost) == (0.5, 0.5, 1, 1)
    kinds = ("lighteval", "lm-eval") if turned else ("lm-eval", "lighteval")
    metrics = ("em", "exact_match") if turned else ("exact_match", "em")
    assert (
        f"tuned: {metrics[1]} of its {kinds[1]} logs is compared with {metrics[0]}"
        in join_notes(comparison)
    )
    assert (
        f"tuned: matched by prompt and gold answer, since documents of {kinds[0]} and of "
        f"{kinds[1]} differ: 4 of 4 documents before and 4 after"
    ) in join_notes(comparison)


def test_single_format_joins_by_document(tmp_path: Path) -> None:
    rows = build_rows([1, 2])
    other = [{**line, "doc": {"q": line["doc"]["question"]}} for line in rows]
    before, after = (
        str(write_log(tmp_path / side, rows=lines))
        for side, lines in (("before", rows), ("after", other))
    )
    with pytest.raises(UserError, match="no common document"):
        compare(before, [after], CompareChoice())


def test_shows_unmatched_documents(tmp_path: Path) -> None:
    rows = build_rows([1, 2, 3, 5])
    rows[1]["target"] = "5"
    with pytest.raises(UserError) as refused:
        compare_mixed(tmp_path, rows)
    first, *lines = str(refused.value).splitlines()
    assert "2 of 4 documents before and 4 after matched" in first
    assert "--common compares the matched ones" in first
    assert lines == [
        "  line 2: 'Question: 2+2? Answer:', gold answer '5' | line 2: '2+2?', gold answer '4'",
        "  line 4: 'Question: 5+5? Answer:', gold answer '10' | line 3: '4+4?', gold answer '8'",
    ]


def test_common_compares_matched_documents(tmp_path: Path) -> None:
    rows = build_rows([1, 2, 3, 5])
    comparison = compare_mixed(tmp_path, rows, common=True)
    assert len(comparison.items) == 3
    assert "3 of 4 documents before and 4 after" in join_notes(comparison)


def test_rejects_logs_without_matches(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"0 of 2 documents before and 4 after matched") as refused:
        compare_mixed(tmp_path, build_rows([7, 8]), common=True)
    assert "--common" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 4


@pytest.mark.parametrize("turned", [False, True])
def test_repeated_question_stays_unmatched(turned: bool, tmp_path: Path) -> None:
    """Different gold answers distinguish repeated questions."""
    rows = build_rows([1, 2, 3, 4, 4])
    message = "3 of 4 documents before and 5" if turned else "3 of 5 documents before and 4"
    with pytest.raises(UserError, match=message):
        compare_mixed(tmp_path, rows, turned=turned)
    rows[4] |= {"target": "9", "doc": {**rows[4]["doc"], "level": 9}}
    assert len(compare_mixed(tmp_path / "b", rows, turned=turned, common=True).items) == 4


def test_joins_on_two_fields(tmp_path: Path) -> None:
    rows = build_rows([1, 2, 3, 4])
    for line in rows:
        line["doc"] = {"asked": line["doc"]["question"].strip(), "level": 1}
        line["target"] = "unlike"
    comparison = compare_mixed(tmp_path, rows, on=["asked=query"], by="level", cluster="asked")
    assert len(comparison.items) == 4
    assert "matched by prompt" not in join_notes(comparison)
    with pytest.raises(UserError, match="doc has no field 'asked'"):
        compare_mixed(tmp_path / "b", rows, on=["asked"])


def test_metric_may_exist_on_one_side(tmp_path: Path) -> None:
    rows = [
        {**line, "metrics": ["exact_match", "f1"], "f1": 0.5} for line in build_rows([1, 2, 3, 4])
    ]
    comparison = compare_mixed(tmp_path, rows, metric="f1")
    (paired,) = comparison.findings.models.values()
    assert (paired.before, paired.after) == (0.5, 0.5)
    assert "em of its lighteval logs is compared with f1" in join_notes(comparison)


@given(st.lists(st.text(alphabet="aé ́\n\t ", max_size=4), max_size=6))
def test_normalise_is_idempotent(parts: list[str]) -> None:
    """Normalising twice has no effect, and white space around words is ignored."""
    text = normalise(" ".join(parts))
    assert normalise(text) == text
    assert normalise("\n\n".join(parts) + " ") == text
