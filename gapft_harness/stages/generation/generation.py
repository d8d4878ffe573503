"""Generate responses; shared by search and audit.

The problems are divided into chunks, by the problems and the settings alone: not by the remaining
work, the clock or the number of workers. For each chunk and phase, the store keeps one file of
responses under a key of all their inputs (``made_from.py``). A command that needs the same
responses again (after a kill, in another run or with more samples) generates only missing ones.
Verdicts are stored in the same way (``verdicts.py``). Each sample draws from its own random stream
(``streams.SampleStreams``).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import BLOCK, GREEDY, Adapter, Decoding, Problem
from gapft_harness.core.streams import SampleStreams, derive_key
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import (
    Generated,
    ReportProgress,
    Request,
    Sampler,
    SamplerSettings,
)
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings
from gapft_harness.recipe.sections import Search
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recording import require_same_model, require_same_rules
from gapft_harness.stages.generation.chunks import (
    Chunk,
    DecodePhase,
    Work,
    iterate_claimed,
    list_groups,
    require_unedited_groups,
)
from gapft_harness.stages.generation.episodes import (
    Episodes,
    build_episodes,
    build_next_requests,
    check_conversations,
)
from gapft_harness.stages.generation.first_chunk import check_first_chunk, require_fitting_prompt
from gapft_harness.stages.generation.made_from import (
    REPORTED_MODEL_KEYS,
    describe_sampler,
    describe_verifier,
)
from gapft_harness.stages.generation.reuse import (
    REUSE_KEY,
    ReuseCounts,
    count_missing_verdicts,
    count_reused_responses,
    count_stored_responses,
)
from gapft_harness.stages.generation.sealing import (
    write_responses,
)
from gapft_harness.stages.generation.stored_files import (
    DraftResponses,
    Record,
    Responses,
    StoredResponses,
    build_file,
    build_response_records,
    read_head,
    select_responses,
)
from gapft_harness.stages.generation.verdicts import ChunkJudge, judge_chunks, place_verdicts
from gapft_harness.store.recorded import record_groups
from gapft_harness.store.store import Store

#: Increase it when stored responses could be misread, or an unchanged key would stand for different
#: responses.
VERSION = 1


def count_chunk_problems(search: Search, phases: Sequence[DecodePhase]) -> int:
    """Return the number of problems in a chunk: ``search.chunk``, or ``BLOCK`` times as many.

    Chunks with one response per problem are larger. So they have as many responses as other chunks:
    batches are full, and a killed command loses about the same amount of work.
    """
    is_single = all(len(phase.indices) == 1 for phase in phases)
    return search.chunk * BLOCK if is_single else search.chunk


def build_greedy_phase(decoding: Decoding) -> DecodePhase:
    """Build the phase of the greedy deployment decode d(x) alone."""
    return DecodePhase("greedy", decoding, (GREEDY,))


def build_deployment_phase(greedy: Decoding, search: Search) -> DecodePhase:
    """Build the phase of the deployment decode alone.

    Args:
        greedy: the greedy decode, with limit and stop strings.
        search: the recipe's section.
    """
    if (deployment := search.deployment) is None:
        return build_greedy_phase(greedy)
    decoding = Decoding(
        True,
        greedy.max_gen_toks,
        greedy.until,
        deployment.temperature,
        deployment.top_p,
        deployment.top_k,
        samples_deployment=True,
    )
    return DecodePhase("deployment", decoding, (GREEDY,))


def build_sampled_decoding(greedy: Decoding, search: Search) -> Decoding:
    """Build the decoding of samples, with limit and stop strings of the greedy decode."""
    return Decoding(
        True, greedy.max_gen_toks, greedy.until, search.temperature, search.top_p, search.top_k
    )


def build_sample_phases(decoding: Decoding, samples: int) -> list[DecodePhase]:
    """Build the phases of a number of samples, without a greedy decode.

    Args:
        decoding: the samples' decoding.
        samples: the number of samples of each problem.
    """
    blocks = [range(first, min(first + BLOCK, samples)) for first in range(0, samples, BLOCK)]
    return [DecodePhase(f"{block.start}-{block[-1]}", decoding, tuple(block)) for block in blocks]


def build_search_phases(greedy: Decoding, search: Search) -> list[DecodePhase]:
    """Build the phases of a search: the deployment decode, and samples in blocks.

    Args:
        greedy: the greedy decode, with limit and stop strings.
        search: the recipe's section.
    """
    return [
        build_deployment_phase(greedy, search),
        *build_sample_phases(build_sampled_decoding(greedy, search), search.k),
    ]


def divide_into_chunks(problems: Sequence[Problem], chunk: int) -> list[list[Problem]]:
    """Divide problems into chunks, in the order in which a limit selects problems.

    So a larger limit keeps all full chunks of a smaller one. Within a chunk, longer prompts come
    first, so that batches have prompts of similar length. A worker gets complete chunks, so the
    number of workers does not change responses.
    """
    ordered = sorted(problems, key=lambda problem: (derive_key("limit", problem.id), problem.id))
    return [
        sorted(ordered[start : start + chunk], key=lambda member: (-len(member.prompt), member.id))
        for start in range(0, len(ordered), chunk)
    ]


@dataclass(frozen=True)
class ChunkGenerator:
    """Generates and stores the missing responses of chunks.

    Attributes:
        sampler: the model.
        streams: the samples' random streams.
        episodes: the settings of episodes; None for single responses.
        judge: reads the answers of the first chunk.
        run: the run directory that responses are generated for, recorded in stored files.
        keeps_verdicts: whether verdicts of the sampler are kept; else they are an error.
    """

    sampler: Sampler
    streams: SampleStreams
    episodes: Episodes | None = None
    judge: Judge | None = None
    run: str = ""
    keeps_verdicts: bool = False

    def generate_missing(self, chunk: Chunk, progress: _GenerationProgress, is_first: bool) -> None:
        """Generate and store the missing phases of a chunk; its claim must be held.

        Args:
            chunk: the problems and the files of their responses.
            progress: counts and reports the responses.
            is_first: whether it is a split's first chunk, whose responses are checked.
        """
        missing = chunk.list_missing()
        for samples_deployment in (True, False):  # one call of a sampler has one temperature
            phases = [
                phase
                for phase in missing
                if phase.decoding.samples_deployment == samples_deployment
            ]
            if not phases:
                continue
            indices = tuple(index for phase in phases for index in phase.indices)
            decoding = phases[-1].decoding  # index GREEDY implies its own decoding
            records = self._generate_attempts(chunk.members, indices, decoding, progress, is_first)
            for phase in phases:
                self._store_phase(chunk, phase, select_responses(records, phase.indices))
            progress.report_stored()
            is_first = False

    @property
    def _max_attempts(self) -> int:
        return self.episodes.attempts if self.episodes else 1

    def _generate_attempts(
        self,
        members: Sequence[Problem],
        indices: tuple[int, ...],
        decoding: Decoding,
        progress: _GenerationProgress,
        is_first: bool,
    ) -> list[Record]:
        """Generate the responses of some indices, attempt by attempt."""
        draft = DraftResponses()
        records: list[Record] = []
        for attempt in range(1, self._max_attempts + 1):
            if attempt == 1:
                requests = [
                    Request(
                        p.id,
                        p.prompt,
                        indices,
                        self.streams.derive_seeds(
                            p.id, attempt, indices, decoding.samples_deployment
                        ),
                        turns=p.turns,
                    )
                    for p in members
                ]
            else:
                assert self.episodes is not None
                requests = build_next_requests(
                    self.episodes,
                    members,
                    indices,
                    attempt,
                    draft,
                    self.streams,
                    decoding.samples_deployment,
                )
            response_count = sum(len(request.indices) for request in requests)
            progress.expect_fewer(len(members) * len(indices) - response_count)
            answers = (
                self.sampler.generate(requests, decoding, progress.report_unstored)
                if requests
                else []
            )
            if attempt > 1:
                check_conversations(requests, answers, draft)
            elif is_first:
                self._check_first_responses(members, answers, decoding, progress)
            has_verdicts = any(g.passed is not None for a in answers for g in a.generations)
            if has_verdicts and not self.keeps_verdicts:
                raise UserError(
                    "the sampler returned verdicts (passed), which only a search with "
                    "search.responses keeps; name the file there, or remove its verdicts"
                )
            new_records = build_response_records(requests, answers)
            draft.add(new_records)
            records += new_records
            tokens = sum(len(g.token_ids) for answer in answers for g in answer.generations)
            progress.count_generated(response_count, tokens)
        return records

    def _check_first_responses(
        self,
        members: Sequence[Problem],
        answers: Sequence[Generated],
        decoding: Decoding,
        progress: _GenerationProgress,
    ) -> None:
        """Stop if no prompt fits the context; add notes on faults of a split's first responses."""
        if len(members) >= min(BLOCK, progress.problems):
            require_fitting_prompt(answers, decoding)
        if self.judge is not None:
            for note in check_first_chunk(members, answers, decoding, self.judge):
                progress.add_note(note)

    def _store_phase(self, chunk: Chunk, phase: DecodePhase, records: Sequence[Record]) -> None:
        group, name = chunk.places[phase]
        group.store_file(name, build_file(records, self.run, group.folder / name))


