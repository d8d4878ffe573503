"""model.start_tokens: the model sees exactly so many in search, training and audit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Decoding
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer, replace_start_ids
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recording import require_same_model
from gapft_harness.stages.verify.run import verify
from gapft_harness.training.plan import build_training_prompt
from tests.asking import generate_all, request_for
from tests.command import gapft, succeed
from tests.tiny_models import CHAT_TEMPLATE, byte_llama
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest, seal_again

pytestmark = pytest.mark.xdist_group("start_tokens")

PAD, BOS = 0, 1

#: What a model is given is written down, with who asked: the source, an arm, training. A sampler
#: gives it what all prompts begin with, and then the rest of each.
SEEN = """
import json
import os

import torch

from gapft_harness.api import hookimpl, train_lora
from gapft_harness.plugins.samplers.lm_eval_models import hf

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
    made = hf(settings, adapter)
    WHO.append(adapter.arm.name if adapter else "source")
    made._lm.model.register_forward_pre_hook(see_prompts, with_kwargs=True)
    return made


def training(job):
    WHO.append("training")
    return train_lora(job)


@hookimpl
def register_samplers(register):
    register("seeing", seeing, start_tokens=True)


@hookimpl
def register_trainers(register):
    register("seen", training)
"""

PLUGINS = ("--plugin", "plugin.py", "--plugin", "seen.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a run whose model has a start token, but for its number."""
    folder = tmp_path_factory.mktemp("start_tokens")
    prepare(folder)
    shutil.rmtree(folder / "model")
    byte_llama(folder / "model", chat_template=CHAT_TEMPLATE, add_bos=True)
    (folder / "seen.py").write_text(SEEN)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content |= {"conditions": ["gapft"], "seeds": [13], "executor": {"workers": 1}}
    content["training"] |= {"trainer": "seen", "repetitions": 1}
    content["model"] |= {"backend": "seeing", "chat_template": True}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    return folder


def run(folder: Path, name: str, *more: str) -> dict[str, list[list[int]]]:
    """Makes a run; what was seen in it, by who asked, padding removed."""
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
def two(folder: Path) -> dict[str, list[list[int]]]:
    return run(folder, "two", "--set", "model.start_tokens=2")


def starts(rows: list[list[int]]) -> set[int]:
    """With how many start tokens rows begin."""
    return {len(list(takewhile(BOS.__eq__, row))) for row in rows}


def test_the_model_sees_two_in_search_training_and_audit(
    folder: Path, two: dict[str, list[list[int]]]
) -> None:
    assert {who: starts(rows) for who, rows in two.items()} == {
        "source": {2}, "training": {2}, "gapft-seed13": {2},
    }  # fmt: skip
    pool = pq.read_table(folder / "two" / "pool" / "problems.parquet")["prompt_ids"].to_pylist()
    assert starts(pool) == {2}
    recorded = {tuple(ids) for ids in pool}
    chosen = pq.read_table(folder / "two" / "selections" / "gapft-seed13.parquet")
    trained = {tuple(ids) for ids in chosen["prompt_ids"].to_pylist()}
    assert trained <= recorded, "training uses the ids that the generator saw"
    seen = [tuple(row) for row in two["training"]]
    assert all(any(row[: len(ids)] == ids for ids in trained) for row in seen)
    source = json.loads((folder / "two" / "manifest.json").read_text())["source"]
    assert source["start_ids"] == [BOS, BOS]
    succeed("verify", "two", *PLUGINS, cwd=folder, env={"SEEN": str(folder / "verify.seen")})


def test_it_sees_one_where_the_recipe_says_nothing(
    folder: Path, two: dict[str, list[list[int]]]
) -> None:
    one = run(folder, "one")
    assert {who: starts(rows) for who, rows in one.items()} == {who: {1} for who in two}
    first = min(one["source"])
    assert [BOS, *first] in two["source"], "nothing else of a prompt is another"


