"""Training compared with TRL's SFTTrainer, and twelve arms with twelve separate runs.

``GAPFT_BENCH_MODELS`` names model folders, separated as in ``PATH``, that are measured too.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm, Example
from gapft_harness.core.streams import derive_key
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.recipe import resolve_model
from gapft_harness.recipe.sections import Training
from gapft_harness.training.plan import build_sequences, plan_steps
from tests.benchmarks.measure import Figure, list_models, read_vocabulary_size, run_process


@dataclass(frozen=True)
class Case:
    """A base model and sequences of its usual lengths."""

    name: str
    model: str
    vocabulary: int
    prompt: tuple[int, int]
    response: tuple[int, int]
    steps: int
    rounds: int
    dtype: str = "float32"

    def examples(self, number: int) -> list[Example]:
        """Build examples with random ids."""
        draw = random.Random(number)

        def ids(least: int, most: int) -> tuple[int, ...]:
            return tuple(
                draw.randrange(3, self.vocabulary) for _ in range(draw.randint(least, most))
            )

        return [
            Example(f"p{i}", "S", ids(*self.prompt), ids(*self.response), 0, 0, ended=False)
            for i in range(number)
        ]

    def settings(self, **changes: Any) -> Training:
        """Return the paper's logic settings with one repetition and the changes."""
        chosen = {"dtype": self.dtype, "dropout": 0.0, "repetitions": 1}
        return Training(**{**chosen, **changes})

    def job(self, output: Path, examples: Sequence[Example], **changes: Any) -> TrainingJob:
        """Build a job with the paper's logic settings on these examples, in the case's dtype."""
        settings = self.settings(**changes)
        return TrainingJob(
            arm=Arm("bench", 13),
            examples=examples,
            settings=settings.model_dump(mode="json"),
            model_args={"pretrained": self.model, "device": "cpu"},
            output=output,
        )


def measure(folder: Path) -> Iterator[Figure]:
    """Measure the demo policy and the models of ``GAPFT_BENCH_MODELS``."""
    import torch

    torch.set_num_threads(1)
    demo = Case("demo policy", resolve_model("bundled:demo"), 60, (15, 40), (10, 40), 6, 9)
    yield from compare_with_trl(folder, demo)
    for model in list_models("training"):
        words = read_vocabulary_size(model)
        case = Case(model.name, str(model), words, (50, 130), (20, 60), 2, 2, "bfloat16")
        yield from compare_with_trl(folder, case)
    yield measure_twelve_arms(folder, demo)


#: Our settings: the literal 2 x 8, as SFTTrainer's, and the same steps without padding.
_WAYS: dict[str, dict[str, Any]] = {"padded 2 x 8": {}, "without padding": {"padding_free": True}}


def compare_with_trl(folder: Path, case: Case) -> list[Figure]:
    """Compare our settings with SFTTrainer in turn; there is no dropout, so losses are equal."""
    examples = case.examples(16 * case.steps)
    # without the first step, which is not timed
    steps = plan_steps([e.problem_id for e in examples], Training(repetitions=1), 13)
    length = {e.problem_id: len(e.response_ids) for e in examples}
    tokens = sum(length[slot] for step in steps[1:] for slot in step)
    trl_seconds: list[float] = []
    measured: dict[str, list[float]] = {way: [] for way in _WAYS}
    gap = 0.0
    for turn in range(case.rounds):
        seconds, expected = train_with_trl(folder / f"{case.name} theirs {turn}", case, examples)
        trl_seconds.append(seconds)
        for way, changes in _WAYS.items():
            output = folder / f"{case.name} {way} {turn}"
            seconds, losses = train_ours(output, case, examples, **changes)
            measured[way].append(seconds)
            gaps = (abs(a - b) / b for a, b in zip(losses, expected, strict=True))
            gap = max(gap, *gaps)
    figures = []
    for way, seconds_of_way in measured.items():
        # theirs / ours must be at least 1.3; a figure holds if it is at most its limit
        ratio = statistics.median(o / t for o, t in zip(seconds_of_way, trl_seconds, strict=True))
        rates = (tokens / statistics.median(s) for s in (seconds_of_way, trl_seconds))
        detail = "{:.0f} supervised tokens a CPU second against {:.0f}".format(*rates)
        limit = 1 / 1.3 if way == "padded 2 x 8" else None
        name = f"{case.name}, {way}: our CPU time / SFTTrainer's"
        figures.append(
            Figure(name, ratio, limit, detail=f"{detail}; {1 / ratio:.2f} times as fast")
        )
    largest = f"{case.name}: largest relative difference of a loss, of all ways"
    return [*figures, Figure(largest, gap, 1e-4 if case.dtype == "float32" else 1e-2, "")]