class _GenerationProgress:
    """Counts a split's responses for ``ReportProgress``.

    The total decreases when episodes end early.
    """

    def __init__(self, progress: ReportProgress, problems: int, done: int, total: int) -> None:
        self.problems = problems
        self._progress, self._done, self._total, self._tokens = progress, done, total, 0
        self._notes: list[str] = []
        progress(done, total)

    def report_unstored(self, finished: int, tokens: int, /, note: str = "") -> None:
        """Report the progress of a running batch, always below the total until it is stored."""
        done = min(self._done + finished, self._total - 1)
        self._progress(done, self._total, self._tokens + tokens, note)

    def count_generated(self, response_count: int, tokens: int = 0) -> None:
        """Count responses; ``report_stored`` reports them once they are stored."""
        self._done += response_count
        self._tokens += tokens

    def expect_fewer(self, count: int) -> None:
        """Reduce the total by responses that are not needed."""
        self._total -= count

    def add_note(self, note: str) -> None:
        """Keep a note on the responses for the next ``report_stored``."""
        self._notes.append(note)

    def report_stored(self) -> None:
        """Report the stored responses and the notes on them."""
        self._progress(self._done, self._total, self._tokens)
        for note in self._notes:
            self._progress(self._done, self._total, self._tokens, note)
        self._notes.clear()


