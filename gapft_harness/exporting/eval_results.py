"""An adapter's figure for the hub's benchmarks: ``.eval_results/*.yaml`` beside a model."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import yaml

from gapft_harness.core.errors import UserError
from gapft_harness.exporting.cards import is_hub_id
from gapft_harness.run_directory.directory import RunDirectory

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry


def entry(run: RunDirectory, benchmark: str, pass_at_1: Fraction, problems: int) -> EvalResultEntry:
    """What one adapter reached, as the hub reads it.

    Which of the hub's benchmarks the audit is, no run says; the user does. The hub takes it only
    for datasets that it lists as benchmarks, under a task that their ``eval.yaml`` names.

    Args:
        run: the run.
        benchmark: ``DATASET:TASK``, the dataset's id on the hub and the id of a task of it.
        pass_at_1: the adapter's, on the audit, greedy; written in percent.
        problems: how many the audit has.

    Raises:
        UserError: the benchmark is not of this form, or the audit is a part of its split.
    """
    from huggingface_hub import EvalResultEntry

    dataset, _, task_id = benchmark.partition(":")
    if not task_id or not is_hub_id(dataset):
        raise UserError(
            f"--benchmark {benchmark}: expected DATASET:TASK, as in openai/gsm8k:gsm8k, where TASK "
            "is of the dataset's eval.yaml"
        )
    if limit := run.recipe.data.audit_limit:
        raise UserError(
            f"--benchmark {benchmark}: the audit is {limit} problems of its split "
            "(data.audit_limit), which is not the benchmark's figure; leave --benchmark out"
        )
    manifest = run.manifest()
    task, version = manifest["task"], manifest["gapft_harness"]
    audit = manifest["stages"].get("audit")
    return EvalResultEntry(
        dataset_id=dataset,
        task_id=task_id,
        value=float(100 * pass_at_1),
        date=audit["day"] if audit else None,
        notes=f"Pass@1 in percent, one greedy response to each of {problems} problems of "
        f"{task['name']}, verified by {task['verifier']}; gapft-harness {version}",
    )


def as_yaml(result: EvalResultEntry) -> str:
    """The text of a file in ``.eval_results``."""
    from huggingface_hub import eval_result_entries_to_yaml

    return yaml.safe_dump(
        eval_result_entries_to_yaml([result]), sort_keys=False, allow_unicode=True
    )
