"""Generate responses, chunk by chunk; each part that is finished is stored at once.

A command that needs the same responses again (after a kill, in another run or with more samples)
generates only missing parts. Each sample draws from its own random stream
(``streams.SampleStreams``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import BLOCK, Decoding, Problem, Response
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.store import Store
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, ReportProgress, Request, Sampler
from gapft_harness.stages.generation.chunks import Chunk, DecodePhase
from gapft_harness.stages.generation.episodes import build_next_requests, check_conversations
from gapft_harness.stages.generation.first_chunk import check_first_chunk, require_fitting_prompt
from gapft_harness.stages.generation.lines import build_response_line, write_lines


@dataclass
class _Draft:
    """The responses to a chunk that is being generated.

    Attributes:
        prompt_ids: the token ids of each problem's own prompt.
        responses: the latest attempt of each episode, by problem and index.
        passed: the verdicts that the sampler returned, by problem and index.
        seconds: the time of the calls of the sampler, and of the feedback between them.
    """

    prompt_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    responses: dict[tuple[str, int], Response] = field(default_factory=dict)
    passed: dict[str, dict[int, bool]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, requests: Sequence[Request], answers: Sequence[Generated]) -> None:
        """Add the sampler's answers."""
        for request, answer in zip(requests, answers, strict=True):
            problem_id = request.problem_id
            prompt_ids = tuple(answer.prompt_ids)
            if not request.attempts:
                self.prompt_ids[problem_id] = prompt_ids
            for index, seed, generation in zip(
                request.indices, request.seeds, answer.generations, strict=True
            ):
                self.responses[problem_id, index] = Response(
                    problem_id,
                    index,
                    generation.text,
                    tuple(generation.token_ids),
                    generation.finish_reason,
                    seed,
                    generation.tokens_from,
                    request.attempts,
                    prompt_ids if request.attempts else (),
                    generation.reasoning,
                )
                if generation.passed is not None:
                    self.passed.setdefault(problem_id, {})[index] = generation.passed


@dataclass(frozen=True)
class ChunkGenerator:
    """Generates and stores the missing responses of chunks.

    Attributes:
        sampler: the model.
        source: the sampler's description of its model, recorded with each part.
        streams: the samples' random streams.
        judge: reads the answers of the first chunk, and gives feedback in episodes.
        attempts: maximum number of attempts of an episode; 1 for single responses.
        run: the run directory that responses are generated for, recorded with each part.
        keeps_verdicts: whether verdicts of the sampler are kept; else they are an error.
    """

    sampler: Sampler
    source: Mapping[str, Any]
    streams: SampleStreams
    judge: Judge
    attempts: int = 1
    run: str = ""
    keeps_verdicts: bool = False

    def generate_missing(
        self, store: Store, chunk: Chunk, progress: _GenerationProgress, is_first: bool
    ) -> None:
        """Generate and store the missing parts of a chunk; its claim must be held.

        Args:
            store: the store.
            chunk: the problems and the parts of their responses.
            progress: counts and reports the responses.
            is_first: whether it is a split's first chunk, whose responses are checked.
        """
        missing = chunk.list_missing(store)
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
            draft = self._generate_attempts(chunk.members, indices, decoding, progress, is_first)
            for phase in phases:
                self._store_part(store, chunk, phase, draft)
            progress.report_stored(len(chunk.members) * len(indices))
            is_first = False

    def _generate_attempts(
        self,
        members: Sequence[Problem],
        indices: tuple[int, ...],
        decoding: Decoding,
        progress: _GenerationProgress,
        is_first: bool,
    ) -> _Draft:
        """Generate the responses of some indices, attempt by attempt."""
        draft = _Draft()
        start = time.monotonic()
        samples_deployment = decoding.samples_deployment
        # The first attempt
        requests = [
            Request(
                p.id,
                p.prompt,
                indices,
                self.streams.derive_seeds(p.id, 1, indices, samples_deployment),
                turns=p.turns,
            )
            for p in members
        ]
        # Further attempts get the conversation so far
        for attempt in range(1, self.attempts + 1):
            if attempt > 1:
                requests = build_next_requests(
                    self.judge,
                    members,
                    attempt,
                    draft.responses,
                    self.streams,
                    samples_deployment,
                )
            answers = (
                self.sampler.generate(requests, decoding, progress.report_unstored)
                if requests
                else []
            )
            if attempt > 1:
                check_conversations(requests, answers, draft.prompt_ids)
            elif is_first:
                self._check_first_responses(members, answers, decoding, progress)
            draft.add(requests, answers)
            if draft.passed and not self.keeps_verdicts:
                raise UserError(
                    "the sampler returned verdicts (passed), which only a search with "
                    "search.responses keeps; name the file there, or remove its verdicts"
                )
            progress.tokens += sum(len(g.token_ids) for a in answers for g in a.generations)
        draft.seconds = time.monotonic() - start
        return draft

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
        for note in check_first_chunk(members, answers, decoding, self.judge):
            progress.add_note(note)

    def _store_part(self, store: Store, chunk: Chunk, phase: DecodePhase, draft: _Draft) -> None:
        part = chunk.parts[phase]
        lines = []
        count = 0
        for problem in chunk.members:
            responses = [draft.responses[problem.id, index] for index in phase.indices]
            passed = draft.passed.get(problem.id, {})
            lines.append(
                build_response_line(
                    problem.id,
                    draft.prompt_ids[problem.id],
                    responses,
                    {index: passed[index] for index in phase.indices if index in passed},
                )
            )
            count += sum(1 + len(response.attempts) for response in responses)
        share = len(chunk.members) * len(phase.indices) / len(draft.responses)
        with store.write(part.place, ".jsonl") as path:
            facts = {
                "source": self.source,
                "responses": count,
                "seconds": round(draft.seconds * share, 3),
                "lines": write_lines(path, lines),
            }
            store.commit(path, part.place, part.made_from, facts, self.run)


