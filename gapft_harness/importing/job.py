"""``gapft import``: whether a split is free, the job that stands in for its search, its states."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import unwritable
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import ReportProgress, report_nothing
from gapft_harness.importing.gathering import Gathering
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.recipe.recipe import sampler_settings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, Split
from gapft_harness.run_directory.lock import hold
from gapft_harness.run_directory.manifest import ImportFacts
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.recording import require_same_model, require_same_rules
from gapft_harness.run_directory.tables import write_problems
from gapft_harness.stages.generation.parts import Record, StoredResponses, part_of
from gapft_harness.stages.generation.sealing import (
    closing_verifier,
    description_of,
    write_responses,
)
from gapft_harness.stages.integrity.rests_on import require_same
from gapft_harness.stages.search.data import load_problems
from gapft_harness.stages.search.stage import finished
from gapft_harness.stages.search.states import partition

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer


def import_split(
    run_path: str,
    split: Split,
    choice: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Takes one split's responses from files, where ``search`` would generate them.

    Args:
        run_path: the run directory.
        split: one of ``splits_of``; ``calibration`` gets greedy responses alone.
        choice: what ``rows.ImportChoice`` holds.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML given by ``--include-path``.
        progress: called with responses taken and responses in all.
        recipe: as ``RunDirectory.open`` takes it.

    Returns:
        The facts that ``search`` gives, with ``imported`` (``ImportFacts``).

    Raises:
        UserError: a file is damaged, or does not hold what a search would; or the task decodes
            in episodes, or executes greedy responses repeatedly.
    """
    run = RunDirectory.open(run_path, recipe)
    if (found := finished(run.path, split)) is not None:
        return found
    progress(0, 0)
    plugins, how = load_plugins(plugin_files), ImportChoice(**choice)
    problems, task, verifier, rests = load_problems(run.recipe, split, plugins, include_paths)
    with closing_verifier(verifier):
        require_same(run, rests)
        _require_single(task, how)
        if how.judge and not plugins.rejudges(task["verifier"]):
            said = description_of(verifier)
            require_same_rules(run.manifest(), split, task["verifier"], said)
        k = 0 if split == CALIBRATION else run.recipe.search.k
        gathering = Gathering(how, problems, split, k, plugin_files)
        source, tokenizer = _source(run)
        require_same_model(run.manifest(), split, source)
        total = len(problems) * (1 + k)
        further = run.recipe.audits.get(layout.further(split))
        with _kept(run.path / layout.imported(split)) as (keep, responses):
            gathering.gather(keep, tokenizer, lambda done: progress(done, total))
            write_problems(run.path / layout.problems(split), problems, responses.prompt_ids)
            return write_responses(
                run.path / layout.responses(split),
                responses,
                problems,
                verifier,
                extra={
                    "task": task,
                    "source": source,
                    **({} if further is None else {"said": further.said()}),
                    "imported": _facts(gathering),
                    "warnings": _warnings(gathering),
                },
                executions=task["episode"]["executions"],
                judges=how.judge,
                progress=progress,
            )


def _require_single(task: Mapping[str, Any], how: ImportChoice) -> None:
    """Refuses what a file of single responses with verdicts cannot tell.

    Raises:
        UserError: the task asks for it.
    """
    episode = task["episode"]
    if episode["attempts"] > 1:
        raise UserError(
            f"task {task['name']}: decodes in episodes of {episode['attempts']} attempts, and a "
            "file holds single responses; import with --set episode.attempts=1"
        )
    if episode["executions"] > 1 and not how.judge:
        raise UserError(
            f"task {task['name']}: labels greedy responses by {episode['executions']} executions, "
            "and a file has one verdict on each; have the verifier judge (--judge), or import with "
            "--set episode.executions=1"
        )


