"""Verification of earlier rounds: the merged source, the copied tables, and the reported change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.files import sha256
from gapft_harness.core.records import Arm, classify_state
from gapft_harness.core.weights import read_merged_facts
from gapft_harness.recipe.sections import Search
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, MergedSource
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.run_directory.tables import read_judged, read_states
from gapft_harness.stages.integrity.differences import Differences, compare_ids, compare_values
from gapft_harness.stages.verify.judging import TableJudge

_WHERE = "manifest.json, origin"


def check_rounds(
    run: RunDirectory, manifest: Manifest, judge: TableJudge, findings: Differences
) -> None:
    """Check a run's merged source, its adapters' bases, and the tables of earlier rounds.

    Args:
        run: the run.
        manifest: its manifest.
        judge: judges the audit's responses again.
        findings: receives the results.
    """
    origin = manifest.get("origin")
    if origin is None:
        return
    findings.collect(_WHERE, partial(_check_source, run, manifest, origin))
    for number in range(1, len(origin["rounds"]) + 1):
        findings.collect(
            f"{layout.ROUNDS}/{number}", partial(_check_round, run, manifest, origin, number, judge)
        )
    if origin["rounds"]:
        findings.collect(layout.REPORT, partial(_check_results, run, manifest))
        findings.checked.append(
            f"{len(origin['rounds'])} earlier rounds: their states follow from their verdicts, "
            "and their arm is the one that was merged"
        )


def _check_source(run: RunDirectory, manifest: Manifest, origin: MergedSource) -> Iterable[str]:
    """Check that the search and the adapters used the merged model that the manifest describes."""
    yield from compare_values(
        _WHERE, origin, {"pretrained": run.recipe.model.args["pretrained"]}, "the recipe has"
    )
    if searched := manifest["source"].get("weights_sha256"):
        yield from compare_values(_WHERE, origin, {"weights_sha256": searched}, "the search used")
    parts = {"base_sha256": origin["base"], "adapter_sha256": origin["adapter"]}
    expected = {key: part["weights_sha256"] for key, part in parts.items()}
    folder = Path(origin["pretrained"])
    if folder.is_dir():
        yield from compare_values(f"{folder}", read_merged_facts(folder) or {}, expected)
    for arm in run.find_trained_arms():
        path = run.path / layout.adapter_path(arm) / "training.json"
        base = json.loads(path.read_text("utf-8")).get("merged_base", {})
        where = f"{layout.adapter_path(arm)}/training.json, merged_base"
        expected_base = {"weights_sha256": origin["weights_sha256"], **expected}
        yield from compare_values(where, base, expected_base, "the run's source is")


def _check_round(
    run: RunDirectory, manifest: Manifest, origin: MergedSource, number: int, judge: TableJudge
) -> Iterable[str]:
    """Check one round's tables: hashes, problems, states, verdicts, models."""
    facts = origin["rounds"][number - 1]
    tables = {name: layout.round_path(number, name) for name in layout.ROUND_TABLES}
    problems = run.path / layout.problems_path("audit")
    for name, table in tables.items():
        if table not in manifest["files"]:
            yield f"{table}: is not sealed"
        if sha256(run.path / table) != facts["sealed"].get(name):
            yield f"{table}: is not the table that was sealed in {facts['run']}"
        if problems.exists():
            ids = read_ids(run.path / table)
            yield from compare_ids(table, ids, layout.problems_path("audit"), read_ids(problems))
    responses, decisions = (run.path / tables[name] for name in ("responses", "decisions"))
    states = read_states(run.path / tables["states"])
    search = Search.model_validate(facts["search"], strict=False)
    for (problem_id, judged), recorded in zip(read_judged(responses), states, strict=True):
        passed = [entry.verdict.passed for entry in judged]
        state = classify_state(passed[: search.repeats], passed[search.repeats :], search.solved)
        if state != recorded.state:
            yield (
                f"{tables['states']}: problem {problem_id} has state {recorded.state!r}, but its "
                f"verdicts give {state!r}"
            )
    if problems.exists():
        for name in ("responses", "decisions"):
            yield from judge.check_verdicts(tables[name], run.path / tables[name], problems)
    yield from _check_models(origin, number, read_facts(responses), read_facts(decisions))


def _check_models(
    origin: MergedSource, number: int, responses: dict[str, Any], decisions: dict[str, Any]
) -> Iterable[str]:
    """Check that a round's tables were decoded with its source and its arm's adapter."""
    facts, where = origin["rounds"][number - 1], f"{_WHERE}, round {number}"
    if weights := responses.get("source", {}).get("weights_sha256"):  # unknown for imported ones
        searched = {"base_sha256": weights}
        yield from compare_values(where, facts, searched, "its responses' source is")
    adapter = decisions.get("adapter") or {}
    expected = {"arm": adapter.get("arm"), "adapter_sha256": adapter.get("weights_sha256")}
    yield from compare_values(where, facts, expected, "its decisions' adapter is")
    if number == len(origin["rounds"]):
        merged = {
            "base_sha256": origin["base"]["weights_sha256"],
            "adapter_sha256": origin["adapter"]["weights_sha256"],
        }
        yield from compare_values(where, facts, merged, "the merged source was made from")


def _check_results(run: RunDirectory, manifest: Manifest) -> Iterable[str]:
    """Compare the rounds in results.json with those computed from the tables."""
    from gapft_harness.report.reading.rounds import read_rounds
    from gapft_harness.report.sections.rounds import build_content

    path = run.path / layout.REPORT / "results.json"
    if not path.exists():
        return
    results = json.loads(path.read_text("utf-8"))
    recorded = results.get("rounds")
    if recorded is None:
        yield f"{layout.REPORT}/results.json: has no rounds"
        return
    conditions = results["conditions"].items()
    arms = [Arm(name, int(seed)) for name, entry in conditions for seed in entry["seeds"]]
    ids = list(read_ids(run.path / layout.problems_path("audit")))
    rounds = read_rounds(run.path, manifest, ids, arms)
    if rounds is not None:
        content = build_content(rounds, [*recorded["conditions"]])
        yield from compare_values(f"{layout.REPORT}/results.json, rounds", recorded, content)
