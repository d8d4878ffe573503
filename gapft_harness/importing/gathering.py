"""Read and check files of responses, and convert them to the lines that a search stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import CONTEXT, GREEDY, Problem, Verdict
from gapft_harness.hooks.protocols import Generated, Generation, Request
from gapft_harness.importing.formats import format_of
from gapft_harness.importing.problems import Problems, Seen
from gapft_harness.importing.rows import Format, ImportChoice, ImportedResponse
from gapft_harness.stages.generation.parts import Record, generated_records, judged_records

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer

#: Responses that are tokenized and written at once.
_BATCH = 1000

#: A response: its problem, its index, and its row in the file.
_Placed = tuple[Problem, int, ImportedResponse]


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
    taken: int = 0
    samples: int = 0
    left_out: int = 0
    told_by: dict[str, None] = field(default_factory=dict)
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
        self.hashes = self.choice.hashes()
        _require_different(paths, self.hashes)
        forms = [format_of(Path(path), self.plugin_files) for path in paths]
        whole, seen = ", ".join(paths), Seen(paths)
        if self.choice.filter is not None and not any(form.filters for form in forms):
            raise UserError(f"{whole}: remove --filter; it applies only to logs of lm_eval")
        numbered = {form.numbered for form in forms[bool(self.choice.greedy) :]}
        if len(numbered) > 1:
            raise UserError(
                f"{whole}: cannot import plain JSON lines together with another format; give files "
                "of one format"
            )
        for number, (path, form) in enumerate(zip(paths, forms, strict=True)):
            self.formats[path] = form.name
            rows = self._placed(path, number, form, seen)
            while batch := list(islice(rows, _BATCH)):
                keep(self._records(batch, tokenizer))
                progress(self.taken)
            if path != self.choice.greedy and not form.numbered:
                self.samples += seen.count(self.problems, self.samples, path)
        if True in numbered:
            self.samples = seen.count(self.problems, 0, whole)
        seen.require_greedy(self.problems, whole)
        if self.samples < self.k:
            raise UserError(
                f"{whole}: found {self.samples} samples of each problem, but search.k is {self.k}; "
                + (
                    f"use fewer samples: --set search.k={self.samples}"
                    if self.samples
                    else "give more files"
                )
            )
        for path, now in self.choice.hashes().items():
            if now != self.hashes[path]:
                raise UserError(f"{path}: was changed while it was read; import it again")

    def _placed(self, path: str, number: int, form: Format, seen: Seen) -> Iterator[_Placed]:
        """Yield the needed responses of one file, with their problems and indices."""
        greedy = path == self.choice.greedy
        known = Problems(self.problems, self.split, self.choice.on or form.on)
        before = 0 if form.numbered else self.samples
        for row in form.read(Path(path), self.choice, greedy):
            if self.choice.on and row.key[0] != "doc":
                raise UserError(
                    f"{row.place}: identifies its problem by {row.key[0]}, but --on joins by "
                    "fields of doc; remove the option, or add doc to the rows"
                )
            problem = known.find(row)
            if problem is None:
                if not self.choice.ignore_unknown:
                    raise known.unknown(row)
                self.left_out += 1
                continue
            if greedy and row.index != GREEDY:
                raise UserError(
                    f"{row.place}: found sample {row.index}; expected only greedy responses in the "
                    "file of --greedy"
                )
            index = row.index if row.index == GREEDY else before + row.index
            seen.add(problem, index, number, row)
            self._require_verdict(row)
            if index < self.k:
                yield problem, index, row

    def _require_verdict(self, row: ImportedResponse) -> None:
        if self.choice.judge:
            return
        if row.verdict is None:
            raise UserError(
                f"{row.place}: the response has no verdict; expected 0 or 1 in the format's field "
                "(docs/import-export.md); name another field (--metric), or have the task's "
                "verifier judge all responses (--judge)"
            )
        if row.finish_reason == CONTEXT and row.verdict.passed:
            raise UserError(
                f"{row.place}: the response passed, but was not generated ({CONTEXT}); expected 0"
            )
        self.told_by[row.told_by] = None
        for kind, value in row.rule.items():
            before, place = self.rules.setdefault(kind, (value, row.place))
            if before != value:
                option = "filter" if kind == "filter" else "metric"
                raise UserError(
                    f"{row.place}: its verdict comes from {kind} {value!r}, but that of {place} "
                    f"from {before!r}, so the same text could pass and fail; choose one for all "
                    f"files (--{option} NAME), or have the task's verifier judge (--judge)"
                )

    def _records(self, batch: Sequence[_Placed], tokenizer: Retokenizer) -> list[Record]:
        """Build the lines of a batch: one for each problem in it, and one for its verdicts."""
        of_problem: dict[str, list[_Placed]] = {}
        for placed in batch:
            of_problem.setdefault(placed[0].id, []).append(placed)
        requests = [
            Request(
                problem.id,
                problem.prompt,
                tuple(index for _, index, _ in members),
                (0,) * len(members),
                turns=problem.turns,
            )
            for members in of_problem.values()
            for problem in [members[0][0]]
        ]
        prompts = tokenizer.prompt_ids([tokenizer.render(request) for request in requests])
        texts = [row.text for members in of_problem.values() for _, _, row in members]
        ids = iter(tokenizer.response_ids(texts))
        generated = [
            Generated(
                prompt,
                tuple(
                    Generation(row.text, next(ids), row.finish_reason, "retokenized")
                    for _, _, row in members
                ),
            )
            for prompt, members in zip(prompts, of_problem.values(), strict=True)
        ]
        verdicts: dict[str, dict[int, Verdict]] = {
            name: {index: row.verdict for _, index, row in members if row.verdict}
            for name, members in of_problem.items()
            if not self.choice.judge
        }
        self.taken += len(batch)
        return [*generated_records(requests, generated), *judged_records(verdicts)]


def _require_different(paths: Sequence[str], hashes: Mapping[str, str]) -> None:
    """Check that files are different, by name, by path and by content.

    Raises:
        UserError: a file is given twice.
    """
    known: dict[Path | str, str] = {}
    for path in paths:
        place = Path(path).resolve()
        if place in known:
            raise UserError(f"{path}: the file is given twice, so its responses would count twice")
        if (before := known.get(hashes[path])) is not None:
            raise UserError(
                f"{path}: has the same bytes as {before}, so its responses would count twice; "
                "remove one"
            )
        known[place] = known[hashes[path]] = path
