"""Judge the finalized search of a split under each of the task's filters, and write its logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapft_harness.core.identities import canonical
from gapft_harness.core.records import CONTEXT, GREEDY, Problem, Verdict
from gapft_harness.gap.logs import (
    GREEDY_LOG,
    SAMPLES_LOG,
    Judgement,
    Place,
    opened,
    write_results,
    write_rows,
)
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import Judged, read_judged, read_problems
from gapft_harness.verdicts.table import Verdicts

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.stock import StockTask

#: Number of problems whose responses are judged at once.
_BATCH = 200
#: The filter's name in lm_eval's logs for a task without filters.
_NO_FILTER = "none"
#: The metric's name for tasks judged by a verifier, and for decisions of a graded metric.
_DECISION = "pass@1"


@dataclass(frozen=True, slots=True)
class Measured:
    """A judged search of one split.

    Attributes:
        split: the split that was searched.
        metric: the metric that decides; ``pass@1`` if a verifier judges.
        judge: the verifier, in words.
        verdicts: by filter, the chosen one first.
        errors: by filter, the number of responses that neither passed nor failed.
        voting: filters that need several responses, and cannot judge one alone.
        ids: the row in the split of each of the P problems, by id.
        changed: number of verdicts of the chosen filter that differed when judged again.
        facts: the manifest's facts about task, source and search.
        logs: the paths of both sample logs, by kind.
    """

    task: str
    split: str
    k: int
    metric: str
    judge: str
    verdicts: dict[str, Verdicts]
    errors: dict[str, int]
    voting: tuple[str, ...]
    ids: dict[str, int]
    changed: int
    facts: Mapping[str, Any]
    logs: Mapping[str, Path]


@dataclass(slots=True)
class _Tally:
    passed: list[list[bool]] = field(default_factory=list)
    errors: int = 0

    def add(self, judged: Sequence[Judgement]) -> None:
        self.passed.append([one.verdict.passed for one in judged])
        self.errors += sum(one.verdict.status in ("error", "timeout") for one in judged)

    def verdicts(self) -> Verdicts:
        passed = np.array(self.passed)
        return Verdicts.of(passed[:, 0], passed[:, 1:])


def measure(run: RunDirectory, split: str, include_paths: Sequence[str], folder: Path) -> Measured:
    """Judge a finalized search under every filter, and write both sample logs.

    Args:
        run: the run.
        split: the searched split.
        include_paths: folders with task YAML.
        folder: where the logs are written.
    """
    from gapft_harness.lm_eval_bridge.discovery import load_task

    manifest, k = run.manifest(), run.recipe.search.k
    task = manifest["task"]
    loaded = load_task(str(task["name"]), [Path(path) for path in include_paths])
    numbers = {
        problem.id: row
        for row, problem in enumerate(loaded.pool() if split == "pool" else loaded.audit())
    }
    stock = _stock(task)
    filters = [_NO_FILTER] if stock is None else stock.filters
    chosen = _NO_FILTER if stock is None else stock.filter
    tallies = {name: _Tally() for name in sorted(filters, key=lambda name: name != chosen)}
    responses = run.sealed(layout.responses(split))
    place = Place(folder, loaded.name, datetime.fromtimestamp(responses.stat().st_mtime))
    options = _options(run, task)
    ids: dict[str, int] = {}
    changed = 0
    with opened(place) as files:
        searched = _searched(run, split)
        for problems in iter(lambda: list(islice(searched, _BATCH)), []):
            for name, tally in tallies.items():
                judged = list(_judged(problems, stock, name, chosen))
                for (problem, _), of in zip(problems, judged, strict=True):
                    tally.add([one for one, _ in of])
                    changed += sum(other for _, other in of)
                    target = _target(stock, problem)
                    number = ids.setdefault(problem.id, numbers[problem.id])
                    rows = [one for one, _ in of]
                    write_rows(files, problem, number, target, options, name, rows)
    verdicts = {name: tally.verdicts() for name, tally in tallies.items()}
    metric = _DECISION if stock is None or stock.pass_at is not None else stock.metric
    facts = {
        "version": (loaded.config().get("metadata") or {}).get("version"),
        "metric": metric,
        "shots": loaded.shots,
        "repeats": int(loaded.config().get("repeats") or 1),
        "config": {
            "model": run.recipe.model.backend,
            "model_args": dict(run.recipe.model.args),
            "search": run.recipe.search.model_dump(mode="json"),
        },
    }
    rates = {
        GREEDY_LOG: {f"{metric},{name}": float(of.greedy.mean()) for name, of in verdicts.items()},
        SAMPLES_LOG: {
            f"pass@1,{name}": float(of.passing.mean()) / k for name, of in verdicts.items()
        },
    }
    write_results(place, facts, rates)
    return Measured(
        task=loaded.name,
        split=split,
        k=k,
        metric=metric if stock is None else stock.metric,
        judge=f"verifier {task['verifier']}" if stock is None else stock.judge,
        verdicts=verdicts,
        errors={name: tally.errors for name, tally in tallies.items()},
        voting=() if stock is None else stock.voting,
        ids=ids,
        changed=changed,
        facts={**facts, "source": manifest["source"], "task": task},
        logs={kind: place.log(kind) for kind in (GREEDY_LOG, SAMPLES_LOG)},
    )


def _stock(task: Mapping[str, Any]) -> StockTask | None:
    """Load the stock task that judges; None if a verifier judges."""
    if task["verifier"] != "task_metric":
        return None
    from gapft_harness.lm_eval_bridge.stock import StockTask

    of = task["verifier_params"]
    return StockTask(of["task"], of.get("metric"), of.get("include_path"), of.get("pass_at"))


def _searched(run: RunDirectory, split: str) -> Iterator[tuple[Problem, list[Judged]]]:
    """Yield problems with their responses, the greedy one first; both tables are sorted by id."""
    problems = read_problems(run.sealed(layout.problems(split)))
    judged = read_judged(run.sealed(layout.responses(split)))
    for (problem, _), (_, responses) in zip(problems, judged, strict=True):
        yield problem, responses


def _judged(
    problems: Sequence[tuple[Problem, list[Judged]]],
    stock: StockTask | None,
    filter: str,
    chosen: str,
) -> Iterator[list[tuple[Judgement, bool]]]:
    """Yield for each problem its judged responses, and whether the finalized verdict differs."""
    flat = [(problem, one) for problem, responses in problems for one in responses]
    decision = _DECISION if stock is None or stock.pass_at is not None else stock.metric
    if stock is None:
        outcomes: Iterator[tuple[Any, dict[str, float], Verdict]] = iter(
            (one.response.text, {}, one.verdict) for _, one in flat
        )
    else:
        found = stock.outcomes(
            [problem.gold for problem, _ in flat], [one.response.text for _, one in flat], filter
        )
        outcomes = iter(
            (each.filtered, _numbers(each.metrics, decision), each.verdict) for each in found
        )
    for _, responses in problems:
        row = []
        for one in responses:
            filtered, metrics, verdict = next(outcomes)
            absent = one.response.finish_reason == CONTEXT
            # a finalized verdict is kept, and a missing response fails under every filter
            kept = one.verdict if filter == chosen or absent else verdict
            other = filter == chosen and not absent and kept.passed != verdict.passed
            told = {decision: float(kept.passed)} | metrics
            row.append((Judgement(one.response.text, filtered, told, kept), other))
        assert responses[0].response.index == GREEDY
        yield row


def _numbers(metrics: Mapping[str, Any], decision: str) -> dict[str, float]:
    """Select a response's numeric metrics, except the decision, for lm_eval's log."""
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, bool | int | float) and name != decision
    }


def _target(stock: StockTask | None, problem: Problem) -> str:
    if stock is not None:
        return stock.target(problem.gold)
    return problem.gold if isinstance(problem.gold, str) else canonical(problem.gold)


def _options(run: RunDirectory, task: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the generation options of each log in lm_eval's form."""
    search = run.recipe.search
    both = {"until": task["decoding"]["until"], "max_gen_toks": task["decoding"]["max_gen_toks"]}
    sampled = {"temperature": search.temperature, "top_p": search.top_p, "top_k": search.top_k}
    return {
        GREEDY_LOG: {**both, "do_sample": False},
        SAMPLES_LOG: {**both, "do_sample": True, **sampled},
    }
