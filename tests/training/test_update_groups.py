"""Update groups in the real trainer: exactly G steps, each a mean over its tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gapft_harness.core.records import Example
from gapft_harness.plugins.trainers.lora import lora
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import examples, job

N, GROUPS = 23, 9  # five groups of three, four of two


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("base") / "model")


def read_log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "training_log.jsonl").open()]


def compute_mean_loss(base: Any, chosen: list[Example]) -> float:
    """Compute the mean loss over all supervised tokens, one sequence at a time."""
    losses = []
    for example in chosen:
        end = [2] if example.ended else []
        ids = torch.tensor([[*example.prompt_ids, *example.response_ids, *end]])
        start = len(example.prompt_ids)
        with torch.no_grad():
            logits = base(ids).logits[0, start - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[0, start:], reduction="none"))
    return torch.cat(losses).mean().item()


@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_takes_g_steps_of_mean_token_loss(model: Path, tmp_path: Path, micro_batch: int) -> None:
    """At a learning rate near 0 the adapted model stays equal to the base."""
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model)
    chosen = {e.problem_id: e for e in examples(N)}
    seen: list[tuple[int, int]] = []
    shape: dict[str, Any] = {"update_groups": GROUPS, "learning_rate": 1e-30}
    training_job = job(
        model, tmp_path / "a", list(chosen.values()), micro_batch=micro_batch, **shape
    )
    facts = lora(replace(training_job, progress=lambda done, total: seen.append((done, total))))
    assert facts["budget"]["steps"] == GROUPS
    assert seen == [(step, GROUPS) for step in range(1, GROUPS + 1)]
    entries = read_log(tmp_path / "a")
    assert len(entries) == GROUPS
    assert sorted(len(entry["examples"]) for entry in entries) == [2] * 4 + [3] * 5
    assert sorted(slot for entry in entries for slot in entry["examples"]) == sorted(chosen)
    for entry in entries:
        members = [chosen[slot] for slot in entry["examples"]]
        assert entry["supervised_tokens"] == sum(len(m.response_ids) + m.ended for m in members)
        assert entry["loss"] == pytest.approx(compute_mean_loss(base, members), rel=1e-5)


def test_update_groups_ignore_accumulation_and_micro_batch(model: Path, tmp_path: Path) -> None:
    for name, shape in (("a", (1, 1)), ("b", (1, 7)), ("c", (3, 1))):
        cut = {"micro_batch": shape[0], "accumulation": shape[1]}
        lora(job(model, tmp_path / name, examples(N), update_groups=GROUPS, **cut))
    losses = {name: [entry["loss"] for entry in read_log(tmp_path / name)] for name in "abc"}
    assert losses["a"] == losses["b"]
    assert losses["c"] == pytest.approx(losses["a"], rel=2e-5)
    assert losses["a"][-1] < losses["a"][0]
