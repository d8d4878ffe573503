"""Export of preference pairs for TRL's DPOTrainer, and the choice of problems by solve rate."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, load_dataset
from huggingface_hub import DatasetCard
from hypothesis import example, given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, STATUSES, Response, Verdict
from gapft_harness.exporting.kinds import ExportChoice, export
from gapft_harness.exporting.preference_pairs import PAIR_COLUMNS, pair_samples
from gapft_harness.exporting.problem_choice import parse_solve_rate_band
from gapft_harness.interactive.runs import Run
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import JudgedResponse
from tests.recording_run import LettersTask, write_letters_task
from tests.tiny_models import CHAT_TEMPLATE, write_byte_llama


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> LettersTask:
    return write_letters_task(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
def run(task: LettersTask) -> RunDirectory:
    """A run with every problem in S: samples 0, 1 and 3 of four pass, with different texts."""
    return task.run("run", ["states"], ("pool", "audit"), search={"k": 4})


@pytest.fixture(scope="module")
def chat_run(run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The same run as if the search had used a chat template and a system turn."""
    model = run.recipe.model.model_copy(
        update={"chat_template": True, "system_instruction": "Spell."}
    )
    folder = tmp_path_factory.mktemp("chat") / "run"
    shutil.copytree(run.path, folder)
    chat = RunDirectory(folder, run.recipe.model_copy(update={"model": model}))
    chat.write_recipe()
    return chat


def export_pairs(run: RunDirectory, out: Path, **choice: Any) -> Dataset:
    """Export pairs and load the folder with ``datasets``."""
    export(run, "trl-dpo", ExportChoice(out, **choice))
    return load_dataset(str(out), split="train", cache_dir=f"{out}.cache")


def test_pairs_hold_sealed_samples_and_prompts(
    run: RunDirectory, chat_run: RunDirectory, tmp_path: Path
) -> None:
    tables = Run(run)
    prompts = {
        row["problem_id"]: row["prompt"]
        for row in tables.read("problems", split="pool").to_pylist()
    }
    texts = {
        (row["problem_id"], row["index"]): (row["text"], row["status"])
        for row in tables.read("responses", split="pool").to_pylist()
    }
    rows = list(export_pairs(run, tmp_path / "plain"))
    chats = list(export_pairs(chat_run, tmp_path / "chat"))
    assert [row["problem_id"] for row in rows] == sorted(prompts)
    for row, chat in zip(rows, chats, strict=True):
        name = row["problem_id"]
        assert row["prompt"] == prompts[name]
        assert (row["chosen"], "pass") == texts[name, row["chosen_index"]]
        assert (row["rejected"], "fail") == texts[name, row["rejected_index"]]
        assert (row["chosen_index"], row["rejected_index"], row["pair"]) == (0, 2, 0)
        assert (row["state"], row["samples"], row["solve_rate"]) == ("S", 4, 0.75)
        assert chat["prompt"] == [
            {"role": "system", "content": "Spell."}, {"role": "user", "content": prompts[name]},
        ]  # fmt: skip
        assert chat["chosen"] == [{"role": "assistant", "content": row["chosen"]}]
        assert chat["rejected"] == [{"role": "assistant", "content": row["rejected"]}]
        assert row.keys() - PAIR_COLUMNS.keys() == {"prompt", "chosen", "rejected"}