def test_the_training_prompt_alone_may_have_another_number(
    folder: Path, two: dict[str, list[list[int]]]
) -> None:
    """The older protocol: what the source reads and writes is as in the main one."""
    asked = ("--set", "model.start_tokens=2", "--set", "training.start_tokens=1")
    seen = run(folder, "older", *asked)
    assert {who: starts(rows) for who, rows in seen.items()} == {
        "source": {2}, "training": {1}, "gapft-seed13": {2},
    }  # fmt: skip
    assert seen["source"] == two["source"]
    for table in ("pool/responses", "audit/responses", "pool/states", "selections/gapft-seed13"):
        main, older = (folder / of / f"{table}.parquet" for of in ("two", "older"))
        assert pq.read_table(main).equals(pq.read_table(older)), table
    assert {(BOS, *row) for row in seen["training"]} == {tuple(row) for row in two["training"]}
    main, older = (
        json.loads((folder / of / "manifest.json").read_text())["budgets"]["gapft-seed13"]
        for of in ("two", "older")
    )
    assert main["tokens"] - older["tokens"] == main["exposures"], "one token less an exposure"
    succeed("verify", "older", *PLUGINS, cwd=folder, env={"SEEN": str(folder / "verify.seen")})
    dry = succeed(
        "run", "recipe.yaml", "--include-path", "tasks", *PLUGINS, *asked, "--dry-run", cwd=folder
    )
    assert "start tokens: 1 in the training prompt, 2 in search and audit" in dry.stdout
    refused = gapft(
        "run", "recipe.yaml", "--include-path", "tasks", *PLUGINS, *asked[2:], "--dry-run",
        cwd=folder,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "key 'training': start_tokens is 1" in " ".join(refused.stderr.split())


@given(st.lists(st.integers(2, 5)), st.integers(1, 2), st.integers(1, 2))
def test_a_training_prompt_is_the_same_text_behind_its_start_tokens(
    text: list[int], seen: int, wanted: int
) -> None:
    settings = Training(start_tokens=wanted)
    found = build_training_prompt([BOS] * seen + text, settings)
    assert found == (*[BOS] * wanted, *text)
    assert build_training_prompt(found, settings) == found
    assert build_training_prompt(found, Training()) == found


def test_verify_finds_prompts_with_another_number(
    folder: Path, two: dict[str, list[list[int]]], tmp_path: Path
) -> None:
    shutil.copytree(folder / "two", tmp_path / "run")
    plugins = [str(folder / "plugin.py"), str(folder / "seen.py")]
    change_manifest(tmp_path / "run", lambda m: m["source"].update(start_ids=[BOS]))
    found = verify(tmp_path / "run", plugins).differences
    assert any("start_ids is [1], pool/responses" in line for line in found), found
    change_manifest(tmp_path / "run", lambda m: m["source"].update(start_ids=[BOS, BOS]))
    assert not verify(tmp_path / "run", plugins).differences
    path = tmp_path / "run" / "audit" / "problems.parquet"
    table = pq.read_table(path)
    ids = [[BOS, *row] for row in table["prompt_ids"].to_pylist()]
    column = table.schema.get_field_index("prompt_ids")
    field = table.schema.field(column)
    pq.write_table(table.set_column(column, field, pa.array(ids, field.type)), path)
    seal_again(tmp_path / "run", "audit/problems.parquet")
    found = verify(tmp_path / "run", plugins).differences
    assert any("does not begin with just the start tokens [1, 1]" in line for line in found)


def test_a_run_is_bound_to_it(folder: Path, two: dict[str, list[list[int]]]) -> None:
    for value in ("1", "null"):
        refused = gapft(
            "run", "recipe.yaml", "--include-path", "tasks", *PLUGINS, "--run-dir", "two",
            "--set", f"model.start_tokens={value}", cwd=folder,
        )  # fmt: skip
        assert refused.returncode == 2
        assert "model.start_tokens 2 → " in " ".join(refused.stderr.split())
    manifest = RunDirectory.open(folder / "two").manifest()
    source = dict(manifest["source"])
    require_same_model(manifest, "gapft-seed13", source)
    with pytest.raises(UserError, match=r"start_ids is \[1\], expected \[1, 1\]"):
        require_same_model(manifest, "gapft-seed13", source | {"start_ids": [BOS]})


# Samplers


def settings(folder: Path, count: int | None, **more: object) -> SamplerSettings:
    args = {"pretrained": str(folder / "model"), "dtype": "float32", "device": "cpu"}
    return SamplerSettings("hf", args | more, start_tokens=count)


@pytest.mark.parametrize("chat", [False, True])
def test_one_is_what_lm_eval_makes_of_a_text_and_two_is_one_more(folder: Path, chat: bool) -> None:
    requests = [
        request_for(f"p{i}", p, (GREEDY,)) for i, p in enumerate(("Why?", "<s>So", "No no"))
    ]
    answers = {}
    for count in (None, 1, 2):
        asked = replace(settings(folder, count), chat_template=chat)
        sampler = HfSampler(asked, None)  # lm-eval encodes a batch as its first prompt begins
        answers[count] = [generate_all(sampler, [r], Decoding(False, 6), 0)[0] for r in requests]
        again = Retokenizer(asked)
        texts = [again.render(request) for request in requests]
        assert again.prompt_ids(texts) == [answer.prompt_ids for answer in answers[count]]
    assert answers[1] == answers[None]
    for one, more in zip(answers[1], answers[2], strict=True):
        assert more.prompt_ids == (BOS, *one.prompt_ids)
    assert [a.generations for a in answers[2]] != [a.generations for a in answers[1]]


@given(st.lists(st.integers(0, 5)), st.none() | st.integers(1, 2))
def test_start_tokens_stand_in_place_of_a_prompts_own(ids: list[int], count: int | None) -> None:
    start = None if count is None else [BOS] * count
    found = replace_start_ids(ids, start)
    if count is None:
        assert found == ids
        return
    assert found[:count] == start
    assert found[count : count + 1] != [BOS]
    text = ids[next((i for i, token in enumerate(ids) if token != BOS), len(ids)) :]
    assert found[count:] == text


def test_a_model_without_a_start_token_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(folder / "model", tmp_path / "bare")
    config = json.loads((bare / "tokenizer_config.json").read_text())
    del config["bos_token"]
    (bare / "tokenizer_config.json").write_text(json.dumps(config))
    wanted = settings(folder, 2, pretrained=str(bare))
    for make in (lambda: HfSampler(wanted, None), lambda: Retokenizer(wanted)):
        with pytest.raises(UserError, match=r"start_tokens is 2, .*bare' has no start token"):
            make()


@pytest.mark.parametrize(
    "backend", ["dummy", "sglang", "sglang-generate", "local-chat-completions"]
)
def test_a_backend_that_sends_text_is_refused_before_anything(folder: Path, backend: str) -> None:
    message = rf"start_tokens: found 2, .* backend '{backend}' .* or use hf, .*vllm"
    with pytest.raises(UserError, match=message):
        load_plugins().create_sampler(replace(settings(folder, 2), backend=backend), None)
    refused = gapft(
        "run", "recipe.yaml", "--include-path", "tasks", *PLUGINS, "--dry-run", "--set",
        "model.start_tokens=2", "--set", f"model.backend={backend}", cwd=folder,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "model.start_tokens" in " ".join(refused.stderr.split())
