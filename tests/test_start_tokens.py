"""model.start_tokens sets the start tokens of search, training and audit."""

from __future__ import annotations

import json
import shutil
from itertools import takewhile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_budgets, read_source
from gapft_harness.training.plan import build_training_prompt
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.plugins import write_plugin
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

PAD, BOS = 0, 1

#: Records each model input with its caller: the source, an arm or training. A sampler sends the
#: common beginning of all prompts first, then the rest of each.
SEEN = """
import json
import os

import torch

WHO = []
SHARED = []


def write(rows):
    with open(os.environ["SEEN"], "a") as file:
        file.writelines(json.dumps([WHO[-1], row]) + "\\n" for row in rows)


def see(module, args):
    if isinstance(module, torch.nn.Embedding) and WHO[-1:] == ["training"]:
        write(args[0].reshape(-1, args[0].shape[-1]).tolist())


torch.nn.modules.module.register_module_forward_pre_hook(see)


def see_prompts(module, args, given):
    ids, before = given["input_ids"], given["past_key_values"].get_seq_length()
    mask = given["attention_mask"][:, -ids.shape[1]:].bool()
    rows = [row[own].tolist() for row, own in zip(ids, mask)]
    if before == 0:
        write(rows)
        SHARED[:] = rows[0]
    elif before == len(SHARED):
        write([SHARED + row for row in rows])


def seeing(settings, adapter):
    WHO.append("loading")
    made = HfSampler(settings, adapter)
    WHO.append(adapter.arm.name if adapter else "source")
    made._lm.model.register_forward_pre_hook(see_prompts, with_kwargs=True)
    return made


def training(job):
    WHO.append("training")
    return train_lora(job)
"""

PLUGINS = ("--plugin", "plugin.py", "--plugin", "seen.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a run; the recipe does not set the number of start tokens."""
    folder = tmp_path_factory.mktemp("start_tokens")
    prepare_letters_run(folder)
    shutil.rmtree(folder / "model")
    write_byte_llama(folder / "model", chat_template=CHAT_TEMPLATE, add_bos=True)
    samplers, trainers = ['"seeing", seeing, start_tokens=True'], ['"seen", training']
    write_plugin(folder / "seen.py", SEEN, samplers=samplers, trainers=trainers)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content |= {"conditions": ["gapft"], "seeds": [13], "executor": {"workers": 1}}
    content["training"] |= {"trainer": "seen", "repetitions": 1}
    content["model"] |= {"backend": "seeing", "chat_template": True}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    return folder


def record_run(folder: Path, name: str, *more: str) -> dict[str, list[list[int]]]:
    """Make a run; return the recorded inputs by caller, without padding."""
    log = folder / f"{name}.seen"
    succeed(
        "run", "recipe.yaml", "--include-path", "tasks", *PLUGINS, "--run-dir", name, *more,
        cwd=folder, env={"SEEN": str(log), "GAPFT_STORE": str(folder / f"{name}.store")},
    )  # fmt: skip
    seen: dict[str, list[list[int]]] = {}
    for line in log.read_text().splitlines():
        who, row = json.loads(line)
        seen.setdefault(who, []).append([token for token in row if token != PAD])
    return seen


@pytest.fixture(scope="module")
def run_with_two(folder: Path) -> dict[str, list[list[int]]]:
    return record_run(folder, "two", "--set", "model.start_tokens=2")


def count_start_tokens(rows: list[list[int]]) -> set[int]:
    """Return the numbers of start tokens with which rows begin."""
    return {len(list(takewhile(BOS.__eq__, row))) for row in rows}


def test_model_sees_two_start_tokens_everywhere(
    folder: Path, run_with_two: dict[str, list[list[int]]]
) -> None:
    assert {who: count_start_tokens(rows) for who, rows in run_with_two.items()} == {
        "source": {2}, "training": {2}, "gapft-seed13": {2},
    }  # fmt: skip
    pool = pq.read_table(folder / "two" / "pool" / "problems.parquet")["prompt_ids"].to_pylist()
    assert count_start_tokens(pool) == {2}
    recorded = {tuple(ids) for ids in pool}
    chosen = pq.read_table(folder / "two" / "selections" / "gapft-seed13.parquet")
    trained = {tuple(ids) for ids in chosen["prompt_ids"].to_pylist()}
    assert trained <= recorded, "training uses the ids that the generator saw"
    seen = [tuple(row) for row in run_with_two["training"]]
    assert all(any(row[: len(ids)] == ids for ids in trained) for row in seen)
    source = read_source(RunDirectory.open(folder / "two"))
    assert source["start_ids"] == [BOS, BOS]
    succeed("verify", "two", *PLUGINS, cwd=folder, env={"SEEN": str(folder / "verify.seen")})


def test_training_prompt_may_have_another_number(
    folder: Path, run_with_two: dict[str, list[list[int]]]
) -> None:
    """The older protocol: the source's inputs and responses equal the main protocol's."""
    options = ("--set", "model.start_tokens=2", "--set", "training.start_tokens=1")
    seen = record_run(folder, "older", *options)
    assert {who: count_start_tokens(rows) for who, rows in seen.items()} == {
        "source": {2}, "training": {1}, "gapft-seed13": {2},
    }  # fmt: skip
    assert seen["source"] == run_with_two["source"]
    for table in ("pool/responses", "audit/responses", "states/pool", "selections/gapft-seed13"):
        main, older = (folder / run_name / f"{table}.parquet" for run_name in ("two", "older"))
        assert pq.read_table(main).equals(pq.read_table(older)), table
    assert {(BOS, *row) for row in seen["training"]} == {
        tuple(row) for row in run_with_two["training"]
    }
    main, older = (
        read_budgets(RunDirectory.open(folder / run_name))["gapft-seed13"]
        for run_name in ("two", "older")
    )
    assert main["tokens"] - older["tokens"] == main["exposures"], "one token less an exposure"
    succeed("verify", "older", *PLUGINS, cwd=folder, env={"SEEN": str(folder / "verify.seen")})


@given(st.lists(st.integers(2, 5)), st.integers(1, 2), st.integers(1, 2))
def test_training_prompt_keeps_text_after_start_tokens(
    text: list[int], seen: int, count: int
) -> None:
    settings = Training(start_tokens=count)
    prompt = build_training_prompt([BOS] * seen + text, settings)
    assert prompt == (*[BOS] * count, *text)
    assert build_training_prompt(prompt, settings) == prompt
    assert build_training_prompt(prompt, Training()) == prompt
