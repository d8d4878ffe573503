"""Files of responses as lines, such as a search stores them: streamed and checked."""

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

#: Responses that are tokenized and written at a time.
_BATCH = 1000

#: A response: its problem, its index, and what the file says of it.
_Placed = tuple[Problem, int, ImportedResponse]


@dataclass(slots=True)
class Gathering:
    """Responses on their way from files into a run.

    Attributes:
        choice: the files and how they are read.
        problems: those of the split.
        split: its name.
        k: samples to take of each problem; 0: the greedy response alone.
        plugin_files: files given by ``--plugin``, whose log readers are asked first.
        formats: the format of each file that was read.
        hashes: the hash of each file, before it was read and after.
        taken: how many responses were taken.
        samples: how many samples of each problem the files hold.
        left_out: responses whose problem the split has not.
        told_by: what in the files says whether they passed.
        rules: what must be the same in all rows, by kind, and where it was met first.
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
        """Reads the responses of all files, some at a time.

        Args:
            keep: gets lines with responses, and the files' verdicts unless the task's verifier
                judges.
            tokenizer: gives token ids.
            progress: called with the responses taken so far.

        Raises:
            UserError: a file is damaged, named twice or written to meanwhile, or the files hold
                not one greedy response and as many samples of each problem, K or more; it names
                file and line.
        """
        paths = self.choice.paths
        self.hashes = self.choice.hashes()
        _require_different(paths, self.hashes)
        forms = [format_of(Path(path), self.plugin_files) for path in paths]
        whole, seen = ", ".join(paths), Seen(paths)
        if self.choice.filter is not None and not any(form.filters for form in forms):
            raise UserError(f"{whole}: no log of lm_eval, and --filter is of these alone")
        numbered = {form.numbered for form in forms[bool(self.choice.greedy) :]}
        if len(numbered) > 1:
            raise UserError(f"{whole}: plain JSON lines beside another format; name files of one")
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
                f"{whole}: {self.samples} samples of each problem, and search.k is {self.k}; "
                + (f"take as many: --set search.k={self.samples}" if self.samples else "name more")
            )
        for path, now in self.choice.hashes().items():
            if now != self.hashes[path]:
                raise UserError(f"{path}: was changed while it was read; import it again")

    def _placed(self, path: str, number: int, form: Format, seen: Seen) -> Iterator[_Placed]:
        """The responses of one file that are wanted, with their problems and indices."""
        greedy = path == self.choice.greedy
        known = Problems(self.problems, self.split, self.choice.on or form.on)
        before = 0 if form.numbered else self.samples
        for row in form.read(Path(path), self.choice, greedy):
            if self.choice.on and row.key[0] != "doc":
                raise UserError(
                    f"{row.place}: names its problem by its {row.key[0]}, and --on joins by fields "
                    "of doc; leave out the option, or give rows a doc"
                )
            problem = known.find(row)
            if problem is None:
                if not self.choice.ignore_unknown:
                    raise known.unknown(row)
                self.left_out += 1
                continue
            if greedy and row.index != GREEDY:
                raise UserError(f"{row.place}: sample {row.index}; expected greedy ones (--greedy)")
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
                f"{row.place}: does not say whether the response passed; expected 0 or 1 in the "
                "format's field (docs/import-export.md; --metric names another), or have the "
                "task's verifier judge all: --judge"
            )
        if row.finish_reason == CONTEXT and row.verdict.passed:
            raise UserError(f"{row.place}: passed, and was not generated ({CONTEXT}); expected 0")
        self.told_by[row.told_by] = None
        for kind, value in row.rule.items():
            before, place = self.rules.setdefault(kind, (value, row.place))
            if before != value:
                option = "filter" if kind == "filter" else "metric"
                raise UserError(
                    f"{row.place}: its verdict is by {kind} {value!r}, and that of {place} by "
                    f"{before!r}, so that one text could pass and fail; choose one for all files "
                    f"(--{option} NAME), or have the task's verifier judge (--judge)"
                )

    def _records(self, batch: Sequence[_Placed], tokenizer: Retokenizer) -> list[Record]:
        """The lines of a batch: one for each problem in it, and one for its verdicts."""
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
    """Every file is another one: by name, by place, and by what it holds.

    Raises:
        UserError: one is there a second time.
    """
    known: dict[Path | str, str] = {}
    for path in paths:
        place = Path(path).resolve()
        if place in known:
            raise UserError(f"{path}: named twice, and its responses would count twice")
        if (before := known.get(hashes[path])) is not None:
            raise UserError(
                f"{path}: holds what {before} holds, byte for byte, and its responses would count "
                "twice"
            )
        known[place] = known[hashes[path]] = path
