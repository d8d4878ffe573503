"""A sampled deployment decode in search, states, evidence, audit and verification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import GREEDY, Response
from gapft_harness.core.streams import SampleStreams
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.run_directory.tables import read_judged, read_states
from gapft_harness.stages.verify.run import verify
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.pools import list_pool_tables

SAMPLED = {"temperature": 0.3, "top_p": 0.8, "top_k": 5}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path)


def search_letters(task: LettersTask, name: str, **search: object) -> Path:
    """Search pool and audit, and compute the states."""
    keep = {"keep": "first"}
    search = {"k": 4, **search}
    return task.run(name, ["states"], splits=("pool", "audit"), search=search, evidence=keep).path


def read_responses(table: Path) -> dict[tuple[str, int], Response]:
    return {(name, j.response.index): j.response for name, js in read_judged(table) for j in js}


def test_decode_is_sampled_apart_from_samples(task: LettersTask) -> None:
    search_letters(task, "r", deployment=SAMPLED)
    calls = [call for call in task.log("r") if "indices" in call]
    decodings = {tuple(call["indices"]): call["decodings"] for call in calls}
    assert decodings.keys() == {(GREEDY,), (0, 1, 2, 3)}
    for indices, of_call in decodings.items():
        values = {(d["do_sample"], d["temperature"], d["top_p"], d["top_k"]) for d in of_call}
        assert values == {(True, 0.3, 0.8, 5) if indices == (GREEDY,) else (True, 0.7, 0.95, 0)}


def test_only_its_seeds_differ_from_a_greedy_decode(task: LettersTask) -> None:
    """The recording sampler's responses depend on the index alone."""
    runs = {
        "greedy": search_letters(task, "greedy"),
        "sampled": search_letters(task, "sampled", deployment=SAMPLED),
    }
    for split in ("pool", "audit"):
        greedy, sampled = (
            read_responses(run / split / "responses.parquet") for run in runs.values()
        )
        streams = SampleStreams(0, "search", split)
        for (problem, index), response in sampled.items():
            (seed,) = streams.derive_seeds(problem, 1, (index,), samples_deployment=True)
            assert response == replace(greedy[problem, index], seed=seed)
        assert len({response.seed for response in sampled.values()}) == len(sampled)
        states = [[*read_states(run / f"states/{split}.parquet")] for run in runs.values()]
        assert states[0] == states[1]
    evidence = [read_evidence(*list_pool_tables(run)) for run in runs.values()]
    assert evidence[0] == evidence[1]
    problems, _, states = list_pool_tables(runs["greedy"])
    other_responses = runs["greedy"] / "audit/responses.parquet"
    with pytest.raises(GapftError, match="different problems"):
        read_evidence(problems, other_responses, states)
    for run in runs.values():
        assert not verify(run, task.plugins).differences


def test_seed_of_a_decode_does_not_change() -> None:
    """The numbers of a run with one sampled decode, since the first version."""
    streams = SampleStreams(0, "search", "audit")
    assert streams.derive_seeds("p", 1, (GREEDY, 0), samples_deployment=True) == (
        4117540167893895351,
        6294882950362318028,
    )


def test_logs_have_no_sampled_deployment(task: LettersTask) -> None:
    with pytest.raises(UserError, match="deployment and responses"):
        task.run("r", search={"deployment": SAMPLED, "responses": {"pool": ["r.jsonl"]}})
