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
from pathlib import Path
from typing import Any, TextIO

from gapft_harness.core.files import replace_file, write_json
from gapft_harness.core.records import Problem, Response, Verdict
from gapft_harness.outcomes.samples import PASS_AT_1
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


@contextlib.contextmanager
def open_logs(paths: Mapping[str, Path]) -> Iterator[dict[str, TextIO]]:
    """Open the logs, by kind, for writing; complete ones then replace those of an earlier search.

    Args:
        paths: by kind, ``samples_TASK_DATE.jsonl`` in a folder of its own.
    """
    with contextlib.ExitStack() as stack:
        partial_paths = {kind: path.with_suffix(".partial") for kind, path in paths.items()}
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
            replace_file(paths[kind], path.replace)


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
        metrics = dict(deployed.metrics) if kind == GREEDY_LOG else {PASS_AT_1: passing}
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


def write_results(
    paths: Mapping[str, Path], task: str, facts: Mapping[str, Any], rates: Mapping[str, Any]
) -> None:
    """Write lm_eval's results file of a task beside each log, with the date in the log's name."""
    for kind, path in paths.items():
        (metric,) = {name.partition(",")[0] for name in rates[kind]}
        content = {
            "results": {task: {"alias": task, **rates[kind]}},
            "versions": {task: facts["version"]},
            "higher_is_better": {task: {metric: True}},
            "n-shot": {task: facts["shots"]},
            "config": facts["config"],
        }
        date = path.stem.removeprefix(f"samples_{task}_")
        write_json(path.with_name(f"results_{date}.json"), content)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
