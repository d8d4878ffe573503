"""``gapft import``: the job that imports a split's responses in place of its search."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import not_writable_error
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import ReportProgress, report_nothing
from gapft_harness.importing.gathering import Gathering
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.recipe.recipe import build_sampler_settings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, Split
from gapft_harness.run_directory.lock import hold_run_lock
from gapft_harness.run_directory.manifest import ImportFacts
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.recording import require_same_model, require_same_rules
from gapft_harness.run_directory.tables import write_problems
from gapft_harness.stages.generation.sealing import (
    read_description,
    write_responses,
)
from gapft_harness.stages.generation.stored_files import Record, StoredResponses, build_file
from gapft_harness.stages.integrity.inputs import require_same_inputs
from gapft_harness.stages.search.data import load_problems
from gapft_harness.stages.search.stage import read_finished_facts
from gapft_harness.stages.search.states import write_split_states
from gapft_harness.verification.judging import closing_verifier

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
        split: one of ``list_splits``; ``calibration`` gets only greedy responses.
        choice: the fields of ``rows.ImportChoice``.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML given by ``--include-path``.
        progress: called with the imported responses and all responses.
        recipe: as for ``RunDirectory.open``.

    Returns:
        The facts of ``search``, with ``imported`` (``ImportFacts``).

    Raises:
        UserError: a file is damaged or incomplete, the task decodes in episodes or executes greedy
            responses repeatedly, or the deployment decode is sampled.
    """
    run = RunDirectory.open(run_path, recipe)
    if run.recipe.search.deployment is not None:
        raise UserError(
            "search.deployment: is set, but files of responses are imported with one greedy "
            "response per problem; remove it, or search with gapft run (the backend 'recorded' "
            "replays sampled decodes from a file)"
        )
    if (earlier_facts := read_finished_facts(run.path, split)) is not None:
        return earlier_facts
    progress(0, 0)
    plugins, import_choice = load_plugins(plugin_files), ImportChoice(**choice)
    problems, task, verifier, input_facts = load_problems(run.recipe, split, plugins, include_paths)
    with closing_verifier(verifier):
        require_same_inputs(run, input_facts)
        _require_single(task, import_choice)
        if import_choice.judge and not plugins.can_rejudge(task["verifier"]):
            require_same_rules(run.manifest(), split, read_description(verifier))
        k = 0 if split == CALIBRATION else run.recipe.search.k
        gathering = Gathering(import_choice, problems, split, k, plugin_files)
        source, tokenizer = _describe_source(run)
        require_same_model(run.manifest(), split, source)
        total = len(problems) * (1 + k)
        with _keep_parts(run.path / layout.import_folder(split)) as (keep, responses):
            gathering.gather(keep, tokenizer, lambda done: progress(done, total))
            write_problems(
                run.path / layout.problems_path(split), problems, responses.iterate_prompt_ids
            )
            return write_responses(
                run.path / layout.responses_path(split),
                responses,
                problems,
                verifier,
                extra={
                    "task": task,
                    "source": source,
                    "imported": _build_facts(gathering),
                    "warnings": _build_warnings(gathering),
                },
                executions=task["episode"]["executions"],
                has_verifier=import_choice.judge,
                progress=progress,
            )


def _require_single(task: Mapping[str, Any], choice: ImportChoice) -> None:
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
    if episode["executions"] > 1 and not choice.judge:
        raise UserError(
            f"task {task['name']}: labels greedy responses by {episode['executions']} executions, "
            "but a file has one verdict for each; have the verifier judge (--judge), or import "
            "with --set episode.executions=1"
        )


def _describe_source(run: RunDirectory) -> tuple[dict[str, Any], Retokenizer]:
    """Describe the model of the responses by its name in the recipe, and load its tokenizer."""
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer

    settings = build_sampler_settings(run.recipe)
    tokenizer = Retokenizer(settings)
    facts = {
        "backend": "import",
        "pretrained": str(settings.model_args["pretrained"]),
        "tokenizer": tokenizer.name,
        "start_ids": tokenizer.start_ids,
    }
    return facts, tokenizer


