"""Generating responses: what search and audit share.

Chunks are fixed by the problems and the settings, never by what is left to do, by a clock or by the
number of workers, so a resumed run regenerates exactly the chunk that was in flight. Each sample
draws from a random stream of its own (``streams.SampleStreams``).

Early stop: samples are drawn in rounds, and a problem leaves once it has what it needs. On the
pool, selection needs one verified response a problem: a problem that the source solves in one
decode (state G) keeps that decode, a recovered one (state S) the first sample that passed, under a
response rule that looks no further. Neither needs another sample. The audit always draws all K:
Pass@K and K_eq are estimated from them (Section 4.1), also on problems in state G.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import canonical
from gapft_harness.core.records import BLOCK, GREEDY, Adapter, Decoding, Problem, Verdict
from gapft_harness.core.streams import SampleStreams, derive
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import (
    ReportGeneration,
    ReportProgress,
    Request,
    Sampler,
    Verifier,
)
from gapft_harness.hooks.registered import Registered, ResponseRuleTraits
from gapft_harness.recipe.recipe import sampler_settings
from gapft_harness.recipe.sections import Search
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.journal import Journal
from gapft_harness.run_directory.recording import require_same_model, require_same_rules
from gapft_harness.run_directory.shards import chunks_of
from gapft_harness.stages.generation.episodes import (
    Episodes,
    alive,
    check_conversations,
    episodes_of,
)
from gapft_harness.stages.generation.first_chunk import check_first_chunk, require_room
from gapft_harness.stages.generation.sealing import (
    closing_verifier,
    description_of,
    write_responses,
)
from gapft_harness.verification.judging import verify_responses

#: New verdicts by problem id and decode index.
Judgements = Mapping[str, Mapping[int, Verdict]]


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
    problems: Sequence[Problem], journal: Journal, verifier: Verifier
) -> tuple[list[Problem], Judgements]:
    """The problems that no journalled response solves yet.

    Args:
        journal: holds their greedy responses and the earlier rounds' samples.
        verifier: judges those that no earlier round has judged.

    Returns:
        Those that need another sample; and the new verdicts that say so, to be journalled with
        the round: a verdict that decided something is the one that is sealed.
    """
    entries = list(journal.read([problem.id for problem in problems]))
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


@dataclass(frozen=True, slots=True)
class Phase:
    """Responses that every problem gets in one call of the sampler.

    Attributes:
        name: part of the journal's keys.
        decoding: of the samples; ``GREEDY`` is decoded greedily beside them.
        indices: ``GREEDY``, sample numbers, or both.
        unsolved: leaves out the problems that an earlier phase's response solved.
    """

    name: str
    decoding: Decoding
    indices: tuple[int, ...]
    unsolved: bool = False


def greedy_phase(decoding: Decoding) -> Phase:
    """Return the phase of the deployment decode d(x) alone."""
    return Phase("greedy", decoding, (GREEDY,))


def sampled_decoding(greedy: Decoding, search: Search) -> Decoding:
    """Return how samples are drawn: with the length and the stop strings of the greedy decode."""
    return Decoding(
        True, greedy.max_gen_toks, greedy.until, search.temperature, search.top_p, search.top_k
    )


def sample_phase(greedy: Decoding, search: Search, samples: int) -> Phase:
    """Return the phase of so many samples, without a greedy decode."""
    return Phase("samples", sampled_decoding(greedy, search), tuple(range(samples)))


def search_phases(greedy: Decoding, search: Search, stop: bool) -> list[Phase]:
    """Return the phases of a search: all at once, or the greedy decode and rounds of samples.

    Args:
        greedy: the deployment decode.
        stop: whether problems that are solved leave between rounds.
    """
    sampled = sampled_decoding(greedy, search)
    if not stop:
        return [Phase("search", sampled, (GREEDY, *range(search.k)))]
    rounds = [
        range(first, min(first + search.round, search.k))
        for first in range(0, search.k, search.round)
    ]
    return [
        greedy_phase(greedy),
        *(Phase(f"samples from {r.start}", sampled, tuple(r), unsolved=True) for r in rounds),
    ]


def generate(
    problems: Sequence[Problem],
    phases: Sequence[Phase],
    sampler: Sampler,
    journal: Journal,
    *,
    streams: SampleStreams,
    source: Mapping[str, Any],
    chunk: int,
    progress: ReportProgress,
    episodes: Episodes | None = None,
    verifier: Verifier | None = None,
) -> None:
    """Generates what the journal lacks, chunk by chunk, and of episodes round by round.

    Args:
        streams: the samples' random streams.
        source: the sampler's description; journalled chunks of another model are refused.
        chunk: problems of a chunk.
        progress: called with responses made, and made or still wanted: the second falls where
            problems are solved, or episodes end, before all that was wanted of them.
        episodes: how a decode of several attempts goes; None is a single response.
        verifier: says which problems are solved, which phases of ``unsolved`` problems need; and
            reads the answers of the first chunk, of which ``progress`` gets what is wrong.

    Raises:
        UserError: the journal holds chunks of other problems, prompts, settings or weights; or no
            prompt of the first chunk fits the model's context.
    """
    attempts = episodes.attempts if episodes else 1
    chunks = chunks_of(problems, chunk)
    rounds = [
        _Round(phase, members, attempt, _chunk_key(phase, members, attempt, source))
        for phase in phases
        for members in chunks
        for attempt in range(1, attempts + 1)
    ]
    if journal.committed.keys() - {r.key for r in rounds}:
        raise UserError(
            f"{journal.path}: holds responses to other problems or prompts, or of other weights, "
            "than the task and the model give now; restore them, or start a new run directory"
        )
    left = [each for each in rounds if each.key not in journal.committed]
    done = sum(r.size(journal.committed.get(r.key, 0)) for r in rounds)
    total = done + sum(each.size() for each in left)
    tokens = 0
    progress(done, total)
    for each in left:
        requests, judged = each.requests(episodes, verifier, journal, streams)
        made = each.size(len(requests))
        total += made - each.size()

        report = _partial_report(progress, done, total, tokens)
        generated = sampler.generate(requests, each.phase.decoding, report) if requests else []
        if each is rounds[0] and len(each.members) >= min(BLOCK, len(problems)):
            require_room(generated, each.phase.decoding)
        if each.attempt > 1:
            check_conversations(requests, generated, journal)
        journal.append(each.key, requests, generated, judged)
        done += made
        tokens += sum(len(g.token_ids) for answer in generated for g in answer.generations)
        progress(done, total, tokens)
        if each is rounds[0] and verifier is not None:
            # no problem is left out of the first round
            for note in check_first_chunk(each.members, generated, each.phase.decoding, verifier):
                progress(done, total, tokens, note)


def _partial_report(
    progress: ReportProgress, done: int, total: int, before: int
) -> ReportGeneration:
    """Report a round's progress; it is complete only once it is journalled."""

    def report(finished: int, tokens: int, /, note: str = "") -> None:
        progress(min(done + finished, total - 1), total, before + tokens, note)

    return report


