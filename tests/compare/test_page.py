"""The page of ``gapft compare``, its files, and what hostile texts do to it."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from gapft_harness.compare.page import build_page
from tests.compare.command import read_refusal, run_compare
from tests.compare.logs import compare_logs, read_model, read_results, row, write_log
from tests.kit.command import ROOT
from tests.presentation.exploring import unpack_page

DEMO = ROOT / "gapft_harness/demo/logs"


def read_csv(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / "tables" / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_demo_rows(side: str) -> dict[str, dict[str, Any]]:
    """Read a side of the demo's logs, which lm_eval wrote: rows by document."""
    (log,) = (DEMO / side).glob("samples_*.jsonl")
    return {row["doc"]["question"]: row for row in map(json.loads, log.read_text().splitlines())}


def test_compares_real_lm_eval_logs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_compare(DEMO / "before", f"tuned={DEMO / 'after'}", "--out", out)
    assert done.exit_code == 0, done.output
    results = json.loads((out / "results.json").read_text())
    before, after = read_demo_rows("before"), read_demo_rows("after")
    (tuned,) = results["models"]
    gained = [d for d in before if before[d]["pass@1"] < after[d]["pass@1"]]
    lost = [d for d in before if before[d]["pass@1"] > after[d]["pass@1"]]
    assert gained
    assert (tuned["gained"], tuned["lost"]) == (len(gained), len(lost))
    changed = len(gained) + len(lost)
    assert tuned["p"] == pytest.approx(stats.binomtest(len(gained), changed).pvalue)
    assert not any("Versions" in note["note"] for note in results["notes"])
    assert float(read_csv(out, "models")[0]["difference"]) == tuned["difference"]
    by_number = {str(row["doc_id"]): document for document, row in before.items()}
    items = read_csv(out, "items")
    assert len(items) == changed
    for item in items:
        document = by_number[item["doc_id"]]
        assert document in (gained if item["change"] == "gained" else lost)
        assert item["before"] == before[document]["resps"][0][0]
        assert item["after"] == after[document]["resps"][0][0]
        assert item["gold"] == before[document]["target"]
    index, texts = unpack_page(out / "explorer.html")
    assert len(texts) == len(before)
    for problem, item in zip(index["problems"], texts, strict=True):
        document = by_number[problem["id"]]
        passed = [rows[document]["pass@1"] for rows in (before, after)]
        assert problem["verdicts"] == ["right" if value else "wrong" for value in passed]
        assert problem["changes"] == [0, passed[1] - passed[0]]
        assert [item["gold"], *(response["text"] for response in item["responses"])] == [
            before[document]["target"],
            *(rows[document]["resps"][0][0] for rows in (before, after)),
        ]


def test_all_forms_have_the_same_numbers(tmp_path: Path) -> None:
    before, after = write_log(tmp_path / "a", [1] * 9), write_log(tmp_path / "b", [0, *[1] * 8])
    arguments = (before, f"b={after}", "--out", tmp_path / "out", "--overwrite")
    terminal, markdown, content = (
        run_compare(*arguments, "--format", form) for form in ("terminal", "markdown", "json")
    )
    assert json.loads(content.stdout) == json.loads((tmp_path / "out/results.json").read_text())
    assert markdown.stdout.startswith("# Comparison\n")
    assert "written:" in markdown.stderr
    page = (tmp_path / "out/comparison.html").read_text().replace("\xa0", " ")
    for text in (terminal.stdout, markdown.stdout, page):
        for part in ("100.0%", "88.9%", "−11.1 [−33.3, 0.0]", "1.000", "fewer than 30"):
            assert part in text, part
        for absent in ("Holm", "over seeds", "log-likelihoods"):
            assert absent not in text, "notes are about columns that are shown"
    assert (tmp_path / "out/figures/differences.svg").exists()


def test_shows_chosen_number_of_changed_documents(tmp_path: Path) -> None:
    rows_before = [row(n, 0 if n < 9 else 1) for n in range(11)]
    long_prompt = f"{'an example ' * 80}Question q3"
    rows_before[0]["arguments"] = {"gen_args_0": {"arg_0": long_prompt, "arg_1": {}}}
    before = write_log(tmp_path / "a", rows=rows_before)
    after = write_log(tmp_path / "b", rows=[row(n, 1 if n < 9 else 0) for n in range(11)])
    for show, gained, lost in ((None, 3, 2), (5, 5, 2), (0, 0, 0), (50, 9, 2)):
        done = run_compare(before, f"new={after}", *(() if show is None else ("--show", show)))
        assert done.output.count("gained: 0 to 1") == gained
        assert done.output.count("lost: 1 to 0") == lost
        assert done.output.count("\n prompt ") == gained + lost
    assert "example Question q3" in done.output, "the end of a long prompt has the question"


def test_long_texts_are_only_in_the_items(tmp_path: Path) -> None:
    texts = {"resps": [["x" * 200_000]], "arguments": {"gen_args_0": {"arg_0": "p" * 100_000}}}
    before = write_log(tmp_path / "a", rows=[row(n, 0, **texts) for n in range(60)])
    after = write_log(tmp_path / "b", rows=[row(n, 1, **texts) for n in range(60)])
    build_page(compare_logs(before, after, shown=100), written=True).write(tmp_path / "out")
    for page in ("comparison.md", "comparison.html"):
        assert (tmp_path / "out" / page).stat().st_size < 1_000_000
    assert (tmp_path / "out/tables/items.csv").stat().st_size > 60 * 200_000


