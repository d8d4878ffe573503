"""An online update compared with TRL's bare trainer: the cost of masking, recording and judging.

Both sample for the demo policy's prompts with a negligible learning rate. The bare trainer calls
the same verifier in its own process, without a time limit.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.measure import Figure
from tests.kit.command import succeed

UPDATES, ROUNDS = 20, 3


def measure(folder: Path) -> list[Figure]:
    """Time updates of 16 prompts x 8 responses after the first one, when everything has started."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from gapft_harness.core.records import Arm
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.recipe.sections import Training
    from gapft_harness.run_directory.directory import RunDirectory
    from gapft_harness.stages.train.job import _build_job, read_searched_pool
    from gapft_harness.training.grpo import train_grpo
    from gapft_harness.training.model import add_lora, load_base

    stages = [word for name in ("search", "states", "select") for word in ("--only", name)]
    succeed("run", "controls/online", "--run-dir", folder / "run", *stages)
    run, plugins, arm = RunDirectory.open(folder / "run"), load_plugins(), Arm("grpo_masked", 13)
    job = _build_job(
        run, arm, lambda done, total: None, False, read_searched_pool(run, plugins, ())
    )
    settings = Training.model_validate(
        {**job.settings, "learning_rate": 1e-12, "update_groups": UPDATES}
    )
    searched, size = job.searched, settings.grpo.update
    assert searched is not None
    golds = {problem.prompt: problem.gold for problem in searched.problems}
    outputs = (folder / f"ours{number}" for number in range(100))
    facts: list[dict[str, int]] = []
    ends: list[float] = []

    class Stepped(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            ends.append(time.perf_counter())

    def time_ours() -> float:
        ends.clear()
        training_settings = settings.model_dump(mode="json")
        own = replace(
            job, settings=training_settings, output=next(outputs),
            progress=lambda done, total: ends.append(time.perf_counter()),
        )  # fmt: skip
        facts.append(train_grpo(own))
        return ends[-1] - ends[0]

    def time_bare() -> float:
        assert searched.verifier.permissive is not None
        verifier = searched.verifier.permissive.load()
        ends.clear()

        def reward(prompts: list[str], completions: list[str], **_: object) -> list[float]:
            verdicts = verifier.verify(completions, [golds[prompt] for prompt in prompts])
            return [float(verdict.status == "pass") for verdict in verdicts]

        GRPOTrainer(
            model=add_lora(load_base(job.model_args, settings), settings, 0),
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=str(folder / "trl"), max_steps=UPDATES, num_generations=8,
                per_device_train_batch_size=size, max_completion_length=32, use_cpu=True,
                bf16=False, gradient_checkpointing=False, learning_rate=1e-12, logging_steps=1,
                save_strategy="no", report_to=[], dataloader_pin_memory=False,
            ),
            train_dataset=Dataset.from_dict({"prompt": list(golds)}),
            processing_class=AutoTokenizer.from_pretrained(
                job.model_args["pretrained"], padding_side="left"
            ),
            callbacks=[Stepped()],
        ).train()  # fmt: skip
        return ends[-1] - ends[0]

    pairs = [(time_ours(), time_bare()) for _ in range(ROUNDS)]
    ratio, a, b = (
        statistics.median(values)
        for values in ([x / y for x, y in pairs], *zip(*pairs, strict=True))
    )
    tokens = facts[0]["completion_tokens"]
    detail = f"{a:.1f} s against {b:.1f} s; {UPDATES - 1} updates, {tokens} tokens drawn"
    return [Figure("online update / TRL's bare trainer", ratio, 1.05, detail=detail)]