@pytest.mark.parametrize("chat", [False, True])
def test_dpo_trainer_accepts_pairs(
    run: RunDirectory, chat_run: RunDirectory, tmp_path: Path, chat: bool
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    model = write_byte_llama(tmp_path / "model", chat_template=CHAT_TEMPLATE if chat else None)
    rows = export_pairs(chat_run if chat else run, tmp_path / "out")
    settings = DPOConfig(
        str(tmp_path / "trained"),
        max_steps=1,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
    )
    policy = AutoModelForCausalLM.from_pretrained(model)
    trainer = DPOTrainer(
        policy,
        args=settings,
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(model),
    )
    assert trainer.train().training_loss == pytest.approx(0.693, abs=1e-3), "log 2 at the start"


def test_equal_runs_give_equal_bytes(run: RunDirectory, tmp_path: Path) -> None:
    for name in ("first", "second"):
        files = export(run, "trl-dpo", ExportChoice(tmp_path / name))
        assert [file.name for file in files] == ["train.parquet", "README.md"]
    for file in files:
        assert file.read_bytes() == (tmp_path / "first" / file.name).read_bytes()


def test_card_describes_pairs(run: RunDirectory, tmp_path: Path) -> None:
    band = parse_solve_rate_band(".5:1")
    export(run, "trl-dpo", ExportChoice(tmp_path / "out", solve_rates=band))
    card = DatasetCard.load(tmp_path / "out" / "README.md")
    assert "24 preference pairs" in card.text
    assert "solve rate from 0.5 to 1, bounds included" in card.text
    assert "| pool | train | 0 | 24 | 0 | 24 |" in card.text
    for name, meaning in PAIR_COLUMNS.items():
        assert f"| {name} | {meaning} |" in card.text
    place = layout.responses_path("pool")
    assert f"| {place} | {run.manifest()['files'][place]} |" in card.text


def test_rejects_episodes(run: RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "episodes")
    episodes = RunDirectory.open(tmp_path / "episodes")
    episodes.update_manifest(lambda manifest: manifest["task"]["episode"].update(attempts=3))
    with pytest.raises(UserError, match="episodes of several attempts"):
        export(episodes, "trl-dpo", ExportChoice(tmp_path / "out"))


def test_rejects_wrong_choices_and_edited_runs(run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    high, all_rates = parse_solve_rate_band(".8:1"), parse_solve_rate_band("0:1")
    for to, choice, message in [
        ("trl-dpo", {"states": ["X"]}, "--states X: .*known: G, S, U"),
        ("trl-dpo", {"states": ["U"]}, "--states U: .* 24 in S"),
        ("trl-dpo", {"solve_rates": high}, r"--solve-rate 0.8:1: none of 24 .* from 0.75 to 0.75"),
        ("tables", {"solve_rates": all_rates}, "remove --solve-rate; .*trl-grpo, .*, trl-dpo"),
        ("dataset", {"solve_rates": all_rates}, "remove --solve-rate"),
    ]:
        with pytest.raises(UserError, match=message):
            export(run, to, ExportChoice(out, **choice))
    shutil.copytree(run.path, tmp_path / "edited")
    edited = RunDirectory.open(tmp_path / "edited")
    path = edited.path / layout.responses_path("pool")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserError, match=r"responses.parquet: was changed after it was sealed"):
        export(edited, "trl-dpo", ExportChoice(out))
    assert not out.exists()


@pytest.mark.parametrize(
    "text",
    [
        "", ":", ".5", ".2:", ":.8", ".8:.2", "-.1:.5", ".2:1.1", ".2:.5:.8", "a:b", "nan:1",
        "0:inf", "20%:80%", "0:1e999999999999999999999",
    ],
)  # fmt: skip
def test_malformed_band_is_one_clear_error(text: str) -> None:
    with pytest.raises(UserError, match=r"--solve-rate .*: expected LOW:HIGH"):
        parse_solve_rate_band(text)


percents = st.integers(0, 100)


@given(st.tuples(percents, percents).map(sorted), st.integers(1, 64), st.data())
@example([20, 80], 5, None)
def test_band_contains_its_bounds(bounds: list[int], samples: int, data: Any) -> None:
    low, high = (Fraction(percent, 100) for percent in bounds)
    band = parse_solve_rate_band(f"{bounds[0] / 100}:{bounds[1] / 100}")
    passing = range(samples + 1) if data is None else [data.draw(st.integers(0, samples))]
    for count in passing:
        expected = low <= Fraction(count, samples) <= high
        assert band.contains(count, samples) == expected


judged_responses = st.lists(
    st.tuples(
        st.sampled_from("abcdef"), st.sampled_from(STATUSES), st.sampled_from(["stop", "context"])
    ),
    max_size=12,
).map(
    lambda items: [
        JudgedResponse(Response("p", index, text, (), finish_reason, 0), Verdict(status))
        for index, (text, status, finish_reason) in enumerate(items, GREEDY)
    ]
)


@given(judged_responses)
def test_pairs_are_disjoint_and_verified(judged: list[JudgedResponse]) -> None:
    pairs = pair_samples(judged)
    usable = [
        item
        for item in judged
        if item.response.index != GREEDY and item.response.finish_reason != CONTEXT_EXCEEDED
    ]
    passed = {item.response.text for item in usable if item.verdict.status == "pass"}
    failed = {item.response.text for item in usable if item.verdict.status == "fail"}
    assert len(pairs) == min(len(passed - failed), len(failed - passed))
    verdicts = {item.response.index: item.verdict.status for item in usable}
    for side, status in enumerate(("pass", "fail")):
        indices = [pair[side].index for pair in pairs]
        assert indices == sorted({*indices})
        assert {verdicts[index] for index in indices} <= {status}
    assert not {chosen.text for chosen, _ in pairs} & {rejected.text for _, rejected in pairs}
