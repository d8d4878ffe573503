"""A sampled deployment decode: its repeats in search, states, evidence, audit and verification."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Response
from gapft_harness.gap.costs import estimate_costs
from gapft_harness.gap.prospects import Plan
from gapft_harness.gap.searched import read_run
from gapft_harness.importing.job import import_split
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.run_directory.recipe_changes import list_setting_changes
from gapft_harness.run_directory.tables import read_judged, read_states
from gapft_harness.stages.adding import add_run
from gapft_harness.stages.verify.run import verify
from gapft_harness.store.store import Store
from tests.command import succeed
from tests.recording_run import LettersTask, write_letters_task
from tests.training.letters import prepare
from tests.verify.tampering import change_rows

#: In the recording sampler, repeats -3 and -2 are right and -1 is wrong; of samples, 2 is wrong.
THREE = {"temperature": 0.3, "top_p": 0.8, "top_k": 5, "repeats": 3}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path)


def search_letters(task: LettersTask, name: str, solved: float = 0.5, **search: Any) -> Path:
    """Search pool and audit with three repeats, and compute the states."""
    search = {"k": 4, "deployment": {**THREE, "solved": solved}, **search}
    keep = {"keep": "first"}
    return task.run(name, ["states"], splits=("pool", "audit"), search=search, evidence=keep).path


def test_repeats_are_sampled_apart_from_samples(task: LettersTask) -> None:
    search_letters(task, "r")
    calls = [call for call in task.log("r") if "indices" in call]
    decodings = {tuple(call["indices"]): call["decodings"] for call in calls}
    assert decodings.keys() == {(-1, -2, -3), (0, 1, 2, 3)}
    for indices, of_call in decodings.items():
        values = {(d["do_sample"], d["temperature"], d["top_p"], d["top_k"]) for d in of_call}
        assert values == {(True, 0.3, 0.8, 5) if indices[0] < 0 else (True, 0.7, 0.95, 0)}


@pytest.mark.parametrize(
    ("solved", "state", "kept", "verified"),
    [
        (0.5, "G", -3, [-3, -2, 0, 1, 3]),
        (0.67, "S", 0, [0, 1, 3]),
        (0.66, "G", -3, [-3, -2, 0, 1, 3]),
    ],
)
def test_share_of_repeats_decides_state_and_evidence(
    task: LettersTask, solved: float, state: str, kept: int, verified: list[int]
) -> None:
    run = search_letters(task, "r", solved)
    for evidence in read_evidence(run, "pool"):
        assert (evidence.state, evidence.passing_samples) == (state, 3)
        assert evidence.response is not None
        assert evidence.response.index == kept
        assert [response.index for response in evidence.verified] == verified
        samples = [e.response.index for e, _ in evidence.each_sample() if e.response]
        assert samples == [0, 1, 2, 3]
        assert evidence.read_greedy is not None
        deployed = evidence.read_greedy(evidence.problem_id)
        assert deployed is not None
        assert deployed.index == -1
    assert not verify(run, task.plugins).differences


@pytest.mark.parametrize(("solved", "state", "drawn"), [(0.5, "G", 0), (1, "S", 1)])
def test_early_stop_follows_the_state(
    task: LettersTask, solved: float, state: str, drawn: int
) -> None:
    """A repeat that passes does not stop the samples of a problem that it does not solve."""
    run = search_letters(task, "r", solved, stop="first_pass")
    states = [*read_states(run / "pool/states.parquet")]
    assert {(row.state, row.samples) for row in states} == {(state, drawn)}
    assert {row.samples for row in read_states(run / "audit/states.parquet")} == {4}
    assert not verify(run, task.plugins).differences


def test_gap_counts_every_repeat(task: LettersTask) -> None:
    """Responses have the tokens that the recording sampler gives them by index."""
    run = read_run(search_letters(task, "r"))
    costs = estimate_costs(run, Plan())
    (tokens, items) = run.splits["audit"].tokens, 21
    assert tokens is not None
    assert tokens.deployed_responses == 3 * items
    assert costs.search.tokens is not None
    assert costs.audit.tokens == pytest.approx(costs.arms * tokens.deployed)
    assert run.splits["audit"].sizes == {"G": items, "S": 0, "U": 0}


def test_verification_rejects_forged_states(task: LettersTask, tmp_path: Path) -> None:
    run = Path(shutil.copytree(search_letters(task, "r"), tmp_path / "forged"))
    change_rows(run, "pool/states.parquet", lambda rows: rows[0].update(state="S", kept_index=0))
    differences = verify(run, task.plugins).differences
    assert any("state 'S'" in line and "'G'" in line for line in differences)
    text = (run / "recipe.yaml").read_text()
    assert "solved: 0.5" in text
    (run / "recipe.yaml").write_text(text.replace("solved: 0.5", "solved: 0.9"))
    assert any("'S'" in line for line in verify(run, task.plugins).differences)


def test_recipe_records_section_only_if_set(task: LettersTask) -> None:
    greedy = task.run("greedy", search={"k": 4}).recipe
    assert "deployment" not in greedy.model_dump()["search"]
    three, five = (
        task.run(str(r), search={"k": 4, "deployment": {**THREE, "repeats": r}}).recipe
        for r in (3, 5)
    )
    assert [line for line in list_setting_changes(three, five) if "search" in line] == [
        "search.deployment.repeats 3 → 5"
    ]


def test_import_refuses_sampled_deployment(task: LettersTask, tmp_path: Path) -> None:
    run = task.run("r", search={"k": 4, "deployment": THREE}).path
    choice = ImportChoice([str(tmp_path / "none.jsonl")]).to_arguments()
    with pytest.raises(UserError, match=r"search\.deployment"):
        import_split(str(run), "audit", choice, task.plugins)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained and audited run of three repeats, and a search of five repeats."""
    folder = tmp_path_factory.mktemp("deployment")
    options = [*prepare(folder)]
    for name, repeats, workers, stages in (
        ("three", 3, 1, ("search", "states", "select", "train", "audit")),
        ("five", 5, 2, ("search", "states")),
    ):
        deployment = f"search.deployment={{temperature: 1.2, repeats: {repeats}, solved: 0.3}}"
        settings = (deployment, "seeds=[13]", "conditions=[gapft]", f"executor.workers={workers}")
        succeed(
            *options, name, *(part for item in settings for part in ("--set", item)),
            *(part for stage in stages for part in ("--only", stage)),
            cwd=folder, env={"GAPFT_STORE": str(folder / f"{name}.store")},
        )  # fmt: skip
    return folder


