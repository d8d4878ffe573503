"""Generating responses: what search and audit share.

Chunks are fixed by the problems and the settings, never by what is left to do, by a clock or by the
number of workers. A chunk's responses are kept in the store, a file for each phase, under keys of
all that they depend on (``made_from.py``): whoever asks for the same responses again, after a kill,
in another run or with more samples, generates only those that are missing. Their verdicts are kept
the same way (``verdicts.py``). Each sample draws from a random stream of its own
(``streams.SampleStreams``).

Early stop: samples are drawn in rounds, and a problem leaves once it has what it needs. On the
pool, selection needs one verified response a problem: a problem that the source solves in one
decode (state G) keeps that decode, a recovered one (state S) the first sample that passed, under a
response rule that looks no further. Neither needs another sample. The audit always draws all K:
Pass@K and K_eq are estimated from them (Section 4.1), also on problems in state G.
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

#: Raised when stored responses would be misread, or the same key would give others.
VERSION = 1


def stops(search: Search, split: str) -> bool:
    """Whether the search of a split may leave samples out."""
    return search.stop == "first_pass" and split == "pool"


def check_early_stop(search: Search, rule: Registered, task: Mapping[str, Any]) -> None:
    """Refuses an early stop that would change what is selected, before anything is generated.

    Raises:
        UserError: the rule needs all samples, or greedy episodes are executed repeatedly.
    """
    if search.stop == "never":
        return
    if not rule.declared(ResponseRuleTraits).stops_early:
        raise UserError(
            f"search.stop: first_pass needs a response rule that is settled by the first sample "
            f"that passes; {rule.name!r} compares all that pass (it is not registered with "
            "stops_early=True), so it needs all K. Use evidence.keep: first, or search.stop: never"
        )
    if task["episode"]["executions"] > 1:
        raise UserError(
            f"search.stop: first_pass cannot go with episode.executions: "
            f"{task['episode']['executions']}: whether samples are drawn would hang on the first "
            "execution, the label on the majority. Set episode.executions: 1, or search.stop: never"
        )


def chunk_size(search: Search, phases: Sequence[Phase]) -> int:
    """Count the problems of a chunk: ``search.chunk``, and more where each has one response.

    A chunk of single responses has as many as one of a whole block of samples, so that batches are
    full and a killed command loses about as much.
    """
    is_single = all(len(phase.indices) == 1 for phase in phases)
    return search.chunk * BLOCK if is_single else search.chunk


def unsolved(
    problems: Sequence[Problem], responses: Responses, verifier: Verifier
) -> tuple[list[Problem], Judgements]:
    """The problems that no response solves yet.

    Args:
        responses: their greedy responses and the earlier rounds' samples.
        verifier: judges those that no earlier round has judged.

    Returns:
        Those that need another sample; and the new verdicts that say so, to be stored with
        the round: a verdict that decided something is the one that is sealed.
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
    """Return the phase of the deployment decode d(x) alone."""
    return Phase("greedy", decoding, (GREEDY,))


def sampled_decoding(greedy: Decoding, search: Search) -> Decoding:
    """Return how samples are drawn: with the length and the stop strings of the greedy decode."""
    return Decoding(
        True, greedy.max_gen_toks, greedy.until, search.temperature, search.top_p, search.top_k
    )


def sample_phases(
    decoding: Decoding, samples: int, size: int = BLOCK, unsolved: bool = False
) -> list[Phase]:
    """Return the phases of so many samples, without a greedy decode.

    Args:
        decoding: how they are drawn.
        samples: how many of each problem.
        size: samples of a phase; the last one may have fewer.
        unsolved: whether problems that are solved leave between phases.
    """
    blocks = [range(first, min(first + size, samples)) for first in range(0, samples, size)]
    return [Phase(f"{of.start}-{of[-1]}", decoding, tuple(of), unsolved) for of in blocks]


def search_phases(greedy: Decoding, search: Search, stop: bool) -> list[Phase]:
    """Return the phases of a search: the greedy decode, and samples in blocks or rounds.

    Args:
        greedy: the deployment decode.
        search: the recipe's section.
        stop: whether problems that are solved leave between rounds.
    """
    size = search.round if stop else BLOCK
    return [
        greedy_phase(greedy),
        *sample_phases(sampled_decoding(greedy, search), search.k, size, unsolved=stop),
    ]


def chunks_of(problems: Sequence[Problem], chunk: int) -> list[list[Problem]]:
    """Cut problems into chunks, in the order in which limits take them.

    So a larger pool has the whole chunks of a smaller one. Within a chunk the longest prompt comes
    first, so that batches hold prompts of like length. Whole chunks are dealt to workers, so that
    their number changes no response.
    """
    ordered = sorted(problems, key=lambda problem: (derive("limit", problem.id), problem.id))
    return [
        sorted(ordered[start : start + chunk], key=lambda of: (-len(of.prompt), of.id))
        for start in range(0, len(ordered), chunk)
    ]


