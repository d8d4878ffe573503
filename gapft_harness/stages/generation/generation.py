"""Generate responses; shared by search and audit.

Chunks depend only on the problems and the settings, not on the remaining work, the clock or the
number of workers. The store keeps a file of a chunk's responses for each phase, under keys of all
their inputs (``made_from.py``). A command that needs the same responses again (after a kill, in
another run or with more samples) generates only missing ones. Verdicts are kept in the same way
(``verdicts.py``). Each sample draws from its own random stream (``streams.SampleStreams``).

Early stop: samples are drawn in rounds, and a problem leaves once it has what selection needs. On
the pool, that is one verified response per problem: a problem that the source solves in one decode
(state G) keeps that decode, a recovered one (state S) the first sample that passed, if the response
rule needs no other. Neither needs another sample. The audit always draws all K samples: Pass@K and
K_eq are estimated from them (Section 4.1), also on problems in state G.
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
from gapft_harness.core.records import BLOCK, GREEDY, Adapter, Decoding, Problem, Verdict
from gapft_harness.core.streams import SampleStreams, derive
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import (
    Generated,
    ReportProgress,
    Request,
    Sampler,
    SamplerSettings,
    Verifier,
)
from gapft_harness.hooks.registered import Registered, ResponseRuleTraits
from gapft_harness.recipe.recipe import Recipe, sampler_settings
from gapft_harness.recipe.sections import Search
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recording import require_same_model, require_same_rules
from gapft_harness.stages.generation.chunks import (
    Chunk,
    Phase,
    Work,
    claimed,
    list_groups,
    require_unedited,
)
from gapft_harness.stages.generation.episodes import (
    Episodes,
    alive,
    check_conversations,
    episodes_of,
)
from gapft_harness.stages.generation.first_chunk import check_first_chunk, require_room
from gapft_harness.stages.generation.foreseen import (
    FORESEEN,
    Foreseen,
    accept_versions,
    count_stored,
    foresee_responses,
    foresee_verdicts,
    list_toolchains,
)
from gapft_harness.stages.generation.made_from import (
    SAID_OF_MODELS,
    describe_sampler,
    describe_verifier,
)
from gapft_harness.stages.generation.parts import (
    Draft,
    Judgements,
    Record,
    Responses,
    StoredResponses,
    generated_records,
    judged_records,
    only,
    part_of,
    read_head,
    read_part,
)
from gapft_harness.stages.generation.sealing import (
    closing_verifier,
    description_of,
    write_responses,
)
from gapft_harness.stages.generation.verdicts import Judge, judge, place_verdicts
from gapft_harness.store.recorded import record_groups
from gapft_harness.store.store import Store
from gapft_harness.verification.judging import verify_responses

#: Increases when stored responses could be misread, or the same key would give other responses.
VERSION = 1


def stops(search: Search, split: str) -> bool:
    """Return whether the search of a split may leave out samples."""
    return search.stop == "first_pass" and split == "pool"


def check_early_stop(search: Search, rule: Registered, task: Mapping[str, Any]) -> None:
    """Refuse an early stop that would change the selection, before anything is generated.

    Raises:
        UserError: the rule needs all samples, or greedy episodes are executed repeatedly.
    """
    if search.stop == "never":
        return
    if not rule.declared(ResponseRuleTraits).stops_early:
        raise UserError(
            f"search.stop: first_pass needs a response rule that uses only the first sample that "
            f"passes; {rule.name!r} compares all passing samples (it is not registered with "
            "stops_early=True), so it needs all K. Use evidence.keep: first, or search.stop: never"
        )
    if task["episode"]["executions"] > 1:
        raise UserError(
            f"search.stop: first_pass cannot be combined with episode.executions: "
            f"{task['episode']['executions']}: sampling would depend on the first execution, the "
            "label on the majority. Set episode.executions: 1, or search.stop: never"
        )


def chunk_size(search: Search, phases: Sequence[Phase]) -> int:
    """Return the problems of a chunk: ``search.chunk``, or more if each has one response.

    A chunk of single responses has as many responses as a block of samples, so that batches are
    full and a killed command loses about as much work.
    """
    is_single = all(len(phase.indices) == 1 for phase in phases)
    return search.chunk * BLOCK if is_single else search.chunk


def unsolved(
    problems: Sequence[Problem], responses: Responses, verifier: Verifier
) -> tuple[list[Problem], Judgements]:
    """Find the problems that no response has solved yet.

    Args:
        problems: the problems.
        responses: their greedy responses and the samples of earlier rounds.
        verifier: judges those that no earlier round has judged.

    Returns:
        The problems that need another sample, and the new verdicts behind this decision. These
        are stored with the round, since a verdict that decided something is the one to seal.
    """
    entries = list(responses.read([problem.id for problem in problems]))
    new = [
        (problem, response)
        for problem, entry in zip(problems, entries, strict=True)
        if not any(verdict.passed for verdict in entry.verdicts.values())
        for response in entry.responses
        if response.index not in entry.verdicts
    ]
    verdicts = verify_responses(verifier, [r for _, r in new], [p.gold for p, _ in new])
    judged: dict[str, dict[int, Verdict]] = {}
    for (problem, response), verdict in zip(new, verdicts, strict=True):
        judged.setdefault(problem.id, {})[response.index] = verdict
    solved = {
        entry.problem_id
        for entry in entries
        for verdict in (*entry.verdicts.values(), *judged.get(entry.problem_id, {}).values())
        if verdict.passed
    }
    return [problem for problem in problems if problem.id not in solved], judged


def greedy_phase(decoding: Decoding) -> Phase:
    """Build the phase of the deployment decode d(x) alone."""
    return Phase("greedy", decoding, (GREEDY,))


def sampled_decoding(greedy: Decoding, search: Search) -> Decoding:
    """Build the decoding of samples, with limit and stop strings of the greedy decode."""
    return Decoding(
        True, greedy.max_gen_toks, greedy.until, search.temperature, search.top_p, search.top_k
    )


def sample_phases(
    decoding: Decoding, samples: int, size: int = BLOCK, unsolved: bool = False
) -> list[Phase]:
    """Build the phases of a number of samples, without a greedy decode.

    Args:
        decoding: the samples' decoding.
        samples: the number of samples of each problem.
        size: samples of a phase; the last one may have fewer.
        unsolved: whether solved problems leave between phases.
    """
    blocks = [range(first, min(first + size, samples)) for first in range(0, samples, size)]
    return [Phase(f"{of.start}-{of[-1]}", decoding, tuple(of), unsolved) for of in blocks]


def search_phases(greedy: Decoding, search: Search, stop: bool) -> list[Phase]:
    """Build the phases of a search: the greedy decode, and samples in blocks or rounds.

    Args:
        greedy: the deployment decode.
        search: the recipe's section.
        stop: whether solved problems leave between rounds.
    """
    size = search.round if stop else BLOCK
    return [
        greedy_phase(greedy),
        *sample_phases(sampled_decoding(greedy, search), search.k, size, unsolved=stop),
    ]


def chunks_of(problems: Sequence[Problem], chunk: int) -> list[list[Problem]]:
    """Divide problems into chunks, in the order in which limits use them.

    So a larger pool has the complete chunks of a smaller one. In a chunk the longest prompt comes
    first, so that batches have prompts of similar length. Workers get complete chunks, so that
    their number does not change responses.
    """
    ordered = sorted(problems, key=lambda problem: (derive("limit", problem.id), problem.id))
    return [
        sorted(ordered[start : start + chunk], key=lambda of: (-len(of.prompt), of.id))
        for start in range(0, len(ordered), chunk)
    ]


@dataclass(frozen=True)
class Generator:
    """Generates and stores the missing responses of chunks.

    Attributes:
        sampler: the model.
        streams: the samples' random streams.
        episodes: the settings of episodes; None for single responses.
        verifier: finds solved problems, for phases of unsolved ones, and reads the answers of the
            first chunk.
        run: the run directory that responses are generated for, recorded in stored files.
    """

    sampler: Sampler
    streams: SampleStreams
    episodes: Episodes | None = None
    verifier: Verifier | None = None
    run: str = ""

    def complete(self, chunk: Chunk, report: _Report, first: bool) -> None:
        """Generate and store the missing phases of a chunk; its claim must be held.

        Args:
            chunk: the problems and the files of their responses.
            report: receives progress.
            first: whether it is a split's first chunk, whose responses are checked.
        """
        missing = chunk.missing()
        if together := [phase for phase in missing if not phase.unsolved]:
            indices = tuple(index for phase in together for index in phase.indices)
            decoding = together[-1].decoding  # index GREEDY implies its own decoding
            records = self._answer(chunk.members, indices, decoding, report, first)
            for phase in together:
                self._store(chunk, phase, only(records, phase.indices))
            report.tell()
        if len(together) == len(missing):
            return
        assert self.verifier is not None
        draft = Draft()
        for phase in chunk.places:
            if phase in missing and phase.unsolved:
                members, judged = unsolved(chunk.members, draft, self.verifier)
                skipped = len(chunk.members) - len(members)
                report.expect_fewer(skipped * len(phase.indices) * self._attempts)
                records = self._answer(members, phase.indices, phase.decoding, report, first=False)
                self._store(chunk, phase, [*records, *judged_records(judged)])
                report.tell()
            draft.add(read_part(chunk.path(phase)))

    @property
    def _attempts(self) -> int:
        return self.episodes.attempts if self.episodes else 1

    def _answer(
        self,
        members: Sequence[Problem],
        indices: tuple[int, ...],
        decoding: Decoding,
        report: _Report,
        first: bool,
    ) -> list[Record]:
        """Generate some decodes of some problems, attempt by attempt."""
        draft = Draft()
        records: list[Record] = []
        for attempt in range(1, self._attempts + 1):
            if attempt == 1:
                requests = [
                    Request(
                        p.id,
                        p.prompt,
                        indices,
                        self.streams.seeds_of(p.id, attempt, indices),
                        turns=p.turns,
                    )
                    for p in members
                ]
            else:
                assert self.episodes is not None
                requests = alive(self.episodes, members, indices, attempt, draft, self.streams)
            made = sum(len(request.indices) for request in requests)
            report.expect_fewer(len(members) * len(indices) - made)
            answers = self.sampler.generate(requests, decoding, report.within) if requests else []
            if attempt > 1:
                check_conversations(requests, answers, draft)
            elif first:
                self._look_at(members, answers, decoding, report)
            new = generated_records(requests, answers)
            draft.add(new)
            records += new
            tokens = sum(len(g.token_ids) for answer in answers for g in answer.generations)
            report.add(made, tokens)
        return records

    def _look_at(
        self,
        members: Sequence[Problem],
        answers: Sequence[Generated],
        decoding: Decoding,
        report: _Report,
    ) -> None:
        """Stop if no prompt fits, and report problems of a split's first responses."""
        if len(members) >= min(BLOCK, report.problems):
            require_room(answers, decoding)
        if self.verifier is not None:
            for note in check_first_chunk(members, answers, decoding, self.verifier):
                report.say(note)

    def _store(self, chunk: Chunk, phase: Phase, records: Sequence[Record]) -> None:
        group, name = chunk.places[phase]
        group.commit(name, part_of(records, self.run, group.folder / name))


