"""``gapft import``: the job that imports a split's responses in place of its search."""

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
    """Import one split's responses from files, in place of generating them in ``search``.

    Args:
        run_path: the run directory.
        split: one of ``splits_of``; ``calibration`` gets only greedy responses.
        choice: the fields of ``rows.ImportChoice``.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML given by ``--include-path``.
        progress: called with the imported responses and all responses.
        recipe: as for ``RunDirectory.open``.

    Returns:
        The facts of ``search``, with ``imported`` (``ImportFacts``).

    Raises:
        UserError: a file is damaged or incomplete, or the task decodes in episodes or executes
            greedy responses repeatedly.
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
    """Check that the task needs only single responses with one verdict each.

    Raises:
        UserError: the task needs episodes or repeated executions.
    """
    episode = task["episode"]
    if episode["attempts"] > 1:
        raise UserError(
            f"task {task['name']}: decodes in episodes of {episode['attempts']} attempts, but a "
            "file contains single responses; import with --set episode.attempts=1"
        )
    if episode["executions"] > 1 and not how.judge:
        raise UserError(
            f"task {task['name']}: labels greedy responses by {episode['executions']} executions, "
            "but a file has one verdict for each; have the verifier judge (--judge), or import "
            "with --set episode.executions=1"
        )


def _source(run: RunDirectory) -> tuple[dict[str, Any], Retokenizer]:
    """Describe the model of the responses by its name in the recipe, and load its tokenizer."""
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
    """Provide a function that stores lines in a temporary folder, and the responses in them."""
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed command
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
    """Build the report's warnings on an import."""
    files = ", ".join(of.formats)
    told = [
        f"responses imported from {files}: their model and sampling settings are those of the "
        "recipe, which cannot be checked; token ids are those of its tokenizer"
    ]
    if not of.choice.judge:
        told.append(
            f"verdicts imported from {files} ({', '.join(of.told_by)}); this run judges other "
            "responses with the task's verifier, which may differ: see gapft verify"
        )
    if of.samples > of.k:
        told.append(f"only the first {of.k} of {of.samples} samples of each problem were imported")
    if of.left_out:
        told.append(f"{of.left_out} responses left out, because their problem is not in the split")
    return told


def require_free(place: str | Path, split: str, choice: ImportChoice) -> None:
    """Check that a split has no responses yet, or those of the same import.

    Raises:
        UserError: the split has responses of a search or of another import, or a file is missing.
    """
    given = choice.hashes()
    table = Path(place) / layout.responses(split)
    if not table.exists():
        return
    told = read_facts(table).get("imported")
    if what := "was searched" if told is None else _other(told, given, choice.arguments()):
        raise UserError(f"{table}: the {split} {what} already; import into a new run directory")


def _other(told: ImportFacts, given: dict[str, str], asked: dict[str, Any]) -> str:
    """Describe how an earlier import differs from the requested one; empty if it does not."""
    if {of["path"]: of["sha256"] for of in told["files"]} != given:
        return "was imported from other files"
    before = told["choice"]
    differing = [
        f"{key}: {json.dumps(before.get(key))} before, {json.dumps(value)} now"
        for key, value in asked.items()
        if before.get(key) != value
    ]
    return f"was imported with other options ({'; '.join(differing)})" if differing else ""


def state(path: Path, split: str, plugin_files: Sequence[str]) -> str:
    """Seal a split's states, and summarize its import in a line.

    Args:
        path: the run directory.
        split: the imported split.
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