@dataclass(frozen=True, slots=True)
class _Round:
    """One attempt at the problems of a chunk: the unit that is generated and committed at once."""

    phase: Phase
    members: Sequence[Problem]
    attempt: int
    key: str

    def size(self, asked: int | None = None) -> int:
        """Responses to all its problems, or to as many as were asked."""
        return (len(self.members) if asked is None else asked) * len(self.phase.indices)

    def requests(
        self,
        episodes: Episodes | None,
        verifier: Verifier | None,
        journal: Journal,
        streams: SampleStreams,
    ) -> tuple[list[Request], Judgements]:
        """Every problem in the first round, or those unsolved; later the episodes that go on.

        There may be none. The verdicts are those by which problems were left out.
        """
        indices = self.phase.indices
        if episodes is not None and self.attempt > 1:
            return alive(episodes, self.members, indices, self.attempt, journal, streams), {}
        members: Sequence[Problem] = self.members
        judged: Judgements = {}
        if self.phase.unsolved:
            assert verifier is not None
            members, judged = unsolved(members, journal, verifier)
        asked = [
            Request(
                p.id,
                p.prompt,
                indices,
                streams.seeds_of(p.id, self.attempt, indices),
                turns=p.turns,
            )
            for p in members
        ]
        return asked, judged


def _chunk_key(
    phase: Phase, members: Sequence[Problem], attempt: int, source: Mapping[str, Any]
) -> str:
    """Names a round by all that its responses depend on, but for the machine."""
    weights = (source.get("weights_sha256"), source.get("adapter"))
    prompts = [
        part
        for problem in members
        for part in (problem.id, problem.prompt, *map(canonical, problem.turns))
    ]
    later = "" if attempt == 1 else f"/{attempt}"
    return f"{phase.name}/{derive(repr(phase.decoding), repr(weights), *prompts):016x}{later}"


def decoding_from(task: Mapping[str, Any]) -> Decoding:
    """The greedy deployment decode that a task's facts in the manifest describe."""
    return Decoding(False, task["decoding"]["max_gen_toks"], tuple(task["decoding"]["until"]))


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
    generated: Callable[[Journal], object] = lambda journal: None,
) -> dict[str, Any]:
    """Generates what the table's journal lacks, and writes the table.

    Args:
        task: its facts, as the manifest has them.
        path: the table to write; its journal stands beside it until then.
        extra: gives further facts, from what the sampler says of itself.
        generated: called with the journal before responses are judged.

    Returns:
        The facts of ``sealing.write_responses``.

    Raises:
        UserError: another model or edition of rules than that of the run's other tables.
    """
    journal = Journal(path.with_suffix(".jsonl"))
    with contextlib.closing(journal), closing_verifier(verifier):
        if not plugins.rejudges(task["verifier"]):
            said = description_of(verifier)
            require_same_rules(run.manifest(), name, task["verifier"], said)
        episodes = episodes_of(verifier, task["episode"]["attempts"], task["verifier"])
        sampler = plugins.sampler(sampler_settings(run.recipe), adapter)
        with contextlib.closing(sampler):
            source = sampler.describe()
            require_same_model(run.manifest(), name, source)
            generate(
                problems,
                phases,
                sampler,
                journal,
                streams=streams,
                source=source,
                chunk=chunk_size(run.recipe.search, phases),
                progress=progress,
                episodes=episodes,
                verifier=verifier,
            )
        generated(journal)
        facts = write_responses(
            path,
            journal,
            problems,
            verifier,
            extra=extra(source),
            episodes=episodes,
            executions=task["episode"]["executions"],
            progress=progress,
        )
    journal.path.unlink()
    return facts