class _Report:
    """Counts a split's responses for ``ReportProgress``.

    The total decreases when problems are solved or episodes end early.
    """

    def __init__(self, progress: ReportProgress, problems: int, done: int, total: int) -> None:
        self.problems = problems
        self._progress, self._done, self._total, self._tokens = progress, done, total, 0
        self._notes: list[str] = []
        progress(done, total)

    def within(self, finished: int, tokens: int, /, note: str = "") -> None:
        """Report a sampler's own progress; responses count as finished only once stored."""
        done = min(self._done + finished, self._total - 1)
        self._progress(done, self._total, self._tokens + tokens, note)

    def add(self, made: int, tokens: int = 0) -> None:
        """Count responses; ``report_stored`` reports them once they are stored."""
        self._done += made
        self._tokens += tokens

    def expect_fewer(self, count: int) -> None:
        """Reduce the total by responses that are not needed."""
        self._total -= count

    def say(self, note: str) -> None:
        """Keep a sentence on the responses for the next ``report_stored``."""
        self._notes.append(note)

    def tell(self) -> None:
        """Report the stored responses, and the sentences on them."""
        self._progress(self._done, self._total, self._tokens)
        for note in self._notes:
            self._progress(self._done, self._total, self._tokens, note)
        self._notes.clear()


