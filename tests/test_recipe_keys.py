"""The effect of each recipe key, observed through the stages that read it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.run_directory.directory import RunDirectory
from tests.kit.recording_run import LettersTask, write_letters_task

#: Samples 0, 1 and 3 of each problem's four are right; sample 1 is the shortest.
K = {"k": 4}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path)


def read_rows(run: RunDirectory, table: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = pq.read_table(run.path / f"{table}.parquet").to_pylist()
    return records


def read_ids(run: RunDirectory, split: str = "pool") -> set[str]:
    return {row["problem_id"].rpartition("-")[0] for row in read_rows(run, f"{split}/problems")}


def list_decodings(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a log's distinct decodings: greedy first, then those of the samples."""
    distinct: list[dict[str, Any]] = []
    for call in log:
        distinct += [d for d in call.get("decodings", ()) if d not in distinct]
    return distinct


@pytest.mark.parametrize(
    "model",
    [
        {"start_tokens": 2},
        {"chat_template": True},
        {"chat_template": True, "system_instruction": "Brief."},
    ],
)
def test_model_keys_reach_the_sampler(task: LettersTask, model: dict[str, Any]) -> None:
    task.run("r", model={**model, "args": {"dtype": "float32"}})
    settings = task.log("r")[0]["settings"]
    assert settings["backend"] == "recording"
    assert settings["model_args"]["dtype"] == "float32"
    assert settings["chat_template"] is model.get("chat_template", False)
    assert settings["system_instruction"] == model.get("system_instruction")
    assert settings["start_tokens"] == model.get("start_tokens")


@pytest.mark.parametrize(
    ("key", "value"), [("temperature", 0.35), ("top_p", 0.6), ("top_k", 7), ("max_gen_toks", 5)]
)
def test_search_keys_reach_the_decoding_of_samples(task: LettersTask, key: str, value: Any) -> None:
    defaults = {"temperature": 0.7, "top_p": 0.95, "top_k": 0, "max_gen_toks": 12}
    task.run("r", search={**K, key: value})
    greedy, samples = list_decodings(task.log("r"))
    assert (greedy["do_sample"], samples["do_sample"]) == (False, True)
    assert {name: samples[name] for name in defaults} == {**defaults, key: value}
    length = value if key == "max_gen_toks" else 12
    assert greedy["max_gen_toks"] == length, "deployment and search share the length"


@pytest.mark.parametrize(("keep", "index"), [(None, 1), ("first", 0), ("last", 3)])
def test_evidence_keep_replaces_the_tasks_rule(
    task: LettersTask, keep: str | None, index: int
) -> None:
    run = task.run("r", ["states"], splits=("pool", "audit"), search=K, evidence={"keep": keep})
    assert run.task["keep"] == (keep or "shortest")
    assert {row["kept_index"] for row in read_rows(run, "states/pool")} == {index}
    assert {row["first_success"] for row in read_rows(run, "states/pool")} == {0}


@pytest.mark.parametrize(
    ("verifier", "passing"),
    [
        ({}, 3),
        ({"params": {"word": "!!!!"}}, 2),
        ({"name": "nothing"}, 0),
        ({"name": "contains", "params": {"word": "so"}}, 3),
    ],
)
def test_verifier_keys_replace_verifier_and_rule(
    task: LettersTask, verifier: dict[str, Any], passing: int
) -> None:
    """Samples 0, 1 and 3 of 4 are right, with 5, 3 and 4 exclamation marks."""
    run = task.run("r", search=K, verifier=verifier)
    passed = [row["status"] == "pass" for row in read_rows(run, "pool/responses")]
    assert sum(passed) == 24 * passing
    facts = run.task
    assert facts["verifier"] == verifier.get("name", "contains")
    own = {} if verifier.get("name") == "nothing" else {"word": ""}
    assert facts["verifier_params"] == {**own, **verifier.get("params", {})}


@pytest.mark.parametrize(("split", "other"), [("pool", "audit"), ("audit", "pool")])
def test_limits_select_problems_by_id_hash(task: LettersTask, split: str, other: str) -> None:
    both = ("pool", "audit")
    whole = task.run("whole", splits=both)
    sizes = {name: len(read_ids(whole, name)) for name in both}
    drawn = {
        n: read_ids(task.run(f"limit{n}", splits=(split,), data={f"{split}_limit": n}), split)
        for n in (3, 8, 15)
    }
    assert [len(drawn[n]) for n in drawn] == list(drawn)
    assert drawn[3] < drawn[8] < drawn[15] < read_ids(whole, split)
    for n, chosen in drawn.items():
        assert chosen != {f"{split}{i}" for i in range(n)}, "the first of the file are no draw"
    order = list(range(sizes[split]))
    random.Random(0).shuffle(order)
    task.write(split, order)
    again = task.run("again", splits=both, data={f"{split}_limit": 8})
    assert read_ids(again, split) == drawn[8]
    assert len(read_ids(again, other)) == sizes[other], "the other split's limit is its own"


def test_deduplicate_drops_repeats(task: LettersTask) -> None:
    task.write("pool", range(24), repeats=5)
    with_repeats = task.run("kept")
    dropped = task.run("dropped", data={"deduplicate": True})
    assert len(read_rows(with_repeats, "pool/problems")) == 29
    assert len(read_rows(dropped, "pool/problems")) == 24
    assert len({row["prompt"] for row in read_rows(dropped, "pool/problems")}) == 24
    assert "pool: 5 repeated problems dropped" in "\n".join(dropped.task["dropped"])
