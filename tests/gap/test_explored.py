"""explorer.html of ``gapft gap``: its content, and its behaviour in a real browser.

tests/report/explorer tests the page itself.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.text import replace_text_surrogates
from tests.gap.stock import DOCUMENTS, K, run_gap, write_stock
from tests.report import chromium
from tests.report.explorer.driving import read_rows, read_text, wait_until
from tests.report.explorer.made import HOSTILE, unpack_page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measured gsm8k with few-shot examples and both filters; one problem has hostile text."""
    folder = tmp_path_factory.mktemp("explored")
    write_stock(folder)
    texts = json.loads((folder / "gsm8k.json").read_text())
    texts["[3]"] = [f"{text}{replace_text_surrogates(HOSTILE)}" for text in texts["[3]"]]
    (folder / "gsm8k.json").write_text(json.dumps(texts))
    done = run_gap(folder, "gsm8k")
    assert done.exit_code == 0, (done.output, done.exception)
    assert str(folder / "gsm8k" / "gap" / "explorer.html") in done.output.replace("\n", "")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    browser = chromium.start_browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.quit()


def read_items(folder: Path, filter: str) -> dict[str, dict[str, str]]:
    """Read the rows of items.csv of one filter, by problem."""
    with (folder / "gsm8k" / "gap" / "tables" / "items.csv").open(newline="") as file:
        return {row["problem_id"]: row for row in csv.DictReader(file) if row["filter"] == filter}


def test_explorer_holds_every_response_and_verdict(folder: Path) -> None:
    index, texts = unpack_page((folder / "gsm8k" / "gap" / "explorer.html").read_text())
    strict, flexible = read_items(folder, "strict-match"), read_items(folder, "flexible-extract")
    assert index["ids"] == list(strict)
    assert index["states"] == "".join(row["state"] for row in strict.values())
    assert index["passing"] == [int(row["passing"]) for row in strict.values()]
    assert (index["k"], index["models"]) == (K, [])
    by = index["fields"]["state by flexible-extract"]
    states = [by["values"][code] for code in by["codes"]]
    assert states == [row["state"] for row in flexible.values()]
    texts_by_mark = json.loads((folder / "gsm8k.json").read_text())
    words = index["verdicts"]
    for place, row in enumerate(strict.values()):
        number = int(row["doc_id"])
        prompt, gold, *responses = texts[place]
        assert prompt.count("Question:") == 6, "as the model saw it, with its five examples"
        assert index["heads"][place] == f"[{number}] Ann has {number} pears. And twice?"
        assert gold == f"2*{number}\n#### {2 * number}"
        if number != 3:
            assert responses == texts_by_mark[f"[{number}]"]
        right = [bool(int(row["greedy"]))] + [
            words[code] == "right" for code in index["samples"][place]
        ]
        assert (words[index["source"][place]] == "right") == right[0]
        assert sum(right[1:]) == int(row["passing"])
        if number != 3:
            assert right == [f"#### {2 * number}" in response for response in responses]


@pytest.mark.parametrize("width", [390, 1280])
def test_browser_filters_and_escapes_problems(
    folder: Path, browser: Any, tmp_path: Path, width: int
) -> None:
    strict, flexible = read_items(folder, "strict-match"), read_items(folder, "flexible-extract")
    hostile = next(name for name, row in strict.items() if row["doc_id"] == "3")
    page = (folder / "gsm8k" / "gap" / "explorer.html").as_uri()
    browser.get_log("browser")
    pairs = {name: (row["state"], flexible[name]["state"]) for name, row in strict.items()}
    state, other = next(pair for pair in pairs.values() if pair[0] != pair[1])
    few = [name for name, pair in pairs.items() if pair == (state, other)]
    chosen = f"#state={state}&field.state+by+flexible-extract={other}"
    for view, expected in {"": list(strict), chosen: few}.items():
        chromium.show_page(browser, page + view, width, "light", 4000)
        wait_until(browser, "document.body.dataset.ready")
        assert read_rows(browser, prefix=False) == expected
    assert 0 < len(few) < DOCUMENTS
    chromium.show_page(browser, f"{page}#open={hostile}", width, "light", 844)
    wait_until(browser, "document.querySelector('.answers article')")
    assert "<U+202E>reversed" in read_text(browser, ".answers")
    assert browser.title.startswith("The gap of gsm8k")
    assert browser.save_screenshot(str(tmp_path / f"gap-{width}.png"))
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    assert browser.get_log("browser") == []
