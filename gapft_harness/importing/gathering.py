"""Read and check files of responses, and convert them to the lines that a search stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, Problem, Verdict
from gapft_harness.hooks.protocols import Generated, Generation, Request
from gapft_harness.importing.problems import ProblemIndex, ResponsePlaces
from gapft_harness.importing.responses import is_numbered, read_responses
from gapft_harness.importing.rows import ImportChoice, ImportedResponse
from gapft_harness.outcomes.logs import Log, open_log
from gapft_harness.stages.generation.stored_files import (
    Record,
    build_response_records,
    build_verdict_records,
)

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer

#: Responses that are tokenized and written at once.
_BATCH_SIZE = 1000

#: A response: its problem, its index, and its row in the file.
_PlacedResponse = tuple[Problem, int, ImportedResponse]


@dataclass(slots=True)
class Gathering:
    """The import of responses from files.

    Attributes:
        choice: the files and how to read them.
        problems: the problems of the split.
        split: the name of the split.
        k: samples to import for each problem; 0: only the greedy response.
        plugin_files: files given by ``--plugin``; their log readers have priority.
        formats: the format of each file that was read.
        hashes: the hash of each file, the same before and after reading.
        response_count: the number of imported responses.
        samples: the number of samples of each problem in the files.
        left_out: responses whose problem is not in the split.
        verdict_sources: the sources of verdicts in the files.
        rules: values that must be equal in all rows, by kind, with the place of the first.
    """

    choice: ImportChoice
    problems: Sequence[Problem]
    split: str
    k: int
    plugin_files: Sequence[str] = ()
    formats: dict[str, str] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    response_count: int = 0
    samples: int = 0
    left_out: int = 0
    verdict_sources: dict[str, None] = field(default_factory=dict)
    rules: dict[str, tuple[str, str]] = field(default_factory=dict)

    def gather(
        self,
        keep: Callable[[Sequence[Record]], object],
        tokenizer: Retokenizer,
        progress: Callable[[int], None],
    ) -> None:
        """Read the responses of all files in batches.

        Args:
            keep: stores lines with responses, and with the files' verdicts unless the task's
                verifier judges.
            tokenizer: computes token ids.
            progress: called with the number of responses so far.

        Raises:
            UserError: a file is damaged, given twice or changed while it was read, or the files do
                not contain one greedy response and the same number of samples, at least K, for each
                problem; the message has file and line.
        """
        paths = self.choice.paths
        self.hashes = self.choice.compute_hashes()
        _require_distinct(paths, self.hashes)
        logs = [open_log(Path(path), self.plugin_files) for path in paths]
        all_paths, seen = ", ".join(paths), ResponsePlaces(paths)
        numbered = {is_numbered(log) for log in logs[bool(self.choice.greedy) :]}
        if self.choice.filter is not None and numbered == {True}:
            raise UserError(f"{all_paths}: remove --filter; it applies only to logs of lm_eval")
        if len(numbered) > 1:
            raise UserError(
                f"{all_paths}: cannot import plain JSON lines together with another format; give "
                "files of one format"
            )
        for number, (path, log) in enumerate(zip(paths, logs, strict=True)):
            self.formats[path] = log.kind
            rows = self._place_responses(path, number, log, seen)
            while batch := list(islice(rows, _BATCH_SIZE)):
                keep(self._build_records(batch, tokenizer))
                progress(self.response_count)
            if path != self.choice.greedy and not is_numbered(log):
                self.samples += seen.count_samples(self.problems, self.samples, path)
        if True in numbered:
            self.samples = seen.count_samples(self.problems, 0, all_paths)
        seen.require_greedy(self.problems, all_paths)
        if self.samples < self.k:
            raise UserError(
                f"{all_paths}: found {self.samples} samples of each problem, but search.k is "
                f"{self.k}; "
                + (
                    f"use fewer samples: --set search.k={self.samples}"
                    if self.samples
                    else "give more files"
                )
            )
        for path, new_hash in self.choice.compute_hashes().items():
            if new_hash != self.hashes[path]:
                raise UserError(f"{path}: was changed while it was read; import it again")

    def _place_responses(
        self, path: str, number: int, log: Log, seen: ResponsePlaces
    ) -> Iterator[_PlacedResponse]:
        """Yield the needed responses of one file, with their problems and indices."""
        greedy = path == self.choice.greedy
        known_problems = ProblemIndex(self.problems, self.split, self.choice.on)
        earlier_samples = 0 if is_numbered(log) else self.samples
        for row in read_responses(log, self.choice, greedy):
            if self.choice.on and row.key[0] != "doc":
                raise UserError(
                    f"{row.place}: identifies its problem by {row.key[0]}, but --on joins by "
                    "fields of doc; remove the option, or add doc to the rows"
                )
            problem = known_problems.find(row)
            if problem is None:
                if not self.choice.ignore_unknown:
                    raise known_problems.unknown_problem_error(row)
                self.left_out += 1
                continue
            if greedy and row.index != GREEDY:
                raise UserError(
                    f"{row.place}: found sample {row.index}; expected only greedy responses in the "
                    "file of --greedy"
                )
            index = row.index if row.index == GREEDY else earlier_samples + row.index
            seen.add(problem, index, number, row)
            self._check_verdict(row)
            if index < self.k:
                yield problem, index, row

    def _check_verdict(self, row: ImportedResponse) -> None:
        if self.choice.judge:
            return
        if row.verdict is None:
            raise UserError(
                f"{row.place}: the response has no verdict; expected 0 or 1 in the format's field "
                "(docs/import-export.md); name another field (--metric), or have the task's "
                "verifier judge all responses (--judge)"
            )
        if row.finish_reason == CONTEXT_EXCEEDED and row.verdict.passed:
            raise UserError(
                f"{row.place}: the response passed, but was not generated "
                f"({CONTEXT_EXCEEDED}); expected 0"
            )
        self.verdict_sources[row.verdict_source] = None
        for kind, value in row.rule.items():
            first_value, place = self.rules.setdefault(kind, (value, row.place))
            if first_value != value:
                option = "filter" if kind == "filter" else "metric"
                raise UserError(
                    f"{row.place}: its verdict comes from {kind} {value!r}, but that of {place} "
                    f"from {first_value!r}, so the same text could pass and fail; choose one for "
                    f"all files (--{option} NAME), or have the task's verifier judge (--judge)"
                )

    def _build_records(
        self, batch: Sequence[_PlacedResponse], tokenizer: Retokenizer
    ) -> list[Record]:
        """Build the lines of a batch: one for each problem in it, and one for its verdicts."""
        by_problem: dict[str, list[_PlacedResponse]] = {}
        for placed in batch:
            by_problem.setdefault(placed[0].id, []).append(placed)
        requests = [
            Request(
                problem.id,
                problem.prompt,
                tuple(index for _, index, _ in members),
                (0,) * len(members),
                turns=problem.turns,
            )
            for members in by_problem.values()
            for problem in [members[0][0]]
        ]
        prompts = tokenizer.prompt_ids([tokenizer.render(request) for request in requests])
        texts = [row.text for members in by_problem.values() for _, _, row in members]
        ids = iter(tokenizer.response_ids(texts))
        generated = [
            Generated(
                prompt,
                tuple(
                    Generation(row.text, next(ids), row.finish_reason, "retokenized")
                    for _, _, row in members
                ),
            )
            for prompt, members in zip(prompts, by_problem.values(), strict=True)
        ]
        verdicts: dict[str, dict[int, Verdict]] = {
            name: {index: row.verdict for _, index, row in members if row.verdict}
            for name, members in by_problem.items()
            if not self.choice.judge
        }
        self.response_count += len(batch)
        return [*build_response_records(requests, generated), *build_verdict_records(verdicts)]


def _require_distinct(paths: Sequence[str], hashes: Mapping[str, str]) -> None:
    """Check that files are different, by name, by path and by content.

    Raises:
        UserError: a file is given twice.
    """
    known_paths: dict[Path | str, str] = {}
    for path in paths:
        place = Path(path).resolve()
        if place in known_paths:
            raise UserError(f"{path}: the file is given twice, so its responses would count twice")
        if (equal_path := known_paths.get(hashes[path])) is not None:
            raise UserError(
                f"{path}: has the same bytes as {equal_path}, so its responses would count twice; "
                "remove one"
            )
        known_paths[place] = known_paths[hashes[path]] = path
