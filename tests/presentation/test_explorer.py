"""explorer.html: its data, and its behaviour in a real browser."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapft_harness.compare import items
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.items import build_explored, open_texts
from gapft_harness.compare.options import CompareOptions
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.presentation import explorer
from gapft_harness.presentation.explorer import (
    Explored,
    ExploredModel,
    ExploredProblem,
    ExploredResponse,
    render_explorer,
)
from gapft_harness.presentation.page import link_problem
from gapft_harness.presentation.visible import make_visible
from tests.compare.logs import row, write_log
from tests.presentation.exploring import HOSTILE, unpack_page, wait_until
from tests.report import chromium

MODELS = [
    ExploredModel("source, greedy"),
    *(ExploredModel(name, seed) for name in ("GapFT", "uniform") for seed in ("13", "21")),
]
#: An id with characters special in addresses and HTML, one that reverses text, one cut sequence.
ODD_IDS = ("a&b=c#d %41+é</a><b>x</b>\"'", "right\u202eleft", "100%")
VISIBLE_HOSTILE = make_visible(replace_text_surrogates(HOSTILE))

#: Contrasts of all texts with their backgrounds, lowest first (WCAG 2, level AA: 4.5 to 1).
CONTRASTS = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const numbers = (colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    layers.push(numbers(getComputedStyle(at).backgroundColor));
    if (layers.at(-1)[3] === 255) break;
  }
  return layers.reverse().reduce((under, over) =>
    under.map((c, i) => i < 3 ? c + (over[i] - c) * over[3] / 255 : 255));
};
let found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  const isText = walk.currentNode.data.trim() && !element.closest("script, noscript, option");
  if (!isText || !element.checkVisibility() || element.closest(":disabled")) continue;
  const [a, b] = [numbers(getComputedStyle(element).color), behind(element)].map(light);
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  found.push([ratio, element.className + ": " + walk.currentNode.data.slice(0, 30)]);
}
return found.sort((a, b) => a[0] - b[0]);
"""


def build_problems(count: int = 150, k: int = 4) -> list[ExploredProblem]:
    """Build problems with random verdicts; each response names its model and problem."""
    rng = np.random.default_rng(3)

    def respond(name: str, place: int, is_right: bool) -> ExploredResponse:
        verdict = "right" if is_right else "timeout" if place % 7 == 0 else "wrong"
        return ExploredResponse(f"{name} answers {place}.\nDone", verdict, f"why {name} {place}")

    problems = []
    for place in range(count):
        solved = rng.random() < 0.5
        samples = rng.random(k) < 0.3
        state = "G" if solved else "S" if samples.any() else "U"
        after = solved ^ (rng.random(len(MODELS) - 1) < 0.3)
        problems.append(
            ExploredProblem(
                f"problem-{place:03}",
                {"state": state, "samples": f"{samples.sum()}/{k}"},
                f"Be brief.\nQuestion: what is {place} (times two)?\nAnswer:",
                f"gold {place}",
                [
                    respond(" of ".join(model), place, bool(is_right))
                    for model, is_right in zip(MODELS, [solved, *after], strict=True)
                ],
                [respond(f"Sample {i}", place, bool(x)) for i, x in enumerate(samples)],
            )
        )
    return problems


PROBLEMS = build_problems()


def write_page(
    folder: Path, problems: list[ExploredProblem], models: list[ExploredModel] = MODELS
) -> Path:
    """Write a page of some problems."""
    path = folder / "explorer.html"
    content = Explored("made on a task", models, lambda: iter(problems), "A remark.")
    path.write_text(render_explorer(content), "utf-8")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("explorer"), PROBLEMS)


@pytest.fixture
def open_page(browser: Any) -> Callable[..., Any]:
    """Open a page and wait until it is ready."""

    def at(
        page: Path, problem: str = "", width: int = 1280, scheme: str = "light", height: int = 900
    ) -> Any:
        browser.get_log("browser")
        chromium.show_page(browser, f"{page.as_uri()}#{problem}", width, scheme, height)
        wait_until(browser, "document.body.dataset.ready")
        return browser

    return at


def read_ids(browser: Any) -> list[str]:
    """Read the ids of the listed problems."""
    ids: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('tbody a')].map(a => a.textContent)"
    )
    return ids


