"""The whole study at its smallest size: policies, runs, nulls, and what is told of them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from controlled_study.__main__ import main
from controlled_study.driver import SLOTS, run_folder, slots_of
from controlled_study.outcome.predictions import tell
from controlled_study.outcome.readings import read_run
from controlled_study.pretrain import FACTS
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from tests.command import gapft

pytestmark = pytest.mark.xdist_group("study")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seed of the smallest study, its main run and the null of permuted answers."""
    folder = tmp_path_factory.mktemp("study")
    words = ["run", "--size", "tiny", "--out", str(folder), "--seeds", "0", "--parallel", "1"]
    assert main([*words, "--only", "main", "permuted"]) == 0
    return folder


def test_its_tasks_can_be_had_alone(study: Path, tmp_path: Path) -> None:
    assert main(["tasks", "--size", "tiny", "--out", str(tmp_path / "tasks")]) == 0
    made, own = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (tmp_path / "tasks", study / "tasks")
    )
    assert made == own


def test_a_study_is_run_and_told(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(study), "--out", str(study / "outcome")]) == 0
    said, told = capsys.readouterr()
    outcome = json.loads((study / "outcome" / "outcome.json").read_text())
    assert outcome["size"] == "tiny"
    assert [each["number"] for each in outcome["predictions"]] == list(range(1, 8))
    # one pre-training seed of six, so nothing is told
    assert {each["outcome"] for each in outcome["predictions"]} == {"unfinished"}
    assert not outcome["decides"]
    for run, seeds in (("main", "1, 2, 3, 4, 5"), ("luck", "0, 1, 2, 3, 4, 5")):
        line = f"pre-training seed {seeds}: the run {run} is not finished; missing for prediction"
        assert line in told
        assert line in said
    assert (study / "outcome" / "outcome.md").read_text() in said


def test_what_is_read_is_what_the_harness_reports(study: Path) -> None:
    folder = run_folder(study, 0, "main")
    run = read_run(folder)
    assert run is not None
    results = json.loads((folder / "report" / "results.json").read_text())
    assert run.n == slots_of(folder, gold=True) > 0
    for name, condition in results["conditions"].items():
        assert run.passed[name].mean() == pytest.approx(condition["pass_at_1"])
        assert (run.sound[name] <= run.passed[name]).all()
        matched = name != "all_verified"
        assert condition["matched_budget"] == matched
        for seed in condition["seeds"].values():
            assert (seed["budget"]["n"] == run.n) == matched
    contrasts = {(each["a"], each["b"]): each for each in results["contrasts"]}
    for other in ("uniform", "gold", "repetition"):
        expected = 100 * contrasts["gapft", other]["delta"]
        assert run.gain("gapft", other) == pytest.approx(expected)
    assert results["source"]["states"] == {s: int((run.audit.state == s).sum()) for s in "GSU"}


def test_gold_labels_are_the_worked_responses_of_missed_problems(study: Path) -> None:
    from gapft_harness.run_directory.tables import read_examples, read_problems

    folder = run_folder(study, 0, "main")
    documents = {p.id: p.document for p, _ in read_problems(folder / "pool" / "problems.parquet")}
    examples = read_examples(folder / "selections" / "gold-seed13.parquet")
    assert {example.state for example in examples} == {"U"}
    for example in examples:
        assert list(example.response_ids) == documents[example.problem_id]["solution_ids"]
        assert example.ended


def test_repetition_has_half_of_gapfts_problems_twice(study: Path) -> None:
    from gapft_harness.run_directory.tables import read_examples

    folder = run_folder(study, 0, "main") / "selections"
    gapft, twice = (
        Counter(example.problem_id for example in read_examples(folder / f"{name}-seed13.parquet"))
        for name in ("gapft", "repetition")
    )
    assert set(gapft.values()) == {1}
    assert set(twice.values()) == {2}
    assert twice.total() == gapft.total()
    assert twice.keys() < gapft.keys()


def test_it_goes_on_where_it_stopped_and_does_nothing_twice(study: Path) -> None:
    folder = run_folder(study, 0, "main")
    policy = study / "seed-0" / "policy-mixed"
    facts = json.loads((policy / FACTS).read_text())
    assert facts["steps"] > 0
    assert sum(facts["examples"].values()) == facts["steps"] * 32
    before = {path: sha256(path) for path in folder.rglob("*.parquet")}
    weights = sha256(policy / "model.safetensors")
    shutil.rmtree(folder / "report")
    words = ["run", "--size", "tiny", "--out", str(study), "--seeds", "0", "--only", "main"]
    assert main(words) == 0
    assert (folder / "report" / "results.json").exists()
    assert {path: sha256(path) for path in folder.rglob("*.parquet")} == before
    assert sha256(policy / "model.safetensors") == weights


def test_a_run_can_be_verified(study: Path) -> None:
    folder = run_folder(study, 0, "main")
    done = gapft("verify", str(folder), "--plugin", "controlled_study/plugin.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_answers_of_the_null_belong_to_no_problem(study: Path) -> None:
    main_run, null = (read_run(run_folder(study, 0, name)) for name in ("main", "permuted"))
    assert main_run is not None
    assert null is not None
    assert set(null.passed) == {"gapft", "uniform", "replay"} or null.n == 0
    few = np.isin(null.audit.family, ["mod", "depth", "parity"])
    assert null.audit.solved[~few].mean() < 0.1


def test_another_size_in_the_same_folder_is_refused(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--size", "small", "--out", str(study)]) == 2
    assert "holds a study of size tiny, expected small" in capsys.readouterr().err


def test_a_changed_file_is_refused(study: Path, tmp_path: Path) -> None:
    copy = tmp_path / "main"
    shutil.copytree(run_folder(study, 0, "main"), copy)
    path = copy / "decisions" / "gapft-seed13.parquet"
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(UserError, match="was changed"):
        read_run(copy)


def test_a_run_with_nothing_to_train_on_is_told_as_such(study: Path, tmp_path: Path) -> None:
    copy = tmp_path / "permuted"
    shutil.copytree(run_folder(study, 0, "permuted"), copy)
    (copy / SLOTS).write_text('{"n": 0}')
    null, whole = read_run(copy), read_run(run_folder(study, 0, "main"))
    assert null is not None
    assert whole is not None
    assert null.passed == {}
    permuted = tell({0: {"main": whole, "permuted": null}})[6].figures[0]
    assert permuted.missing[0] == "the run permuted had nothing to train on (n = 0)"
