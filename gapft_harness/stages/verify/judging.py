"""Judge responses again: verdicts, answers, seeds, token ids, and their counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import GREEDY, STOP_STRING, Gold, Response
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.outputs import Facts
from gapft_harness.engine.run import RECORDS
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import SamplerTraits, VerifierTraits
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from gapft_harness.recipe.recipe import build_sampler_settings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import ImportFacts, read_judged_facts
from gapft_harness.run_directory.tables import (
    IMPORTED_PREFIX,
    JudgedResponse,
    read_judged,
    read_problems,
)
from gapft_harness.stages.descriptions import describe_model
from gapft_harness.stages.generation.table import PARTS, TableCounts, hash_parts
from gapft_harness.stages.verify.differences import Differences, compare_values

#: Responses judged again at a time, and the maximum number of named differences of a table.
_RESPONSE_BATCH, _MAX_NAMED = 1024, 20


@dataclass(frozen=True)
class ExpectedResponses:
    """The responses that each problem of a table must have.

    Attributes:
        split: the split of the problems.
        indices: the indices of a problem's responses, in order.
        streams: the random streams of their seeds; None: all seeds are 0.
        samples_deployment: whether deployment decodes are sampled.
    """

    split: str
    indices: Sequence[int]
    streams: SampleStreams | None
    samples_deployment: bool

    def derive_seed(self, response: Response) -> int:
        """Derive the seed that a response must have."""
        if self.streams is None:
            return 0
        attempt = len(response.attempts) + 1
        (seed,) = self.streams.derive_seeds(
            response.problem_id, attempt, [response.index], self.samples_deployment
        )
        return seed


@dataclass(slots=True)
class TableJudge:
    """Judges the responses of tables again.

    Attributes:
        judge: the task's verifier; None if its verdicts are not recomputed.
        timed_out: differences because of a timeout then or now: they depend on the machine's
            speed, and do not indicate a change.
        imported_differences: by table with imported verdicts, the differing verdicts: not
            differences of the run.
        tokenizer: the model's tokenizer; None if it is not on this machine, or if the sampler
            does not use it.
    """

    judge: Judge | None
    tokenizer: Retokenizer | None = None
    verdict_count: int = 0
    answer_count: int = 0
    timed_out: list[str] = field(default_factory=list)
    imported_differences: dict[str, list[str]] = field(default_factory=dict)
    report_count: Callable[[int], None] = lambda _: None

    def check_table(
        self, run: RunDirectory, relative: str, expected: ExpectedResponses, facts: Facts
    ) -> Iterator[str]:
        """Check a table's responses, and compare its verdicts and counts with the verifier's.

        Args:
            run: the run.
            relative: the table: a split's responses, or an arm's decisions.
            expected: the responses of each problem.
            facts: the recorded facts of the table.
        """
        import pyarrow.parquet as pq

        parts = (pq.read_schema(run.path / relative).metadata or {}).get(PARTS, b"").decode()
        if parts != hash_parts(facts):
            yield f"{relative}: was not made of the parts that {RECORDS} names as stored"
        counts = TableCounts()
        difference_count = 0
        table = read_judged(run.path / relative)
        problems = run.path / layout.problems_path(expected.split)
        pairs = _pair_with_golds(problems, table) if self.judge else ((None, j) for _, j in table)
        imported = facts.get("imported", {})
        if imported.get("verdicts") == "file" and self.judge:
            self.imported_differences[relative] = []
        for batch in _build_batches(pairs):
            for judged in chain.from_iterable(of_problem for _, of_problem in batch):
                counts.add(judged.response, judged.verdict)
            found = self._check_responses(run, relative, batch, expected, imported)
            for line in chain(found, self._judge_again(relative, batch)):
                difference_count += 1
                if difference_count <= _MAX_NAMED:
                    yield line
        if difference_count > _MAX_NAMED:
            more = difference_count - _MAX_NAMED
            yield f"{relative}: {more} further responses, verdicts or answers differ"
        place = f"{RECORDS}, facts of {relative}"
        yield from compare_values(place, facts, counts.build_facts())
        if imported:
            total = counts.reasons.statuses.total()
            yield from compare_values(f"{place}, imported", imported, {"responses": total})

    def describe_work(self, verifier: str) -> Iterator[str]:
        """Describe how many verdicts and answers of the task's verifier were compared."""
        if self.judge is None:
            yield f"the verdicts of {verifier} were not judged again (rejudge=False)"
            return
        yield f"{self.verdict_count} verdicts of {verifier} were judged again"
        if self.answer_count:
            yield f"{self.answer_count} answers of {verifier} were read again"
        if self.timed_out:
            yield (
                f"of these, {len(self.timed_out)} differ by a timeout, which is not a difference "
                f"(verify again on a quiet machine): {'; '.join(self.timed_out[:_MAX_NAMED])}"
            )

    def _check_responses(
        self,
        run: RunDirectory,
        relative: str,
        batch: Sequence[tuple[Gold, list[JudgedResponse]]],
        expected: ExpectedResponses,
        imported: Mapping[str, Any],
    ) -> Iterator[str]:
        """Yield faults of responses: missing ones, wrong seeds, attempts and token ids."""
        attempts = run.task["episode"]["attempts"]
        has_file_verdicts = imported.get("verdicts") == "file"
        for _, of_problem in batch:
            indices = [judged.response.index for judged in of_problem]
            if indices != [*expected.indices]:
                yield (
                    f"{relative}: problem {of_problem[0].response.problem_id} has the responses "
                    f"{indices}, expected {[*expected.indices]} ({GREEDY} is the deployment decode)"
                )
            for judged in of_problem:
                response = judged.response
                place = _format_response(relative, judged)
                if (seed := expected.derive_seed(response)) != response.seed:
                    yield (
                        f"{place} has the seed {response.seed}, but its random stream gives {seed}"
                    )
                if judged.verdict.reason.startswith(IMPORTED_PREFIX) != has_file_verdicts:
                    yield f"{place}: the recorded source of this verdict is not that of {RECORDS}"
                if len(response.attempts) >= attempts:
                    yield f"{place} has {len(response.attempts) + 1} attempts, allowed: {attempts}"
                if response.context_ids and not response.attempts:
                    yield f"{place} has a conversation, but no earlier attempt"
                if self.tokenizer and not _has_own_ids(response, self.tokenizer):
                    yield f"{place} has the token ids of a different text"

    def _judge_again(
        self,
        relative: str,
        batch: Sequence[tuple[Gold, list[JudgedResponse]]],
    ) -> Iterable[str]:
        if self.judge is None:
            return
        pairs = [
            (judged_response, gold) for gold, of_problem in batch for judged_response in of_problem
        ]
        responses = [judged_response.response for judged_response, _ in pairs]
        golds = [gold for _, gold in pairs]
        results = self.judge.judge_responses(responses, golds)
        self.report_count(len(pairs))
        self.verdict_count += 0 if relative in self.imported_differences else len(pairs)
        self.answer_count += len(pairs) if self.judge.reads_answers else 0
        for (judged_response, _), (new_verdict, answer) in zip(pairs, results, strict=True):
            place = _format_response(relative, judged_response)
            if answer != judged_response.answer:
                yield (
                    f"{place} has the answer {judged_response.answer!r}, read again it is "
                    f"{answer!r}"
                )
            if new_verdict.status == judged_response.verdict.status:
                continue
            line = (
                f"{place} has the verdict {judged_response.verdict.status}, judged again it is "
                f"{new_verdict.status}{f' ({new_verdict.reason})' if new_verdict.reason else ''}"
            )
            if relative in self.imported_differences:
                self.imported_differences[relative].append(line)
            elif "timeout" in (new_verdict.status, judged_response.verdict.status):
                self.timed_out.append(line)
            else:
                yield line


