"""A run of the real command whose recipe, data and plugins change, and a record of its work.

All work is done by plugins: they append what they do to ``work.log``, and their output depends on
everything that they receive, so that output reused wrongly differs from that of a fresh run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from gapft_harness import api
from tests.kit.command import gapft
from tests.kit.letters import write_letters, write_problems
from tests.kit.plugins import WRITE_ADAPTER, build_plugin
from tests.kit.recording_run import IN_PROCESS_PLUGIN
from tests.kit.tiny_models import write_byte_llama

#: The stages of a run before its report, which takes half of a command's time.
STAGES = ("search", "states", "select", "train", "audit")

_LOGGING = '''
import dataclasses
import hashlib
import json
import pathlib

HERE = pathlib.Path(__file__).parents[1]


def write_log(**record):
    with (HERE / "work.log").open("a") as file:
        file.write(json.dumps(record) + "\\n")


def share(*parts):
    """Return a number in [0, 1) that depends only on the parts."""
    text = json.dumps(parts, sort_keys=True, default=str).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") / 2**32
'''

#: The right answer is the last letter of the prompt. A response is the answer, its model, its
#: problem and its index.
_SAMPLER = (
    _LOGGING
    + """

def hash_files(folder):
    # what a model or an adapter is made of
    names = ("config.json", "tokenizer_config.json", "*.safetensors")
    files = [file for name in names for file in pathlib.Path(folder).glob(name)]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


class Planted:
    def __init__(self, settings, adapter):
        self._arm = adapter.arm.name if adapter else "source"
        arguments = dict(settings.model_args)
        self._model = hash_files(arguments.pop("pretrained"))
        self._settings = [
            self._model, arguments, settings.chat_template, settings.system_instruction,
            settings.start_tokens, hash_files(adapter.path) if adapter else None,
        ]

    def generate(self, requests, decoding, report):
        write_log(
            step="generate", arm=self._arm,
            indices={r.problem_id: r.indices for r in requests if not r.attempts},
        )
        return [
            Generated(
                tuple(request.text.encode()),
                tuple(
                    self._respond(request, index, seed, decoding.for_index(index))
                    for index, seed in zip(request.indices, request.seeds, strict=True)
                ),
            )
            for request in requests
        ]

    def _respond(self, request, index, seed, decoding):
        parts = [self._settings, request.text, seed, dataclasses.asdict(decoding)]
        letter = request.prompt[-1] if share(parts) < 0.4 else "?"
        name = request.problem_id.rpartition("-")[0]
        text = letter + "!" * int(9 * share(parts, "length")) + f" {self._arm} {name} {index}"
        return Generation(text, tuple(text.encode()), "stop")

    def describe(self):
        weights = f"model.safetensors {self._model['model.safetensors']}\\n"
        return {"weights_sha256": hashlib.sha256(weights.encode()).hexdigest()}

    def close(self):
        pass