def test_packed_logs_give_equal_results(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / side, [n] * 30 + [1] * 10) for n, side in enumerate("ab")]

    def read_without_paths() -> dict[str, Any]:
        results = read_results(compare_logs(tmp_path / "a", f"m={tmp_path / 'b'}"))
        for log in results["logs"]:
            del log["path"]
        return results

    plain = read_without_paths()
    for log in logs:
        log.with_name(f"{log.name}.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    assert read_without_paths() == plain, "its results file was found beside it"


def test_latest_selects_newest_log(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [0] * 8)
    for day, value in (("2026-02-01", 0), ("2026-11-01", 1), ("2026-09-30", 0)):
        write_log(tmp_path / "after", [value] * 8, date=f"{day}T00-00-00.1")
    read_refusal(before, tmp_path / "after")
    results = read_results(compare_logs(before, tmp_path / "after", latest=True))
    assert results["models"][0]["difference"] == 1
    assert "2026-11-01" in results["logs"][1]["path"]
    for copy in ("x", "y"):  # with the same date, so no log is the newest
        write_log(tmp_path / "twice" / copy, [1] * 8)
    read_refusal(before, tmp_path / "twice", "--latest")


def test_names_seeds_after_their_logs(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [0] * 6)
    for seed, values in ((2, [1] * 6), (10, [0] * 5 + [1])):
        date = f"2026-0{1 + seed % 9}-01T00-00-00.1"
        write_log(tmp_path / f"tuned_seed{seed}" / "model", values, date=date)
    comparison = compare_logs(before, f"tuned={tmp_path}/tuned_seed*")
    assert comparison.seeds == {"tuned": ["tuned_seed2", "tuned_seed10"]}, "2 before 10"
    build_page(comparison, written=True).write(tmp_path / "out")
    seeds = [item["seed"] for item in read_csv(tmp_path / "out", "items")]
    assert seeds == ["tuned_seed2"] * 6 + ["tuned_seed10"]
    index, _ = unpack_page(tmp_path / "out/explorer.html")
    assert [model["seed"] for model in index["models"]] == ["", "tuned_seed2", "tuned_seed10"]


def test_lower_is_better_has_no_losses(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [1, 1, 0], higher=False)
    comparison = compare_logs(before, write_log(tmp_path / "b", [0, 1, 0], higher=False))
    assert (read_model(comparison)["lower"], read_model(comparison)["test"]) == (1, "mcnemar")
    page = build_page(comparison).to_markdown()
    assert "lower: 1 to 0" in page
    assert "lower is better" in page
    assert "lost" not in page
    assert "−33.3" in page, "the difference is in points"


ENDINGS = {"c": "length", "s": "stop", "t": "stop_string", "?": "unknown"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("cccst?", ["cssstt", "ssssss"], {"before": 3 / 6, "new": 1 / 12}),
        ("???", ["ccs"], {"new": 2 / 3}),
        ("ccs", ["???"], {"before": 2 / 3}),
        ("???", ["???"], {}),
    ],
)
def test_shares_of_cut_responses(
    before: str, after: list[str], expected: dict[str, float], tmp_path: Path
) -> None:
    for name, endings in [("before", before), *((f"after{n}", e) for n, e in enumerate(after))]:
        rows = [row(i, i % 2, finish_reasons=[ENDINGS[e]]) for i, e in enumerate(endings)]
        write_log(tmp_path / name, rows=rows)
    comparison = compare_logs(tmp_path / "before", f"new={tmp_path}/after*")
    shares = read_results(comparison).get("cut", [])
    assert {share["model"]: share["cut"] for share in shares} == expected


HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]x[/] <script>alert(1)</script> \u202eevil | `a` \ud800"
FORGED = "x\n\ngapft: worse than before\x1b[2J"


def test_escapes_hostile_responses(tmp_path: Path) -> None:
    bad = {"resps": [[HOSTILE]], "target": HOSTILE, "doc": {"question": HOSTILE, "subject": "[b]|"}}
    before = write_log(tmp_path / "before", rows=[row(0, 0, **bad)])
    after = write_log(tmp_path / "after", rows=[row(0, 1, **bad)])
    done = run_compare(before, after, "--by", "subject", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "comparison.md").read_text()
    for text in (done.output, page):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "[red]x[/]" in done.output
    assert "[b]|" in done.output
    assert "| [b]\\| |" in page
    assert read_csv(tmp_path / "out", "items")[0]["before"] == HOSTILE.replace("\ud800", "\ufffd")


def test_names_cannot_forge_a_line(tmp_path: Path) -> None:
    rows = [row(i, 0, doc={"question": f"q{i}", "subject": FORGED}) for i in range(3)]
    before = write_log(tmp_path / "a", rows=rows)
    changed = [line | {"exact_match": 1, "doc_id": FORGED} for line in rows]
    done = run_compare(write_log(tmp_path / "b", rows=changed), before, "--by", "subject")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert not any(line.lstrip().startswith("gapft: worse") for line in lines)
    assert any("x gapft: worse than before␛[2J" in line for line in lines)