def _has_own_ids(response: Response, tokenizer: Retokenizer) -> bool:
    """Return whether a response's token ids can be those of its text."""
    if response.reasoning or response.tokens_from == "none":
        return True  # the ids are not those of the text alone, or unknown
    if response.tokens_from == "retokenized":
        return tokenizer.response_ids([response.text]) == [tuple(response.token_ids)]
    text = tokenizer.decode(response.token_ids)
    is_cut = response.finish_reason == STOP_STRING  # a token may go on after the end of the text
    return text == response.text or (is_cut and text.startswith(response.text))


def _format_response(relative: str, judged: JudgedResponse) -> str:
    return f"{relative}: problem {judged.response.problem_id}, index {judged.response.index}"


@contextlib.contextmanager
def open_judge(run: RunDirectory, plugins: Plugins, findings: Differences) -> Iterator[TableJudge]:
    """Yield the run's judge; at the end report what was and was not judged again."""
    task = run.facts()["task"]
    name = task.get("verifier")  # None without a search
    verifier: Judge | None = None
    if name is not None and plugins.get("verifier", name).require_traits(VerifierTraits).rejudge:
        verifier = plugins.create_verifier(name, task["verifier_params"])
    judge = TableJudge(verifier, report_count=findings.count_verdicts)
    with verifier or contextlib.nullcontext():
        judge.tokenizer = _load_tokenizer(run, plugins, findings)
        yield judge
    if name is not None:
        findings.checked += judge.describe_work(name)
    for split, facts in read_judged_facts(run, "imported").items():
        differences = judge.imported_differences.get(layout.responses_path(split))
        findings.checked.append(_describe_import(split, facts, differences))


