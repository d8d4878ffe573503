"""Search hits, reasons why responses failed, and filters by reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gapft_harness.report.explorer.content import ExplorerContent, Judging, ProblemTexts
from tests.report.explorer.driving import (
    press_keys,
    read_rows,
    read_text,
    turn_to,
    wait_for_search,
    wait_until,
)
from tests.report.explorer.made import HOSTILE, build_content, write_page

#: Verdicts of the source's responses, by position modulo 3.
VERDICTS = ("timeout", "error", "wrong")
REASONS = ("time limit exceeded on hidden test 2 of 4", "it broke", "wrong answer on public test 1")

REASONING = "it weighs <b>both</b>"


def build_judged_content() -> ExplorerContent:
    """Build content with reasons, an answer of one model, and earlier attempts."""
    content = build_content(60, k=2)
    verdicts = [VERDICTS[place % 3] if place % 2 else "right" for place in range(60)]
    model = replace(content.models[1], verdicts=["error" if i == 8 else "wrong" for i in range(60)])
    samples = [["timeout" if place == 9 else "wrong", "wrong"] for place in range(60)]

    def entries() -> Iterator[ProblemTexts]:
        for place, entry in enumerate(content.entries()):
            tried = [(f"first try of {place}", f"it was <b>told</b> {place}{HOSTILE}")]
            source = Judging(REASONS[place % 3] if place % 2 else "", "", tried)
            other = Judging("said 7" if place else HOSTILE, "7")
            judged = [
                source,
                *(other for _ in content.models),
                Judging("sampled", reasoning=REASONING),
                Judging(),
            ]
            yield replace(entry, judged=judged)

    models = [*content.models[:1], model, *content.models[2:]]
    return replace(content, verdicts=verdicts, models=models, samples=samples, entries=entries)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(build_judged_content(), tmp_path_factory.mktemp("found"))


def read_hit_lines(browser: Any) -> list[str]:
    """Read the second line of each row, in order."""
    wait_until(browser, "document.querySelectorAll('.words mark').length")
    lines: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('.rows .row')]"
        ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
        ".map(row => row.querySelector('.words').textContent)"
    )
    return lines


def test_row_shows_search_hit(page: str, open_page: Callable[..., Any]) -> None:
    browser = open_page(page, "#q=uniform+of+21+says")
    wait_for_search(browser)
    lines = read_hit_lines(browser)
    assert len(lines) == 60
    assert all(line.startswith("uniform, seed 21: ") for line in lines)
    marks = "return [...document.querySelectorAll('.rows mark')].map(mark => mark.textContent)"
    assert {*browser.execute_script(marks)} == {"uniform of 21 says"}
    turn_to(browser, "q=id:00017")
    wait_for_search(browser)
    wait_until(browser, "document.querySelector('.name mark')")
    assert browser.execute_script(marks) == ["00017"]
    turn_to(browser, "")
    assert browser.execute_script(marks) == []


def test_empty_result_offers_id_search(page: str, open_page: Callable[..., Any]) -> None:
    browser = open_page(page, "#q=nobody+wrote+this")
    wait_for_search(browser)
    assert read_text(browser, "#list .nothing") == "Nothing matches “nobody wrote this”."
    assert read_text(browser, "#count") == "Nothing matches: 0 of 60 problems"
    press_keys(browser, "j", "\ue007")  # no row to open
    assert browser.execute_script("return document.getElementById('detail').hidden")
    turn_to(browser, "state=G&before=wrong&field.level=1&in.gapft=corrected")
    assert read_text(browser, "#list .nothing") == "Nothing matches these choices."
    turn_to(browser, "q=problem-00017")
    wait_for_search(browser)
    browser.execute_script("document.querySelector('#list .nothing button').click()")
    wait_for_search(browser)
    assert read_rows(browser) == [17]
    assert browser.execute_script("return document.querySelector('.nothing')") is None
    assert browser.execute_script("return document.getElementById('query').value") == (
        "id:problem-00017"
    )
    assert browser.get_log("browser") == []


def test_response_shows_reason_answer_and_attempts(
    page: str, open_page: Callable[..., Any]
) -> None:
    browser = open_page(page, "#open=problem-00003", height=2000)
    wait_until(browser, "document.querySelector('.answers article')")
    why = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    reasons = browser.execute_script(why, ".answers .why")
    # an answer that is in the reason is shown once
    assert reasons == [REASONS[0], *["read: 7"] * 4]
    assert browser.execute_script(why, ".samples .why") == ["sampled"]
    (summary,) = browser.execute_script(why, ".reasoning summary")
    assert summary == f"Reasoning, {len(REASONING)} characters"
    assert browser.execute_script("return document.querySelector('.reasoning').open") is False
    assert browser.execute_script(why, ".reasoning pre") == [REASONING]
    (summary,) = browser.execute_script(why, ".earlier summary")
    assert summary == "1 earlier attempt"
    heads = browser.execute_script(why, ".earlier h4")
    assert heads == ["Attempt 1", "Feedback"]
    attempt, feedback = browser.execute_script(why, ".earlier pre")
    assert attempt == "first try of 3"
    assert feedback.startswith("it was <b>told</b> 3</script>")
    assert browser.execute_script("return document.querySelector('.earlier b')") is None
    assert browser.get_log("browser") == []


def test_search_selects_seed_and_opens_hit(page: str, open_page: Callable[..., Any]) -> None:
    browser = open_page(page, "#q=uniform+of+21&open=problem-00004", height=900)
    wait_for_search(browser)
    wait_until(browser, "document.querySelector('input[name=seed]:checked')?.value === '21'")
    turn_to(browser, "q=first+try+of+4&open=problem-00004")
    wait_for_search(browser)
    wait_until(browser, "document.querySelector('.earlier')?.open")
    assert read_text(browser, ".earlier summary mark") == "1 found"
    assert read_rows(browser) == [4, *range(40, 50)]
    turn_to(browser, "q=Sample+1+of+4:&open=problem-00004")
    wait_for_search(browser)
    wait_until(browser, "document.querySelector('.samples').open")
    seen = browser.execute_script(
        "const [range] = CSS.highlights.get('found'); const of = document.createRange();"
        "of.setStart(range.startContainer, range.startOffset);"
        "of.setEnd(range.endContainer, range.endOffset);"
        "const [a, b] = [of, document.getElementById('detail')]"
        ".map(e => e.getBoundingClientRect());"
        "return [of.toString(), a.top >= b.top && a.bottom <= b.bottom]"
    )
    assert seen == ["Sample 1 of 4:", True]


FILTERS: dict[str, list[int]] = {
    "before=timeout": [p for p in range(60) if p % 2 and p % 3 == 0],
    "before=right": [*range(0, 60, 2)],
    f"before=because {REASONS[0].replace('2 of 4', '… of …')}": [
        p for p in range(60) if p % 2 and p % 3 == 0
    ],
    "before=because it broke": [p for p in range(60) if p % 2 and p % 3 == 1],
    "samples=timeout": [9],
    "in.gapft=error": [8],
    "in.gapft=error&seed=21": [8],
    "in.gapft=error&seed=13": [],
    "in.uniform=because said …": [*range(1, 60)],
    "before=nonsense&samples=nonsense": [*range(60)],
}


def test_filters_include_timeouts_errors_and_reasons(
    page: str, open_page: Callable[..., Any]
) -> None:
    browser = open_page(page)
    for view, expected in FILTERS.items():
        turn_to(browser, view)
        assert read_rows(browser) == expected, view
    options = browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('.choice')].map(c => "
        "[c.firstChild.textContent, [...c.querySelectorAll('option')].map(o => o.textContent)]))"
    )
    assert options["source, greedy"][:5] == ["any verdict", "right", "wrong", "error", "timeout"]
    assert "it broke" in options["source, greedy"]
    assert options["samples"] == ["any", "some timeout"]
    assert {"timeout", "error", "said …"} <= {*options["GapFT"]}
    assert browser.get_log("browser") == []
