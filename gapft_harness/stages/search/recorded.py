"""Take a split's responses from logs (``search.responses``), for the sampler ``recorded``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gapft_harness.core.digests import hash_file
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import replace_file
from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, Problem
from gapft_harness.engine.outputs import NOT_HERE
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.outcomes.logs import Log, open_log
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings
from gapft_harness.recipe.sections import LogResponses
from gapft_harness.run_directory.recorded import ImportFacts
from gapft_harness.stages.search.log_problems import ProblemIndex
from gapft_harness.stages.search.log_responses import LoggedResponse, is_numbered, read_responses

#: The sampler that replays responses.
SAMPLER = "recorded"


def build_search_settings(
    recipe: Recipe, split: str, responses: Path | None = None
) -> SamplerSettings:
    """Build the settings of the sampler that searches a split.

    Args:
        recipe: the recipe.
        split: the split; if its responses are those of logs, ``recorded`` replays them with the
            tokenizer of the recipe's model.
        responses: the file of ``record_responses``; None if it is not written yet.
    """
    settings = build_sampler_settings(recipe)
    if not recipe.search.list_logs(split):
        return settings
    names = ("pretrained", "tokenizer", "revision", "trust_remote_code", "add_bos_token",
             "chat_template_args")  # fmt: skip
    arguments = {name: value for name, value in settings.model_args.items() if name in names}
    if responses is not None:
        arguments["responses"] = str(responses)
    return replace(settings, backend=SAMPLER, model_args=arguments)


def describe_logs(recipe: Recipe, split: str, plugins: Plugins) -> dict[str, Any] | None:
    """Describe the logs of a split for its key: how they are read, and their contents.

    Args:
        recipe: the recipe.
        split: the split.
        plugins: the plugins; the code of a reader is part of the key.

    Returns:
        JSON values; None if the split is generated. The content of a missing log is not known.
    """
    settings = recipe.search.responses
    paths = recipe.search.list_logs(split)
    if settings is None or not paths:
        return None
    logs = [Path(path) for path in paths]
    readers = {path: plugins.find_log_reader(path) for path in logs if path.exists()}
    return {
        "settings": settings.model_dump(mode="json"),
        "files": [hash_file(path) if path.is_file() else NOT_HERE for path in logs],
        "readers": [
            reader.code_hash if (reader := readers.get(path)) else NOT_HERE for path in logs
        ],
    }


def record_responses(
    recipe: Recipe,
    path: Path,
    split: str,
    problems: Sequence[Problem],
    task: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the responses of a split's logs as a file of the sampler ``recorded``.

    Args:
        recipe: the recipe.
        path: the file.
        split: the split.
        problems: its problems.
        task: the task's facts.
        plugin_files: files given by ``--plugin``; their log readers have priority.

    Returns:
        The facts ``imported`` and ``warnings``.

    Raises:
        UserError: a log is damaged, given twice or changed while it was read, or the logs do not
            have one greedy response and the same number of samples, at least K, for each problem;
            the message has file and line.
        UserError: the task decodes in episodes, or executes greedy responses repeatedly.
    """
    settings = recipe.search.responses
    assert settings is not None
    _require_single(task, settings)
    log_import = LogImport(settings, problems, split, recipe.search.k, plugin_files)
    replace_file(path, log_import.write)
    return {"imported": log_import.build_facts(), "warnings": log_import.list_warnings()}


def _require_single(task: Mapping[str, Any], settings: LogResponses) -> None:
    """Check that the task needs only single responses with one verdict each.

    Raises:
        UserError: the task needs episodes or repeated executions.
    """
    episode = task["episode"]
    if episode["attempts"] > 1:
        raise UserError(
            f"task {task['name']}: decodes in episodes of {episode['attempts']} attempts, but a "
            "log contains single responses; set episode.attempts=1"
        )
    if episode["executions"] > 1 and not settings.judge:
        raise UserError(
            f"task {task['name']}: labels greedy responses by {episode['executions']} executions, "
            "but a log has one verdict for each; have the verifier judge "
            "(search.responses.judge), or set episode.executions=1"
        )


