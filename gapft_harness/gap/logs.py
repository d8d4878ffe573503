"""Write sample logs in lm_eval's format: of the greedy decode, and of the K samples.

A log has a row for each document and filter. Rows of the samples have K responses with their
verdicts, like those of the bundled ``_passk`` tasks, so ``gapft compare`` reads both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from gapft_harness.core.files import replace_file, write_json
from gapft_harness.core.records import Problem, Response, Verdict
from gapft_harness.stages.generation.table import count_tokens

GREEDY_LOG, SAMPLES_LOG = "greedy", "samples"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A response judged under one filter.

    Attributes:
        response: the response.
        filtered: the filter's result.
        metrics: numeric metrics by name.
        verdict: the verdict.
        answer: the verifier's answer, or that which the filter extracted; None where there is none,
            and under a filter that returns complete responses.
    """

    response: Response
    filtered: Any
    metrics: Mapping[str, float]
    verdict: Verdict
    answer: str | None


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The folder of the logs, and what their file names contain.

    Attributes:
        folder: contains ``greedy/`` and ``samples/``.
        task: the task's name.
        date: when the responses were finalized, so the same search gives the same file names.
    """

    folder: Path
    task: str
    date: datetime

    def log_path(self, kind: str) -> Path:
        """Return the path of one of the two logs."""
        return self.folder / kind / f"samples_{self.task}_{self._date_text}.jsonl"

    def results_path(self, kind: str) -> Path:
        """Return the path of lm_eval's results file beside a log."""
        return self.folder / kind / f"results_{self._date_text}.json"

    @property
    def _date_text(self) -> str:
        return self.date.isoformat().replace(":", "-")


@contextlib.contextmanager
def open_logs(place: LogPlace) -> Iterator[dict[str, TextIO]]:
    """Open both logs for writing; complete ones then replace those of an earlier search."""
    with contextlib.ExitStack() as stack:
        partial_paths = {kind: place.log_path(kind).with_suffix(".partial") for kind in _KINDS}
        files: dict[str, TextIO] = {}
        for kind, path in partial_paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.callback(path.unlink, missing_ok=True)
            files[kind] = stack.enter_context(path.open("w", encoding="utf-8"))
        yield files
        for kind, path in partial_paths.items():
            files[kind].close()
            for old_path in [
                *path.parent.glob("samples_*.jsonl"),
                *path.parent.glob("results_*.json"),
            ]:
                old_path.unlink()
            replace_file(place.log_path(kind), path.replace)


def write_rows(
    files: Mapping[str, TextIO],
    problem: Problem,
    number: int,
    target: str,
    options: Mapping[str, Mapping[str, Any]],
    filter: str,
    deployed: Judgement,
    samples: Sequence[Judgement],
) -> None:
    """Write a document's row under one filter to both logs.

    Args:
        files: the open logs by kind.
        problem: the problem.
        number: its row in the split.
        target: its gold answer as text.
        options: generation options by kind of log.
        filter: the filter's name.
        deployed: the deployment decode.
        samples: the samples.
    """
    for kind, judged in ((GREEDY_LOG, [deployed]), (SAMPLES_LOG, samples)):
        passing = sum(item.verdict.passed for item in judged) / len(judged)
        metrics = dict(deployed.metrics) if kind == GREEDY_LOG else {"pass@1": passing}
        filtered = [item.filtered for item in judged]
        row = {
            "doc_id": number,
            "doc": problem.document,
            "target": target,
            "arguments": {"gen_args_0": {"arg_0": problem.prompt, "arg_1": options[kind]}},
            "resps": [[item.response.text for item in judged]],
            "filtered_resps": filtered if len(judged) == 1 else [filtered],
            "filter": filter,
            "metrics": list(metrics),
            "doc_hash": _hash_text(json.dumps(problem.document, indent=2, ensure_ascii=False)),
            "prompt_hash": _hash_text(problem.prompt),
            "target_hash": _hash_text(target),
            **metrics,
            "verdicts": [
                {"status": item.verdict.status, "reason": item.verdict.reason} for item in judged
            ],
            "finish_reasons": [item.response.finish_reason for item in judged],
            "tokens": [count_tokens(item.response) for item in judged],
        }
        # UTF-8 cannot encode an unpaired surrogate, which a model may write: JSON escapes it
        files[kind].write(json.dumps(row, ensure_ascii=True, default=str) + "\n")


def write_results(place: LogPlace, facts: Mapping[str, Any], rates: Mapping[str, Any]) -> None:
    """Write lm_eval's results file beside each log."""
    for kind in _KINDS:
        (metric,) = {name.partition(",")[0] for name in rates[kind]}
        content = {
            "results": {place.task: {"alias": place.task, **rates[kind]}},
            "versions": {place.task: facts["version"]},
            "higher_is_better": {place.task: {metric: True}},
            "n-shot": {place.task: facts["shots"]},
            "config": facts["config"],
        }
        write_json(place.results_path(kind), content)


_KINDS = (GREEDY_LOG, SAMPLES_LOG)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
