"""The letters task with models that lose solved problems as their adapter is scaled up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.verify.run import verify
from tests.kit.plugins import build_plugin
from tests.kit.recording_run import LettersTask, write_letters_task

STAGES = ("states", "select", "train", "audit", "report")
SCALED = ("states", "select", "train", "audit", "experiments", "report")
SELECTED = STAGES[:2]
SPLITS = ("pool", "audit")
CALIBRATION = 90

#: The share of solved problems that each arm loses at the paper's scales, and its chosen scale.
LOSSES = {
    "gapft-seed13": ([0, 0, 0, 0], 1.0),
    "gapft-seed21": ([0, 0, 0, 0.5], 0.75),
    "uniform-seed13": ([0, 0.5, 0, 0], 0.25),
    "uniform-seed21": ([0.5, 0.5, 0.5, 0.5], 0.0),
}

#: The trainer writes a lora_B of ones, so the sampler can read the scale from the weights.
#: The file ``fuse`` beside the log, if present, holds the number of calls before a failure.
_SOURCE = """
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
        fuse = pathlib.Path(self._args["log"]).with_name("fuse")
        if fuse.exists():
            left = int(fuse.read_text())
            if not left:
                raise RuntimeError("the fuse blew")
            fuse.write_text(str(left - 1))
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
        if self._args.get("hopeless") and index == -1:
            good = False
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
"""
PLUGIN = build_plugin(
    f"LOSSES = {LOSSES!r}\n{_SOURCE}",
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
}


@dataclass(frozen=True)
class ScaledLetters(LettersTask):
    """The letters task, with models whose losses depend on the adapter's scale."""

    @property
    def plugins(self) -> list[str]:
        return [*super().plugins, str(self.folder / "by_scale.py")]

    def scale(self, name: str, stages: tuple[str, ...] = SCALED, **keys: Any) -> RunDirectory:
        scaled = {
            "statistics": {"replicates": 100},
            "experiments": {"scaling": {"calibration": CALIBRATION}},
        }
        settings = {**_SETTINGS, **scaled, **keys}
        return self.run(name, stages, (*SPLITS, "calibration"), **settings)  # type: ignore[arg-type]


class ChangingLetters(ScaledLetters):
    """The letters task with a validation split, and one run whose recipe changes."""

    def change(self, *stages: str, **keys: Any) -> RunDirectory:
        """Run the stages of the recipe with other keys."""
        is_scaled = "scaling" in keys.get("experiments", {})
        splits = (*SPLITS, "calibration") if is_scaled else SPLITS
        stages = stages or (SCALED if is_scaled else STAGES)
        settings = {**_SETTINGS, "statistics": {"replicates": 20}, **keys}
        return self.run("r", stages, splits, **settings)  # type: ignore[arg-type]

    def results(self) -> dict[str, Any]:
        """Read the run's results.json."""
        content = json.loads((self.folder / "r/report/results.json").read_text())
        return dict(content)

    def find_differences(self) -> list[str]:
        """Return the differences that verify finds."""
        return verify(self.folder / "r", self.plugins).differences


def write_task(folder: Path) -> ChangingLetters:
    """Write the task with a validation split."""
    task = ChangingLetters(write_letters_task(folder, pool=60, audit=30).folder)
    (folder / "by_scale.py").write_text(PLUGIN)
    yaml = (folder / "tasks/letters.yaml").read_text()
    yaml = yaml.replace("test: audit.jsonl", "test: audit.jsonl, held: held.jsonl")
    (folder / "tasks/letters.yaml").write_text(f"validation_split: held\n{yaml}")
    task.write("held", range(100, 160))
    return task