@dataclass(slots=True)
class LogImport:
    """The responses of a split's logs.

    Attributes:
        settings: the logs and how to read them.
        problems: the problems of the split.
        split: the name of the split.
        k: samples to take for each problem.
        plugin_files: files given by ``--plugin``; their log readers have priority.
        formats: the format of each log that was read.
        hashes: the hash of each log, the same before and after reading.
        response_count: the number of responses taken.
        samples: the samples of each problem in the logs that were read so far.
        locations: file and line of each problem's responses, by index.
        left_out: responses whose problem is not in the split.
        verdict_sources: the sources of verdicts in the logs.
        verdict_rules: the filter and the metric of the verdicts, which must be equal in all rows,
            each with the line where it was first found.
    """

    settings: LogResponses
    problems: Sequence[Problem]
    split: str
    k: int
    plugin_files: Sequence[str] = ()
    formats: dict[str, str] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    response_count: int = 0
    samples: int = 0
    locations: dict[str, dict[int, str]] = field(default_factory=dict)
    left_out: int = 0
    verdict_sources: dict[str, None] = field(default_factory=dict)
    verdict_rules: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The logs, that of greedy responses first."""
        return self.settings.list_logs(self.split)

    @property
    def greedy_path(self) -> str | None:
        """The log of greedy responses; None: they are in the other logs."""
        return next(
            (log for split, log in self.settings.greedy.items() if split == self.split), None
        )

    def write(self, file: Path) -> None:
        """Read all logs and write a file with a line for each response.

        Raises:
            UserError: as for ``record_responses``.
        """
        paths = self.paths
        all_paths = ", ".join(paths)
        self.hashes = _hash_logs(paths)
        # logs of samples in one format
        logs = [open_log(Path(path), self.plugin_files) for path in paths]
        sample_logs = logs[1:] if self.greedy_path else logs
        are_numbered = {is_numbered(log) for log in sample_logs}
        if self.settings.filter is not None and are_numbered == {True}:
            raise UserError(
                f"{all_paths}: remove search.responses.filter; it applies only to logs of lm_eval"
            )
        if len(are_numbered) > 1:
            raise UserError(
                f"{all_paths}: cannot use plain JSON lines together with another format; give "
                "logs of one format"
            )
        # write the responses; plain JSON lines number their samples over all files
        self.locations = {problem.id: {} for problem in self.problems}
        with file.open("w", encoding="utf-8") as lines:
            for path, log in zip(paths, logs, strict=True):
                self.formats[path] = log.kind
                for line in self._build_lines(path, log):
                    lines.write(json.dumps(line, ensure_ascii=True) + "\n")
                    self.response_count += 1
        # every problem has its responses, and no log changed meanwhile
        self._require_all_responses(all_paths)
        if self.samples < self.k:
            remedy = "give more logs"
            if self.samples:
                remedy = f"use fewer samples: --set search.k={self.samples}"
            raise UserError(
                f"{all_paths}: found {self.samples} samples of each problem, but search.k is "
                f"{self.k}; {remedy}"
            )
        if _hash_logs(paths) != self.hashes:
            raise UserError(f"{all_paths}: changed while they were read; run the command again")

    def build_facts(self) -> ImportFacts:
        """Build the fact ``imported``."""
        greedy = self.greedy_path
        files = [
            {
                "path": path,
                "sha256": self.hashes[path],
                "format": log_format,
                "holds": "greedy" if path == greedy else "samples" if greedy else "both",
            }
            for path, log_format in self.formats.items()
        ]
        return {
            "files": files,
            "responses": self.response_count,
            "samples": self.samples,
            "left_out": self.left_out,
            "verdicts": "judged" if self.settings.judge else "file",
            "verdict_field": ", ".join(self.verdict_sources),
        }

    def list_warnings(self) -> list[str]:
        """List the report's warnings on the logs."""
        files = ", ".join(self.formats)
        warnings = [
            f"responses were read from {files}; the report assumes that they were sampled from the "
            "recipe's model with its settings, which cannot be checked; token ids were computed "
            "with the tokenizer of the recipe's model"
        ]
        if not self.settings.judge:
            warnings.append(
                f"verdicts are those of {files} ({', '.join(self.verdict_sources)}); this run "
                "judges other responses with the task's verifier, which may differ: see gapft "
                "verify"
            )
        if self.samples > self.k:
            warnings.append(
                f"only the first {self.k} of {self.samples} samples of each problem are used"
            )
        if self.left_out:
            warnings.append(
                f"{self.left_out} responses left out, because their problem is not in the split"
            )
        return warnings

    def _require_all_responses(self, files: str) -> None:
        """Require a greedy response and the same samples for every problem."""
        for index in (GREEDY, *range(self.samples)):
            missing_ids = [name for name, found in self.locations.items() if index not in found]
            if index == GREEDY and len(missing_ids) == len(self.locations):
                raise UserError(
                    f"{files}: found no greedy response. States need them: G is solved by one "
                    "greedy decode, S and U are not. Give a log of greedy responses: "
                    "search.responses.greedy"
                )
            if missing_ids:
                last = self.samples - 1
                locations = (found[last] for found in self.locations.values() if last in found)
                raise UserError(
                    f"{files}: no {_name_response(index)} for {len(missing_ids)} of "
                    f"{len(self.locations)} problems, first: {missing_ids[0]}; expected a greedy "
                    "response and the same samples for every problem, numbered from 0; the last "
                    f"found is {_name_response(last)} ({next(locations)})"
                )

    def _build_lines(self, path: str, log: Log) -> Iterator[dict[str, Any]]:
        """Check every response of a log, and record where it is and who judged it.

        Yields:
            The lines of greedy responses and of the first K samples.
        """
        greedy = path == self.greedy_path
        known_problems = ProblemIndex(self.problems, self.split, self.settings.list_joined_fields())
        earlier_samples = 0 if is_numbered(log) else self.samples
        for row in read_responses(log, self.settings, greedy):
            # Find its problem
            if self.settings.on and row.key[0] != "doc":
                raise UserError(
                    f"{row.location}: identifies its problem by {row.key[0]}, but "
                    "search.responses.on joins by fields of doc; remove the key, or add doc to the "
                    "rows"
                )
            problem = known_problems.find(row)
            if problem is None:
                if not self.settings.ignore_unknown:
                    raise known_problems.unknown_problem_error(row)
                self.left_out += 1
                continue
            # Check index and verdict
            if greedy and row.index != GREEDY:
                raise UserError(
                    f"{row.location}: found sample {row.index}; expected only greedy responses in "
                    "the log of search.responses.greedy"
                )
            index = row.index if row.index == GREEDY else earlier_samples + row.index
            if (first := self.locations[problem.id].get(index)) is not None:
                raise UserError(
                    f"{row.location}: found the {_name_response(index)} of problem {problem.id} "
                    f"again, first in {first}; expected every response once"
                )
            self.locations[problem.id][index] = row.location
            self.samples = max(self.samples, index + 1)
            self._check_verdict(row)
            # Keep the greedy response and the first K samples
            if index == GREEDY or index < self.k:
                line = {
                    "id": problem.id,
                    "index": "greedy" if index == GREEDY else index,
                    "text": row.text,
                    "finish_reason": row.finish_reason,
                }
                yield line if self.settings.judge else {**line, "passed": row.passed}

    def _check_verdict(self, row: LoggedResponse) -> None:
        if self.settings.judge:
            return
        if row.passed is None:
            raise UserError(
                f"{row.location}: the response has no verdict; expected 0 or 1 in the format's "
                "field (docs/run-directory.md); name another field (search.responses.metric), or "
                "have the task's verifier judge all responses (search.responses.judge)"
            )
        if row.finish_reason == CONTEXT_EXCEEDED and row.passed:
            raise UserError(
                f"{row.location}: the response passed, but was not generated "
                f"({CONTEXT_EXCEEDED}); expected 0"
            )
        self.verdict_sources[row.verdict_source] = None
        for kind, value in row.rule.items():
            first_value, first_location = self.verdict_rules.setdefault(kind, (value, row.location))
            if first_value != value:
                raise UserError(
                    f"{row.location}: its verdict comes from {kind} {value!r}, but that of "
                    f"{first_location} from {first_value!r}, so the same text could pass and fail; "
                    f"choose one for all logs (search.responses.{kind}), or have the task's "
                    "verifier judge (search.responses.judge)"
                )


def _name_response(index: int) -> str:
    return "greedy response" if index == GREEDY else f"sample {index}"


def _hash_logs(paths: Sequence[str]) -> dict[str, str]:
    """Hash each log, in order.

    Raises:
        UserError: a log is missing, cannot be read more than once, or is given twice.
    """
    hashes: dict[str, str] = {}
    for path in paths:
        if not Path(path).is_file():
            raise UserError(
                f"{path}: not found, or not a regular file; logs are read more than once"
            )
        digest = hash_file(Path(path))
        for other, other_digest in hashes.items():
            if digest == other_digest:
                raise UserError(
                    f"{path}: is given twice, or has the same bytes as {other}, so its responses "
                    "would count twice; remove one"
                )
        hashes[path] = digest
    return hashes