def _source(run: RunDirectory) -> tuple[dict[str, Any], Retokenizer]:
    """What is said of the model that generated: the recipe's name of it; and its tokenizer."""
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer

    settings = sampler_settings(run.recipe)
    tokenizer = Retokenizer(settings)
    said = {
        "backend": "import",
        "pretrained": str(settings.model_args["pretrained"]),
        "tokenizer": tokenizer.name,
        "start_ids": tokenizer.start_ids,
    }
    return said, tokenizer


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[tuple[Callable[[Sequence[Record]], None], StoredResponses]]:
    """What keeps lines in a folder that is removed at the end, and the responses in them."""
    shutil.rmtree(folder, ignore_errors=True)  # of a command that was killed
    responses = StoredResponses()

    def keep(records: Sequence[Record]) -> None:
        path = folder / f"{len(list(folder.iterdir()))}.jsonl"
        try:
            path.write_bytes(part_of(records))
        except OSError as error:
            raise unwritable(path, error) from error
        responses.add(path)

    try:
        folder.mkdir(parents=True)
        yield keep, responses
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _facts(of: Gathering) -> ImportFacts:
    greedy = of.choice.greedy
    files = [
        {
            "path": path,
            "sha256": of.hashes[path],
            "format": form,
            "holds": "greedy" if path == greedy else "samples" if greedy else "both",
        }
        for path, form in of.formats.items()
    ]
    return {
        "files": files,
        "responses": of.taken,
        "samples": of.samples,
        "left_out": of.left_out,
        "verdicts": "judged" if of.choice.judge else "file",
        "told_by": ", ".join(of.told_by),
        "choice": of.choice.arguments(),
    }


def _warnings(of: Gathering) -> list[str]:
    """Sentences for the report."""
    files = ", ".join(of.formats)
    told = [
        f"responses imported from {files}: which model drew them, and by which sampling settings, "
        "is as the recipe says, and was not seen; token ids are those of its tokenizer"
    ]
    if not of.choice.judge:
        told.append(
            f"verdicts taken over from {files} ({', '.join(of.told_by)}); what this run judges "
            "itself is judged by the task's verifier, which may differ: see gapft verify"
        )
    if of.samples > of.k:
        told.append(f"the first {of.k} of {of.samples} samples of each problem were taken")
    if of.left_out:
        told.append(f"{of.left_out} responses left out, whose problem the split has not")
    return told


def require_free(place: str | Path, split: str, choice: ImportChoice) -> None:
    """Nothing answers a split yet, or this very import does.

    Raises:
        UserError: a search or another import does; or a file is not there.
    """
    given = choice.hashes()
    table = Path(place) / layout.responses(split)
    if not table.exists():
        return
    told = read_facts(table).get("imported")
    if what := "was searched" if told is None else _other(told, given, choice.arguments()):
        raise UserError(f"{table}: the {split} {what} already; import into a new run directory")


def _other(told: ImportFacts, given: dict[str, str], asked: dict[str, Any]) -> str:
    """In what an import that is there is another than the one that is asked for."""
    if {of["path"]: of["sha256"] for of in told["files"]} != given:
        return "was imported from other files"
    before = told["choice"]
    differing = [
        f"{key} {json.dumps(before.get(key))} there, {json.dumps(value)} here"
        for key, value in asked.items()
        if before.get(key) != value
    ]
    return f"was imported otherwise ({'; '.join(differing)})" if differing else ""


def state(path: Path, split: str, plugin_files: Sequence[str]) -> str:
    """Seals a split's states, and says what came of its import.

    Args:
        path: the run directory.
        split: what was imported.
        plugin_files: files given by ``--plugin``.
    """
    with hold(path):
        run = RunDirectory.open(path)
        facts = run.manifest()["imported"][split]
        said = f"{split}: {facts['responses']} responses imported"
        if split == CALIBRATION:
            return said
        if not run.is_sealed(layout.states(split)):
            partition(str(path), split, plugin_files)
        run.seal(layout.states(split))
        counts = read_facts(run.path / layout.states(split))["states"]
    return f"{said}; states: {', '.join(f'{name} {count}' for name, count in counts.items())}"