"""
)

_VERIFIER = (
    _LOGGING
    + '''

class First:
    """Passes a response whose first letter is the gold answer, and that contains some words."""

    def __init__(self, word="", words=""):
        self._words = [word, *pathlib.Path(words).read_text().split()]

    def feedback(self, responses, golds):
        return [None if r[:1] == g else "again" for r, g in zip(responses, golds, strict=True)]

    def verify(self, responses, golds):
        write_log(step="judge", texts=list(responses))
        return [
            Verdict("pass" if r[:1] == g and all(w in r for w in self._words) else "fail")
            for r, g in zip(responses, golds, strict=True)
        ]


class Lenient(First):
    """Also passes every other response."""

    def verify(self, responses, golds):
        verdicts = super().verify(responses, golds)
        return [
            Verdict("pass") if len(r) % 2 else verdict
            for r, verdict in zip(responses, verdicts, strict=True)
        ]
'''
)

_TRAINER = (
    _LOGGING
    + WRITE_ADAPTER
    + '''
def train(job):
    """Write an adapter that depends on everything that a trainer receives."""
    write_log(step="train", arm=job.arm.name)
    given = [
        job.arm.name, [dataclasses.asdict(example) for example in job.examples], job.settings,
        {k: v for k, v in job.model_args.items() if k != "pretrained"}, job.base_sha256,
        job.chat_template,
    ]
    write_adapter(job.output, share(given))
    return {"seconds": 0.0}
'''
)

_SELECTOR = '''

def own(pool, n, rng, offset=0):
    """Draw from all verified problems."""
    return pool.draw(pool.verified, n + offset, rng)[offset:]
'''

_RULE = '''

def last(passing):
    """Keep the last passing sample."""
    return max(passing, key=lambda response: response.index)
'''

#: The plugin files of a run: one component each, in a folder of its own, so that an edit changes
#: the code of one.
PLUGINS = {
    "sampler/sampler.py": build_plugin(
        _SAMPLER,
        samplers=[f'"{name}", Planted, start_tokens=True' for name in ("planted", "again")],
    ),
    "verifier/verifier.py": build_plugin(
        _VERIFIER, verifiers=['"first", First', '"lenient", Lenient']
    ),
    "trainer/trainer.py": build_plugin(
        _TRAINER, trainers=[f'"{name}", train' for name in ("planted", "again")]
    ),
    "selector/selector.py": build_plugin(_SELECTOR, selectors=['"own", own']),
    "rule/rule.py": build_plugin(_RULE, response_rules=['"last", last']),
    "executor/executor.py": IN_PROCESS_PLUGIN,
}


#: The sections of the recipe; ``conditions`` and ``experiments`` are each base run's own.
_RECIPE: dict[str, Any] = {
    "name": "changing",
    "data": {"task": "letters"},
    "model": {"backend": "planted", "args": {"pretrained": "./model"}},
    "verifier": {"params": {"words": "words.txt"}},
    "search": {"k": 4, "chunk": 20},
    "evidence": {"keep": "last"},
    "seeds": [13],
    "budget": {"n": 6},
    "training": {"trainer": "planted", "repetitions": 2},
    "executor": {"name": "here"},
    "statistics": {"replicates": 20},
}

#: The work of a command: each generated, judged or trained thing, and how often.
Work = Counter[str]


@dataclass(frozen=True)
class ChangingRun:
    """A folder with a recipe, its task, model and plugins, and a store that its runs share."""

    folder: Path

    def run(
        self, name: str, *settings: str, stages: Sequence[str] = STAGES, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run the recipe with settings into the folder's run ``name``; it must succeed.

        Args:
            name: the run directory.
            settings: values of ``--set``.
            stages: the stages to run; empty: the whole command.
            options: further options.
        """
        done = self.try_run(name, *settings, stages=stages, options=options)
        assert done.returncode == 0, f"{settings}\n{done.stdout}\n{done.stderr}"
        return done

    def try_run(
        self, name: str, *settings: str, stages: Sequence[str] = STAGES, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run it as ``run`` does; the caller checks the exit status."""
        words = [part for setting in settings for part in ("--set", setting)]
        words += [part for stage in stages for part in ("--only", stage)]
        command = ["run", "recipe.yaml", "--run-dir", name, "--include-path", "tasks"]
        return gapft(*command, *self._plugins, *words, *options, cwd=self.folder)

    def verify(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run ``gapft verify`` on a run; the caller checks the exit status."""
        return gapft("verify", name, *self._plugins, cwd=self.folder)

    def take_work(self) -> Work:
        """Count the work since the last call, and forget it.

        The names are ``source pool decode``, ``source pool samples``, ``judge`` with one of these,
        ``ARM audit decode`` and ``train ARM``.
        """
        log, work = self.folder / "work.log", Work()
        for line in log.read_text().splitlines() if log.exists() else []:
            record = json.loads(line)
            if record["step"] == "train":
                work[f"train {record['arm']}"] += 1
            elif record["step"] == "judge":
                for text in record["texts"]:
                    _, arm, problem, index = text.split(" ")
                    work[f"judge {_name_decode(arm, problem, int(index))}"] += 1
            else:
                for problem, indices in record["indices"].items():
                    for index in indices:
                        work[_name_decode(record["arm"], problem, index)] += 1
        log.unlink(missing_ok=True)
        return work

    @property
    def _plugins(self) -> list[str]:
        return [part for name in PLUGINS for part in ("--plugin", name)]


def _name_decode(arm: str, problem: str, index: int) -> str:
    split = problem.rstrip("0123456789'").partition("-")[0].rstrip("0123456789'")
    return f"{arm} {split} {'decode' if index == api.GREEDY else 'samples'}"


def write_changing_run(folder: Path, conditions: Any) -> ChangingRun:
    """Write the recipe and its files into a new folder; four problems of the pool occur twice."""
    folder.mkdir(parents=True)
    text, content = "{{question}} {{answer}}", "content: [question], "
    write_letters(folder, {"pool": 60, "audit": 40, "held": 50}, text=text, more=content)
    numbers = {f"pool{number}": number for number in range(60)}
    repeated = {f"pool{number}'": number for number in range(4)}
    write_problems(folder / "tasks/pool.jsonl", numbers | repeated)
    task = folder / "tasks/letters.yaml"
    content = task.read_text().replace("verifier: contains", "verifier: first")
    content = content.replace("test: audit.jsonl", "test: audit.jsonl, held: held.jsonl")
    task.write_text(f"validation_split: held\n{content}")
    for name, source in PLUGINS.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(source)
    (folder / "words.txt").write_text("")
    write_byte_llama(folder / "model")
    recipe = {**_RECIPE, "conditions": conditions}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    return ChangingRun(folder)


def copy_changing_run(run: ChangingRun, folder: Path) -> ChangingRun:
    """Replace a folder by a copy of a changing run, so that copies are in the same place."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run.folder, folder)
    return ChangingRun(folder)


def read_outputs(run: Path) -> dict[str, Any]:
    """Read the rows of a run's tables and the weights of its adapters, by name."""
    outputs: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            outputs[name] = (table.column_names, table.to_pylist())
        elif path.name == "adapter_model.safetensors":
            outputs[name] = path.read_bytes()
    return outputs
