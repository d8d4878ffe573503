"""The explorer page in a real browser: filters, search, opened problems, addresses."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from gapft_harness.report.explorer.content import ExplorerContent, ExplorerModel, ProblemTexts
from tests.report.explorer.driving import (
    press_keys,
    read_rows,
    read_text,
    turn_to,
    wait_for_search,
    wait_until,
)
from tests.report.explorer.made import CONDITIONS, SEEDS, build_content, write_page

LETTERS = {
    "corrected": "c", "regressed": "r", "kept": "k", "missed": "m", "changed": "cr",
    "right": "ck", "wrong": "rm",
}  # fmt: skip


@pytest.fixture(scope="module")
def explorer_content() -> ExplorerContent:
    return build_content()


@pytest.fixture(scope="module")
def page(explorer_content: ExplorerContent, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(explorer_content, tmp_path_factory.mktemp("explorer"))


@pytest.fixture
def open_explorer(open_page: Callable[..., Any], page: str) -> Callable[..., Any]:
    """Open the page of this content."""
    return functools.partial(open_page, page)


def select_problems(
    content: ExplorerContent, states: str, seed: str, outcomes: dict[str, str]
) -> list[int]:
    """Return the positions of the problems that a view should list."""
    positions = []
    for place in range(len(content.ids)):
        fits = not states or content.states[place] in states
        for condition, outcome in outcomes.items():
            matches = [
                model.outcomes[place] in LETTERS[outcome]
                for model in content.models
                if model.condition == condition and seed in ("any", "every", model.seed)
            ]
            fits &= all(matches) if seed == "every" else any(matches)
        if fits:
            positions.append(place)
    return positions


FILTERS: list[tuple[str, dict[str, str]]] = [
    ("", {}),
    ("S", {"gapft": "corrected"}),
    ("G", {"gapft": "kept", "uniform": "regressed"}),
    ("SU", {"gapft": "right", "replay": "missed"}),
    ("", {"all_verified": "changed"}),
    ("U", {"all_verified": "wrong"}),
]


def test_filters_list_matching_problems(
    explorer_content: ExplorerContent, open_explorer: Callable[..., Any]
) -> None:
    browser = open_explorer()
    for (states, outcomes), seed in itertools.product(FILTERS, ["any", "every", "21"]):
        chosen = [f"state={states}", f"seed={seed}", *(f"in.{k}={v}" for k, v in outcomes.items())]
        turn_to(browser, "&".join(chosen))
        expected = select_problems(explorer_content, states, seed, outcomes)
        assert read_rows(browser) == expected, chosen
        none = "" if expected else "Nothing matches: "
        assert read_text(browser, "#count") == (
            f"{none}{len(expected)} of 120 problems" if len(expected) < 120 else "120 problems"
        )


def test_controls_change_list_and_address(
    explorer_content: ExplorerContent, open_explorer: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    browser = open_explorer()
    selects = {
        label.text.split("\n")[0]: Select(label.find_element(By.TAG_NAME, "select"))
        for label in browser.find_elements(By.CSS_SELECTOR, "#choices .choice")
    }
    assert list(selects) == ["source, greedy", *CONDITIONS.values(), "Under", "subject", "level"]
    browser.find_element(By.CSS_SELECTOR, "input[value=S]").click()
    selects["GapFT"].select_by_visible_text("corrected")
    selects["Under"].select_by_visible_text("every seed")
    expected = select_problems(explorer_content, "S", "every", {"gapft": "corrected"})
    assert read_rows(browser) == expected
    selects["level"].select_by_visible_text("2")
    assert read_rows(browser) == [place for place in expected if place % 5 == 2]
    view = "#state=S&seed=every&in.gapft=corrected&field.level=2"
    wait_until(browser, f"location.hash === '{view}'")
    browser.find_element(By.XPATH, "//button[text()='Clear']").click()
    assert read_rows(browser) == [*range(120)]
    assert not browser.find_element(By.XPATH, "//button[text()='Clear']").is_displayed()
    options = [option.text for option in selects["subject"].options]
    assert options == ["any", "Algebra", "Geometry & <i>logic</i>", "Number theory"]


QUERIES: dict[str, list[int]] = {
    "QUESTION 17:": [17],
    "gold 34": [17],
    "source says 17.": [17],
    "one. then   take": [*range(120)],
    "problem-00017": [],
    "id:00017": [17],
    "ID: problem-0001": [*range(10, 20)],
    "id:gold": [],
    "(times two)?": [*range(120)],
    ".*": [],
    "\\": [],
    "Sample 7 of 17:": [17],
}


def test_search_covers_every_text(open_explorer: Callable[..., Any]) -> None:
    browser = open_explorer()
    for query, expected in QUERIES.items():
        turn_to(browser, urlencode({"q": query}))
        wait_for_search(browser)
        assert read_rows(browser) == expected, query
        assert browser.execute_script("return document.getElementById('query').value") == query


def test_typed_search_equals_whole_query(open_explorer: Callable[..., Any]) -> None:
    browser = open_explorer()
    press_keys(browser, "/")
    for letter in "says 11":
        press_keys(browser, letter)
    wait_until(browser, "location.hash.includes('q=says+11')")
    wait_for_search(browser)
    assert read_rows(browser) == [11, *range(110, 120)]
    press_keys(browser, "\ue003")
    wait_until(browser, "location.hash.endsWith('q=says+1')")
    wait_for_search(browser)
    assert read_rows(browser) == [1, *range(10, 20), *range(100, 120)]


SORTS: dict[str, Callable[[ExplorerContent, int], Any]] = {
    "state": lambda of, place: "GSU".index(of.states[place]),
    "samples": lambda of, place: of.passing[place],
    "source": lambda of, place: of.verdicts[place],
    "GapFT": lambda of, place: round(
        sum(
            {"c": 1, "r": -1, "k": 0.01, "m": -0.01}[model.outcomes[place]]
            for model in of.models
            if model.condition == "gapft"
        ),
        6,
    ),
    "problem": lambda of, place: place,
}


def test_column_sort_cycles_through_orders(
    explorer_content: ExplorerContent, open_explorer: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By

    browser = open_explorer()
    for column, key in SORTS.items():
        head = f"//div[@role='columnheader'][normalize-space()='{column}']"
        up = sorted(range(120), key=lambda place: key(explorer_content, place))
        down = sorted(range(120), key=lambda place: key(explorer_content, place), reverse=True)
        for expected, order in ((up, "ascending"), (down, "descending"), ([*range(120)], "none")):
            browser.find_element(By.XPATH, f"{head}/button").click()
            assert read_rows(browser) == expected, column
            assert browser.find_element(By.XPATH, head).get_attribute("aria-sort") == order


def test_keys_move_open_and_close(open_explorer: Callable[..., Any]) -> None:
    browser = open_explorer("#state=S", height=900)
    shown = "return document.querySelectorAll('.rows .row').length"
    assert browser.execute_script(shown) < 40, "only rows in view are rendered"
    listed = browser.execute_script(
        "return [...document.querySelectorAll('.rows .name')].slice(0, 4).map(n => n.textContent)"
    )
    down, up, enter, escape = "\ue015", "\ue013", "\ue007", "\ue00c"
    chosen = "return document.querySelector('[aria-selected=true] .name').textContent"
    press_keys(browser, "j")
    press_keys(browser, down)
    press_keys(browser, "k")
    assert browser.execute_script(chosen) == listed[1]
    press_keys(browser, enter)
    wait_until(browser, "document.querySelector('#detail h2')")
    assert read_text(browser, "#detail h2") == listed[1]
    wait_until(browser, "document.activeElement.tagName === 'H2'")
    press_keys(browser, "j")
    wait_until(browser, f"document.querySelector('#detail h2').textContent === '{listed[2]}'")
    wait_until(browser, f"location.hash.endsWith('open={listed[2]}')")
    press_keys(browser, escape)
    assert browser.execute_script("return document.getElementById('detail').hidden")
    assert browser.execute_script("return document.activeElement.id") == "list"
    press_keys(browser, up)
    assert browser.execute_script(chosen) == listed[1]
    press_keys(browser, "\ue010")
    last = "+document.querySelector('[aria-selected=true]').ariaRowIndex"
    wait_until(browser, f"{last} === +document.getElementById('list').ariaRowCount")
    press_keys(browser, "?")
    assert browser.execute_script("return document.getElementById('help').open")
    press_keys(browser, "j")
    press_keys(browser, escape)
    assert not browser.execute_script("return document.getElementById('help').open")
    wait_until(browser, f"{last} === +document.getElementById('list').ariaRowCount")
    press_keys(browser, "/")
    press_keys(browser, "jk")
    assert browser.execute_script("return document.getElementById('query').value") == "jk"
    press_keys(browser, escape)
    assert browser.execute_script("return document.activeElement.id") == "list"


def test_address_restores_view_and_back_closes_problem(
    explorer_content: ExplorerContent, open_explorer: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By

    view = "#q=source&state=SU&seed=21&in.uniform=missed&field.level=3&sort=-samples"
    browser = open_explorer(view)
    wait_for_search(browser)
    expected = [
        p
        for p in select_problems(explorer_content, "SU", "21", {"uniform": "missed"})
        if p % 5 == 3
    ]
    expected.sort(key=lambda place: -explorer_content.passing[place])
    assert read_rows(browser) == expected
    browser.find_element(By.ID, f"row-{expected[1]}").click()
    wait_until(browser, "document.querySelector('#detail h2')")
    shared = browser.current_url
    assert shared.endswith(f"{view}&open=problem-{expected[1]:05}")
    browser.back()
    wait_until(browser, "document.getElementById('detail').hidden")
    assert read_rows(browser) == expected
    browser.get("about:blank")
    browser.get(shared)
    wait_until(browser, "document.querySelector('#detail h2')")
    assert read_rows(browser) == expected
    assert read_text(browser, "#detail h2") == f"problem-{expected[1]:05}"
    assert read_text(browser, ".where") == f"2 of {len(expected)}"


def test_ignores_invalid_parts_of_address(open_explorer: Callable[..., Any]) -> None:
    browser = open_explorer(
        "#state=XS&in.nobody=kept&in.gapft=__proto__&field.toString=1&sort=-no&open=x"
    )
    assert browser.current_url.endswith("open=x")
    assert browser.execute_script("return document.getElementById('detail').hidden")
    assert "of 120 problems" in read_text(browser, "#count")
    assert browser.get_log("browser") == []


def test_problem_shows_all_texts_with_marked_differences(
    explorer_content: ExplorerContent, open_explorer: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By

    browser = open_explorer("#open=problem-00017", height=2400)
    wait_until(browser, "document.querySelector('.answers article')")
    (entry,) = [e for e in explorer_content.entries() if e.gold == "gold 34"]
    assert browser.execute_script("return document.querySelector('.prompt').textContent") == (
        entry.prompt
    )
    assert read_text(browser, "#detail .gold") == "Gold: gold 34"
    for seed in SEEDS:
        browser.find_element(By.CSS_SELECTOR, f"input[name=seed][value='{seed}']").click()
        articles = browser.execute_script(
            "return [...document.querySelectorAll('.answers article')]"
            ".map(a => [a.querySelector('h3').textContent, a.querySelector('pre').textContent])"
        )
        models = {m.condition: m for m in explorer_content.models if m.seed == seed}
        assert [article[1] for article in articles] == [
            entry.responses[0],
            *(
                r
                for m, r in zip(explorer_content.models, entry.responses[1:], strict=False)
                if m.seed == seed
            ),
        ]
        for (heading, _), (condition, label) in zip(articles[1:], CONDITIONS.items(), strict=True):
            assert heading.startswith(label)
            assert f" {models[condition].verdicts[17]}" in heading
    marked = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    assert browser.execute_script(marked, ".answers del") == ["the source", "17."]
    assert browser.execute_script(marked, ".answers ins")[:2] == [
        "gapft of 73",
        f"{explorer_content.models[2].verdicts[17]}.",
    ]
    assert not browser.find_element(By.CSS_SELECTOR, ".samples ol").is_displayed()
    browser.find_element(By.CSS_SELECTOR, ".samples summary").click()
    samples = browser.find_elements(By.CSS_SELECTOR, ".samples article")
    assert browser.execute_script(marked, ".samples pre") == entry.responses[-8:]
    assert [
        s.find_element(By.CSS_SELECTOR, "h3 > span").text for s in samples
    ] == explorer_content.samples[17]


def test_marks_search_hits_in_texts(open_explorer: Callable[..., Any]) -> None:
    browser = open_explorer("#q=take+IT&open=problem-00017", height=2400)
    wait_until(browser, "CSS.highlights.has('found')")
    hits = browser.execute_script(
        "return [...CSS.highlights.get('found')].map(range => "
        "range.startContainer.data.slice(range.startOffset, range.endOffset))"
    )
    assert hits == ["take it"] * (1 + 4 + 8)


def test_rows_are_accessible_to_screen_readers(
    explorer_content: ExplorerContent, open_explorer: Callable[..., Any]
) -> None:
    browser = open_explorer("#state=S", height=900)
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    names = [node.get("name", {}).get("value", "") for node in tree if not node["ignored"]]
    assert {"grid", "row", "gridcell", "columnheader", "status", "search", "searchbox"} <= {*roles}
    place = select_problems(explorer_content, "S", "any", {})[0]
    outcomes = [
        f"{next(w for w, letter in LETTERS.items() if letter == m.outcomes[place])} "
        f"under seed {m.seed}"
        for m in explorer_content.models[:3]
    ]
    assert ", ".join(outcomes) in names
    assert f"{explorer_content.passing[place]} of 8 samples pass" in names
    unnamed = [
        role
        for role, name in zip(roles, names, strict=True)
        if role in ("button", "combobox", "checkbox", "searchbox", "grid", "dialog") and not name
    ]
    assert unnamed == []
    press_keys(browser, "j")
    assert browser.execute_script(
        "const list = document.getElementById('list');"
        "return document.getElementById(list.getAttribute('aria-activedescendant')).ariaSelected"
    )


def test_untrained_run_shows_source_alone(open_page: Callable[..., Any], tmp_path: Path) -> None:
    content = build_content(30)

    def untrained() -> Any:
        for entry in content.entries():
            yield replace(entry, responses=[entry.responses[0], *entry.responses[-8:]])

    untrained_content = replace(content, models=[], entries=untrained)
    browser = open_page(write_page(untrained_content, tmp_path), "#state=S&open=problem-00003")
    wait_until(browser, "document.querySelector('.answers article')")
    assert read_rows(browser) == [place for place in range(30) if content.states[place] == "S"]
    assert read_text(browser, ".answers").startswith("source, greedy")
    assert browser.get_log("browser") == []


def test_shows_numeric_models_with_uneven_seeds(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    models = [
        ExplorerModel("a", "a", "1", ["0.5", "1", "0"], "hel"),
        ExplorerModel("a", "a", "2", ["0.25", "1", "1"], "eee"),
        ExplorerModel("b", "b", "1", ["0", "0", "0"], "lll"),
    ]
    entries = [
        ProblemTexts(f"ask {i}", "gold", ["was", "one", "two", "three"], {}) for i in range(3)
    ]
    page = write_page(
        ExplorerContent(
            title="numbers", noun="document", before="before", verdicts=["0.25", "1", "1"],
            ids=["x", "y", "z"], models=models, entries=lambda: iter(entries),
        ),
        tmp_path,
    )  # fmt: skip
    names = "return [...document.querySelectorAll('.rows .row')].map(r => r.id).join(' ')"
    for view, expected in {
        "#in.a=higher": "row-0",
        "#in.b=lower&seed=2": "",
        "#in.a=equal&seed=every": "row-1",
        "#in.a=equal": "row-0 row-1 row-2",
        "#in.a=equal&seed=1": "row-1",
    }.items():
        browser = open_page(page, view)
        assert browser.execute_script(names) == expected, view
    browser = open_page(page, "#seed=2&open=z")
    wait_until(browser, "document.querySelector('.answers article')")
    texts = browser.execute_script(
        "return [...document.querySelectorAll('.answers pre')].map(pre => pre.textContent)"
    )
    assert texts == ["was", "two"], "model b has no seed 2"
    assert browser.get_log("browser") == []
