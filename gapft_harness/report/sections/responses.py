"""Why so little passes, episodes, gained and lost problems, verdicts and endings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gapft_harness.core.records import (
    GREEDY,
    STATUSES,
)
from gapft_harness.core.streams import derive_key
from gapft_harness.presentation.content import Column, Row, Section, Table, add_hidden
from gapft_harness.presentation.visible import shorten
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.names import condition_name, name_decode, name_source
from gapft_harness.report.reading.columns import count_codes, format_gold
from gapft_harness.report.reading.episodes import EpisodeFacts
from gapft_harness.report.reading.inputs import ReportInputs

#: Cases of each kind that are shown: of the lead condition, and of every other.
LEAD_CASES, OTHER_CASES = 4, 1
#: Characters of a response that are shown.
_MAX_CHARS = 400

FAILURE_COLUMNS = (
    Column("where", "responses of"),
    Column("status", "verdict"),
    Column("reason", "reason"),
    Column("responses", "responses", "count"),
    Column("share", "share", "share"),
)
_EXAMPLE_COLUMNS = (
    Column("where", "response of"),
    Column("problem_id", "problem"),
    Column("decode", "decode"),
    Column("status", "verdict"),
    Column("reason", "reason"),
    Column("text", "text"),
    Column("gold", "gold"),
)
_FAILURES_NOTE = (
    "The most frequent reasons. …: a part of the reason that differs between responses."
)
_EPISODES_NOTE = (
    "One decode is an episode of several attempts: after an attempt that fails a public test, the "
    "model sees the outcome of that test and tries again. Attempt: share of episodes that ended "
    "at this attempt, because the public tests passed or no attempt was left. Passed: the last "
    "attempt passed all tests, including hidden tests. Public tests alone: it passed the public "
    "tests, but failed a hidden one. The seeds of a condition are added."
)
_EXECUTIONS_NOTE = (
    "Greedy episodes whose programs were run several times; the verdict is that of the majority."
)
_CASES_NOTE = (
    "Problems whose outcome changed under the most seeds come first; ties are ordered by a hash "
    "of the problem's id, so the cases were not picked by hand. Their responses are on the page "
    "of every problem; all changes are in tables/items.csv."
)
_VERDICTS_NOTE = (
    "Only a pass counts as correct. A timeout or an error of the verifier counts as not passed in "
    "every rate; this table separates them from wrong answers."
)
_ENDINGS_NOTE = (
    "At an end token of the model (or an ending that its backend does not distinguish from one), "
    "at a stop string of the task, or at the token limit."
)
_UNANSWERED_NOTE = (
    " Cut, no answer: responses without an answer that ended at a stop string or the limit. If "
    "these are many, change generation_kwargs.until in the task, or search.max_gen_toks."
)
_ENDING_COLUMNS = (
    Column("of", "responses of"),
    Column("end_token", "end token", "count"),
    Column("stop_string", "stop string", "count"),
    Column("limit", "token limit", "count"),
    Column("limit_share", "at limit", "share"),
    Column("unknown", "not known", "count"),
    Column("not_generated", "not generated", "count"),
)
_UNANSWERED_COLUMNS = (
    Column("cut_unanswered", "cut, no answer", "count"),
    Column("unanswered", "no answer", "count"),
)


def build_failures(inputs: ReportInputs) -> Section:
    """Build the section on groups of responses where none passed or few could be judged."""
    examples = [
        {
            **row,
            "decode": (
                name_decode(inputs.deployment)
                if row["index"] == GREEDY
                else f"sample {row['index']}"
            ),
            "reason": shorten(" ".join(row["reason"].split()), _MAX_CHARS),
            "text": shorten(row["text"], _MAX_CHARS),
            "gold": shorten(row["gold"], _MAX_CHARS),
        }
        for row in inputs.failures.responses
    ]
    tables = [
        Table("failures", FAILURE_COLUMNS, inputs.failures.reasons, _FAILURES_NOTE),
        Table("failed_responses", _EXAMPLE_COLUMNS, examples, folded="Some of these responses"),
    ]
    return Section("Why so little passes", tables=tables)


def build_episodes(facts: EpisodeFacts) -> Section:
    """Build the section on attempts and repeated executions."""
    tables = []
    if facts.rows:
        columns = [
            Column("label", "audit"),
            Column("episodes", "episodes", "count"),
            *(
                Column(f"attempt_{n}", f"attempt {n}", "share")
                for n in range(1, facts.attempts + 1)
            ),
            Column("passed_share", "passed", "share"),
            Column("public_share", "public tests alone", "share"),
        ]
        columns = add_hidden(columns, facts.rows)
        tables.append(Table("episodes", columns, facts.rows, _EPISODES_NOTE))
    if facts.executions:
        columns = [
            Column("times", "executions", "count"),
            Column("episodes", "episodes", "count"),
            Column("verdicts_differ", "verdicts differ", "count"),
            Column("feedback_differs", "public tests differ", "count"),
        ]
        tables.append(Table("executions", columns, [facts.executions], _EXECUTIONS_NOTE))
    warnings = []
    if facts.differing:
        places = ", ".join(facts.differing)
        warnings.append(f"executions of the same programs differ, for example {places}")
    return Section("Episodes", tables=tables, warnings=warnings)


def build_cases(inputs: ReportInputs, findings: Findings) -> Section:
    """Build the section on gained and lost problems, with links to their responses."""
    columns = [
        Column("label", "condition"),
        Column("change", "change"),
        Column("problem_id", "problem", "problem"),
        Column("state", "state"),
        Column("seeds", "under seeds"),
    ]
    lead = findings.lead
    names = [lead, *(name for name in findings.conditions if name != lead)]
    rows = [
        {"label": condition_name(name), "condition": name, "change": change, **case}
        for name in names
        for change in ("gained", "lost")
        for case in _choose_cases(inputs, name, change, LEAD_CASES if name == lead else OTHER_CASES)
    ]
    return Section(
        "Problems gained and lost",
        tables=[Table("cases", add_hidden(columns, rows), rows, _CASES_NOTE)],
    )


def _choose_cases(inputs: ReportInputs, condition: str, change: str, limit: int) -> Iterator[Row]:
    """Choose at most ``limit`` problems that a condition gained or lost, by a fixed rule.

    Those that changed under the most seeds come first; ties are ordered by a hash of the id.
    """
    audit = inputs.audit
    before = audit.deployed.passed
    after = np.array([trained.deployed.passed for trained in inputs.find_arms(condition)])
    changed = after & ~before if change == "gained" else ~after & before
    counts = changed.sum(axis=0)
    ids = [str(problem_id) for problem_id in audit.ids]
    order = sorted(
        np.flatnonzero(counts).tolist(),
        key=lambda p: (-counts[p], derive_key("case", ids[p]), ids[p]),
    )
    for position in order[:limit]:
        seeds = np.array(inputs.seeds)[changed[:, position]].tolist()
        yield {
            "problem_id": ids[position],
            "state": str(audit.states[position]),
            "seeds": " ".join(map(str, seeds)),
        }


def build_problem_tables(inputs: ReportInputs) -> list[Table]:
    """Build the tables of files alone: every audit problem, and every gained and lost one."""
    audit = inputs.audit
    before = inputs.audit.deployed
    problems: list[Row] = [
        {
            "problem_id": str(problem_id),
            "state": str(audit.states[position]),
            "passing_samples": int(audit.verdicts.passing[position]),
            "source_verdict": STATUSES[int(before.statuses[position])],
            "gold": format_gold(audit.golds[position]),
            "prompt": audit.prompts[position],
        }
        for position, problem_id in enumerate(audit.ids)
    ]
    items: list[Row] = [
        {
            "condition": trained.arm.condition,
            "seed": trained.arm.seed,
            "problem_id": str(audit.ids[position]),
            "state": str(audit.states[position]),
            "change": "lost" if before.passed[position] else "gained",
            "verdict_before": STATUSES[int(before.statuses[position])],
            "verdict_after": STATUSES[int(trained.deployed.statuses[position])],
            "before": before.texts[position],
            "after": trained.deployed.texts[position],
        }
        for trained in inputs.arms
        for position in np.flatnonzero(before.passed != trained.deployed.passed)
    ]
    keys = [  # also without any change
        *("condition", "seed", "problem_id", "state", "change"),
        *("verdict_before", "verdict_after", "before", "after"),
    ]
    return [
        Table("problems", add_hidden((), problems), problems, csv_only=True),
        Table("items", [Column(key) for key in keys], items, csv_only=True),
    ]


def build_verdicts(inputs: ReportInputs) -> Section:
    """Build the section on verdicts and on how responses ended."""
    columns = [
        Column("responses", "responses"),
        *(Column(status, status, "count") for status in STATUSES),
    ]
    rows = [
        {"responses": name, **{status: counts.get(status, 0) for status in STATUSES}}
        for name, counts in _list_verdicts(inputs).items()
    ]
    tables = [Table("verdicts", columns, rows, _VERDICTS_NOTE, "Verdicts")]
    if inputs.endings:
        endings = [*inputs.endings.values()]
        columns = list(_ENDING_COLUMNS)
        note = _ENDINGS_NOTE
        if any(row["unanswered"] is not None for row in endings):
            columns += _UNANSWERED_COLUMNS
            note += _UNANSWERED_NOTE
        columns = add_hidden(columns, endings)
        tables.append(Table("endings", columns, endings, note, "How responses ended"))
    return Section("Verdicts and endings", tables=tables)


def _list_verdicts(inputs: ReportInputs) -> dict[str, Mapping[str, int]]:
    """List responses by status: of each model on the audit, of experiments, and of splits."""
    source = name_source(inputs.deployment)
    counts: dict[str, Mapping[str, int]] = {
        f"audit, {source}": count_codes(inputs.audit.deployed.statuses)
    }
    for name in inputs.conditions:
        codes = [trained.deployed.statuses for trained in inputs.find_arms(name)]
        counts[f"audit, {condition_name(name)}"] = count_codes(np.concatenate(codes))
    for loaded in inputs.experiments:
        counts |= loaded.experiment.verdicts(inputs, loaded.data)
    for split in ("pool", "audit"):
        if split in inputs.verdict_counts:
            counts[f"{split}, {source} and samples"] = inputs.verdict_counts[split]
    return counts