@contextlib.contextmanager
def _keep_parts(
    folder: Path,
) -> Iterator[tuple[Callable[[Sequence[Record]], None], StoredResponses]]:
    """Provide a function that stores lines in a temporary folder, and the responses in them."""
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed command
    responses = StoredResponses()

    def keep(records: Sequence[Record]) -> None:
        path = folder / f"{len(list(folder.iterdir()))}.jsonl"
        try:
            path.write_bytes(build_file(records))
        except OSError as error:
            raise not_writable_error(path, error) from error
        responses.add(path)

    try:
        folder.mkdir(parents=True)
        yield keep, responses
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build_facts(gathering: Gathering) -> ImportFacts:
    greedy = gathering.choice.greedy
    files = [
        {
            "path": path,
            "sha256": gathering.hashes[path],
            "format": file_format,
            "holds": "greedy" if path == greedy else "samples" if greedy else "both",
        }
        for path, file_format in gathering.formats.items()
    ]
    return {
        "files": files,
        "responses": gathering.response_count,
        "samples": gathering.samples,
        "left_out": gathering.left_out,
        "verdicts": "judged" if gathering.choice.judge else "file",
        "verdict_field": ", ".join(gathering.verdict_sources),
        "choice": gathering.choice.to_arguments(),
    }


def _build_warnings(gathering: Gathering) -> list[str]:
    """Build the report's warnings on an import."""
    files = ", ".join(gathering.formats)
    warnings = [
        f"responses imported from {files}: their model and sampling settings are those of the "
        "recipe, which cannot be checked; token ids are those of its tokenizer"
    ]
    if not gathering.choice.judge:
        warnings.append(
            f"verdicts imported from {files} ({', '.join(gathering.verdict_sources)}); this run "
            "judges other responses with the task's verifier, which may differ: see gapft verify"
        )
    if gathering.samples > gathering.k:
        warnings.append(
            f"only the first {gathering.k} of {gathering.samples} samples of each problem were "
            "imported"
        )
    if gathering.left_out:
        warnings.append(
            f"{gathering.left_out} responses left out, because their problem is not in the split"
        )
    return warnings


def require_not_searched(place: str | Path, split: str, choice: ImportChoice) -> None:
    """Check that a split has no responses yet, or those of the same import.

    Raises:
        UserError: the split has responses of a search or of another import, or a file is missing.
    """
    hashes = choice.compute_hashes()
    table = Path(place) / layout.responses_path(split)
    if not table.exists():
        return
    stored_facts = read_facts(table).get("imported")
    if (
        difference := "was searched"
        if stored_facts is None
        else _describe_difference(stored_facts, hashes, choice.to_arguments())
    ):
        raise UserError(
            f"{table}: the {split} {difference} already; import into a new run directory"
        )


def _describe_difference(
    stored_facts: ImportFacts, hashes: dict[str, str], arguments: dict[str, Any]
) -> str:
    """Describe how an earlier import differs from the requested one; empty if it does not."""
    if {file["path"]: file["sha256"] for file in stored_facts["files"]} != hashes:
        return "was imported from other files"
    stored_choice = stored_facts["choice"]
    differing = [
        f"{key}: {json.dumps(stored_choice.get(key))} before, {json.dumps(value)} now"
        for key, value in arguments.items()
        if stored_choice.get(key) != value
    ]
    return f"was imported with other options ({'; '.join(differing)})" if differing else ""


def seal_states(path: Path, split: str, plugin_files: Sequence[str]) -> str:
    """Seal a split's states, and summarize its import in a line.

    Args:
        path: the run directory.
        split: the imported split.
        plugin_files: files given by ``--plugin``.
    """
    with hold_run_lock(path):
        run = RunDirectory.open(path)
        facts = run.manifest()["imported"][split]
        text = f"{split}: {facts['responses']} responses imported"
        if split == CALIBRATION:
            return text
        if not run.is_sealed(layout.states_path(split)):
            write_split_states(str(path), split, plugin_files)
        run.seal(layout.states_path(split))
        counts = read_facts(run.path / layout.states_path(split))["states"]
    return f"{text}; states: {', '.join(f'{name} {count}' for name, count in counts.items())}"
