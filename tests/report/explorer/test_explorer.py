"""The page of all problems in a real browser: what is chosen, found, opened and shared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from gapft_harness.report.explorer.explored import Explored
from tests.report.explorer.driving import press, rows, searched, text, until
from tests.report.explorer.made import CONDITIONS, SEEDS, explored, write

LETTERS = {
    "corrected": "c", "regressed": "r", "kept": "k", "missed": "m", "changed": "cr",
    "right": "ck", "wrong": "rm",
}  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Explored:
    return explored()


@pytest.fixture(scope="module")
def page(made: Explored, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(made, tmp_path_factory.mktemp("explorer"))


@pytest.fixture
def opened(opens: Callable[..., Any], page: str) -> Callable[..., Any]:
    """Opens the page of these problems."""
    return functools.partial(opens, page)


def fitting(of: Explored, states: str, seed: str, outcomes: dict[str, str]) -> list[int]:
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


@pytest.mark.parametrize("seed", ["any", "every", "21"])
@pytest.mark.parametrize(
    ("states", "outcomes"),
    [
        ("", {}),
        ("S", {"gapft": "corrected"}),
        ("G", {"gapft": "kept", "uniform": "regressed"}),
        ("SU", {"gapft": "right", "replay": "missed"}),
        ("", {"all_verified": "changed"}),
        ("U", {"all_verified": "wrong"}),
    ],
)
def test_filters_list_the_problems_that_fit(
    made: Explored, opened: Callable[..., Any], states: str, outcomes: dict[str, str], seed: str
) -> None:
    chosen = [f"state={states}", f"seed={seed}", *(f"in.{k}={v}" for k, v in outcomes.items())]
    browser = opened("#" + "&".join(chosen))
    wanted = fitting(made, states, seed, outcomes)
    assert rows(browser) == wanted
    assert text(browser, "#count") == (
        f"{len(wanted)} of 120 problems" if len(wanted) < 120 else "120 problems"
    )


def test_choosing_changes_list_address_and_what_is_marked(
    made: Explored, opened: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    browser = opened()
    selects = {
        label.text.split("\n")[0]: Select(label.find_element(By.TAG_NAME, "select"))
        for label in browser.find_elements(By.CSS_SELECTOR, "#choices .choice")
    }
    assert list(selects) == [*CONDITIONS.values(), "Under", "subject", "level"]
    browser.find_element(By.CSS_SELECTOR, "input[value=S]").click()
    selects["GapFT"].select_by_visible_text("corrected")
    selects["Under"].select_by_visible_text("every seed")
    expected = fitting(made, "S", "every", {"gapft": "corrected"})
    assert rows(browser) == expected
    selects["level"].select_by_visible_text("2")
    assert rows(browser) == [place for place in expected if place % 5 == 2]
    assert browser.current_url.endswith("#state=S&seed=every&in.gapft=corrected&field.level=2")
    browser.find_element(By.XPATH, "//button[text()='Clear']").click()
    assert rows(browser) == [*range(120)]
    assert not browser.find_element(By.XPATH, "//button[text()='Clear']").is_displayed()
    options = [option.text for option in selects["subject"].options]
    assert options == ["any", "Algebra", "Geometry & <i>logic</i>", "Number theory"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("QUESTION 17:", [17]),
        ("gold 34", [17]),
        ("source says 17.", [17]),
        ("Sample 7 of 17:", [17]),
        ("one. then   take", [*range(120)]),
        ("problem-00017", [17]),
        ("(times two)?", [*range(120)]),
        (".*", []),
        ("\\", []),
    ],
)
def test_search_looks_through_every_text(
    opened: Callable[..., Any], query: str, wanted: list[int]
) -> None:
    browser = opened()
    press(browser, "/")
    press(browser, query)
    until(browser, "location.hash.includes('q=')")
    searched(browser)
    assert rows(browser) == wanted
    browser.refresh()
    until(browser, "document.body.dataset.ready")
    searched(browser)
    assert rows(browser) == wanted
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


SORTS: dict[str, Callable[[Explored, int], Any]] = {
    "state": lambda of, place: "GSU".index(of.states[place]),
    "samples": lambda of, place: of.passing[place],
    "source": lambda of, place: of.verdicts[place] == "wrong",
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


@pytest.mark.parametrize("column", SORTS)
def test_columns_are_sorted_both_ways_and_then_not(
    made: Explored, opened: Callable[..., Any], column: str
) -> None:
    from selenium.webdriver.common.by import By

    browser, key = opened(), SORTS[column]
    up = sorted(range(120), key=lambda place: key(made, place))
    down = sorted(range(120), key=lambda place: key(made, place), reverse=True)
    for wanted, told in ((up, "ascending"), (down, "descending"), ([*range(120)], "none")):
        head = browser.find_element(
            By.XPATH, f"//div[@role='columnheader'][normalize-space()='{column}']"
        )
        if column == "source":  # by the verdicts' own order
            first = made.verdicts[0] == "wrong"
            key_ = [(made.verdicts[p] == "wrong") != first for p in range(120)]
            wanted = sorted(range(120), key=lambda p: key_[p], reverse=told == "descending")
            wanted = [*range(120)] if told == "none" else wanted
        head.find_element(By.TAG_NAME, "button").click()
        assert rows(browser) == wanted
        head = browser.find_element(
            By.XPATH, f"//div[@role='columnheader'][normalize-space()='{column}']"
        )
        assert head.get_attribute("aria-sort") == told


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
    assert f"open={listed[2]}" in browser.current_url
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
    made: Explored, opened: Callable[..., Any]
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
    made: Explored, opened: Callable[..., Any]
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


def test_a_screen_reader_is_told_what_a_row_is(made: Explored, opened: Callable[..., Any]) -> None:
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