def train_ours(
    output: Path, case: Case, examples: Sequence[Example], **changes: Any
) -> tuple[float, list[float]]:
    """Return CPU seconds of all steps but the first, and every step's loss."""
    import json

    from gapft_harness.training.lora import train

    seen: list[float] = []
    job = case.job(output, examples, **changes)
    train(dataclasses.replace(job, progress=lambda done, total: seen.append(time.process_time())))
    lines = (output / "training_log.jsonl").read_text().splitlines()
    return seen[-1] - seen[0], [json.loads(line)["loss"] for line in lines]


def train_with_trl(
    output: Path, case: Case, examples: Sequence[Example]
) -> tuple[float, list[float]]:
    """Return the same for SFTTrainer with the same adapter and examples in the same order."""
    from datasets import Dataset
    from torch.utils.data import SequentialSampler
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from gapft_harness.training.model import add_lora, load_base

    job = case.job(output, examples)
    settings = Training.model_validate(dict(job.settings))
    fitted = {s.slot: s for s in build_sequences(examples, settings)}
    rows = [fitted[slot] for step in plan_steps(fitted, settings, 13) for slot in step]
    data = Dataset.from_dict(
        {
            "input_ids": [[*r.prompt_ids, *r.target_ids] for r in rows],
            "labels": [[-100] * len(r.prompt_ids) + list(r.target_ids) for r in rows],
        }
    )
    seen: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            seen.append(time.process_time())

    class InOrder(SFTTrainer):  # type: ignore[misc, unused-ignore]
        def _get_train_sampler(self, *_: Any, **__: Any) -> SequentialSampler:
            return SequentialSampler(data)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = InOrder(
            model=add_lora(
                load_base(job.model_args, settings), settings, derive_key(13, "train/init") >> 33
            ),
            processing_class=AutoTokenizer.from_pretrained(case.model),
            train_dataset=data,
            callbacks=[Clock()],
            args=SFTConfig(
                output_dir=str(output),
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
    return seen[-1] - seen[0], [e["loss"] for e in trainer.state.log_history if "loss" in e]


_CHILD = """
import sys
from pathlib import Path
from tests.benchmarks.training import train_arms
train_arms(Path(sys.argv[1]), sys.argv[2], [int(seed) for seed in sys.argv[3:]])
"""


def measure_twelve_arms(folder: Path, case: Case) -> Figure:
    """Compare twelve arms in one process with a process each; both include loading."""
    seeds = [str(seed) for seed in range(1, 13)]
    command = [sys.executable, "-c", _CHILD]
    root = Path(__file__).parents[2]
    together = run_process([*command, str(folder / "together"), case.model, *seeds], root).seconds
    alone = sum(
        run_process([*command, str(folder / "alone"), case.model, seed], root).seconds
        for seed in seeds
    )
    return Figure(
        "twelve arms in one process / twelve processes",
        together / alone,
        0.7,
        detail=f"{together:.1f} s against {alone:.1f} s; demo policy, 8 steps an arm",
    )


def train_arms(folder: Path, model: str, seeds: Sequence[int]) -> None:
    """Train an arm for each seed on a base that is loaded once."""
    from gapft_harness.training.lora import train_together

    case = Case("demo policy", model, 60, (15, 40), (10, 40), 8, 1)
    jobs = [
        dataclasses.replace(
            case.job(folder / str(seed), case.examples(128), micro_batch=16, accumulation=1),
            arm=Arm("bench", seed),
        )
        for seed in seeds
    ]
    for _ in train_together(jobs):
        pass
