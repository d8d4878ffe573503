"""Judge the finished search of a split under each filter of the task, and write sample logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapft_harness.core.identities import canonical_json
from gapft_harness.core.records import CONTEXT_EXCEEDED, Problem
from gapft_harness.gap.logs import (
    GREEDY_LOG,
    SAMPLES_LOG,
    Judgement,
    open_logs,
    write_results,
    write_rows,
)
from gapft_harness.gap.searched import Search, note_deployment
from gapft_harness.hooks.manager import Plugins
from gapft_harness.outcomes.samples import NO_FILTER, PASS_AT_1
from gapft_harness.outcomes.searches import Endings
from gapft_harness.outcomes.verdicts import Verdicts, encode_answers
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import list_warnings, read_source
from gapft_harness.run_directory.tables import JudgedResponse, read_judged, read_problems

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.stock import StockTask

#: Number of problems whose responses are judged at once.
_BATCH = 200


@dataclass(slots=True)
class _Tally:
    """The results under one filter: for each problem, whether each response passed.

    Attributes:
        passed: by problem, whether each response passed; the deployment decode is first.
        reads_answers: whether the filter or the verifier can read answers.
        answers: by problem, the answer of each response; None without one.
        errors: number of responses without a verdict.
        cut: number of responses that ended at the length limit.
    """

    reads_answers: bool
    passed: list[list[bool]] = field(default_factory=list)
    answers: list[list[str | None]] = field(default_factory=list)
    errors: int = 0
    cut: int = 0

    def add(self, judged: Sequence[Judgement]) -> None:
        self.passed.append([judgement.verdict.passed for judgement in judged])
        self.answers.append([judgement.answer for judgement in judged])
        self.errors += sum(judgement.verdict.status in ("error", "timeout") for judgement in judged)
        self.cut += sum(judgement.response.finish_reason == "length" for judgement in judged)

    def build_verdicts(self) -> Verdicts:
        passed = np.array(self.passed)
        return Verdicts.of(
            passed[:, 0], passed[:, 1:], encode_answers([row[1:] for row in self.answers])
        )

    def count_endings(self) -> Endings:
        answers = [answer for row in self.answers for answer in row]
        unanswered = answers.count(None) if self.reads_answers else None
        return Endings(len(answers), self.cut, unanswered, self.errors)


def measure_search(
    run: RunDirectory, split: str, include_paths: Sequence[str], plugins: Plugins, folder: Path
) -> Search:
    """Judge a finished search under every filter, and write both sample logs.

    Args:
        run: the run directory.
        split: the searched split.
        include_paths: folders with task YAML.
        plugins: the loaded plugins, with the run's verifier.
        folder: where the logs are written.
    """
    from gapft_harness.lm_eval_bridge.discovery import load_task

    search = run.recipe.search
    task = run.task
    k = search.k
    # Choose the views: the task's filters, or the verifier alone
    loaded = load_task(str(task["name"]), [Path(path) for path in include_paths])
    rows_by_id = {problem.id: row for row, problem in enumerate(loaded.read(split))}
    stock = _load_stock_task(task)
    filters = [NO_FILTER] if stock is None else stock.filters
    chosen = NO_FILTER if stock is None else stock.filter
    verifier_reads = plugins.can_read_answers(task["verifier"])
    tallies = {
        name: _Tally(verifier_reads if stock is None else stock.can_extract(name))
        for name in sorted(filters, key=lambda name: name != chosen)
    }
    # Judge all responses in each view, and write them as logs of lm_eval
    responses_path = run.file(layout.responses_path(split))
    # when the responses were finalized, so that the same search gives the same file names
    date = datetime.fromtimestamp(responses_path.stat().st_mtime).isoformat().replace(":", "-")
    file_name = f"samples_{loaded.name}_{date}.jsonl"
    logs = {kind: folder / kind / file_name for kind in (GREEDY_LOG, SAMPLES_LOG)}
    options = _format_options(run, task)
    measured_rows: dict[str, int] = {}
    with open_logs(logs) as files:
        searched = _iterate_problems(run, split)
        for problems in iter(lambda: list(islice(searched, _BATCH)), []):
            for name, tally in tallies.items():
                judged = _judge_problems(problems, stock, name, chosen)
                for (problem, _), rows in zip(problems, judged, strict=True):
                    target = _format_target(stock, problem)
                    number = measured_rows.setdefault(problem.id, rows_by_id[problem.id])
                    tally.add(rows)
                    write_rows(files, problem, number, target, options, name, rows[0], rows[1:])
    # Write lm_eval's results file beside the logs
    verdicts = {name: tally.build_verdicts() for name, tally in tallies.items()}
    metric = PASS_AT_1 if stock is None or stock.pass_at is not None else stock.metric
    task_config = loaded.resolve_config()
    version = (task_config.get("metadata") or {}).get("version")
    config: dict[str, Any] = {
        "model": run.recipe.model.backend,
        "model_args": dict(run.recipe.model.args),
        "search": search.model_dump(mode="json"),
    }
    rates = {
        GREEDY_LOG: {
            f"{metric},{name}": float(filter_verdicts.pass_at_1)
            for name, filter_verdicts in verdicts.items()
        },
        SAMPLES_LOG: {
            f"{PASS_AT_1},{name}": float(filter_verdicts.passing.mean()) / k
            for name, filter_verdicts in verdicts.items()
        },
    }
    facts = {"version": version, "shots": loaded.num_fewshot, "config": config}
    write_results(logs, loaded.name, facts, rates)
    # Note what differs from an evaluation by lm_eval
    notes = note_deployment(run.recipe)
    if (repeats := int(task_config.get("repeats") or 1)) > 1:
        used = f"{k} samples were drawn (--k)"
        notes.append(f"The task's own repeats ({repeats}) are not used: {used}.")
    if stock is not None and stock.multi_response_filters:
        names = ", ".join(stock.multi_response_filters)
        notes.append(f"Filters that need several responses are left out: {names}.")
    decisive = metric if stock is None else stock.metric
    return Search(
        task=loaded.name,
        view="filter",
        verdicts=verdicts,
        chosen=chosen,
        split=split,
        judge=f"verifier {task['verifier']}" if stock is None else stock.judge_description,
        settings={
            **config["search"],
            "model": config["model"],
            "model_args": config["model_args"],
            "source": read_source(run),
        },
        facts={"version": version, "metric": decisive, "filter": chosen},
        warnings=list_warnings(run),
        notes=notes,
        endings={name: tally.count_endings() for name, tally in tallies.items()},
        rows_by_id=measured_rows,
        logs=logs,
    )


def _load_stock_task(task: Mapping[str, Any]) -> StockTask | None:
    """Load lm-eval's task, whose metric judges; None if a verifier judges."""
    if task["verifier"] != "task_metric":
        return None
    from gapft_harness.lm_eval_bridge.stock import StockTask

    params = task["verifier_params"]
    return StockTask(
        params["task"], params.get("metric"), params.get("include_path"), params.get("pass_at")
    )


