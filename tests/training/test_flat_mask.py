"""Masking flat groups changes only the divisor and the KL term of TRL's loss."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from gapft_harness.training.grpo import mask_flat_groups

GROUPS, SIZE, TOKENS = 3, 2, 5
FLAT = [False, True, False]


def compute_trl_loss(loss: str, beta: float, output: dict[str, Any], logps: torch.Tensor) -> float:
    """Compute TRL's loss of given log-probabilities; only the forward pass is replaced."""
    nothing = torch.zeros_like(logps)
    accelerator = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, sync_gradients=True
    )
    trainer = SimpleNamespace(
        loss_type=loss, beta=beta, epsilon_low=0.2, epsilon_high=0.2, top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, importance_sampling_level="token", use_vllm=False,
        aux_loss_enabled=False, _entropy_bonus_enabled=False, max_completion_length=TOKENS,
        args=SimpleNamespace(use_bias_correction_kl=True, delta=None, steps_per_generation=1),
        current_gradient_accumulation_steps=1, accelerator=accelerator,
        model=SimpleNamespace(training=True), _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (logps, nothing, None),
    )  # fmt: skip
    return float(GRPOTrainer._compute_loss(trainer, None, output))


@pytest.fixture
def batch() -> tuple[dict[str, Any], torch.Tensor]:
    """Three groups of two responses, the second flat, under an updated policy."""
    torch.manual_seed(0)
    rows = GROUPS * SIZE
    mask = (torch.arange(TOKENS) < torch.tensor([5, 3, 4, 2, 5, 1]).unsqueeze(1)).int()
    logps = -torch.rand(rows, TOKENS, dtype=torch.float64)
    output = {
        "prompt_ids": torch.ones(rows, 1, dtype=torch.long),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.long),
        "completion_ids": torch.ones(rows, TOKENS, dtype=torch.long),
        "completion_mask": mask,
        "advantages": torch.tensor([1.0, -1.0, 0.0, 0.0, 0.7, -0.7], dtype=torch.float64),
        "num_items_in_batch": mask.sum(),
        "old_per_token_logps": logps + 0.05 * torch.randn_like(logps),
        "ref_per_token_logps": logps + 0.5 * torch.randn_like(logps),
    }
    return output, logps


def remove_flat_groups(output: dict[str, Any]) -> tuple[dict[str, Any], torch.Tensor]:
    """Remove the flat group from the batch; return the batch and the kept rows."""
    keep = torch.tensor([not flat for flat in FLAT for _ in range(SIZE)])
    remaining = {key: values[keep] for key, values in output.items() if key != "num_items_in_batch"}
    return {**remaining, "num_items_in_batch": remaining["completion_mask"].sum()}, keep


@pytest.mark.parametrize("loss", ["dapo", "bnpo"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_masked_loss_equals_loss_of_other_groups(
    batch: tuple[dict[str, Any], torch.Tensor], loss: str, beta: float
) -> None:
    output, logps = batch
    changed = mask_flat_groups(output, FLAT, SIZE)
    assert changed.keys() == {"tool_mask", "num_items_in_batch"}
    remaining, keep = remove_flat_groups(output)
    expected = compute_trl_loss(loss, beta, remaining, logps[keep])
    assert compute_trl_loss(loss, beta, {**output, **changed}, logps) == pytest.approx(
        expected, rel=1e-12
    )
    whole = compute_trl_loss(loss, beta, output, logps)
    assert whole != pytest.approx(expected, rel=1e-3)
    if beta == 0:  # then only the divisor differs
        tokens = output["completion_mask"].sum(), remaining["completion_mask"].sum()
        assert whole * int(tokens[0]) == pytest.approx(expected * int(tokens[1]), rel=1e-12)
