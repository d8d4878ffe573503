"""Run stages in this process on a task of letters, with a sampler that records its calls."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.hooks.protocols import Job, Progress
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import SPLITS, RunDirectory, Split
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_stages
from tests.kit.letters import CONTAINS_SOURCE, write_letters, write_problems
from tests.kit.plugins import ANSWERING, build_plugin

#: The sampler writes its settings and every call to model.args.log. The last letter of a prompt
#: is the right answer. Greedy responses and sample 2 are wrong, other samples are right and end
#: with 5, 3, 1 or 4 exclamation marks; model.args.finish is their finish reason. The file
#: ``weights`` beside the log, if it exists, has the hash of the model's weights.
_SOURCE = '''
import dataclasses
import json
import pathlib


class Recording(Answering):
    def __init__(self, settings, adapter):
        super().__init__(settings, adapter)
        self._log({"settings": dataclasses.asdict(settings)})

    def _log(self, record):
        with open(self._args["log"], "a") as file:
            file.write(json.dumps(record) + "\\n")

    def generate(self, requests, decoding, report):
        for request in requests:
            decodings = [
                dataclasses.asdict(decoding.for_index(index)) for index in request.indices
            ]
            self._log(
                {"id": request.problem_id, "indices": request.indices, "decodings": decodings}
            )
        return super().generate(requests, decoding, report)

    def _write(self, request, index):
        if index in (-1, 2):
            return "?"
        return "so it is " + request.prompt[-1] + "!" * (5, 3, 1, 4)[index % 4]

    def describe(self):
        weights = pathlib.Path(self._args["log"]).with_name("weights")
        return {
            "model": "recording",
            "weights_sha256": weights.read_text() if weights.exists() else None,
        }


class Nothing:
    """Passes nothing. Takes no parameters."""

    def verify(self, responses, golds):
        return [Verdict("fail") for _ in responses]
'''

_PLUGIN = build_plugin(
    ANSWERING + _SOURCE + CONTAINS_SOURCE,
    samplers=['"recording", Recording, start_tokens=True, operational=["log"]'],
    verifiers=['"contains", Contains', '"nothing", Nothing'],
    response_rules=['"last", lambda passing: max(passing, key=lambda response: response.index)'],
)


class InProcessExecutor:
    """An executor that runs jobs in this process, one after another."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Call each job's function."""
        results = []
        for job in jobs:
            module, _, name = job.function.partition(":")
            results.append(getattr(importlib.import_module(module), name)(**job.arguments))
        return results

    def close(self) -> None:
        """Do nothing."""


#: The file of a plugin with this executor, named ``here``.
IN_PROCESS_PLUGIN = build_plugin(
    "from tests.kit.recording_run import InProcessExecutor\n",
    executors=['"here", lambda settings, files: InProcessExecutor()'],
)


@dataclass(frozen=True)
class LettersTask:
    """A folder with the task, its data and the plugin; a test may add more plugin files."""

    folder: Path

    def write(self, split: str, rows: Sequence[int], repeats: int = 0) -> None:
        """Write a split's file with a record for each number; ``repeats`` of them occur twice."""
        numbers = {f"{split}{row}": row for row in rows}
        repeated = {f"{split}{row}'": row for row in rows[:repeats]}
        write_problems(self.folder / "tasks" / f"{split}.jsonl", numbers | repeated)

    def run(
        self,
        name: str,
        stages: Sequence[str] = (),
        splits: Sequence[Split] = ("pool",),
        at: str | None = None,
        **keys: Any,
    ) -> RunDirectory:
        """Search ``splits``, then run ``stages``.

        ``keys`` are sections of the recipe; the folder is ``at``, else ``name``.
        """
        path = self.folder / name
        keys["model"] = {
            "backend": "recording",
            "chat_template": False,  # which the command decides
            **keys.get("model", {}),
            "args": {
                "pretrained": "none",
                "log": f"{path}.log",
                **keys.get("model", {}).get("args", {}),
            },
        }
        keys["data"] = {"task": "letters", **keys.get("data", {})}
        recipe = check_recipe({"name": name, "seeds": [13], **keys}, "test")
        run = RunDirectory.create_or_open(self.folder / (at or name), recipe)
        run_stages(self.context(run, splits), ["search", *stages], lambda stage: None)
        return run

    def context(self, run: RunDirectory, splits: Sequence[Split] = SPLITS) -> Context:
        """Return the context of a run whose jobs run in this process."""
        folders = [str(self.folder / "tasks")]
        return Context(run, InProcessExecutor(), self.plugins, folders, splits)

    @property
    def plugins(self) -> list[str]:
        """The plugin files, as for ``--plugin``."""
        return [str(path) for path in sorted(self.folder.glob("*.py"))]

    def log(self, name: str) -> list[dict[str, Any]]:
        """Return the sampler's records of a run."""
        lines = Path(f"{self.folder / name}.log").read_text().splitlines()
        return [json.loads(line) for line in lines]


def write_letters_task(folder: Path, pool: int = 24, audit: int = 21) -> LettersTask:
    """Write the task, its plugin and its data."""
    more = 'params: {word: ""}, content: [question], '
    write_letters(folder, {"pool": pool, "audit": audit}, text="{{question}} {{answer}}", more=more)
    (folder / "plugin.py").write_text(_PLUGIN)
    return LettersTask(folder)
