"""Update groups through the real trainer: exactly G steps, each the mean over its own tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gapft_harness.core.records import Example
from gapft_harness.plugins.trainers.lora import lora
from tests.tiny_models import byte_llama
from tests.training.examples import examples, job

N, GROUPS = 23, 9  # five groups of three, four of two


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("base") / "model")


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "training_log.jsonl").open()]


def mean_loss(base: Any, chosen: list[Example]) -> float:
    """Each sequence alone through the bare model: the mean over all supervised tokens."""
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
def test_a_run_takes_exactly_g_steps_each_the_mean_over_its_tokens(
    model: Path, tmp_path: Path, micro_batch: int
) -> None:
    """At a learning rate near 0 the adapter stays what it starts as, the bare model."""
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model)
    chosen = {e.problem_id: e for e in examples(N)}
    seen: list[tuple[int, int]] = []
    shape: dict[str, Any] = {"update_groups": GROUPS, "learning_rate": 1e-30}
    wanted = job(model, tmp_path / "a", list(chosen.values()), micro_batch=micro_batch, **shape)
    facts = lora(replace(wanted, progress=lambda done, total: seen.append((done, total))))
    assert facts["budget"]["steps"] == GROUPS
    assert seen == [(step, GROUPS) for step in range(1, GROUPS + 1)]
    entries = log(tmp_path / "a")
    assert len(entries) == GROUPS
    assert sorted(len(entry["examples"]) for entry in entries) == [2] * 4 + [3] * 5
    assert sorted(slot for entry in entries for slot in entry["examples"]) == sorted(chosen)
    for entry in entries:
        members = [chosen[slot] for slot in entry["examples"]]
        assert entry["supervised_tokens"] == sum(len(m.response_ids) + m.ended for m in members)
        assert entry["loss"] == pytest.approx(mean_loss(base, members), rel=1e-5)


def test_accumulation_has_no_say_and_micro_batches_change_nothing(
    model: Path, tmp_path: Path
) -> None:
    for name, shape in (("a", (1, 1)), ("b", (1, 7)), ("c", (3, 1))):
        cut = {"micro_batch": shape[0], "accumulation": shape[1]}
        lora(job(model, tmp_path / name, examples(N), update_groups=GROUPS, **cut))
    losses = {name: [entry["loss"] for entry in log(tmp_path / name)] for name in "abc"}
    assert losses["a"] == losses["b"]
    assert losses["c"] == pytest.approx(losses["a"], rel=2e-5)
    assert losses["a"][-1] < losses["a"][0]