def choose(browser: Any, **values: str) -> None:
    """Choose values of filters by their labels."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    for label in browser.find_elements(By.CSS_SELECTOR, "#filters label"):
        name = label.text.partition("\n")[0]
        if name in values:
            Select(label.find_element(By.TAG_NAME, "select")).select_by_visible_text(values[name])


def search(browser: Any, words: str) -> None:
    """Type into the search, and wait until all texts are searched."""
    count = "document.getElementById('count')"
    browser.execute_script(
        f"{count}.textContent = 'typed'; const query = document.getElementById('query');"
        "query.value = arguments[0]; query.dispatchEvent(new Event('input'))",
        words,
    )
    wait_until(browser, f"{count}.textContent.includes(' of ')")


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def read_texts(browser: Any, selector: str) -> list[str]:
    texts: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )
    return texts


def test_numbers_gain_and_lose(tmp_path: Path) -> None:
    responses = [ExploredResponse("", value) for value in (0.5, 0.75, 0.5, 0.125, 1 / 3)]
    problem = ExploredProblem("a", {}, "", "", responses)
    (row,) = unpack_page(write_page(tmp_path, [problem]))[0]["problems"]
    assert row["verdicts"] == ["0.5", "0.75", "0.5", "0.125", "0.333333"]
    assert row["changes"] == [0, 1, 0, -1, -1]


def test_numbers_are_higher_or_lower(open_page: Callable[..., Any], tmp_path: Path) -> None:
    """A higher number may be worse, so it is not called gained, and has no colour."""
    responses = [ExploredResponse("", value) for value in (0.5, 0.75, 0.5, 0.125, 1 / 3)]
    browser = open_page(write_page(tmp_path, [ExploredProblem("a", {}, "", "", responses)]))
    marks = browser.execute_script(
        "return [...document.querySelectorAll('tbody [role=img]')].map(e => [e.title, e.className])"
    )
    endings = [title.rpartition(", ")[2] for title, _ in marks[1:]]
    assert [endings[0], *endings[2:]] == ["higher", "lower", "lower"]
    assert {colour for _, colour in marks} == {"same"}


def test_long_texts_are_cut_to_limit_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    problems = [
        problem._replace(prompt=f"begin {rng.bytes(9000).hex()} end") for problem in PROBLEMS
    ]
    assert unpack_page(write_page(tmp_path, problems))[0]["cut"] is None
    monkeypatch.setattr(explorer, "MAX_PACKED_CHARS", 500_000)
    page = write_page(tmp_path, problems)
    index, texts = unpack_page(page)
    assert index["cut"] == 4000
    assert len(page.read_text()) < 600_000
    assert texts[0]["prompt"].startswith("begin")
    assert "14,010 characters left out" in texts[0]["prompt"]
    assert texts[0]["prompt"].endswith("end")
    monkeypatch.setattr(explorer, "MAX_PACKED_CHARS", 1000)
    assert unpack_page(write_page(tmp_path, problems))[0]["cut"] == 120, "whatever the size"


def test_filters_and_outcomes_select_problems(page: Path, open_page: Callable[..., Any]) -> None:
    def select(
        state: str, names: set[str], test: Callable[[ExploredProblem, int], bool]
    ) -> list[str]:
        return [
            problem.id
            for problem in PROBLEMS
            if state in ("any", problem.facts["state"])
            and any(test(problem, at) for at, model in enumerate(MODELS) if model.name in names)
        ]

    def changed(problem: ExploredProblem, at: int) -> int:
        before, after = (problem.responses[i].verdict == "right" for i in (0, at))
        return after - before

    tests: dict[str, Callable[[ExploredProblem, int], bool]] = {
        "gained": lambda problem, at: changed(problem, at) > 0,
        "lost": lambda problem, at: changed(problem, at) < 0,
        "gained or lost": lambda problem, at: changed(problem, at) != 0,
        "right": lambda problem, at: problem.responses[at].verdict == "right",
        "timeout": lambda problem, at: problem.responses[at].verdict == "timeout",
    }
    browser = open_page(page)
    assert read_ids(browser) == [problem.id for problem in PROBLEMS]
    for state, model, outcome in (
        ("any", "GapFT", "gained"),
        ("G", "uniform", "lost"),
        ("S", "any", "gained or lost"),
        ("U", "uniform", "timeout"),
        ("any", "source, greedy", "right"),
    ):
        choose(browser, state=state, model=model, outcome=outcome)
        names = {item.name for item in MODELS} if model == "any" else {model}
        expected = select(state, names, tests[outcome])
        assert read_ids(browser) == expected
        assert 0 < len(expected) < len(PROBLEMS)
    choose(browser, model="any", outcome="any", samples="2/4")
    assert read_ids(browser) == [p.id for p in PROBLEMS if p.facts["samples"] == "2/4"]
    assert browser.get_log("browser") == []


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("GAPFT of 21   answers 17. done", ["problem-017"]),
        ("what is 3 (times", ["problem-003"]),
        ("gold 101", ["problem-101"]),
        ("why Sample 2 140", ["problem-140"]),
        ("problem-14", [f"problem-14{digit}" for digit in range(10)]),
        ("first try", ["problem-001"]),
        ("a.b", []),
    ],
)
def test_search_covers_every_text(
    page: Path, open_page: Callable[..., Any], tmp_path: Path, words: str, ids: list[str]
) -> None:
    if words == "first try":
        first = ExploredResponse("", "wrong", attempts=[("a first try", "feedback <b>")])
        problems = [PROBLEMS[0], PROBLEMS[1]._replace(samples=[first])]
        page = write_page(tmp_path, problems)
    browser = open_page(page)
    search(browser, words)
    assert read_ids(browser) == ids
    search(browser, "")
    assert len(read_ids(browser)) == (2 if words == "first try" else len(PROBLEMS))


def test_problem_shows_responses_with_verdicts(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    told = ExploredResponse("final", "wrong", "said 7", "7", "it weighs", [("try", "<b>no</b>")])
    problem = PROBLEMS[0]._replace(responses=[told, *PROBLEMS[0].responses[1:]])
    browser = open_page(write_page(tmp_path, [problem, *PROBLEMS[1:]]), problem.id)
    assert read_texts(browser, "#problem h2") == [problem.id]
    assert read_texts(browser, "dd") == [*problem.facts.values(), problem.gold]
    folded = ["it weighs", "try\n\nFeedback: <b>no</b>"]
    assert read_texts(browser, "article:first-of-type details pre") == folded
    texts = [response.text for response in (*problem.responses, *problem.samples)]
    assert read_texts(browser, "article > pre") == texts
    heads = read_texts(browser, ".responses h3 > span")
    for head, response in zip(heads, [*problem.responses, *problem.samples], strict=True):
        assert head.partition(",")[0] == response.verdict
    assert {"right, gained"} <= {*heads}
    assert read_texts(browser, "article:first-of-type > .note")[:2] == ["said 7", "read: 7"]
    search(browser, "sample 3")
    marked = "[...CSS.highlights.get('found')].map(r => r.startContainer.data.slice(r.startOffset"
    assert {*browser.execute_script(f"return {marked}, r.endOffset))")} == {"Sample 3"}
    assert browser.execute_script(
        "return [...CSS.highlights.get('found')].every(r => r.startContainer.parentElement"
        ".checkVisibility())"
    ), "folded texts with hits are unfolded"
    assert browser.get_log("browser") == []


def test_keys_and_links_move_between_problems(page: Path, open_page: Callable[..., Any]) -> None:
    browser = open_page(page)
    opened = "document.querySelector('#problem h2')?.textContent ==="
    choose(browser, state="S")
    press(browser, "\ue00c")  # leaves the filter
    ids = read_ids(browser)
    for keys, place in (("j", 0), ("jj", 2), ("k", 1), ("kkkk", 0)):
        press(browser, keys)
        wait_until(browser, f"{opened} '{ids[place]}'")
        assert browser.execute_script("return location.hash") == f"#{ids[place]}"
    press(browser, "\ue00c")
    wait_until(browser, "document.getElementById('problem').hidden")
    browser.execute_script("document.querySelectorAll('tbody a')[3].click()")
    wait_until(browser, f"{opened} '{ids[3]}'")
    browser.back()
    wait_until(browser, "document.getElementById('problem').hidden")
    browser.execute_script("location.hash = 'unknown'")
    wait_until(browser, "document.querySelector('#problem p')")
    assert read_texts(browser, "#problem p") == ["This page does not have this problem."]


def test_links_open_problems_with_odd_ids(open_page: Callable[..., Any], tmp_path: Path) -> None:
    problems = [problem._replace(id=name) for problem, name in zip(PROBLEMS, ODD_IDS, strict=False)]
    page = write_page(tmp_path, problems)
    for name in ODD_IDS:
        place, _, fragment = link_problem(name).partition("#")
        assert place == page.name
        browser = open_page(page, fragment)
        assert read_texts(browser, "#problem h2") == [make_visible(name)]
        assert browser.get_log("browser") == []
    browser = open_page(page, "%zz")
    assert read_texts(browser, "#problem h2") == ["%zz"]


def test_long_lists_grow(open_page: Callable[..., Any], tmp_path: Path) -> None:
    problems = [PROBLEMS[0]._replace(id=f"p{place}") for place in range(450)]
    browser = open_page(write_page(tmp_path, problems), "p199")
    assert len(read_ids(browser)) == 200
    press(browser, "j")
    wait_until(browser, "document.querySelector('tr[aria-current] a')?.textContent === 'p200'")
    assert len(read_ids(browser)) == 400
    browser.execute_script("document.getElementById('more').click()")
    assert read_ids(browser) == [problem.id for problem in problems]
    assert browser.execute_script("return document.getElementById('more').hidden")


def test_hostile_texts_are_inert(open_page: Callable[..., Any], tmp_path: Path) -> None:
    response = ExploredResponse(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, [(HOSTILE, HOSTILE)])
    problems = [
        ExploredProblem(
            f"{place}{HOSTILE}", {HOSTILE: f"{place % 2}{HOSTILE}", "state": "S"}, HOSTILE, HOSTILE,
            [response] * 3, [response],
        )
        for place in range(4)
    ]  # fmt: skip
    page = tmp_path / "explorer.html"
    models = [ExploredModel(f"{name}{HOSTILE}", HOSTILE) for name in "abb"]
    content = Explored(HOSTILE, models, lambda: iter(problems), HOSTILE)
    page.write_text(render_explorer(content), "utf-8")
    browser = open_page(page, width=390)
    title = browser.title
    press(browser, "j")
    wait_until(browser, "document.querySelector('article')")
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    texts = read_texts(browser, "#problem pre")
    assert len(texts) == 1 + 4 * 3
    assert all(VISIBLE_HOSTILE in text for text in texts)
    tags = browser.execute_script(
        "return [...new Set([...document.querySelectorAll('body *')].map(e => e.localName))]"
    )
    assert not {"img", "b", "i", "iframe", "object", "form"} & {*tags}
    assert browser.execute_script("return document.scripts.length") == 3
    assert browser.title == title == " ".join(f"{VISIBLE_HOSTILE}: every problem".split())
    everything = browser.execute_script("return document.documentElement.textContent")
    assert not re.search("[\u202e\x00\x1b\u200b]", everything)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 390
    press(browser, "\ue00c")
    search(browser, "<U+202E>reversed")
    assert len(read_ids(browser)) == 4
    assert browser.get_log("browser") == []


def test_security_policy_allows_only_own_script_and_style(
    page: Path, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    html = page.read_text("utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', html)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.S)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.S)
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"https?://|url\(|@import|innerHTML|outerHTML|insertAdjacent", html)
    forged = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    (tmp_path / "forged.html").write_text(html.replace("<main>", f"{forged}<main>"), "utf-8")
    browser = open_page(tmp_path / "forged.html")
    assert browser.title == "made on a task: every problem"
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert len([message for message in refused if "Content Security Policy" in message]) >= 2


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("problem", ["", "problem-008"], ids=["list", "open"])
def test_page_fits_is_legible_and_follows_theme(
    page: Path, open_page: Callable[..., Any], tmp_path: Path, width: int, scheme: str, problem: str
) -> None:
    browser = open_page(page, problem, width, scheme)
    assert browser.save_screenshot(str(tmp_path / f"explorer-{width}-{scheme}.png"))
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    contrasts = browser.execute_script(CONTRASTS)
    assert len(contrasts) > 20
    assert [contrast for contrast in contrasts if contrast[0] < 4.5] == []
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
    shown = browser.execute_script(
        "return ['list', 'problem'].map(id => document.getElementById(id).checkVisibility())"
    )
    assert shown == [width == 1280 or not problem, bool(problem)]
    assert browser.get_log("browser") == []


# The page of compare; tests/gap has that of gap, tests/laws that of a run.


def explore_logs(folder: Path, **choices: Any) -> tuple[Explored, list[ExploredProblem]]:
    comparison = compare(str(folder / "before"), [f"a={folder}/after*"], CompareOptions(**choices))
    with open_texts(comparison, written=True) as read_text:
        explored = build_explored(comparison, read_text)
        return explored, [*explored.read()]


@pytest.mark.parametrize(("most", "unchanged"), [(4, 2), (1, 0), (12, 10)])
def test_large_comparisons_show_changed_documents_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, unchanged: int
) -> None:
    changed = {3, 8}
    write_log(tmp_path / "before", [0] * 12)
    write_log(tmp_path / "after", [int(number in changed) for number in range(12)])
    monkeypatch.setattr(items, "MAX_EXPLORED", most)
    explored, problems = explore_logs(tmp_path)
    names = [int(problem.id) for problem in problems]
    assert len(changed & {*names}) == min(2, most)
    assert len({*names} - changed) == unchanged
    assert names == sorted(names)
    assert (f"{most} of 12 documents: changed" in explored.remark) == (most < 12)


def test_large_comparisons_choose_documents_of_all_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for side in ("before", "after"):
        write_log(tmp_path / side, [0] * 20, task="a")
        rows = [row(number, 0) for number in range(20, 40)]
        write_log(tmp_path / side, rows=rows, task="b")
    monkeypatch.setattr(items, "MAX_EXPLORED", 20)
    _, problems = explore_logs(tmp_path)
    assert {problem.id.split()[0] for problem in problems} == {"a", "b"}


def test_documents_with_one_number_have_distinct_ids(tmp_path: Path) -> None:
    rows = [row(number, number % 2, doc_id=7) for number in range(3)]
    write_log(tmp_path / "before", rows=rows)
    write_log(tmp_path / "after", rows=rows)
    _, problems = explore_logs(tmp_path)
    ids = [problem.id for problem in problems]
    assert len({*ids}) == 3
    assert all(name.startswith("7 ") for name in ids)
