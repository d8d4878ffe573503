"""``gapft gap RUN`` on runs with known answers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gapft_harness.analysis.power import find_detectable_effect
from gapft_harness.analysis.redistribution import NO_ANSWER
from gapft_harness.cli.main import app
from gapft_harness.gap.document import build_run_document
from gapft_harness.gap.findings import GapFindings, compute_findings
from gapft_harness.gap.prospects import Plan, Prospects, assess
from gapft_harness.gap.searched import SearchedRun
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.report.rendering.document import Document
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run

RECIPE = {"search": {}, "seeds": [13, 21, 73]}


def build_split(greedy: object, passed: object) -> Verdicts:
    return Verdicts.of(np.array(greedy, dtype=bool), np.array(passed, dtype=bool))


def count_recovered(split: Verdicts) -> int:
    return int((split.states == "S").sum())


def build_run(**splits: Verdicts) -> SearchedRun:
    k = next(iter(splits.values())).passed.shape[1]
    return SearchedRun("letters", "contains", k, splits, RECIPE)


def draw_split(problems: int, share: float, seed: int = 0, k: int = 8) -> Verdicts:
    """Draw problems whose greedy decode fails; samples of a ``share`` of them may pass."""
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(problems) < share, rng.beta(2, 3, problems), 0.0)
    return build_split(np.zeros(problems), rng.random((problems, k)) < p[:, None])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the real command, with its report."""
    folder = tmp_path_factory.mktemp("run")
    command = prepare_letters_run(folder)
    pool = folder / "tasks/pool.jsonl"
    pool.write_text("".join(pool.read_text().splitlines(keepends=True)[:24]))  # a small pool
    succeed(*command, "run", "--seed", 13, "--condition", "gapft", cwd=folder)
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def run_gap(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["gap", *map(str, arguments)])


def test_gap_matches_report_and_leaves_run_unchanged(
    finished: Path, run: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = run_gap(run, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    report = json.loads((finished / "report/results.json").read_text())
    results = json.loads((tmp_path / "out/results.json").read_text())
    for split, states in (
        ("pool", report["pool"]["states"]),
        ("audit", report["source"]["states"]),
    ):
        figures = results["splits"][split]
        assert figures["states"] == states
        assert figures["p_S"]["value"] == states["S"] / sum(states.values())
    measured = results["splits"]["audit"]["pass_at_k"]
    reported = report["source"]["pass_at_k"]
    assert {k: pytest.approx(measured[k]["value"]) for k in ("1", "2", "4")} == reported
    assert report["source"]["maj_at_k"] is results["splits"]["audit"]["maj_at_k"] is None
    assert any("audit: maj@K is not shown, since" in note for note in results["notes"])
    assert "maj@K is not shown, since" in (finished / "report/report.md").read_text()
    assert any(note.startswith("warning: pool: 24 problems") for note in results["notes"])
    for page in ("gap.html", "gap.md"):
        assert "Pass@4" in (tmp_path / "out" / page).read_text()


def test_needs_only_finished_search(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    names = [name for name in manifest["files"] if "responses" in name or "problems" in name]
    manifest["files"] = {name: manifest["files"][name] for name in names}
    manifest |= {"training": {}, "budgets": {}, "stages": {}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    for name in ("selections", "adapters", "decisions", "scaled", "report"):
        shutil.rmtree(run / name, ignore_errors=True)
    (run / "pool/states.parquet").unlink()
    done = run_gap(run)
    assert done.exit_code == 0, done.output


def build_document(run: SearchedRun, **choice: object) -> Document:
    return build_run_document(run, compute_split_findings(run), assess_run(run, **choice))


def compute_split_findings(run: SearchedRun) -> dict[str, GapFindings]:
    return {name: compute_findings(split) for name, split in run.splits.items()}


def assess_run(run: SearchedRun, **choice: object) -> Prospects | None:
    return assess(Plan(**choice), compute_split_findings(run), len(run.recipe["seeds"]))  # type: ignore[arg-type]


def get_answer(run: SearchedRun, **choice: object) -> str:
    prospects = assess_run(run, **choice)
    assert prospects is not None
    return prospects.verdict.answer


def test_advises_against_training_without_recoverable_problems() -> None:
    none = build_run(pool=build_split([0] * 40, np.zeros((40, 8))))
    assert get_answer(none, items=40) == "not worth training"
    everything = build_run(audit=build_split([1] * 40, np.ones((40, 8))))
    assert get_answer(everything) == "not worth training"


def test_advice_matches_published_cases() -> None:
    """LogiQA 2.0, 1,367 items, 3 seeds, K = 8: p_S of 2.1% and of a quarter of the audit."""

    def build_case(recovered: int, solved: int) -> SearchedRun:
        greedy = np.arange(1367) < solved
        passed = np.zeros((1367, 8), bool)
        passed[solved : solved + recovered, 0] = True
        return build_run(audit=build_split(greedy, passed))

    assert get_answer(build_case(29, 937)) == "not worth training"
    assert get_answer(build_case(362, 688)) == "worth training"
    assert get_answer(build_case(60, 800)) == "may be too little to see"
    least = find_detectable_effect(seeds=3, items=1367, discordance=331 / 1367)
    assert build_document(build_case(362, 688)).results["prospects"]["detectable"][3] == least


def test_votes_need_answers_of_all_samples() -> None:
    split = draw_split(60, 0.6, 1)
    answers = np.where(split.passed, 0, 1 + np.arange(8))
    voted = replace(split, answers=answers)
    (figures,) = build_document(build_run(audit=voted)).results["splits"].values()
    assert figures["maj_at_k"].keys() == {"8"}
    assert figures["maj_at_k"]["8"]["value"] < figures["pass_at_k"]["8"]["value"]
    assert "maj@8" in build_document(build_run(audit=voted)).to_markdown()
    for silent in (split, replace(split, answers=np.full_like(answers, NO_ANSWER))):
        document = build_document(build_run(audit=silent))
        assert document.results["splits"]["audit"]["maj_at_k"] is None
        assert "maj@8" not in document.to_markdown()
        assert any("no answer was extracted" in note for note in document.results["notes"])


def test_requires_audit_size_without_audit() -> None:
    """The pool's size does not replace the audit's: 2,000 items show more than 300."""
    alone = build_run(pool=draw_split(2000, 0.1))
    assert assess_run(alone) is None
    assert "--items" in build_document(alone).to_markdown()
    assert get_answer(alone, items=300) != get_answer(alone, items=30_000)


def test_result_keys_are_documented(run: Path, tmp_path: Path) -> None:
    assert run_gap(run, "--out", tmp_path).exit_code == 0
    page = (Path(__file__).parents[2] / "docs/gap.md").read_text("utf-8")
    for key in json.loads((tmp_path / "results.json").read_text()):
        assert f"`{key}`" in page, key
