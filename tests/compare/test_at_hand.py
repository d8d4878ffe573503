"""``gapft compare`` for its user: output, choice of logs, and files that are kept."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.document import FILES
from gapft_harness.compare.document import write_comparison as write_files
from gapft_harness.compare.items import build_explored
from tests.compare.command import read_refusal, run_compare
from tests.compare.logs import row, write_log


def test_shows_prompts_of_changed_documents(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0] * 9 + [1] * 2)
    long_prompt = f"{'an example ' * 40}Question q3"
    rows_after = [row(n, 1 if n < 9 else 0) for n in range(11)]
    rows_before = [row(n, 0 if n < 9 else 1) for n in range(11)]
    rows_before[0]["arguments"] = {"gen_args_0": {"arg_0": long_prompt, "arg_1": {}}}
    before = write_log(tmp_path / "a", rows=rows_before)
    after = write_log(tmp_path / "b", rows=rows_after)
    for show, gained, lost in ((None, 3, 2), (5, 5, 2), (0, 0, 0), (50, 9, 2)):
        done = run_compare(before, f"new={after}", *(() if show is None else ("--show", show)))
        assert done.exit_code == 0, done.output
        assert f"{gained} of 9 gained and {lost} of 2 lost" in done.output
        assert ("--show N shows more" in done.output) == (show != 50)
        assert done.output.count("prompt: ") == gained + lost
        if show is None:
            assert "example Question q3" in done.output, (
                "the end of a long prompt contains the question"
            )
            assert "prompt: Question q1\n" in done.output


def test_warns_about_self_comparison(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0, 1] * 4)
    copied = write_log(tmp_path / "b", [0, 1] * 4)
    other = write_log(tmp_path / "c", [1, 1] * 4)
    for after, warning in (
        (before, "is BEFORE compared with itself"),
        (tmp_path / "a", "is BEFORE compared with itself"),
        (copied, "has an identical log"),
    ):
        output = " ".join(run_compare(before, f"again={after}").output.split())
        assert f"warning: again {warning}" in output
    assert "warning" not in run_compare(before, other).output


def test_keeps_earlier_comparison_without_overwrite(tmp_path: Path) -> None:
    before, after = write_log(tmp_path / "a", [0, 1]), write_log(tmp_path / "b", [1, 1])
    out = tmp_path / "out"
    assert run_compare(before, after, "--out", out).exit_code == 0
    contents = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {*contents} == {*FILES}
    assert "comparison.html" in read_refusal(before, before, "--out", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == contents
    assert run_compare(before, before, "--out", out, "--overwrite").exit_code == 0
    assert json.loads((out / "results.json").read_text())["before"]["mean"] == 0.5
    (out / "comparison.html").unlink()
    assert "comparison.md" in read_refusal(before, after, "--out", out)


def test_latest_selects_newest_log(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [0] * 8)
    for day, value in (("2026-02-01", 0), ("2026-11-01", 1), ("2026-09-30", 0)):
        write_log(tmp_path / "after", [value] * 8, date=f"{day}T00-00-00.1")
    read_refusal(before, tmp_path / "after")
    done = run_compare(before, tmp_path / "after", "--latest", "--out", tmp_path / "out")
    assert done.exit_code == 0, (done.output, done.exception)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (model,) = results["models"].values()
    assert model["difference"] == 1
    assert "2026-11-01" in model["logs"][0][0]
    for copy in ("x", "y"):  # with the same date, so no log is the newest
        write_log(tmp_path / "twice" / copy, [1] * 8)
    read_refusal(before, tmp_path / "twice", "--latest")


def test_reads_gzipped_logs(tmp_path: Path) -> None:
    sides = {}
    for side, values in (("a", [0] * 30 + [1] * 10), ("b", [1] * 40)):
        log = write_log(tmp_path / side, values)
        packed = tmp_path / f"{side}z" / f"{log.name}.gz"
        packed.parent.mkdir()
        packed.write_bytes(gzip.compress(log.read_bytes()))
        (packed.parent / f"results_{log.name[12:-6]}.json").write_bytes(
            next(log.parent.glob("results_*.json")).read_bytes()
        )
        sides[side] = log
    out, packed_out = tmp_path / "out", tmp_path / "outz"
    assert run_compare(sides["a"], f"m={sides['b']}", "--out", out).exit_code == 0
    done = run_compare(tmp_path / "az", f"m={tmp_path / 'bz'}", "--out", packed_out)
    assert done.exit_code == 0, (done.output, done.exception)
    assert (out / "items.csv").read_text() == (packed_out / "items.csv").read_text()
    plain, packed_results = (
        json.loads((o / "results.json").read_text()) for o in (out, packed_out)
    )
    assert plain["models"]["m"]["p"] == packed_results["models"]["m"]["p"]
    assert packed_results["notes"] == plain["notes"], "its results file was found beside it"


def test_names_seeds_after_their_logs(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [0] * 6)
    for seed, values in ((2, [1] * 6), (10, [0] * 5 + [1])):
        write_log(
            tmp_path / f"tuned_seed{seed}" / "model",
            values,
            date=f"2026-0{1 + seed % 9}-01T00-00-00.1",
        )
    comparison = compare(str(before), [f"tuned={tmp_path}/tuned_seed*"], CompareChoice())
    assert comparison.seeds == {"tuned": ["tuned_seed2", "tuned_seed10"]}, "2 before 10"
    assert [model.seed for model in build_explored(comparison).models] == [
        "tuned_seed2",
        "tuned_seed10",
    ]
    write_files(comparison, tmp_path / "out")
    with (tmp_path / "out" / "items.csv").open(newline="") as file:
        items = list(csv.DictReader(file))
    assert [item["seed_name"] for item in items] == ["tuned_seed2"] * 6 + ["tuned_seed10"]
    assert "(tuned, seed tuned_seed2)" in (tmp_path / "out" / "comparison.md").read_text()


def test_sorts_groups_naturally(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        row(n, 0, doc={"question": f"q{n}", "part": f"c{n}"}) for n in range(12)
    ]
    before = write_log(tmp_path / "a", rows=rows)
    comparison = compare(
        str(before), [str(write_log(tmp_path / "b", rows=rows))], CompareChoice(by="part")
    )
    assert [*comparison.findings.groups] == [f"c{n}" for n in range(12)]


@pytest.mark.parametrize("show", [3, 10_000])
def test_limits_page_size(tmp_path: Path, show: int) -> None:
    texts = {"resps": [["x" * 200_000]], "arguments": {"gen_args_0": {"arg_0": "p" * 100_000}}}
    before = write_log(tmp_path / "a", rows=[row(n, 0, **texts) for n in range(60)])
    after = write_log(tmp_path / "b", rows=[row(n, 1, **texts) for n in range(60)])
    out = tmp_path / "out"
    write_files(compare(str(before), [str(after)], CompareChoice(shown=show)), out)
    for page in ("comparison.md", "comparison.html"):
        assert (out / page).stat().st_size < 1_000_000
        assert "are in items.csv and explorer.html" in (out / page).read_text()
    assert (out / "items.csv").stat().st_size > 60 * 200_000, "items.csv keeps the complete texts"
