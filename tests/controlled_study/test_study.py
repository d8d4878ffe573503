"""The whole study at its smallest size: policy, runs, nulls, matched arms, what is told."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlled_study.__main__ import main
from controlled_study.driver import run_folder
from controlled_study.outcome import read_study
from controlled_study.plugin import CALIPER, pairs
from gapft_harness.core.files import sha256
from gapft_harness.run_directory.tables import read_examples, read_problems
from tests.command import gapft

pytestmark = pytest.mark.xdist_group("study")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seed of the smallest study."""
    folder = tmp_path_factory.mktemp("study")
    words = ["run", "--size", "tiny", "--out", str(folder), "--seeds", "4", "--parallel", "1"]
    assert main(words) == 0
    return folder


def documents(study: Path) -> dict[str, dict[str, Any]]:
    path = run_folder(study, 4, "main") / "pool" / "problems.parquet"
    return {problem.id: dict(problem.document) for problem, _ in read_problems(path)}


def examples(study: Path, arm: str) -> list[Any]:
    return list(read_examples(run_folder(study, 4, "main") / "selections" / f"{arm}.parquet"))


def test_a_study_of_one_policy_is_read_and_nothing_is_told(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(study)]) == 0
    assert "**Unfinished**: 1 of 12 policies are finished" in capsys.readouterr().out
    size, found = read_study(study)
    assert size == "tiny"
    assert set(found) == {4}
    assert set(found[4]) == {"main", "permuted", "luck"}
    assert set(found[4]["luck"]["conditions"]) == {"gapft", "uniform", "replay"}


def test_every_problem_has_the_policys_own_probability_of_its_right_response(study: Path) -> None:
    import torch
    from transformers import LlamaForCausalLM

    from controlled_study import tokens

    model = LlamaForCausalLM.from_pretrained(study / "seed-4" / "policy", dtype=torch.float32)
    end = tokens.tokenizer().eos_token_id
    for document in list(documents(study).values())[:20]:
        prompt = tokens.tokenizer().encode(document["question"])
        ids = [*prompt, *document["solution_ids"], end]
        with torch.inference_mode():
            steps = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        expected = sum(steps[at - 1, ids[at]].item() for at in range(len(prompt), len(ids)))
        assert document["p"] == pytest.approx(math.exp(expected), rel=1e-3)


def test_matched_arms_have_one_family_and_probability_in_pairs_and_worked_responses(
    study: Path,
) -> None:
    known = documents(study)
    for left, right, states in (("S_as_G", "G_as_S", "SG"), ("S_as_U", "U_as_S", "SU")):
        for seed in (0, 1):
            one, other = (
                examples(study, f"{left}-seed{seed}"),
                examples(study, f"{right}-seed{seed}"),
            )
            for state, side in zip(states, (one, other), strict=True):
                assert {example.state for example in side} == {state}
                assert len({example.problem_id for example in side}) == len(side)
                for example in side:
                    solution = known[example.problem_id]["solution_ids"]
                    assert list(example.response_ids) == solution
                    assert example.ended
            families = [
                Counter(known[e.problem_id]["family"] for e in side) for side in (one, other)
            ]
            assert families[0] == families[1]
            logits = [
                sorted(
                    (known[e.problem_id]["family"], math.log(p / (1 - p)))
                    for e in side for p in [known[e.problem_id]["p"]]
                )
                for side in (one, other)
            ]  # fmt: skip
            for (_, a), (_, b) in zip(*logits, strict=True):
                assert abs(a - b) <= CALIPER + 1e-9


@given(seed=st.integers(0, 10_000))
def test_pairs_are_as_many_as_there_can_be(seed: int) -> None:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    rng = Random(seed)

    def some(state: str) -> list[Any]:
        return [
            SimpleNamespace(
                problem_id=f"{state}{i}",
                document={"family": rng.choice("ab"), "p": rng.uniform(0.05, 0.95)},
            )
            for i in range(rng.randrange(1, 15))
        ]

    def logit(e: Any) -> float:
        return math.log(e.document["p"] / (1 - e.document["p"]))

    one, other = some("S"), some("G")
    found = pairs(one, other)
    for side in (0, 1):
        assert len({pair[side].problem_id for pair in found}) == len(found)
    fits = np.array(
        [
            [
                a.document["family"] == b.document["family"] and abs(logit(a) - logit(b)) <= CALIPER
                for b in other
            ]
            for a in one
        ]
    )
    for a, b in found:
        assert fits[one.index(a), other.index(b)]
    assert len(found) == (maximum_bipartite_matching(csr_matrix(fits)) >= 0).sum()


def test_the_grouped_uniform_draw_has_gapfts_groups(study: Path) -> None:
    known = documents(study)
    gapft_groups, grouped = (
        Counter(known[e.problem_id]["group"] for e in examples(study, f"{name}-seed0"))
        for name in ("gapft", "uniform_grouped")
    )
    assert gapft_groups == grouped
    assert {e.state for e in examples(study, "uniform_grouped-seed0")} <= {"G", "S"}


def test_gold_labels_are_the_worked_responses_of_missed_problems(study: Path) -> None:
    known, found = documents(study), examples(study, "gold-seed0")
    assert {example.state for example in found} == {"U"}
    for example in found:
        assert list(example.response_ids) == known[example.problem_id]["solution_ids"]


def test_it_goes_on_where_it_stopped_and_does_nothing_twice(study: Path) -> None:
    folder = run_folder(study, 4, "main")
    weights = study / "seed-4" / "policy" / "model.safetensors"
    before = {path: sha256(path) for path in [*folder.rglob("*.parquet"), weights]}
    shutil.rmtree(folder / "report")
    assert main(["run", "--size", "tiny", "--out", str(study), "--seeds", "4"]) == 0
    assert (folder / "report" / "results.json").exists()
    assert {path: sha256(path) for path in before} == before


@pytest.mark.parametrize("run", ["main", "permuted", "luck"])
def test_every_run_can_be_verified(study: Path, run: str) -> None:
    folder = run_folder(study, 4, run)
    done = gapft("verify", str(folder), "--plugin", "controlled_study/plugin.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_size_in_the_same_folder_is_refused(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--size", "small", "--out", str(study)]) == 2
    assert "holds a study of size tiny, expected small" in capsys.readouterr().err


def test_tasks_of_a_folder_without_a_policy_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", "--policy", str(tmp_path), "--out", str(tmp_path / "tasks")]) == 2
    assert "holds no pretrain.json" in capsys.readouterr().err
