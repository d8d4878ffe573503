"""The judge step: verdicts on stored responses, kept for all runs with the same inputs.

A file contains the verdicts on one file of responses, with the answers that were read. Its name
follows from that file's hash and the problems' golds; its group's key is the verifier's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import GREEDY
from gapft_harness.hooks.judge import Judge
from gapft_harness.stages.generation.chunks import Chunk, DecodePhase, Work, iterate_claimed
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.sealing import RepeatedExecutions, judge_entries
from gapft_harness.stages.generation.stored_files import (
    FileHead,
    Record,
    Responses,
    build_file,
    build_verdict_record,
)

#: Increases when stored verdicts could be misread, or the same key would give other verdicts.
VERSION = 1


def describe_verdicts(
    phase: DecodePhase, responses: str, verifier: Mapping[str, Any], executions: int
) -> dict[str, Any]:
    """Describe the inputs of verdicts besides responses and golds.

    Args:
        phase: the phase of the responses.
        responses: the key of the responses.
        verifier: the verifier's description (``made_from.describe_verifier``).
        executions: how often deployment responses are judged.
    """
    parts: dict[str, Any] = {"responses": responses, "verifier": verifier}
    if executions > 1 and GREEDY in phase.indices:
        parts["executions"] = executions
    return parts


def place_verdicts(
    chunk: Chunk,
    heads: Mapping[DecodePhase, FileHead],
    verifier: Mapping[str, Any],
    executions: int,
) -> Chunk:
    """Return a chunk's problems with the places of their verdicts.

    Args:
        chunk: the problems, with the places of their responses.
        heads: the first lines of the files of responses.
        verifier: the verifier's description (``made_from.describe_verifier``).
        executions: how often deployment responses are judged.
    """
    golds = content_hash([problem.gold for problem in chunk.members])
    places = {}
    for phase, head in heads.items():
        responses, _ = chunk.places[phase]
        made_from = describe_verdicts(phase, responses.key, verifier, executions)
        group = responses.store.find_group("judge", VERSION, made_from)
        places[phase] = (group, f"{content_hash([head.sha256, golds])}.{phase.name}.jsonl")
    return Chunk(chunk.members, places)


@dataclass(frozen=True)
class ChunkJudge:
    """Judges the responses of chunks and stores the verdicts.

    Attributes:
        judge: the verifier.
        episodes: gives the feedback on earlier attempts again if executions are repeated.
        executions: how often deployment responses are judged; the majority labels them.
        run: the run directory that they are judged for, recorded in stored files.
    """

    judge: Judge
    episodes: Episodes
    executions: int
    run: str

    def judge_missing(self, chunk: Chunk, responses: Responses) -> None:
        """Judge and store the missing phases of a chunk; its claim must be held.

        Args:
            chunk: the problems and the files of their verdicts.
            responses: the responses to the chunk's problems; their stored verdicts are kept.
        """
        missing = chunk.list_missing()
        indices = {index for phase in missing for index in phase.indices}
        entries = [
            replace(entry, responses=tuple(r for r in entry.responses if r.index in indices))
            for entry in responses.read([problem.id for problem in chunk.members])
        ]
        repeats = RepeatedExecutions(self.executions)
        judged = judge_entries(entries, chunk.members, self.judge, self.episodes, repeats)
        for phase in missing:
            records: list[Record] = []
            for entry, pairs in zip(entries, judged, strict=True):
                rows = [
                    (response.index, verdict, answer)
                    for response, (verdict, answer) in zip(entry.responses, pairs, strict=True)
                    if response.index in phase.indices
                ]
                is_repeated = self.executions > 1 and any(index == GREEDY for index, *_ in rows)
                differing = repeats.list_differing(entry.problem_id) if is_repeated else None
                if rows:
                    records.append(build_verdict_record(entry.problem_id, rows, differing))
            group, name = chunk.places[phase]
            group.store_file(name, build_file(records, self.run, group.folder / name))


def judge_chunks(
    chunks: Sequence[Chunk],
    responses: Responses,
    step: ChunkJudge,
    progress: Callable[[int, int], None],
) -> None:
    """Judge the responses whose verdicts are not in the store, chunk by chunk.

    Args:
        chunks: chunks with the files of verdicts.
        responses: the responses to the chunks' problems.
        step: judges them.
        progress: called with the numbers of judged decodes and of all decodes to judge.

    Raises:
        UserError: the store cannot be written.
        PluginError: the verifier failed.
    """
    unfinished: list[Work] = [
        (chunk, missing) for chunk in chunks if (missing := chunk.list_missing())
    ]
    if not unfinished:
        return
    for chunk, missing in unfinished:
        for phase in missing:
            chunk.places[phase][0].create({})
    done, total = 0, sum(map(_count_decodes, unfinished))
    progress(done, total)
    with contextlib.closing(iterate_claimed(unfinished)) as turns:
        for work in turns:
            step.judge_missing(work[0], responses)
            done += _count_decodes(work)
            progress(done, total)


def _count_decodes(work: Work) -> int:
    chunk, phases = work
    return len(chunk.members) * sum(len(phase.indices) for phase in phases)