def read_responses(table: Path) -> dict[tuple[str, int], Response]:
    return {(name, j.response.index): j.response for name, js in read_judged(table) for j in js}


def test_more_repeats_keep_responses_with_any_workers(trained: Path) -> None:
    """The two searches share no store, so every response was generated twice."""
    for table in ("pool/responses.parquet", "audit/responses.parquet"):
        three, five = (read_responses(trained / name / table) for name in ("three", "five"))
        assert {index for _, index in five} == {*range(-5, 4)}
        assert three == {key: response for key, response in five.items() if key[1] >= -3}
        seeds = [response.seed for response in five.values()]
        assert len({*seeds}) == len(seeds), "every response has its own stream"


def test_adapters_are_audited_with_repeats(trained: Path) -> None:
    run, plugins = trained / "three", [str(trained / "plugin.py")]
    decisions = read_responses(run / "decisions/gapft-seed13.parquet")
    assert {index for _, index in decisions} == {-3, -2, -1}
    assert len(decisions) == 3 * 40
    assert len({response.seed for response in decisions.values()}) == len(decisions)
    assert verify(run, plugins).differences == []
    added = add_run(run, Store(trained / "added"), plugins)
    assert not added.left_out
    assert added.responses == (60 + 40) * (3 + 4) + 40 * 3


def test_verification_rejects_missing_repeats(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "three", tmp_path / "three"))
    change_rows(run, "decisions/gapft-seed13.parquet", lambda rows: rows.pop(1))
    lines = verify(run, [str(trained / "plugin.py")]).differences
    assert any("gapft-seed13" in line and "[-3, -2, -1]" in line for line in lines)