def _iterate_problems(
    run: RunDirectory, split: str
) -> Iterator[tuple[Problem, list[JudgedResponse]]]:
    """Yield each problem with its judged responses, the deployment decode first, ordered by ids."""
    problems = read_problems(run.file(layout.problems_path(split)))
    judged = read_judged(run.file(layout.responses_path(split)))
    for (problem, _), (_, responses) in zip(problems, judged, strict=True):
        yield problem, responses


def _judge_problems(
    problems: Sequence[tuple[Problem, list[JudgedResponse]]],
    stock: StockTask | None,
    filter: str,
    chosen: str,
) -> Iterator[list[Judgement]]:
    """Judge the responses of some problems under one filter.

    Args:
        problems: each problem with its responses and their recorded verdicts.
        stock: the task whose metric judges; None: recorded verdicts of a verifier are used.
        filter: the filter.
        chosen: the filter that the run's recorded verdicts used.

    Yields:
        For each problem, its judgements.
    """
    # Without a stock task the recorded verdicts are the only view
    if stock is None:
        for _, responses in problems:
            yield [
                Judgement(
                    judged.response,
                    judged.response.text,
                    {PASS_AT_1: float(judged.verdict.passed)},
                    judged.verdict,
                    judged.answer,
                )
                for judged in responses
            ]
        return
    flat = [(problem.gold, judged) for problem, responses in problems for judged in responses]
    texts = [judged.response.text for _, judged in flat]
    outcomes = iter(stock.judge_with_filter([gold for gold, _ in flat], texts, filter))
    decision = PASS_AT_1 if stock.pass_at is not None else stock.metric
    extracts = stock.can_extract(filter)
    for _, responses in problems:
        row = []
        for judged in responses:
            outcome = next(outcomes)
            verdict = outcome.verdict
            # Keep a recorded verdict; a response that was not generated fails under every filter.
            if filter == chosen or judged.response.finish_reason == CONTEXT_EXCEEDED:
                verdict = judged.verdict
            numbers = {
                name: value
                for name, value in outcome.metrics.items()
                if isinstance(value, bool | int | float) and name != decision
            }
            scores = {decision: float(verdict.passed)} | numbers
            answer = stock.read_answer(outcome.filtered) if extracts else None
            row.append(Judgement(judged.response, outcome.filtered, scores, verdict, answer))
        yield row


def _format_target(stock: StockTask | None, problem: Problem) -> str:
    if stock is not None:
        return stock.format_target(problem.gold)
    return problem.gold if isinstance(problem.gold, str) else canonical_json(problem.gold)


def _format_options(run: RunDirectory, task: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the generation options of each log in lm_eval's form."""
    search = run.recipe.search
    deployment = search.deployment
    both = {"until": task["decoding"]["until"], "max_gen_toks": task["decoding"]["max_gen_toks"]}
    sampled = {"temperature": search.temperature, "top_p": search.top_p, "top_k": search.top_k}
    return {
        GREEDY_LOG: {**both, "do_sample": False}
        if deployment is None
        else {**both, "do_sample": True, **deployment.model_dump(include={*sampled})},
        SAMPLES_LOG: {**both, "do_sample": True, **sampled},
    }
