"""Judge sealed responses again: verdicts, answers, and their counts."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import GREEDY, Gold, Response, Verdict
from gapft_harness.hooks.checked import CheckedAnswers, answers_of
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
from gapft_harness.run_directory.manifest import TAKEN, ImportFacts, Manifest
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import Judged, read_judged, read_problems
from gapft_harness.stages.generation.sealing import closing_verifier, tokens_of
from gapft_harness.stages.integrity.differences import Differences, unequal
from gapft_harness.verification.judging import judge_and_answer

#: Responses judged again at a time, and the maximum number of named differences of a table.
_AT_ONCE, _NAMED = 1024, 20


@dataclass(slots=True)
class Rejudge:
    """Judges sealed responses again.

    Attributes:
        verifier: the task's verifier; None if its verdicts are not recomputed.
        timed_out: differences because of a timeout then or now: they depend on the machine's
            speed, and do not indicate a change.
        taken: by table with imported verdicts, the differing verdicts: not differences of the run.
    """

    verifier: Verifier | None
    verdicts: int = 0
    answers: int = 0
    timed_out: list[str] = field(default_factory=list)
    taken: dict[str, list[str]] = field(default_factory=dict)
    count: Callable[[int], None] = lambda _: None

    def check(
        self,
        run: RunDirectory,
        manifest: Manifest,
        relative: str,
        split: str,
        sampled: bool = False,
    ) -> Iterable[str]:
        """Compare a table's verdicts and their counts with the verifier's.

        Args:
            run: the run.
            manifest: its manifest.
            relative: the table: a split's responses, or an arm's decisions.
            split: the split of its problems.
            sampled: whether an arm's decisions are samples, equally many of each problem.
        """
        counts: dict[str, Counter[str]] = {"verdicts": Counter(), "finish_reasons": Counter()}
        drawn = {"samples": 0, "tokens": 0}
        place = layout.read(relative)
        assert place is not None
        greedy_only = split == CALIBRATION or place.arm is not None
        right = [GREEDY]
        differing = 0
        table = read_judged(run.path / relative)
        problems = run.path / layout.problems(split)
        pairs = _with_golds(problems, table) if self.verifier else ((None, j) for _, j in table)
        answers = answers_of(self.verifier) if self.verifier else None
        facts = read_facts(run.path / relative)
        imported = manifest.get("imported", {}).get(place.name)
        if facts.get("imported") != imported:
            yield f"manifest.json, imported: does not match the import that {relative} records"
        for warning in facts.get("warnings", ()) if place.arm is None else ():
            if f"{place.name}: {warning}" not in manifest.get("warnings", ()):
                yield f"manifest.json, warnings: a warning of {relative} is missing: {warning}"
        taken = imported is not None and imported["verdicts"] == "file"
        if taken and self.verifier:
            self.taken[relative] = []
        for batch in _batches(pairs):
            for _, of_problem in batch:
                if sampled and right == [GREEDY]:
                    right = [*range(len(of_problem))]
                if greedy_only and [j.response.index for j in of_problem] != right:
                    problem_id = of_problem[0].response.problem_id
                    wanted = f"other responses than samples 1 to {len(right)}"
                    other = wanted if sampled else "more than its greedy decode"
                    yield f"{relative}: problem {problem_id} has {other}"
                for each in of_problem:
                    if each.verdict.reason.startswith(TAKEN) != taken:
                        yield (
                            f"{_who(relative, each)}: the recorded source of this verdict does not "
                            "match the manifest"
                        )
                    counts["verdicts"][each.verdict.status] += 1
                    counts["finish_reasons"][each.response.finish_reason] += 1
                    if each.response.index != GREEDY:
                        drawn["samples"] += 1
                        drawn["tokens"] += tokens_of(each.response)
            for line in self._again(relative, batch, answers):
                differing += 1
                if differing <= _NAMED:
                    yield line
        if differing > _NAMED:
            more = differing - _NAMED
            yield f"{relative}: {more} further verdicts or answers differ when judged again"
        counted: dict[str, Any] = {key: dict(sorted(of.items())) for key, of in counts.items()}
        counted["drawn"] = drawn
        yield from unequal(f"{relative}, its facts", facts, counted)
        said: Mapping[str, Any] = manifest
        recorded = {
            key: said.get("verdict_counts" if key == "verdicts" else key, {}).get(place.name)
            for key in counted
        }
        yield from unequal(f"manifest.json, {place.name}", recorded, counted)

    def passed(self, table: Path, pairs: Sequence[tuple[Gold, Response]]) -> Iterable[str]:
        """Check that responses which another run records as passed pass again."""
        judged = ((gold, [Judged(response, Verdict("pass"))]) for gold, response in pairs)
        for batch in _batches(judged):
            yield from self._again(str(table), batch, None)

    def _again(
        self,
        relative: str,
        batch: Sequence[tuple[Gold, list[Judged]]],
        answers: CheckedAnswers | None,
    ) -> Iterable[str]:
        if self.verifier is None:
            return
        pairs = [(each, gold) for gold, of_problem in batch for each in of_problem]
        responses, golds = [each.response for each, _ in pairs], [gold for _, gold in pairs]
        found = judge_and_answer(self.verifier, answers, responses, golds)
        self.count(len(pairs))
        self.verdicts += 0 if relative in self.taken else len(pairs)
        self.answers += len(pairs) if answers else 0
        for (each, _), (again, answer) in zip(pairs, found, strict=True):
            who = _who(relative, each)
            if answers and answer != each.answer:
                yield f"{who} has the answer {each.answer!r}, read again it is {answer!r}"
            if again.status == each.verdict.status:
                continue
            line = (
                f"{who} has the verdict {each.verdict.status}, judged again it is {again.status}"
                f"{f' ({again.reason})' if again.reason else ''}"
            )
            if relative in self.taken:
                self.taken[relative].append(line)
            elif "timeout" in (again.status, each.verdict.status):
                self.timed_out.append(line)
            else:
                yield line


def _who(relative: str, judged: Judged) -> str:
    return f"{relative}: problem {judged.response.problem_id}, index {judged.response.index}"


@contextlib.contextmanager
def judging(manifest: Manifest, plugins: Plugins, findings: Differences) -> Iterator[Rejudge]:
    """Yield the run's judge; at the end report what was and was not judged again.

    Raises:
        UserError: the verifier cannot be created, and no other difference was found.
    """
    task = manifest["task"]
    name = task.get("verifier")
    if name is None:  # nothing is searched yet
        yield Rejudge(None)
    elif not plugins.rejudges(name):
        yield Rejudge(None)
        findings.checked.append(f"the verdicts of {name} were not judged again (rejudge=False)")
        findings.checked += _rules_told(manifest)
    else:
        try:
            verifier = plugins.verifier(name, task["verifier_params"])
        except UserError as error:
            if not findings.differences:  # for example, its data are not on this machine
                raise
            findings.differences.append(str(error))
            yield Rejudge(None)
            return
        judge = Rejudge(verifier, count=findings.count)
        with closing_verifier(verifier):
            yield judge
        findings.checked.append(f"{judge.verdicts} verdicts of {name} were judged again")
        if judge.answers:
            findings.checked.append(f"{judge.answers} answers of {name} were read again")
        if judge.timed_out:
            findings.checked.append(
                f"of these, {len(judge.timed_out)} differ by a timeout, which is not a difference "
                f"(verify again on a quiet machine): {'; '.join(judge.timed_out[:_NAMED])}"
            )


def _rules_told(manifest: Manifest) -> Iterator[str]:
    """Describe the verifier's rules for each table; several lines if they differ."""
    parts: dict[str, list[str]] = {}
    for part, said in manifest.get("judged_by", {}).items():
        parts.setdefault(json.dumps(said.get("rules"), sort_keys=True), []).append(part)
    for rules, judged in parts.items():
        told = "none recorded" if rules == "null" else rules
        yield f"rules of these verdicts ({', '.join(judged)}): {told}"