def generate_chunks(
    chunks: Sequence[Chunk],
    make_generator: Callable[[], ChunkGenerator],
    progress: ReportProgress,
    attempts: int = 1,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Generate the responses that are not in the store, chunk by chunk.

    Args:
        chunks: all chunks of a split.
        make_generator: loads the model; called only if responses are missing.
        progress: called with the numbers of finished and of all required responses.
        attempts: maximum number of attempts of an episode.
        share: (worker number from 0, number of workers) among which the chunks are divided.

    Raises:
        UserError: no prompt of the first chunk fits the model's context, or the store cannot be
            written.
    """
    unfinished: list[Work] = []
    done = total = 0
    for chunk in chunks[share[0] :: share[1]]:
        missing_phases = chunk.list_missing()
        total += sum(
            len(chunk.members) * len(missing_phase.indices) * attempts
            for missing_phase in missing_phases
        )
        done += sum(
            read_head(chunk.find_path(missing_phase)).responses
            for missing_phase in chunk.places
            if missing_phase not in missing_phases
        )
        if missing_phases:
            unfinished.append((chunk, missing_phases))
    split_progress = _GenerationProgress(
        progress, sum(len(missing_phase.members) for missing_phase in chunks), done, done + total
    )
    if not unfinished:
        return
    chunk_generator = make_generator()
    with contextlib.closing(iterate_claimed(unfinished)) as turns:
        for chunk, missing_phases in turns:
            for phase in missing_phases:
                if not chunk.find_path(phase).exists():
                    continue
                count = read_head(chunk.find_path(phase)).responses  # made by another command
                split_progress.expect_fewer(
                    len(chunk.members) * len(phase.indices) * attempts - count
                )
                split_progress.count_generated(count)
                split_progress.report_stored()
            chunk_generator.generate_missing(chunk, split_progress, is_first=chunk is chunks[0])


def read_decoding(task: Mapping[str, Any]) -> Decoding:
    """Read the greedy deployment decode from a task's facts in the manifest."""
    return Decoding(False, task["decoding"]["max_gen_toks"], tuple(task["decoding"]["until"]))


class _LazySampler:
    """A sampler that is created when it is first needed."""

    def __init__(
        self, plugins: Plugins, settings: SamplerSettings, adapter: Adapter | None
    ) -> None:
        self._create: Callable[[], Sampler] = partial(plugins.create_sampler, settings, adapter)
        self._sampler: Sampler | None = None
        self._description: dict[str, Any] | None = None

    def get(self) -> Sampler:
        """Return the sampler, with the model loaded."""
        if self._sampler is None:
            self._sampler = self._create()
        return self._sampler

    def describe(self) -> dict[str, Any]:
        """Return the sampler's description of its model."""
        if self._description is None:
            self._description = self.get().describe()
        return self._description

    def close(self) -> None:
        """Free the model."""
        if self._sampler is not None:
            self._sampler.close()


def generate_and_judge(
    run: RunDirectory,
    task: Mapping[str, Any],
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    path: Path,
    plugins: Plugins,
    judge: Judge,
    *,
    name: str,
    streams: SampleStreams,
    progress: ReportProgress,
    extra: Callable[[Mapping[str, Any]], dict[str, Any]],
    adapter: Adapter | None = None,
    on_generated: Callable[[Responses], object] = lambda responses: None,
    share: tuple[int, int] | None = None,
    settings: SamplerSettings | None = None,
    has_verifier: bool = True,
) -> dict[str, Any]:
    """Generate and judge the responses that the store lacks, and write the table.

    Args:
        run: the run.
        task: the task's facts, as in the manifest.
        problems: the problems.
        phases: the phases to generate.
        path: the table to write.
        plugins: the loaded plugins.
        judge: the verifier; it is closed at the end.
        name: the name of the split or arm.
        streams: the samples' random streams.
        progress: called as by ``generate_chunks``, then with verdicts.
        extra: computes further facts of the table from the sampler's description.
        adapter: the adapter; None for the source model.
        on_generated: called with the responses before they are judged.
        share: (worker number from 0, number of workers): process only this worker's chunks, and
            write no table; None: process all chunks.
        settings: the sampler's settings; None: those of the recipe.
        has_verifier: whether the verdicts are the verifier's, not the sampler's.

    Returns:
        The facts of ``sealing.write_responses``; ``reused``, the number of responses from each
        other run; and the counts of reused work. With ``share``, only the counts.

    Raises:
        UserError: the model or the verifier's rules differ from those of the run's other tables.
    """
    settings = settings or build_sampler_settings(run.recipe)
    lazy_sampler = _LazySampler(plugins, settings, adapter)
    with judge, contextlib.closing(lazy_sampler):
        if has_verifier and not plugins.can_rejudge(task["verifier"]):
            require_same_rules(run.manifest(), name, judge.describe())
        episodes = build_episodes(judge, task["episode"]["attempts"], task["verifier"])
        store = Store.for_run(run.path)
        model, is_known = describe_sampler(settings, plugins, adapter)
        if not is_known:
            description = lazy_sampler.describe()  # this downloads a model from the hub
            model, is_known = describe_sampler(settings, plugins, adapter)
            if not is_known:
                model["model"] |= {
                    key: description[key] for key in REPORTED_MODEL_KEYS if key in description
                }
        judged_by = describe_verifier(task, plugins, judge)
        executions = task["episode"]["executions"]
        chunks = _build_chunks(
            store, run.recipe, problems, phases, model, streams, episodes, judged_by
        )
        require_unedited_groups(list_groups(chunks))
        own_chunks = chunks if share is None else chunks[share[0] :: share[1]]
        reuse = count_reused_responses(own_chunks, episodes.attempts)
        stored = [count_stored_responses(chunk) for chunk in own_chunks]
        if any(chunk.list_missing() for chunk in chunks):
            source = lazy_sampler.describe()
            require_same_model(run.manifest(), name, source)
            missing_groups = [
                chunk.places[phase][0] for chunk in chunks for phase in chunk.list_missing()
            ]
            for group in {group.name: group for group in missing_groups}.values():
                group.create({"source": source})
        else:
            group, _ = chunks[0].places[phases[0]]
            source = _adapt_description(group.read_facts()["source"], settings, adapter)
            require_same_model(run.manifest(), name, source)
        generate_chunks(
            chunks,
            lambda: ChunkGenerator(
                lazy_sampler.get(),
                streams,
                episodes,
                judge,
                str(run.path.resolve()),
                keeps_verdicts=not has_verifier,
            ),
            progress,
            episodes.attempts,
            share or (0, 1),
        )
        responses, responses_by_run = StoredResponses(), Counter[str]()
        verdict_chunks: list[Chunk] = []
        for chunk in own_chunks:
            heads = {phase: responses.add(chunk.find_path(phase)) for phase in phases}
            for head in heads.values():
                responses_by_run[head.run] += head.responses
            verdict_chunks.append(place_verdicts(chunk, heads, judged_by, executions))
        require_unedited_groups(list_groups(verdict_chunks))
        count_missing_verdicts(reuse, verdict_chunks, stored)
        if share is None:
            on_generated(responses)
        this_run = str(run.path.resolve())
        judge_chunks(
            verdict_chunks,
            responses,
            ChunkJudge(judge, episodes, executions, this_run),
            progress,
        )
        if share is not None:
            return {REUSE_KEY: reuse.to_facts()}
        for chunk in verdict_chunks:
            for phase in phases:
                responses.add_verdicts(chunk.find_path(phase), this_run)
        del responses_by_run[this_run]
        used_groups = list_groups([*chunks, *verdict_chunks])
        facts = write_responses(
            path,
            responses,
            problems,
            judge,
            extra={
                **extra(source),
                "stored": sorted(group.name for group in used_groups),
                "made_from": record_groups(used_groups),
            },
            episodes=episodes,
            executions=executions,
            has_verifier=has_verifier,
            progress=progress,
        )
        # not in the table, which does not depend on the run that responses were generated for
        return {
            **facts,
            "reused": dict(sorted(responses_by_run.items())),
            REUSE_KEY: reuse.to_facts(),
        }


def count_reuse(
    recipe: Recipe,
    task: Mapping[str, Any],
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    plugins: Plugins,
    streams: SampleStreams,
    store: Store,
) -> ReuseCounts | None:
    """Count the stored work of a split before a run, without loading a model.

    Returns:
        The counts; None if the model's files are not on this machine (not yet downloaded, or on a
        server), since the keys in the store depend on them.

    Raises:
        GapftError: the verifier cannot be created, or the store is damaged.
    """
    settings = build_sampler_settings(recipe)
    model, is_known = describe_sampler(settings, plugins, None)
    if not is_known:
        return None
    with plugins.create_verifier(task["verifier"], task["verifier_params"]) as judge:
        episodes = build_episodes(judge, task["episode"]["attempts"], task["verifier"])
        judged_by = describe_verifier(task, plugins, judge)
        chunks = _build_chunks(store, recipe, problems, phases, model, streams, episodes, judged_by)
        reuse = count_reused_responses(chunks, episodes.attempts)
        stored = [count_stored_responses(chunk) for chunk in chunks]
        verdict_chunks = []
        for chunk, counts in zip(chunks, stored, strict=True):
            stored_chunk = Chunk(
                chunk.members,
                {
                    phase_in_store: place
                    for phase_in_store, place in chunk.places.items()
                    if phase_in_store in counts
                },
            )
            heads = {
                phase: read_head(stored_chunk.find_path(phase)) for phase in stored_chunk.places
            }
            verdict_chunks.append(
                place_verdicts(stored_chunk, heads, judged_by, task["episode"]["executions"])
            )
        count_missing_verdicts(reuse, verdict_chunks, stored)
    return reuse


def _build_chunks(
    store: Store,
    recipe: Recipe,
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    model: Mapping[str, Any],
    streams: SampleStreams,
    episodes: Episodes,
    judged_by: Mapping[str, Any],
) -> list[Chunk]:
    """Build the chunks of a split with the places of their responses."""
    size = count_chunk_problems(recipe.search, phases)
    groups = {
        phase: store.find_group(
            "generate",
            VERSION,
            describe_phase(phase, model, streams, episodes.attempts, judged_by, size),
        )
        for phase in phases
    }
    is_judged = episodes.attempts > 1
    return [
        Chunk.place_files(members, groups, is_judged)
        for members in divide_into_chunks(problems, size)
    ]


def describe_phase(
    phase: DecodePhase,
    sampler: Mapping[str, Any],
    streams: SampleStreams,
    attempts: int,
    judged_by: Mapping[str, Any],
    size: int,
) -> dict[str, Any]:
    """Describe the inputs of a phase's responses besides the prompts.

    Args:
        phase: the phase.
        sampler: the sampler's description (``made_from.describe_sampler``).
        streams: the samples' random streams.
        attempts: maximum number of attempts of an episode.
        judged_by: the verifier's description (``made_from.describe_verifier``).
        size: problems of a chunk.
    """
    decoding: dict[str, Any] = {
        "max_gen_toks": phase.decoding.max_gen_toks,
        "until": list(phase.decoding.until),
    }
    parts: dict[str, Any] = {"sampler": sampler, "decoding": decoding, "chunk": size}
    sampling = {
        "temperature": phase.decoding.temperature,
        "top_p": phase.decoding.top_p,
        "top_k": phase.decoding.top_k,
    }
    if phase.decoding.samples_deployment:
        parts |= {"deployment": sampling, "streams": asdict(streams)}
    elif phase.indices != (GREEDY,):
        decoding |= sampling
        parts["streams"] = asdict(streams)
    if attempts > 1:
        parts["episode"] = {"attempts": attempts, "verifier": judged_by}
    return parts


def _adapt_description(
    source: Mapping[str, Any], settings: SamplerSettings, adapter: Adapter | None
) -> dict[str, Any]:
    """Put the arm and the model's folder of this run into a recorded model description."""
    description = dict(source)
    if "pretrained" in description:
        description["pretrained"] = settings.model_args.get("pretrained")
    if adapter is not None and isinstance(adapter_facts := source.get("adapter"), Mapping):
        description["adapter"] = {**adapter_facts, "arm": adapter.arm.name}
    return description
