"""Add a finished run's responses, verdicts and adapters to a store, for other runs.

The run is verified first. The store's files are then built from the run's tables, by replaying the
responses of the model and the verdicts of the verifier, so that they have the same keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import canonical_json
from gapft_harness.core.records import GREEDY, Arm, Decoding, Gold, Problem, Verdict
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    Progress,
    ReportGeneration,
    Request,
    report_nothing,
)
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import JudgedResponse, read_judged, read_problems
from gapft_harness.stages.generation.chunks import Chunk
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.generation import (
    ChunkGenerator,
    count_chunk_problems,
    divide_into_chunks,
    generate_chunks,
)
from gapft_harness.stages.generation.stored_files import (
    StoredResponses,
    build_file,
    build_verdict_record,
)
from gapft_harness.stages.generation.verdicts import place_verdicts
from gapft_harness.stages.train.stored import MADE_FROM, is_stored, store_adapter
from gapft_harness.stages.verify.keys import GeneratedTable, remove_repeats
from gapft_harness.stages.verify.run import verify
from gapft_harness.store.recorded import read_groups
from gapft_harness.store.store import INDEX, Store, read_json

#: The facts that identify a model whose files are unknown; a sampler must report one of them.
_IDENTITY_KEYS = ("files", "weights_sha256", "responses_sha256")


@dataclass(slots=True)
class AddedWork:
    """The work that was added to a store.

    Attributes:
        responses: how many were added.
        verdicts: how many were added.
        adapters: how many were added.
        left_out: sentences on work that was not added.
    """

    responses: int = 0
    verdicts: int = 0
    adapters: int = 0
    left_out: list[str] = field(default_factory=list)


def add_run(
    path: Path,
    store: Store,
    plugin_files: Sequence[str] = (),
    progress: Progress = lambda *_: None,
) -> AddedWork:
    """Verify a run, and add all work with complete keys to a store.

    Args:
        path: the run directory.
        store: the store; existing files in it stay.
        plugin_files: files given by ``--plugin``, those that the run was made with.
        progress: called with the number of verdicts that were recomputed.

    Raises:
        GapftError: verification found a difference (nothing is added), or the disk is full.
        UserError: the folder is not a run directory, or the store cannot be written.
    """
    findings = verify(path, plugin_files, progress)
    if findings.differences:
        raise GapftError(
            "\n".join([f"{path}: not added; gapft verify reports:", *findings.differences])
        )
    run, plugins, added_work = RunDirectory.open(path), load_plugins(plugin_files), AddedWork()
    manifest = run.manifest()
    for relative in manifest["files"]:
        run_file = layout.parse_path(relative)
        if run_file is None:
            continue
        try:
            if relative in findings.tables:
                split = findings.tables[relative]
                _add_table(run, manifest, plugins, store, relative, split, added_work)
            elif run_file.kind == layout.ADAPTERS and run_file.arm in findings.adapters:
                _add_adapter(run, store, run_file.arm, added_work)
            elif run_file.name in manifest.get("imported", {}):
                raise _NotAddable("imported, not generated")
            elif run_file.kind in (layout.ADAPTERS, layout.DECISIONS, "responses"):
                raise _NotAddable("not verified: the recipe does not name it")
        except _NotAddable as error:
            added_work.left_out.append(f"{relative}: {error}")
    return added_work


class _NotAddable(GapftError):
    """Part of a run cannot be added to the store."""


def _require_identity(model: Mapping[str, Any]) -> None:
    """Refuse work of a model that is identified only by its name.

    Raises:
        _NotAddable: it is; elsewhere the same name may mean other weights.
    """
    if not any(model.get(key) for key in _IDENTITY_KEYS):
        raise _NotAddable(f"its model is identified only by name ({model})")


def _add_adapter(run: RunDirectory, store: Store, arm: Arm, added_work: AddedWork) -> None:
    folder = run.path / layout.adapter_path(arm)
    content = json.loads((folder / MADE_FROM).read_text("utf-8"))
    _require_identity(content["base"])
    group = store.find_group_of_content(content)
    if is_stored(group):
        for name, stored_hash in read_json(group.folder / INDEX)["files"].items():
            if name.endswith(".safetensors") and sha256(folder / name) != stored_hash:
                raise _NotAddable(f"the store has a different adapter under its key {group.name}")
        return
    store_adapter(group, folder, run, arm)
    added_work.adapters += 1


def _add_table(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    store: Store,
    relative: str,
    split: str,
    added_work: AddedWork,
) -> None:
    facts = read_facts(run.path / relative)
    contents = read_groups(facts["made_from"]).values()
    samplers = remove_repeats(
        content["sampler"] for content in contents if content["step"] == "generate"
    )
    verifiers = remove_repeats(
        content["verifier"] for content in contents if content["step"] == "judge"
    )
    if len(samplers) > 1 or len(verifiers) > 1:
        raise _NotAddable("made with several versions")
    (sampler,), (verifier,) = samplers, verifiers
    _require_identity(sampler["model"])
    table = GeneratedTable(run, manifest, plugins, relative, split, facts)
    by_phase = table.compute_contents(sampler, verifier)
    groups = {
        phase: store.find_group_of_content(content) for phase, (content, _) in by_phase.items()
    }
    rows = dict(read_judged(run.path / relative))
    stored_problems = read_problems(run.path / layout.problems_path(split))
    problems = {
        problem.id: (problem, ids) for problem, ids in stored_problems if problem.id in rows
    }
    episode = manifest["task"]["episode"]
    attempts = episode["attempts"]
    replay = _Replay(rows, problems, attempts)
    size = count_chunk_problems(run.recipe.search, [*groups])
    chunks = [
        Chunk.place_files(members, groups, attempts > 1)
        for members in divide_into_chunks([problem for problem, _ in problems.values()], size)
    ]
    if any(chunk.list_missing() for chunk in chunks):
        for group in groups.values():
            group.create({"source": facts["source"]})
    origin = str(run.path.resolve())
    episodes = Episodes(attempts, replay.feedback)
    generator = ChunkGenerator(replay, table.build_streams(), episodes, replay, origin)
    missing = [chunk.list_missing() for chunk in chunks]
    try:
        generate_chunks(chunks, lambda: generator, report_nothing, attempts)
    except KeyError as error:
        raise _NotAddable(f"a response that the verdicts require is missing ({error})") from error
    times, find_differing = _read_executions(facts)
    for chunk, missing_phases in zip(chunks, missing, strict=True):
        responses = StoredResponses()
        heads = {phase: responses.add(chunk.find_path(phase)) for phase in groups}
        added_work.responses += sum(heads[phase].responses for phase in missing_phases)
        for entry in responses.read([problem.id for problem in chunk.members]):
            if list(entry.responses) != [content.response for content in rows[entry.problem_id]]:
                raise _NotAddable(
                    f"the store has different responses under its keys, first to problem "
                    f"{entry.problem_id}"
                )
        verdict_places = place_verdicts(chunk, heads, verifier, episode["executions"])
        for phase in verdict_places.list_missing():
            records = []
            for problem in verdict_places.members:
                phase_rows = [
                    content
                    for content in rows[problem.id]
                    if content.response.index in phase.indices
                ]
                is_repeated = times > 1 and GREEDY in phase.indices
                if phase_rows:
                    pairs = [
                        (content.response.index, content.verdict, content.answer)
                        for content in phase_rows
                    ]
                    differing_facts = find_differing(problem.id) if is_repeated else None
                    records.append(build_verdict_record(problem.id, pairs, differing_facts))
                    added_work.verdicts += len(phase_rows)
            group, name = verdict_places.places[phase]
            group.create({})
            group.store_file(name, build_file(records, origin, group.folder / name))


def _read_executions(facts: Mapping[str, Any]) -> tuple[int, Callable[[str], list[str]]]:
    """Return how often deployment responses were judged, and a function for the differing facts."""
    executions = facts.get("executions", {"times": 1})
    keys = ("verdicts_differ", "feedback_differs")
    return executions["times"], lambda problem_id: [
        key for key in keys if problem_id in executions.get(key, ())
    ]


class _Replay:
    """The model and the verifier of a table, replayed from its rows.

    Args:
        rows: the responses with verdicts, by problem id.
        problems: the problem and its prompt's token ids, by id.
        attempts: the maximum number of attempts of an episode.
    """

    def __init__(
        self,
        rows: Mapping[str, Sequence[JudgedResponse]],
        problems: Mapping[str, tuple[Problem, tuple[int, ...]]],
        attempts: int,
    ) -> None:
        self._prompts = {problem_id: ids for problem_id, (_, ids) in problems.items()}
        self._responses = {
            (problem_id, judged_response.response.index): judged_response.response
            for problem_id, judged in rows.items()
            for judged_response in judged
        }
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._feedback: dict[tuple[str, str], str | None] = {}
        for problem_id, judged in rows.items():
            gold = canonical_json(problems[problem_id][0].gold)
            for judged_response in judged:
                self._verdicts[gold, judged_response.response.text] = judged_response.verdict
                if len(judged_response.response.attempts) + 1 < attempts:
                    self._feedback[gold, judged_response.response.text] = None
                for attempt in judged_response.response.attempts:
                    self._feedback[gold, attempt.text] = attempt.feedback

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """See ``Sampler.generate``."""
        return [self._replay_request(request) for request in requests]

    def _replay_request(self, request: Request) -> Generated:
        number, generations = len(request.attempts), []
        prompt_ids = self._prompts[request.problem_id] if not number else ()
        for index in request.indices:
            response = self._responses[request.problem_id, index]
            is_last = number == len(response.attempts)
            part = response if is_last else response.attempts[number]
            generations.append(
                Generation(
                    part.text,
                    part.token_ids,
                    part.finish_reason,
                    response.tokens_from,
                    reasoning=part.reasoning,
                )
            )
            if number and is_last:  # the table keeps no prompt ids of earlier attempts
                prompt_ids = response.context_ids
        return Generated(prompt_ids, tuple(generations))

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """See ``Verifier.verify``."""
        return [self._verdicts[canonical_json(g), r] for r, g in zip(responses, golds, strict=True)]

    def feedback(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """See ``Episodes.feedback``."""
        return [self._feedback[canonical_json(g), t] for t, g in zip(texts, golds, strict=True)]

    def describe(self) -> dict[str, Any]:
        """See ``Sampler.describe``; not used."""
        return {}

    def close(self) -> None:
        """See ``Sampler.close``."""
