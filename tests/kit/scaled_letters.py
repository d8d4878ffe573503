"""The letters task with models that lose solved problems as their adapter is scaled up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapft_harness.run_directory.directory import RunDirectory
from tests.kit.plugins import build_plugin
from tests.kit.recording_run import LettersTask, write_letters_task

STAGES = ("states", "select", "train", "audit", "experiments", "report")
SPLITS = ("pool", "audit", "calibration")
CALIBRATION = 90

#: The share of solved problems that each arm loses at the paper's scales, and its chosen scale.
LOSSES = {
    "gapft-seed13": ([0, 0, 0, 0], 1.0),
    "gapft-seed21": ([0, 0, 0, 0.5], 0.75),
    "uniform-seed13": ([0, 0.5, 0, 0], 0.25),
    "uniform-seed21": ([0.5, 0.5, 0.5, 0.5], 0.0),
}

#: The trainer writes a lora_B of ones, so the sampler can read the scale from the weights.
PLUGIN = build_plugin(
    f"LOSSES = {LOSSES!r}\n"
    + """
import hashlib
import json
import pathlib

SCALES = [0.25, 0.5, 0.75, 1.0]


def share(*parts):
    return hashlib.sha256(" ".join(parts).encode()).digest()[0] / 256


def solved(problem_id):
    return share(problem_id, "solved") < 0.7


def right(arm, scale, problem_id):
    if arm is None or not scale:
        return solved(problem_id)
    if solved(problem_id):
        return share(problem_id, "lost") >= LOSSES.get(arm, [[0] * 4])[0][SCALES.index(scale)]
    return share(problem_id, "gained") < scale / 2


class ByScale:
    def __init__(self, settings, adapter):
        self._args = settings.model_args
        self._arm, self._scale, self._adapter = None, None, None
        if adapter is not None:
            from safetensors.torch import load_file

            folder = pathlib.Path(adapter.path)
            weights = load_file(folder / "adapter_model.safetensors")
            assert weights["q.lora_A.weight"].eq(1).all()
            self._arm, self._scale = adapter.arm.name, float(weights["q.lora_B.weight"][0, 0])
            self._adapter = {"arm": self._arm, "weights_sha256": weights_hash(folder)}

    def generate(self, requests, decoding, report):
        with open(self._args["log"], "a") as file:
            ids = [r.problem_id for r in requests]
            file.write(json.dumps([self._arm, self._scale, decoding.do_sample, ids]) + "\\n")
        return [
            Generated(
                tuple(r.prompt.encode()), tuple(self._answer(r, i) for i in r.indices)
            )
            for r in requests
        ]

    def _answer(self, request, index):
        good = index == 1 or right(self._arm, self._scale, request.problem_id)
        text = "it is " + request.prompt[-1] if good else "?"
        return Generation(text, tuple(text.encode()), "stop")

    def describe(self):
        return {"model": "by scale", "adapter": self._adapter}

    def close(self):
        pass


def train(job):
    import torch
    from safetensors.torch import save_file

    job.output.mkdir(parents=True)
    (job.output / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    ones = {f"{m}.lora_{x}.weight": torch.ones(2, 2) for x in "AB" for m in "qv"}
    ones["v.lora_A.weight"] *= share(job.arm.name)  # no two arms have one adapter
    save_file(ones, job.output / "adapter_model.safetensors")
    return {"seconds": 0.0}
""",
    samplers=['"by_scale", ByScale, operational=["log"]'],
    trainers=['"ones", train'],
)

_SETTINGS: dict[str, Any] = {
    "conditions": ["gapft", "uniform"],
    "seeds": [13, 21],
    "budget": {"n": 4},
    "model": {"backend": "by_scale"},
    "training": {"trainer": "ones", "repetitions": 1},
    "search": {"k": 2, "chunk": 20},
    "statistics": {"replicates": 100},
    "experiments": {
        "scaling": {"calibration": CALIBRATION},
        "scope": {"k": [1, 2], "adapters": "scaled"},
        "stability": {"sets": 2, "k": 2, "adapters": "scaled"},
    },
}


def write_scaled_letters(folder: Path, pool: int, audit: int) -> LettersTask:
    """Write the letters task, and models whose losses depend on the adapter's scale."""
    (folder / "by_scale.py").write_text(PLUGIN)
    return write_letters_task(folder, pool, audit)


def scale(
    task: LettersTask, name: str, stages: tuple[str, ...] = STAGES, **keys: Any
) -> RunDirectory:
    """Run the recipe with other sections; without stages, only its search."""
    return task.run(name, stages, SPLITS, **{**_SETTINGS, **keys})  # type: ignore[arg-type]