@dataclass(frozen=True)
class Generator:
    """Generates the missing responses of chunks and stores them.

    Attributes:
        sampler: the model.
        streams: the samples' random streams.
        episodes: how a decode of several attempts goes; None is a single response.
        verifier: says which problems are solved, which phases of ``unsolved`` problems need; and
            reads the answers of the first chunk.
        run: the run folder that they are generated for, as stored files name it.
    """

    sampler: Sampler
    streams: SampleStreams
    episodes: Episodes | None = None
    verifier: Verifier | None = None
    run: str = ""

    def complete(self, chunk: Chunk, report: _Report, first: bool) -> None:
        """Generate and store what is missing of a chunk; its claim is held.

        Args:
            chunk: the problems and the files of their responses.
            report: gets progress.
            first: whether it is a split's first chunk, whose responses are looked at.
        """
        missing = chunk.missing()
        if together := [phase for phase in missing if not phase.unsolved]:
            indices = tuple(index for phase in together for index in phase.indices)
            decoding = together[-1].decoding  # the greedy one's own follows from each index
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
        """Generate some decodes of some problems, and of episodes attempt by attempt."""
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
        """Stop where no prompt fits, and report what is wrong with a split's first responses."""
        if len(members) >= min(BLOCK, report.problems):
            require_room(answers, decoding)
        if self.verifier is not None:
            for note in check_first_chunk(members, answers, decoding, self.verifier):
                report.say(note)

    def _store(self, chunk: Chunk, phase: Phase, records: Sequence[Record]) -> None:
        group, name = chunk.places[phase]
        group.commit(name, part_of(records, self.run, group.folder / name))


class _Report:
    """What is done of a split's responses, for ``ReportProgress``.

    The total falls where problems are solved, or episodes end, before all that was wanted of them.
    """

    def __init__(self, progress: ReportProgress, problems: int, done: int, total: int) -> None:
        self.problems = problems
        self._progress, self._done, self._total, self._tokens = progress, done, total, 0
        self._notes: list[str] = []
        progress(done, total)

    def within(self, finished: int, tokens: int, /, note: str = "") -> None:
        """A sampler's own progress; what it generates is complete only once it is stored."""
        done = min(self._done + finished, self._total - 1)
        self._progress(done, self._total, self._tokens + tokens, note)

    def add(self, made: int, tokens: int = 0) -> None:
        """Count responses that were made; ``tell`` reports them once they are stored."""
        self._done += made
        self._tokens += tokens

    def expect_fewer(self, count: int) -> None:
        """So many responses are not wanted after all."""
        self._total -= count

    def say(self, note: str) -> None:
        """Keep a sentence on the responses that ``tell`` reports next."""
        self._notes.append(note)

    def tell(self) -> None:
        """Report what is stored, and the sentences on it."""
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
    """Generate what the store lacks, chunk by chunk.

    Args:
        chunks: of a split, all of them.
        generator: makes the model ready; called if anything is missing.
        progress: called with responses made, and made or still wanted.
        attempts: most attempts of an episode.
        share: a number below the second, and among how many workers the chunks are dealt.

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
    """The greedy deployment decode that a task's facts in the manifest describe."""
    return Decoding(False, task["decoding"]["max_gen_toks"], tuple(task["decoding"]["until"]))


class _LazySampler:
    """A sampler that is made when it is first needed."""

    def __init__(
        self, plugins: Plugins, settings: SamplerSettings, adapter: Adapter | None
    ) -> None:
        self._make: Callable[[], Sampler] = partial(plugins.sampler, settings, adapter)
        self._made: Sampler | None = None
        self._source: dict[str, Any] | None = None

    def get(self) -> Sampler:
        """The sampler, with the model loaded."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def describe(self) -> dict[str, Any]:
        """What the sampler says of its model."""
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
    """Generate and judge what the store lacks, and write the table.

    Args:
        task: its facts, as the manifest has them.
        path: the table to write.
        extra: gives further facts, from what the sampler says of itself.
        generated: called with the responses before they are judged.
        share: generate and judge only the chunks of one of several workers, and write no table.

    Returns:
        The facts of ``sealing.write_responses``, how many responses were generated for which
        other run (``reused``), and what was stored before (``foreseen``); of a share the latter.

    Raises:
        UserError: another model or edition of rules than that of the run's other tables.
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
            said = lazy.describe()  # a model of the hub is downloaded by now
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
        # not in the table, which is the same for whoever its responses were generated
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
    """Find what of a split the store has, before a run; nothing is loaded.

    Returns:
        None where the model's files are not known: before a download, and where a server has them.

    Raises:
        GapftError: the verifier cannot be made, or the store is damaged.
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
    """The chunks of a split with the places of their responses."""
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
    """Describe what a phase's responses depend on beside the prompts.

    Args:
        phase: which responses.
        sampler: its description (``made_from.describe_sampler``).
        streams: the samples' random streams.
        attempts: most attempts of an episode.
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
    """What was recorded of a model, as of the arm and the folder that are asked for now."""
    found = dict(source)
    if "pretrained" in found:
        found["pretrained"] = settings.model_args.get("pretrained")
    if adapter is not None and isinstance(of := source.get("adapter"), Mapping):
        found["adapter"] = {**of, "arm": adapter.arm.name}
    return found
