"""Cases before and after training: selection rule, full texts, marked differences."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gapft_harness.core.streams import derive_key
from gapft_harness.presentation.visible import MAX_CHARS
from gapft_harness.report import write_report
from gapft_harness.report.findings import cases
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.differences import (
    MAX_STEPS,
    Piece,
    find_differences,
)
from tests.report import planted

WORDS = st.lists(st.sampled_from(["a", "b", "c ", "\n", " ", "[-d-]", "{+", "--]"]), max_size=30)


def list_words(pieces: list[Piece], *, changed: bool) -> list[str]:
    return "".join(piece.text + " " for piece in pieces if piece.changed == changed).split()


@given(WORDS, WORDS)
def test_pieces_join_to_texts_and_unmarked_parts_match(a: list[str], b: list[str]) -> None:
    before, after = "".join(a), "".join(b)
    sides = find_differences(before, after)
    assert tuple("".join(piece.text for piece in side) for side in sides) == (before, after)
    same = [list_words(side, changed=False) for side in sides]
    assert same[0] == same[1]
    if before.split() == after.split():
        assert not any(piece.changed for side in sides for piece in side)
    if not {*before.split()} & {*after.split()}:
        assert same[0] == []


def test_marks_words_without_trailing_space() -> None:
    before, after = find_differences("so 6 are\n  left.", "so 490 are left. Done")
    assert [piece.text for piece in before if piece.changed] == ["6"]
    assert [piece.text for piece in after if piece.changed] == ["490", "Done"]


def test_long_texts_are_compared_by_lines_then_ends() -> None:
    """Words alternate with one shared word, which is the most expensive input for difflib."""
    n = int((MAX_STEPS / 2) ** (1 / 3)) - 3
    a, b = (" ".join(f"{name}{i} x" for i in range(n)) for name in "ab")
    assert list_words(find_differences(a, b)[0], changed=False) == ["x"] * n
    a, b = (f"{text} ! {text} ! {text}" for text in (a, b))
    by_line = find_differences(f"same\n{a}\nkept {a}", f"same\n{b}\nkept {a}")
    assert list_words(by_line[0], changed=False) == ["same", "kept", *a.split()]
    many = [f"same\n{text}\nsame".replace(" ", "\n") for text in (a, b)]
    assert list_words(find_differences(*many)[0], changed=False) == ["same", "x", "same"], (
        "their ends"
    )


@pytest.fixture(scope="module")
def inputs() -> ReportInputs:
    return planted.build_inputs(sizes=(40, 35, 25))


def list_seeds_with_change(inputs: ReportInputs, condition: str, position: int) -> list[int]:
    before = inputs.audit.verdicts.deployed
    return [
        arm.arm.seed
        for arm in inputs.find_arms(condition)
        if arm.deployed.passed[position] != before[position]
    ]


def test_results_select_cases_by_printed_rule(
    inputs: ReportInputs,
) -> None:
    content = cases.build_content(inputs, "gapft")
    assert content["rule"] == cases.RULE
    ids = [str(problem) for problem in inputs.audit.ids]
    assert list(content["conditions"]) == list(inputs.conditions)
    for name, changes in content["conditions"].items():
        for change, right_before in (("gained", False), ("lost", True)):
            candidates = [
                position
                for position, right in enumerate(inputs.audit.verdicts.deployed)
                if right == right_before and list_seeds_with_change(inputs, name, position)
            ]
            candidates.sort(
                key=lambda p: (
                    -len(list_seeds_with_change(inputs, name, p)),
                    derive_key("case", ids[p]),
                    ids[p],
                )
            )
            most = 4 if name == "gapft" else 1
            assert [case["problem_id"] for case in changes[change]] == [
                ids[position] for position in candidates[:most]
            ]
            for case, position in zip(changes[change], candidates, strict=False):
                assert case["under"] == list_seeds_with_change(inputs, name, position)
                assert case["shown"] == case["under"][0]
                assert case["state"] == inputs.audit.states[position]


def test_skips_condition_that_reuses_models(inputs: ReportInputs) -> None:
    training = {f"uniform-seed{s}": {"trained_as": f"gapft-seed{s}"} for s in inputs.seeds}
    findings = compute_findings(replace(inputs, recipe=FEW, training=training))
    assert list(findings.distinct) == ["gapft", "replay", "all_verified"]
    gone = {f"uniform-seed{s}": {"trained_as": f"depth_8-seed{s}"} for s in inputs.seeds}
    assert "uniform" in compute_findings(replace(inputs, recipe=FEW, training=gone)).distinct


FEW = planted.build_recipe(statistics={"replicates": 40, "seed": 0})
BEFORE = "First [-1] and {++} then </del><b>6</b>.\n"
BEFORE += " ".join(f"word{number}" for number in range(MAX_CHARS)) + "\n"
AFTER = BEFORE.replace("<b>6", "<b>490") + "End\u200b"


@pytest.fixture(scope="module")
def report_folder(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    count = len(inputs.audit.ids)
    audit = planted.replace_decodes(inputs.audit, texts=(BEFORE,) * count)
    arms = tuple(planted.replace_decodes(arm, texts=(AFTER,) * count) for arm in inputs.arms)
    task: Any = {**inputs.task, "episode": {"attempts": 3, "executions": 1}}
    folder = tmp_path_factory.mktemp("cases") / "report"
    write_report(replace(inputs, audit=audit, arms=arms, task=task), folder)
    return folder


def test_page_shows_full_responses_with_marked_differences(report_folder: Path) -> None:
    text = (report_folder / "index.html").read_text("utf-8")
    sides = re.findall(r"<h4>(Before|After), (?:wrong|right)</h4><pre>(.*?)</pre>", text, re.S)
    conditions = json.loads((report_folder / "results.json").read_text())["cases"]["conditions"]
    cases = [
        case for changes in conditions.values() for change in changes.values() for case in change
    ]
    assert len(sides) == 2 * len(cases) > 8
    assert {text.count(case["problem_id"]) > 0 for case in cases} == {True}
    for side, html in sides:
        tag = "del" if side == "Before" else "ins"
        marked = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.S)
        word = "6" if side == "Before" else "490"
        hostile = f"&lt;/del&gt;&lt;b&gt;{word}&lt;/b&gt;."
        assert marked == [hostile] + (["End&lt;U+200B&gt;"] if side == "After" else [])
        assert html.count("word") == MAX_CHARS, "nothing is cut"


def test_markdown_marks_do_not_collide_with_text(report_folder: Path) -> None:
    text = (report_folder / "report.md").read_text("utf-8")
    fences = [t.content for t in MarkdownIt("commonmark").parse(text) if t.type == "fence"]
    before = [fence for fence in fences if "6</b>" in fence]
    after = [fence for fence in fences if "490</b>" in fence]
    assert len(before) == len(after) > 4
    assert "[---</del><b>6</b>.---]" in before[0], "the text contains {++}, so marks are longer"
    assert re.sub(r"\[---|---\]", "", before[0]).strip() == BEFORE.strip()
    assert "{+++</del><b>490</b>.+++}" in after[0]
    assert after[0].rstrip().endswith("{+++End<U+200B>+++}")