class _GenerationProgress:
    """Counts a split's decodes for ``ReportProgress``; all attempts of an episode are one decode.

    Attributes:
        problems: the problems of the split.
        tokens: the tokens that were generated.
    """

    def __init__(self, progress: ReportProgress, problems: int, done: int, total: int) -> None:
        self.problems = problems
        self.tokens = 0
        self._progress = progress
        self._done = done
        self._total = total
        self._shown = done
        self._notes: list[str] = []
        progress(done, total)

    def report_unstored(self, finished: int, tokens: int, /, note: str = "") -> None:
        """Report the progress of a running batch, always below the total until it is stored."""
        self._shown = max(self._shown, min(self._done + finished, self._total - 1))
        self._progress(self._shown, self._total, self.tokens + tokens, note)

    def add_note(self, note: str) -> None:
        """Keep a note on the responses for the next ``report_stored``."""
        self._notes.append(note)

    def report_stored(self, count: int) -> None:
        """Report decodes that are stored now, and the notes on them."""
        self._done += count
        self._shown = max(self._shown, self._done)
        for note in ("", *self._notes):
            self._progress(self._shown, self._total, self.tokens, note)
        self._notes.clear()


def generate_chunks(
    store: Store,
    chunks: Sequence[Chunk],
    load: Callable[[], ChunkGenerator],
    progress: ReportProgress,
    share: tuple[int, int] = (0, 1),
) -> Mapping[str, Any]:
    """Generate the responses that are not in the store, chunk by chunk.

    Args:
        store: the store.
        chunks: all chunks of a split.
        load: loads the model; called only if responses are missing.
        progress: called with the numbers of finished and of all decodes.
        share: (worker number from 0, number of workers) among which the chunks are divided.

    Returns:
        The description of the model: that of the loaded one, else that of the first part.

    Raises:
        UserError: no prompt of the first chunk fits the model's context, a stored part was changed,
            or the store cannot be written.
    """
    stored = [(chunk, chunk.find_parts(store)) for chunk in chunks[share[0] :: share[1]]]
    unfinished = [(chunk, parts) for chunk, parts in stored if len(parts) < len(chunk.parts)]
    generator = load() if unfinished else None
    done = sum(chunk.count_decodes(parts) for chunk, parts in stored)
    total = sum(chunk.count_decodes(chunk.parts) for chunk, _ in stored)
    problems = sum(len(chunk.members) for chunk in chunks)
    counts = _GenerationProgress(progress, problems, done, total)
    if generator is None:
        return next((part.facts["source"] for _, parts in stored for part in parts.values()), {})
    with contextlib.closing(store.claim_each(unfinished, lambda item: item[0].place)) as turns:
        for chunk, earlier in turns:
            if made_elsewhere := chunk.find_parts(store).keys() - earlier.keys():
                counts.report_stored(chunk.count_decodes(made_elsewhere))
            generator.generate_missing(store, chunk, counts, is_first=chunk is chunks[0])
    return generator.source
