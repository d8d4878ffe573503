"""Judge stored responses, chunk by chunk; the verdicts on a part are a part, for all runs.

A response may get a verdict at a later try if it had a timeout or an error: such a verdict is not
stored and holds in its own run only.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, Gold, Problem, Response, Verdict
from gapft_harness.engine.store import Store
from gapft_harness.hooks.judge import Judge, VerdictAndAnswer
from gapft_harness.stages.generation.chunks import Chunk
from gapft_harness.stages.generation.lines import (
    Line,
    ProblemResponses,
    Responses,
    build_verdict_line,
    write_lines,
)

#: The verdicts that a later try may replace.
UNDECIDED = ("timeout", "error")

#: Facts in which the executions of an episode may differ: the status of its verdict, and the result
#: or message of a public test, after which it might have continued differently.
VERDICTS_DIFFER, FEEDBACK_DIFFERS = "verdicts_differ", "feedback_differs"

#: Responses verified at a time.
_VERDICT_BATCH = 256


def find_majority(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the label of an odd number of executions.

    It is a pass if most passed; else the most common other status, the first one in a tie. If the
    statuses differ, the reason gives the number of passes.
    """
    passes = sum(verdict.passed for verdict in verdicts)
    is_passed = 2 * passes > len(verdicts)
    agreeing = [verdict for verdict in verdicts if verdict.passed == is_passed]
    (status, _), *_ = Counter(verdict.status for verdict in agreeing).most_common(1)
    label = next(verdict for verdict in agreeing if verdict.status == status)
    if all(verdict.status == status for verdict in verdicts):
        return label
    count_text = f"{passes} of {len(verdicts)} executions passed"
    return Verdict(status, f"{label.reason}; {count_text}" if label.reason else count_text)


def label_repeated(
    responses: Sequence[Response],
    golds: Sequence[Gold],
    first: Sequence[Verdict],
    executions: int,
    attempts: int,
    judge: Judge,
) -> list[tuple[Verdict, list[str]]]:
    """Repeat the execution of deployment episodes, and label them by majority.

    Args:
        responses: deployment responses, with the earlier attempts of episodes.
        golds: their golds.
        first: the verdicts of the first execution.
        executions: total number of executions, odd.
        attempts: maximum number of attempts of an episode.
        judge: the verifier; it also gives the feedback on earlier attempts again.

    Returns:
        For each response its label, and in which facts the executions differed.
    """
    rounds = [first]
    changed = set[str]()
    for _ in range(executions - 1):
        rounds.append([verdict for verdict, _ in judge.judge_responses(responses, golds)])
        if attempts > 1:
            changed |= _find_changed_feedback(responses, golds, attempts, judge)
    labelled = []
    for response, *verdicts in zip(responses, *rounds, strict=True):
        differing = [VERDICTS_DIFFER] if len({verdict.status for verdict in verdicts}) > 1 else []
        if response.problem_id in changed:
            differing.append(FEEDBACK_DIFFERS)
        labelled.append((find_majority(verdicts), differing))
    return labelled


def _find_changed_feedback(
    responses: Sequence[Response], golds: Sequence[Gold], attempts: int, judge: Judge
) -> set[str]:
    """Request all feedback again, also the missing feedback that ended an episode early.

    Returns:
        The problems whose feedback changed.
    """
    earlier_feedback: list[tuple[str, str, Gold, str | None]] = []
    for response, gold in zip(responses, golds, strict=True):
        problem = response.problem_id
        earlier_feedback += [(problem, a.text, gold, a.feedback) for a in response.attempts]
        is_ended = response.finish_reason == CONTEXT_EXCEEDED
        if len(response.attempts) + 1 < attempts and not is_ended:
            earlier_feedback.append((problem, response.text, gold, None))
    repeated_feedback = judge.give_feedback(
        [text for _, text, _, _ in earlier_feedback],
        [gold for _, _, gold, _ in earlier_feedback],
    )
    return {
        problem
        for (problem, _, _, first), repeated in zip(
            earlier_feedback, repeated_feedback, strict=True
        )
        if repeated != first
    }


@dataclass(frozen=True)
class Judged:
    """New verdicts on the responses to some problems.

    Attributes:
        pairs: the verdicts and answers, by problem and index.
        differing: in which facts repeated executions of a deployment response differed, by problem.
    """

    pairs: Mapping[tuple[str, int], VerdictAndAnswer]
    differing: Mapping[str, Sequence[str]]

    def build_lines(self, indices: Collection[int], *, decided: bool) -> list[Line]:
        """Build the lines of the verdicts on some decodes: the decided ones, or the others."""
        selected: dict[str, dict[int, VerdictAndAnswer]] = {}
        for (problem_id, index), pair in self.pairs.items():
            if index in indices and (pair[0].status not in UNDECIDED) == decided:
                selected.setdefault(problem_id, {})[index] = pair
        return [
            build_verdict_line(
                problem_id, judged, self.differing.get(problem_id) if GREEDY in judged else None
            )
            for problem_id, judged in selected.items()
        ]