def generate(
    chunks: Sequence[Chunk],
    generator: Callable[[], Generator],
    progress: ReportProgress,
    attempts: int = 1,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Generate the responses that are not in the store, chunk by chunk.

    Args:
        chunks: all chunks of a split.
        generator: loads the model; called if anything is missing.
        progress: called with the numbers of finished and of all required responses.
        attempts: maximum number of attempts of an episode.
        share: (worker number from 0, number of workers) among which the chunks are divided.

    Raises:
        UserError: no prompt of the first chunk fits the model's context, or the store cannot be
            written.
    """
    left: list[Work] = []
    done = total = 0
    for chunk in chunks[share[0] :: share[1]]:
        lacking = chunk.missing()
        total += sum(len(chunk.members) * len(of.indices) * attempts for of in lacking)
        done += sum(read_head(chunk.path(of)).responses for of in chunk.places if of not in lacking)
        if lacking:
            left.append((chunk, lacking))
    report = _Report(progress, sum(len(of.members) for of in chunks), done, done + total)
    if not left:
        return
    made = generator()
    with contextlib.closing(claimed(left)) as turns:
        for chunk, lacking in turns:
            for phase in lacking:
                if not chunk.path(phase).exists():
                    continue
                count = read_head(chunk.path(phase)).responses  # made by another command
                report.expect_fewer(len(chunk.members) * len(phase.indices) * attempts - count)
                report.add(count)
                report.tell()
            made.complete(chunk, report, first=chunk is chunks[0])


def decoding_from(task: Mapping[str, Any]) -> Decoding:
    """Build the greedy deployment decode from a task's facts in the manifest."""
    return Decoding(False, task["decoding"]["max_gen_toks"], tuple(task["decoding"]["until"]))


class _LazySampler:
    """A sampler that is created when it is first needed."""

    def __init__(
        self, plugins: Plugins, settings: SamplerSettings, adapter: Adapter | None
    ) -> None:
        self._make: Callable[[], Sampler] = partial(plugins.sampler, settings, adapter)
        self._made: Sampler | None = None
        self._source: dict[str, Any] | None = None

    def get(self) -> Sampler:
        """Return the sampler, with the model loaded."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def describe(self) -> dict[str, Any]:
        """Return the sampler's description of its model."""
        if self._source is None:
            self._source = self.get().describe()
        return self._source

    def close(self) -> None:
        """Free the model."""
        if self._made is not None:
            self._made.close()


def answer(
    run: RunDirectory,
    task: Mapping[str, Any],
    problems: Sequence[Problem],
    phases: Sequence[Phase],
    path: Path,
    plugins: Plugins,
    verifier: Verifier,
    *,
    name: str,
    streams: SampleStreams,
    progress: ReportProgress,
    extra: Callable[[Mapping[str, Any]], dict[str, Any]],
    adapter: Adapter | None = None,
    generated: Callable[[Responses], object] = lambda responses: None,
    share: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Generate and judge what is not in the store, and write the table.

    Args:
        run: the run.
        task: the task's facts, as in the manifest.
        problems: the problems.
        phases: the phases to generate.
        path: the table to write.
        plugins: the loaded plugins.
        verifier: the verifier; it is closed at the end.
        name: the name of the split or arm.
        streams: the samples' random streams.
        progress: called as by ``generate_chunks``, then with verdicts.
        extra: returns further facts, from the sampler's description.
        adapter: the adapter; None for the source model.
        generated: called with the responses before they are judged.
        share: generate and judge only the chunks of one worker, and write no table.

    Returns:
        The facts of ``sealing.write_responses``, the number of responses generated for each other
        run (``reused``), and the counts of reused work; only the counts for a share.

    Raises:
        UserError: another model or other rules than those of the run's other tables.
    """
    settings = sampler_settings(run.recipe)
    lazy = _LazySampler(plugins, settings, adapter)
    with closing_verifier(verifier), contextlib.closing(lazy):
        if not plugins.rejudges(task["verifier"]):
            said = description_of(verifier)
            require_same_rules(run.manifest(), name, task["verifier"], said)
        episodes = episodes_of(verifier, task["episode"]["attempts"], task["verifier"])
        store = Store.beside(run.path)
        model, is_known = describe_sampler(settings, plugins, adapter)
        if not is_known:
            said = lazy.describe()  # this downloads a model of the hub
            model, is_known = describe_sampler(settings, plugins, adapter)
            if not is_known:
                model["model"] |= {key: said[key] for key in SAID_OF_MODELS if key in said}
        judged_by = describe_verifier(task, plugins, verifier)
        executions = task["episode"]["executions"]
        chunks = _chunks(store, run.recipe, problems, phases, model, streams, episodes, judged_by)
        if run.manifest().get("reuse_versions"):
            chunks = accept_versions(chunks)
        require_unedited(list_groups(chunks))
        mine = chunks if share is None else chunks[share[0] :: share[1]]
        foreseen = foresee_responses(mine, episodes.attempts)
        stored = [count_stored(chunk) for chunk in mine]
        if any(chunk.missing() for chunk in chunks):
            source = lazy.describe()
            require_same_model(run.manifest(), name, source)
            lacking = [chunk.places[phase][0] for chunk in chunks for phase in chunk.missing()]
            for group in {group.name: group for group in lacking}.values():
                group.open({"source": source})
        else:
            group, _ = chunks[0].places[phases[0]]
            source = _of_arm(group.facts()["source"], settings, adapter)
            require_same_model(run.manifest(), name, source)
        generate(
            chunks,
            lambda: Generator(lazy.get(), streams, episodes, verifier, str(run.path.resolve())),
            progress,
            episodes.attempts,
            share or (0, 1),
        )
        responses, of_runs = StoredResponses(), Counter[str]()
        verdicts: list[Chunk] = []
        for chunk in mine:
            heads = {phase: responses.add(chunk.path(phase)) for phase in phases}
            for head in heads.values():
                of_runs[head.run] += head.responses
            verdicts.append(place_verdicts(chunk, heads, judged_by, executions))
        if run.manifest().get("reuse_versions"):
            verdicts = accept_versions(verdicts)
        require_unedited(list_groups(verdicts))
        foresee_verdicts(foreseen, verdicts, stored)
        if share is None:
            generated(responses)
        this_run = str(run.path.resolve())
        judge(verdicts, responses, Judge(verifier, episodes, executions, this_run), progress)
        if share is not None:
            return {FORESEEN: foreseen.facts()}
        for chunk in verdicts:
            for phase in phases:
                responses.add_verdicts(chunk.path(phase), this_run)
        del of_runs[this_run]
        used = list_groups([*chunks, *verdicts])
        made_with = {"generate": list_toolchains(chunks), "judge": list_toolchains(verdicts)}
        facts = write_responses(
            path,
            responses,
            problems,
            verifier,
            extra={
                **extra(source),
                "stored": sorted(group.name for group in used),
                "made_from": record_groups(used),
                "made_with": made_with,
            },
            episodes=episodes,
            executions=executions,
            progress=progress,
        )
        # not in the table, which does not depend on the run that responses were generated for
        return {**facts, "reused": dict(sorted(of_runs.items())), FORESEEN: foreseen.facts()}


def foresee(
    recipe: Recipe,
    task: Mapping[str, Any],
    problems: Sequence[Problem],
    phases: Sequence[Phase],
    plugins: Plugins,
    streams: SampleStreams,
    store: Store,
) -> Foreseen | None:
    """Count the stored work of a split before a run, without loading anything.

    Returns:
        None if the model's files are not available: before a download, or on a server.

    Raises:
        GapftError: the verifier cannot be created, or the store is damaged.
    """
    settings = sampler_settings(recipe)
    model, is_known = describe_sampler(settings, plugins, None)
    if not is_known:
        return None
    with closing_verifier(plugins.verifier(task["verifier"], task["verifier_params"])) as verifier:
        episodes = episodes_of(verifier, task["episode"]["attempts"], task["verifier"])
        judged_by = describe_verifier(task, plugins, verifier)
        chunks = _chunks(store, recipe, problems, phases, model, streams, episodes, judged_by)
        found = foresee_responses(chunks, episodes.attempts)
        stored = [count_stored(chunk) for chunk in chunks]
        verdicts = []
        for chunk, counts in zip(chunks, stored, strict=True):
            there = Chunk(
                chunk.members, {of: at for of, at in chunk.places.items() if of in counts}
            )
            heads = {phase: read_head(there.path(phase)) for phase in there.places}
            verdicts.append(place_verdicts(there, heads, judged_by, task["episode"]["executions"]))
        foresee_verdicts(found, verdicts, stored)
    return found


def _chunks(
    store: Store,
    recipe: Recipe,
    problems: Sequence[Problem],
    phases: Sequence[Phase],
    model: Mapping[str, Any],
    streams: SampleStreams,
    episodes: Episodes,
    judged_by: Mapping[str, Any],
) -> list[Chunk]:
    """Build the chunks of a split with the places of their responses."""
    size = chunk_size(recipe.search, phases)
    groups = {
        phase: store.group(
            "generate",
            VERSION,
            describe_phase(phase, model, streams, episodes.attempts, judged_by, size),
        )
        for phase in phases
    }
    is_judged = episodes.attempts > 1
    return [Chunk.of(members, groups, is_judged) for members in chunks_of(problems, size)]


def describe_phase(
    phase: Phase,
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
    found: dict[str, Any] = {"sampler": sampler, "decoding": decoding, "chunk": size}
    if phase.indices != (GREEDY,):
        decoding |= {
            "temperature": phase.decoding.temperature,
            "top_p": phase.decoding.top_p,
            "top_k": phase.decoding.top_k,
        }
        found["streams"] = asdict(streams)
    if attempts > 1:
        found["episode"] = {"attempts": attempts, "verifier": judged_by}
    if phase.unsolved:
        found["leaves_out"] = {"solved": judged_by, "round": len(phase.indices)}
    return found


def _of_arm(
    source: Mapping[str, Any], settings: SamplerSettings, adapter: Adapter | None
) -> dict[str, Any]:
    """Adapt a recorded model description to the present arm and model folder."""
    found = dict(source)
    if "pretrained" in found:
        found["pretrained"] = settings.model_args.get("pretrained")
    if adapter is not None and isinstance(of := source.get("adapter"), Mapping):
        found["adapter"] = {**of, "arm": adapter.arm.name}
    return found