def _load_tokenizer(
    run: RunDirectory, plugins: Plugins, findings: Differences
) -> Retokenizer | None:
    """Load the tokenizer of the run's sampler, if it declares that it uses the model's."""
    settings = build_sampler_settings(run.recipe)
    name = settings.backend
    if not plugins.has("sampler", name):
        return None
    if plugins.get("sampler", name).require_traits(SamplerTraits).prompt_lengths is None:
        return None
    if "tokenizer" in settings.model_args or describe_model(settings.model_args)[1]:
        with contextlib.suppress(UserError, ImportError):  # no file, or no transformers
            return Retokenizer(settings)
    findings.checked.append("not checked, because the tokenizer cannot be loaded here: token ids")
    return None


def _pair_with_golds(
    problems: Path, judged: Iterable[tuple[str, list[JudgedResponse]]]
) -> Iterator[tuple[Gold, list[JudgedResponse]]]:
    """Yield each problem's gold answer with its responses; both tables are ordered by id."""
    stored_problems = read_problems(problems)
    for problem_id, of_problem in judged:
        problem = next((p for p, _ in stored_problems if p.id == problem_id), None)
        if problem is None:
            raise GapftError(
                f"answers problem {problem_id}, which is not at its place in {problems}"
            )
        yield problem.gold, of_problem


def _build_batches(
    pairs: Iterable[tuple[Gold, list[JudgedResponse]]],
) -> Iterator[list[tuple[Gold, list[JudgedResponse]]]]:
    """Yield batches of complete problems with at least ``_RESPONSE_BATCH`` responses."""
    batch: list[tuple[Gold, list[JudgedResponse]]] = []
    size = 0
    for gold, of_problem in pairs:
        batch.append((gold, of_problem))
        size += len(of_problem)
        if size >= _RESPONSE_BATCH:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def _describe_import(split: str, facts: ImportFacts, differences: list[str] | None) -> str:
    """Describe the source of a split's responses and verdicts."""
    files = ", ".join(f"{file['path']} (sha256 {file['sha256'][:12]})" for file in facts["files"])
    line = f"{split}: its {facts['responses']} responses are those of {files}"
    if facts["verdicts"] != "file":
        return f"{line}; the task's verifier judged them"
    line += (
        f"; their verdicts come from these logs ({facts['verdict_field']}), not from this verifier"
    )
    if differences is None:
        return line
    result = f"{line}: judged again, {len(differences)} of them differ"
    return f"{result}, the first: {differences[0]}" if differences else result