@dataclass(frozen=True)
class ChunkJudge:
    """Judges the responses of chunks and stores the verdicts.

    Attributes:
        judge: the verifier.
        attempts: maximum number of attempts of an episode.
        executions: how often deployment responses are judged; the majority labels them.
        run: the run directory that they are judged for, recorded with each part.
    """

    judge: Judge
    attempts: int = 1
    executions: int = 1
    run: str = ""

    def judge_missing(self, store: Store, chunk: Chunk, responses: Responses) -> None:
        """Judge what has no stored verdict; the chunk's claim must be held.

        Args:
            store: the store.
            chunk: the problems and the parts of their verdicts.
            responses: the responses to the chunk's problems; receives the verdicts.
        """
        stored = chunk.find_parts(store)
        for output in stored.values():
            responses.add(output)
        entries = list(responses.read([problem.id for problem in chunk.members]))
        judged = self.judge_entries(entries, chunk.members)
        for phase, part in chunk.parts.items():
            responses.add_lines(judged.build_lines(phase.indices, decided=False))
            lines = judged.build_lines(phase.indices, decided=True)
            if phase in stored:  # the part of another run, which lacks these
                responses.add_lines(lines)
            elif lines:
                with store.write(part.place, ".jsonl") as path:
                    facts = {
                        "verdicts": sum(len(line["judged"]) for line in lines),
                        "lines": write_lines(path, lines),
                    }
                    store.commit(path, part.place, part.made_from, facts, self.run)
        for phase, output in chunk.find_parts(store).items():
            if phase not in stored:
                responses.add(output)

    def judge_entries(
        self, entries: Sequence[ProblemResponses], problems: Sequence[Problem]
    ) -> Judged:
        """Judge the responses that have no verdict yet.

        Args:
            entries: the responses; verdicts that the sampler returned are kept.
            problems: the problem of each entry.
        """
        rows = [
            (response, problem.gold, entry.reported.get(response.index))
            for problem, entry in zip(problems, entries, strict=True)
            for response in entry.responses
            if response.index not in entry.judged
        ]
        pairs: list[VerdictAndAnswer] = []
        for start in range(0, len(rows), _VERDICT_BATCH):
            responses, golds, reported = zip(*rows[start : start + _VERDICT_BATCH], strict=True)
            pairs += self.judge.judge_responses(responses, golds, reported)
        differing = {}
        if self.executions > 1:
            places = [number for number, row in enumerate(rows) if row[0].index == GREEDY]
            labelled = label_repeated(
                [rows[place][0] for place in places],
                [rows[place][1] for place in places],
                [pairs[place][0] for place in places],
                self.executions,
                self.attempts,
                self.judge,
            )
            for place, (label, facts) in zip(places, labelled, strict=True):
                pairs[place] = (label, pairs[place][1])
                differing[rows[place][0].problem_id] = facts
        keys = [(response.problem_id, response.index) for response, _, _ in rows]
        return Judged(dict(zip(keys, pairs, strict=True)), differing)


def judge_chunks(
    store: Store,
    chunks: Sequence[Chunk],
    responses: Responses,
    judge: ChunkJudge,
    progress: Callable[[int, int], None],
) -> None:
    """Judge the responses whose verdicts are not in the store, chunk by chunk.

    Args:
        store: the store.
        chunks: chunks with the parts of verdicts.
        responses: the responses to the chunks' problems; receives the verdicts.
        judge: judges them.
        progress: called with the numbers of judged decodes and of all decodes to judge.

    Raises:
        UserError: a stored part was changed, or the store cannot be written.
        PluginError: the verifier failed.
    """
    unfinished: list[tuple[Chunk, int]] = []
    for chunk in chunks:
        parts = chunk.find_parts(store).values()
        if missing := chunk.count_decodes(chunk.parts) - sum(
            part.facts["verdicts"] for part in parts
        ):
            unfinished.append((chunk, missing))
        else:
            for part in parts:
                responses.add(part)
    if not unfinished:
        return
    done = 0
    total = sum(missing for _, missing in unfinished)
    progress(done, total)
    with contextlib.closing(store.claim_each(unfinished, lambda item: item[0].place)) as turns:
        for chunk, missing in turns:
            judge.judge_missing(store, chunk, responses)
            done += missing
            progress(done, total)
