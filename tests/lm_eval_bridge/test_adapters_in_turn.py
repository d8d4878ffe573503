"""``gapft eval --adapters``: each adapter answers as with lm_eval's ``peft=``."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.lm_eval_bridge.command import run_lm_eval
from gapft_harness.lm_eval_bridge.samplers import adapter_evaluation
from tests.kit.tiny_models import write_byte_adapter, write_byte_llama

WRITTEN = """
task: written
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}} ="
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 8, until: ["@"]}
metric_list: [{metric: exact_match}]
metadata: {version: 1}
"""
CHOSEN = """
task: chosen
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}} ="
doc_to_choice: [" a", " b"]
doc_to_target: 0
metric_list: [{metric: acc}]
metadata: {version: 1}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two tasks, a base model, and adapters: two different, zero, tiny, of another base."""
    folder = tmp_path_factory.mktemp("adapters")
    records = [{"question": f"{i} +{i}", "answer": str(2 * i)} for i in range(6)]
    (folder / "tasks").mkdir()
    data = folder / "tasks" / "data.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    for task, yaml in (("written", WRITTEN), ("chosen", CHOSEN)):
        (folder / "tasks" / f"{task}.yaml").write_text(yaml.replace("DATA", str(data)))
    model = write_byte_llama(folder / "model")
    write_byte_adapter(model, folder / "one")
    copy_adapter(folder / "one", folder / "two", lambda weight: -weight)
    copy_adapter(folder / "one", folder / "zero", torch.zeros_like)
    copy_adapter(folder / "one", folder / "tiny", lambda weight: weight * 1e-30)
    write_byte_adapter(write_byte_llama(folder / "other", hidden=64), folder / "foreign")
    (folder / "ia3").mkdir()
    (folder / "ia3" / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    return folder


@pytest.fixture(autouse=True)
def without_stock_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the index of lm_eval's own tasks, which takes seconds and is not needed."""
    import lm_eval.tasks

    few = functools.partial(lm_eval.tasks.TaskManager, include_defaults=False)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", few)


def copy_adapter(source: Path, target: Path, change: Callable[[Any], Any]) -> None:
    """Copy an adapter with a changed ``lora_B``."""
    shutil.copytree(source, target)
    file = target / "adapter_model.safetensors"
    save_file({n: change(w) if "lora_B" in n else w for n, w in load_file(file).items()}, file)


def evaluate(folder: Path, out: Path, *options: str, model: str = "") -> int:
    return run_lm_eval(
        [
            *("--model", "hf", "--device", "cpu", "--batch_size", "4", "--tasks", "written,chosen"),
            *("--model_args", f"pretrained={folder / 'model'},dtype=float32{model}"),
            *("--include_path", str(folder / "tasks"), "--output_path", str(out)),
            *options,
        ]
    )


def read_answers(folder: Path) -> list[Any]:
    logs = [next(folder.rglob(f"samples_{task}_*.jsonl")) for task in ("written", "chosen")]
    return [json.loads(line)["resps"] for log in logs for line in log.read_text().splitlines()]


def test_adapters_answer_as_if_alone(
    folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    adapters = f"{folder / 'one'},{folder / 'zero'},second={folder / 'two'}"
    assert evaluate(folder, out, "--adapters", adapters) == 0
    printed = capsys.readouterr().out
    assert " object at 0x" not in printed, "a table heading must name its model"
    for name in ("base", "one", "zero", "second"):
        assert f"\n{name}: hf ({{'pretrained': " in f"\n{printed}"
    assert sorted(path.name for path in out.iterdir()) == ["base", "one", "second", "zero"]
    assert evaluate(folder, tmp_path / "alone", "--log_samples") == 0
    assert read_answers(out / "base") == read_answers(tmp_path / "alone")
    assert read_answers(out / "zero") == read_answers(out / "base")
    for name, adapter in (("one", "one"), ("second", "two")):
        alone = tmp_path / adapter
        assert evaluate(folder, alone, "--log_samples", model=f",peft={folder / adapter}") == 0
        assert read_answers(out / name) == read_answers(alone)
        assert read_answers(out / name) != read_answers(out / "base")
        (results_file,) = (out / name).rglob("results_*.json")
        assert json.loads(results_file.read_text())["config"]["model_args"]["peft"] == str(
            folder / adapter
        )
    assert read_answers(out / "one") != read_answers(out / "second")
    assert "zero: all updates are zero" in caplog.text
    comparison = compare(str(out / "base"), [str(out / "one")], CompareChoice(tasks=["written"]))
    assert len(comparison.items) == 6
    with pytest.raises(UserError, match="base: already contains logs"):
        evaluate(folder, out, "--adapters", str(folder / "one"))


def test_rejects_ineffective_adapter(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(GapftError, match=r"tiny: not applied: .* not zero"):
        evaluate(folder, tmp_path, "--adapters", str(folder / "tiny"))


def test_detects_base_changed_by_adapter(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import PeftModel

    def merge(adapted: PeftModel) -> Any:
        return adapted.base_model.merge_and_unload()

    monkeypatch.setattr(PeftModel, "unload", merge, raising=False)
    with pytest.raises(GapftError, match="after an adapter was removed"):
        evaluate(folder, tmp_path, "--adapters", f"{folder / 'one'},{folder / 'two'}")


@pytest.mark.parametrize(
    ("adapters", "options", "message"),
    [
        ("{0}/model", [], "model: adapter of model: adapter_config.json"),
        ("{0}/foreign", [], "foreign does not fit the model"),
        ("{0}/ia3", [], "ia3: peft_type is 'IA3'; expected LORA"),
        ("{0}/one,{0}/tasks/../one", [], "duplicate name 'one'"),
        ("{0}/one,one={0}/two", [], "duplicate name 'one'"),
        ("base={0}/one", [], "reserved for the base"),
        ("a/b={0}/one", [], "log folder"),
        ("{0}/one,", [], "expected PEFT folders"),
        ("{0}/one", ["--use_cache", "x"], "--use_cache"),
        ("{0}/one", ["--model", "dummy"], "unsupported model 'dummy'"),
        ("{0}/one", ["--model_args", "pretrained={0}/model,peft={0}/two"], "peft=…: conflicts"),
        ("{0}/one", ["--output_path", ""], "expected a folder for the logs"),
    ],
)
def test_checks_arguments_before_loading(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    adapters: str,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(adapter_evaluation, "_AdapterSwitch", None)
    with pytest.raises(UserError, match=message):
        evaluate(
            folder,
            tmp_path,
            *("--adapters", adapters.format(folder)),
            *(other.format(folder) for other in options),
        )


def test_warns_about_different_base_name(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = json.loads((folder / "one" / "adapter_config.json").read_text())
    shutil.copytree(folder / "one", tmp_path / "renamed")
    config["base_model_name_or_path"] = "somewhere/else"
    (tmp_path / "renamed" / "adapter_config.json").write_text(json.dumps(config))
    done = evaluate(
        folder, tmp_path / "out", "--limit", "1", "--adapters", str(tmp_path / "renamed")
    )
    assert done == 0
    assert "trained on 'somewhere/else'" in caplog.text


def test_detects_zero_embedding_update(folder: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    get_peft_model(base, LoraConfig(r=2, target_modules=["embed_tokens"])).save_pretrained(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert any("lora_embedding_A" in name for name in saved)
    assert any(weight.any() for weight in saved.values())
    assert adapter_evaluation._is_zero(adapter_evaluation.NamedAdapter("new", str(tmp_path)))
