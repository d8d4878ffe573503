"""Training compared with TRL's SFTTrainer, and twelve arms with twelve separate runs.

``GAPFT_BENCH_MODELS`` names model folders, separated as in ``PATH``, that are measured too.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm, Example
from gapft_harness.core.streams import derive_key
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.recipe.recipe import resolve_model
from gapft_harness.recipe.sections import Training
from gapft_harness.training.plan import build_sequences, plan_steps
from tests.benchmarks.measure import (
    Figure,
    choose_dtype,
    list_models,
    read_vocabulary_size,
    run_process,
)

#: Our settings: the literal 2 x 8, as SFTTrainer's, and the same steps without padding.
WAYS: dict[str, dict[str, Any]] = {"padded 2 x 8": {}, "without padding": {"padding_free": True}}
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """A base model and sequences of its usual lengths; ``steps`` of 16 examples."""

    name: str
    model: str
    vocabulary: int
    prompt: tuple[int, int]
    response: tuple[int, int]
    steps: int
    rounds: int
    dtype: str = "float32"

    def job(self, output: Path, seed: int = 13, **changes: Any) -> TrainingJob:
        """Build a job with random ids, the paper's logic settings, no dropout, and the changes."""
        draw = random.Random(0)

        def ids(shortest: int, longest: int) -> tuple[int, ...]:
            length = draw.randint(shortest, longest)
            return tuple(draw.randrange(3, self.vocabulary) for _ in range(length))

        examples = [
            Example(f"p{i}", "S", ids(*self.prompt), ids(*self.response), 0, 0, ended=False)
            for i in range(16 * self.steps)
        ]
        settings = {"dtype": self.dtype, "dropout": 0.0, "repetitions": 1, **changes}
        return TrainingJob(
            arm=Arm("bench", seed),
            examples=examples,
            settings=Training.model_validate(settings).model_dump(mode="json"),
            model_args={"pretrained": self.model, "device": "cpu"},
            output=output,
        )


def measure(folder: Path) -> Iterator[Figure]:
    """Measure the demo policy and the models of ``GAPFT_BENCH_MODELS``."""
    import torch

    torch.set_num_threads(1)
    demo = Case("demo policy", resolve_model("bundled:demo"), 60, (15, 40), (10, 40), 6, 9)
    yield from compare_with_trl(folder, demo)
    dtype = choose_dtype()
    for model in list_models("training"):
        words = read_vocabulary_size(model)
        name = f"{model.name}, {dtype}"
        case = Case(name, str(model), words, (50, 130), (20, 60), 2, 2, dtype)
        yield from compare_with_trl(folder, case)
    yield measure_twelve_arms(folder)


def compare_with_trl(folder: Path, case: Case) -> Iterator[Figure]:
    """Compare each way with SFTTrainer in turn; there is no dropout, so losses are equal."""
    outputs = (folder / f"{case.name} {number}" for number in itertools.count())
    tolerance = 1e-4 if case.dtype == "float32" else 1e-2
    for way, changes in WAYS.items():
        ratios = []
        for _ in range(case.rounds):
            own_s, losses = train_ours(case.job(next(outputs), **changes))
            trl_s, expected = train_with_trl(case.job(next(outputs)))
            assert all(abs(a - b) < tolerance * b for a, b in zip(losses, expected, strict=True))
            ratios.append(own_s / trl_s)
        ratio = statistics.median(ratios)
        # theirs / ours must be at least 1.3; a figure holds if it is at most its limit
        limit = None if changes else 1 / 1.3
        name = f"{case.name}, {way}: our CPU time / SFTTrainer's"
        yield Figure(name, ratio, limit, detail=f"{1 / ratio:.2f} times as fast")


def train_ours(job: TrainingJob) -> tuple[float, list[float]]:
    """Return CPU seconds of all steps but the first, and every step's loss."""
    ends: list[float] = []
    lora(dataclasses.replace(job, progress=lambda done, total: ends.append(time.process_time())))
    lines = (job.output / "training_log.jsonl").read_text().splitlines()
    return ends[-1] - ends[0], [json.loads(line)["loss"] for line in lines]


def train_with_trl(job: TrainingJob) -> tuple[float, list[float]]:
    """Return the same for SFTTrainer with the same adapter and examples in the same order."""
    from datasets import Dataset
    from torch.utils.data import SequentialSampler
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from gapft_harness.training.model import add_lora, load_base

    settings = Training.model_validate(dict(job.settings))
    sequences = {sequence.slot: sequence for sequence in build_sequences(job.examples, settings)}
    rows = [sequences[slot] for step in plan_steps(sequences, settings, 13) for slot in step]
    data = Dataset.from_dict(
        {
            "input_ids": [[*row.prompt_ids, *row.target_ids] for row in rows],
            "labels": [[-100] * len(row.prompt_ids) + list(row.target_ids) for row in rows],
        }
    )
    ends: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.process_time())

    class InOrder(SFTTrainer):  # type: ignore[misc, unused-ignore]
        def _get_train_sampler(self, *_: Any, **__: Any) -> SequentialSampler:
            return SequentialSampler(data)

    base = load_base(job.model_args, settings)
    trainer = InOrder(
        model=add_lora(base, settings, derive_key(13, "train/init") >> 33),
        processing_class=AutoTokenizer.from_pretrained(job.model_args["pretrained"]),
        train_dataset=data,
        callbacks=[Clock()],
        args=SFTConfig(
            output_dir=str(job.output),
            per_device_train_batch_size=settings.micro_batch,
            gradient_accumulation_steps=settings.accumulation,
            num_train_epochs=1,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.clip_norm,
            max_length=None,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return ends[-1] - ends[0], [e["loss"] for e in trainer.state.log_history if "loss" in e]


_CHILD = """
import sys
from pathlib import Path
from tests.benchmarks.training import train_arms
train_arms(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]])
"""


def measure_twelve_arms(folder: Path) -> Figure:
    """Compare twelve arms in one process with a process each; both include loading."""

    def train_in_process(name: str, *seeds: int) -> float:
        words = [str(folder / name), *map(str, seeds)]
        return run_process([sys.executable, "-c", _CHILD, *words], ROOT)

    together = train_in_process("together", *range(12))
    alone = sum(train_in_process("alone", seed) for seed in range(12))
    name = "twelve arms in one process / twelve processes"
    detail = f"{together:.1f} s against {alone:.1f} s; demo policy, 8 steps an arm"
    return Figure(name, together / alone, 0.7, detail=detail)


def train_arms(folder: Path, seeds: Sequence[int]) -> None:
    """Train an arm of the demo policy for each seed on a base that is loaded once."""
    case = Case("demo policy", resolve_model("bundled:demo"), 60, (15, 40), (10, 40), 8, 1)
    shape = {"micro_batch": 16, "accumulation": 1}
    jobs = [case.job(folder / str(seed), seed, **shape) for seed in seeds]
    for _ in lora.together(jobs):
        pass