def _with_golds(
    problems: Path, judged: Iterable[tuple[str, list[Judged]]]
) -> Iterator[tuple[Gold, list[Judged]]]:
    """Yield each problem's gold answer with its responses; both tables are ordered by id."""
    known = read_problems(problems)
    for problem_id, of_problem in judged:
        problem = next((p for p, _ in known if p.id == problem_id), None)
        if problem is None:
            raise GapftError(
                f"answers problem {problem_id}, which is not at its place in {problems}"
            )
        yield problem.gold, of_problem


def _batches(
    pairs: Iterable[tuple[Gold, list[Judged]]],
) -> Iterator[list[tuple[Gold, list[Judged]]]]:
    """Yield batches of complete problems with at least ``_AT_ONCE`` responses."""
    batch: list[tuple[Gold, list[Judged]]] = []
    size = 0
    for gold, of_problem in pairs:
        batch.append((gold, of_problem))
        size += len(of_problem)
        if size >= _AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextlib.contextmanager
def judges(
    manifest: Manifest, plugins: Plugins, findings: Differences
) -> Iterator[Mapping[str, Rejudge]]:
    """Yield the judges by the names of further audits; the own task's has the empty name.

    At the end each reports what it did and did not judge again.

    Raises:
        UserError: as ``open_judge``.
    """
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(judging(manifest, plugins, findings))
        found = {"": own}
        for name, audit in manifest.get("audits", {}).items():
            found[name] = own
            keys = ("verifier", "verifier_params")
            if any(audit["task"].get(key) != manifest["task"].get(key) for key in keys):
                asked: Manifest = {**manifest, "task": audit["task"]}
                found[name] = stack.enter_context(judging(asked, plugins, findings))
        yield found
    taken = {table: lines for of in found.values() for table, lines in of.taken.items()}
    for split, facts in manifest.get("imported", {}).items():
        findings.checked.append(_imported(split, facts, taken.get(layout.responses(split))))


def _imported(split: str, facts: ImportFacts, differing: list[str] | None) -> str:
    """Describe the source of a split's responses and verdicts."""
    files = ", ".join(f"{of['path']} (sha256 {of['sha256'][:12]})" for of in facts["files"])
    line = f"{split}: its {facts['responses']} responses were imported from {files}"
    if facts["verdicts"] != "file":
        return f"{line}; their verdicts were computed by the task's verifier at the import"
    line += f"; their verdicts come from the files ({facts['told_by']}), not from this verifier"
    if differing is None:
        return line
    again = f"{line}: judged again, {len(differing)} of them differ"
    return f"{again}, the first: {differing[0]}" if differing else again
