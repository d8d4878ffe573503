"""The page of all problems in a real browser: what is chosen, found, opened and shared."""

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
from tests.report.explorer.driving import press, rows, searched, text, turn_to, until
from tests.report.explorer.made import CONDITIONS, SEEDS, explored, write

LETTERS = {
    "corrected": "c", "regressed": "r", "kept": "k", "missed": "m", "changed": "cr",
    "right": "ck", "wrong": "rm",
}  # fmt: skip


@pytest.fixture(scope="module")
def made() -> ExplorerContent:
    return explored()


@pytest.fixture(scope="module")
def page(made: ExplorerContent, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(made, tmp_path_factory.mktemp("explorer"))


@pytest.fixture
def opened(opens: Callable[..., Any], page: str) -> Callable[..., Any]:
    """Opens the page of these problems."""
    return functools.partial(opens, page)


def fitting(of: ExplorerContent, states: str, seed: str, outcomes: dict[str, str]) -> list[int]:
    """What a view should list, problem by problem."""
    wanted = []
    for place in range(len(of.ids)):
        fits = not states or of.states[place] in states
        for condition, outcome in outcomes.items():
            met = [
                model.outcomes[place] in LETTERS[outcome]
                for model in of.models
                if model.condition == condition and seed in ("any", "every", model.seed)
            ]
            fits &= all(met) if seed == "every" else any(met)
        if fits:
            wanted.append(place)
    return wanted


CHOSEN: list[tuple[str, dict[str, str]]] = [
    ("", {}),
    ("S", {"gapft": "corrected"}),
    ("G", {"gapft": "kept", "uniform": "regressed"}),
    ("SU", {"gapft": "right", "replay": "missed"}),
    ("", {"all_verified": "changed"}),
    ("U", {"all_verified": "wrong"}),
]


def test_filters_list_the_problems_that_fit(
    made: ExplorerContent, opened: Callable[..., Any]
) -> None:
    browser = opened()
    for (states, outcomes), seed in itertools.product(CHOSEN, ["any", "every", "21"]):
        chosen = [f"state={states}", f"seed={seed}", *(f"in.{k}={v}" for k, v in outcomes.items())]
        turn_to(browser, "&".join(chosen))
        wanted = fitting(made, states, seed, outcomes)
        assert rows(browser) == wanted, chosen
        none = "" if wanted else "Nothing matches: "
        assert text(browser, "#count") == (
            f"{none}{len(wanted)} of 120 problems" if len(wanted) < 120 else "120 problems"
        )


def test_choosing_changes_list_address_and_what_is_marked(
    made: ExplorerContent, opened: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    browser = opened()
    selects = {
        label.text.split("\n")[0]: Select(label.find_element(By.TAG_NAME, "select"))
        for label in browser.find_elements(By.CSS_SELECTOR, "#choices .choice")
    }
    assert list(selects) == ["source, greedy", *CONDITIONS.values(), "Under", "subject", "level"]
    browser.find_element(By.CSS_SELECTOR, "input[value=S]").click()
    selects["GapFT"].select_by_visible_text("corrected")
    selects["Under"].select_by_visible_text("every seed")
    expected = fitting(made, "S", "every", {"gapft": "corrected"})
    assert rows(browser) == expected
    selects["level"].select_by_visible_text("2")
    assert rows(browser) == [place for place in expected if place % 5 == 2]
    view = "#state=S&seed=every&in.gapft=corrected&field.level=2"
    until(browser, f"location.hash === '{view}'")
    browser.find_element(By.XPATH, "//button[text()='Clear']").click()
    assert rows(browser) == [*range(120)]
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


def test_search_looks_through_every_text(opened: Callable[..., Any]) -> None:
    browser = opened()
    for query, wanted in QUERIES.items():
        turn_to(browser, urlencode({"q": query}))
        searched(browser)
        assert rows(browser) == wanted, query
        assert browser.execute_script("return document.getElementById('query').value") == query


def test_letters_typed_one_by_one_find_what_the_whole_finds(opened: Callable[..., Any]) -> None:
    browser = opened()
    press(browser, "/")
    for letter in "says 11":
        press(browser, letter)
    until(browser, "location.hash.includes('q=says+11')")
    searched(browser)
    assert rows(browser) == [11, *range(110, 120)]
    press(browser, "\ue003")
    until(browser, "location.hash.endsWith('q=says+1')")
    searched(browser)
    assert rows(browser) == [1, *range(10, 20), *range(100, 120)]


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


def test_columns_are_sorted_both_ways_and_then_not(
    made: ExplorerContent, opened: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By

    browser = opened()
    for column, key in SORTS.items():
        head = f"//div[@role='columnheader'][normalize-space()='{column}']"
        up = sorted(range(120), key=lambda place: key(made, place))
        down = sorted(range(120), key=lambda place: key(made, place), reverse=True)
        for wanted, told in ((up, "ascending"), (down, "descending"), ([*range(120)], "none")):
            browser.find_element(By.XPATH, f"{head}/button").click()
            assert rows(browser) == wanted, column
            assert browser.find_element(By.XPATH, head).get_attribute("aria-sort") == told


def test_keys_walk_open_and_close(opened: Callable[..., Any]) -> None:
    browser = opened("#state=S", height=900)
    listed = browser.execute_script(
        "return [...document.querySelectorAll('.rows .name')].slice(0, 4).map(n => n.textContent)"
    )
    down, up, enter, escape = "\ue015", "\ue013", "\ue007", "\ue00c"
    chosen = "return document.querySelector('[aria-selected=true] .name').textContent"
    press(browser, "j")
    press(browser, down)
    press(browser, "k")
    assert browser.execute_script(chosen) == listed[1]
    press(browser, enter)
    until(browser, "document.querySelector('#detail h2')")
    assert text(browser, "#detail h2") == listed[1]
    until(browser, "document.activeElement.tagName === 'H2'")
    press(browser, "j")
    until(browser, f"document.querySelector('#detail h2').textContent === '{listed[2]}'")
    until(browser, f"location.hash.endsWith('open={listed[2]}')")
    press(browser, escape)
    assert browser.execute_script("return document.getElementById('detail').hidden")
    assert browser.execute_script("return document.activeElement.id") == "list"
    press(browser, up)
    assert browser.execute_script(chosen) == listed[1]
    press(browser, "\ue010")
    last = "+document.querySelector('[aria-selected=true]').ariaRowIndex"
    until(browser, f"{last} === +document.getElementById('list').ariaRowCount")
    press(browser, "?")
    assert browser.execute_script("return document.getElementById('help').open")
    press(browser, "j")
    press(browser, escape)
    assert not browser.execute_script("return document.getElementById('help').open")
    until(browser, f"{last} === +document.getElementById('list').ariaRowCount")
    press(browser, "/")
    press(browser, "jk")
    assert browser.execute_script("return document.getElementById('query').value") == "jk"
    press(browser, escape)
    assert browser.execute_script("return document.activeElement.id") == "list"


def test_an_address_is_the_whole_view_and_going_back_closes_a_problem(
    made: ExplorerContent, opened: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By

    view = "#q=source&state=SU&seed=21&in.uniform=missed&field.level=3&sort=-samples"
    browser = opened(view)
    searched(browser)
    wanted = [p for p in fitting(made, "SU", "21", {"uniform": "missed"}) if p % 5 == 3]
    wanted.sort(key=lambda place: -made.passing[place])
    assert rows(browser) == wanted
    browser.find_element(By.ID, f"row-{wanted[1]}").click()
    until(browser, "document.querySelector('#detail h2')")
    shared = browser.current_url
    assert shared.endswith(f"{view}&open=problem-{wanted[1]:05}")
    browser.back()
    until(browser, "document.getElementById('detail').hidden")
    assert rows(browser) == wanted
    browser.get("about:blank")
    browser.get(shared)
    until(browser, "document.querySelector('#detail h2')")
    assert rows(browser) == wanted
    assert text(browser, "#detail h2") == f"problem-{wanted[1]:05}"
    assert text(browser, ".where") == f"2 of {len(wanted)}"


def test_what_an_address_says_wrongly_is_left_out(opened: Callable[..., Any]) -> None:
    browser = opened("#state=XS&in.nobody=kept&in.gapft=__proto__&field.toString=1&sort=-no&open=x")
    assert browser.current_url.endswith("open=x")
    assert browser.execute_script("return document.getElementById('detail').hidden")
    assert "of 120 problems" in text(browser, "#count")
    assert browser.get_log("browser") == []


def test_a_problem_shows_all_its_texts_with_differences_marked(
    made: ExplorerContent, opened: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By

    browser = opened("#open=problem-00017", height=2400)
    until(browser, "document.querySelector('.answers article')")
    (entry,) = [e for e in made.entries() if e.gold == "gold 34"]
    assert browser.execute_script("return document.querySelector('.prompt').textContent") == (
        entry.prompt
    )
    assert text(browser, "#detail .gold") == "Gold: gold 34"
    for seed in SEEDS:
        browser.find_element(By.CSS_SELECTOR, f"input[name=seed][value='{seed}']").click()
        shown = browser.execute_script(
            "return [...document.querySelectorAll('.answers article')]"
            ".map(a => [a.querySelector('h3').textContent, a.querySelector('pre').textContent])"
        )
        models = {m.condition: m for m in made.models if m.seed == seed}
        assert [of[1] for of in shown] == [
            entry.responses[0],
            *(r for m, r in zip(made.models, entry.responses[1:], strict=False) if m.seed == seed),
        ]
        for (heading, _), (condition, label) in zip(shown[1:], CONDITIONS.items(), strict=True):
            assert heading.startswith(label)
            assert f" {models[condition].verdicts[17]}" in heading
    marked = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    assert browser.execute_script(marked, ".answers del") == ["the source", "17."]
    assert browser.execute_script(marked, ".answers ins")[:2] == [
        "gapft of 73",
        f"{made.models[2].verdicts[17]}.",
    ]
    assert not browser.find_element(By.CSS_SELECTOR, ".samples ol").is_displayed()
    browser.find_element(By.CSS_SELECTOR, ".samples summary").click()
    samples = browser.find_elements(By.CSS_SELECTOR, ".samples article")
    assert browser.execute_script(marked, ".samples pre") == entry.responses[-8:]
    assert [s.find_element(By.CSS_SELECTOR, "h3 > span").text for s in samples] == made.samples[17]


def test_what_was_searched_for_is_marked_in_the_texts(opened: Callable[..., Any]) -> None:
    browser = opened("#q=take+IT&open=problem-00017", height=2400)
    until(browser, "CSS.highlights.has('found')")
    found = browser.execute_script(
        "return [...CSS.highlights.get('found')].map(range => "
        "range.startContainer.data.slice(range.startOffset, range.endOffset))"
    )
    assert found == ["take it"] * (1 + 4 + 8)


def test_a_screen_reader_is_told_what_a_row_is(
    made: ExplorerContent, opened: Callable[..., Any]
) -> None:
    browser = opened("#state=S", height=900)
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    names = [node.get("name", {}).get("value", "") for node in tree if not node["ignored"]]
    assert {"grid", "row", "gridcell", "columnheader", "status", "search", "searchbox"} <= {*roles}
    place = fitting(made, "S", "any", {})[0]
    told = [
        f"{next(w for w, letter in LETTERS.items() if letter == m.outcomes[place])} "
        f"under seed {m.seed}"
        for m in made.models[:3]
    ]
    assert ", ".join(told) in names
    assert f"{made.passing[place]} of 8 samples pass" in names
    unnamed = [
        role
        for role, name in zip(roles, names, strict=True)
        if role in ("button", "combobox", "checkbox", "searchbox", "grid", "dialog") and not name
    ]
    assert unnamed == []
    press(browser, "j")
    assert browser.execute_script(
        "const list = document.getElementById('list');"
        "return document.getElementById(list.getAttribute('aria-activedescendant')).ariaSelected"
    )


def test_a_run_that_trained_nothing_shows_its_source_alone(
    opens: Callable[..., Any], tmp_path: Path
) -> None:
    of = explored(30)

    def untrained() -> Any:
        for entry in of.entries():
            yield replace(entry, responses=[entry.responses[0], *entry.responses[-8:]])

    made = replace(of, models=[], entries=untrained)
    browser = opens(write(made, tmp_path), "#state=S&open=problem-00003")
    until(browser, "document.querySelector('.answers article')")
    assert rows(browser) == [place for place in range(30) if of.states[place] == "S"]
    assert text(browser, ".answers").startswith("source, greedy")
    assert browser.get_log("browser") == []


def test_models_of_other_seeds_numbers_and_no_states_are_shown_too(
    opens: Callable[..., Any], tmp_path: Path
) -> None:
    models = [
        ExplorerModel("a", "a", "1", ["0.5", "1", "0"], "hel"),
        ExplorerModel("a", "a", "2", ["0.25", "1", "1"], "eee"),
        ExplorerModel("b", "b", "1", ["0", "0", "0"], "lll"),
    ]
    entries = [
        ProblemTexts(f"ask {i}", "gold", ["was", "one", "two", "three"], {}) for i in range(3)
    ]
    page = write(
        ExplorerContent(
            title="numbers", noun="document", before="before", verdicts=["0.25", "1", "1"],
            ids=["x", "y", "z"], models=models, entries=lambda: iter(entries),
        ),
        tmp_path,
    )  # fmt: skip
    names = "return [...document.querySelectorAll('.rows .row')].map(r => r.id).join(' ')"
    for view, wanted in {
        "#in.a=higher": "row-0",
        "#in.b=lower&seed=2": "",
        "#in.a=equal&seed=every": "row-1",
        "#in.a=equal": "row-0 row-1 row-2",
        "#in.a=equal&seed=1": "row-1",
    }.items():
        browser = opens(page, view)
        assert browser.execute_script(names) == wanted, view
    browser = opens(page, "#seed=2&open=z")
    until(browser, "document.querySelector('.answers article')")
    shown = browser.execute_script(
        "return [...document.querySelectorAll('.answers pre')].map(pre => pre.textContent)"
    )
    assert shown == ["was", "two"], "model b has no seed 2"
    assert browser.get_log("browser") == []


def test_a_key_that_is_held_down_does_not_flood_the_address(opened: Callable[..., Any]) -> None:
    browser = opened("#open=problem-00000", height=900)
    until(browser, "document.querySelector('#detail h2')")
    browser.execute_script(
        "window.times = []; const write = history.replaceState.bind(history);"
        "history.replaceState = (...of) => { times.push(performance.now()); write(...of) };"
        "const key = new KeyboardEvent('keydown', {key: 'j', bubbles: true});"
        "for (let i = 0; i < 100; i++) document.body.dispatchEvent(key)"
    )
    until(browser, "location.hash === '#open=problem-00100'")
    until(browser, "document.querySelector('#detail h2').textContent === 'problem-00100'")
    times = browser.execute_script("return window.times")
    assert all(after - before > 349 for before, after in itertools.pairwise(times)), times
