"""What the records of a run's outputs tell: verdicts, model, budgets, trainings, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from gapft_harness.engine.outputs import Facts
from gapft_harness.recipe.recipe import resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, list_arms, list_splits
from gapft_harness.run_directory.facts import list_late_warnings

#: In the facts of a training: the arm of the run with the same adapter, which was trained.
TRAINED_AS: Final = "trained_as"


class ImportFacts(TypedDict):
    """The fact ``imported`` of a search whose responses come from logs (``search.responses``).

    Attributes:
        files: ``path``, ``sha256``, ``format`` and ``holds`` (greedy, samples or both) of each.
        responses: how many were imported.
        samples: how many samples of each problem the files contain; the first K are used.
        left_out: responses to problems that the split does not have.
        verdicts: ``file`` if they come from the files, ``judged`` if from the task's verifier.
        verdict_field: the field of the files that holds the verdict; empty if it was judged.
    """

    files: list[dict[str, str]]
    responses: int
    samples: int
    left_out: int
    verdicts: str
    verdict_field: str


def read_searches(run: RunDirectory) -> dict[str, Facts]:
    """Return the facts of each searched split of a run's recipe."""
    records = run.read_records()
    return {split: records[split].facts for split in list_splits(run.recipe) if split in records}


def read_decodes(run: RunDirectory) -> dict[str, Facts]:
    """Return the facts of each table of decisions, by arm and experiment; the audit's come first.

    Names are those of ``layout.RunFile.name``.
    """
    records = run.read_records()
    return {name: records[table].facts for name, table in _list_decodes(run).items()}


def _list_decodes(run: RunDirectory) -> dict[str, str]:
    """Map the names of tables of decisions to their paths; those of the audit come first."""
    records = run.read_records()
    audit = [layout.decisions_path(arm) for arm in list_arms(run.recipe)]
    places = {name: layout.parse_path(name) for name in dict.fromkeys([*audit, *records])}
    return {
        place.name: name
        for name, place in places.items()
        if place and place.kind == layout.DECISIONS and name in records
    }


def read_judged_facts(run: RunDirectory, fact: str) -> dict[str, Any]:
    """Return one fact of each judged table that has it: of splits, then of decisions."""
    facts = {**read_searches(run), **read_decodes(run)}
    return {name: item[fact] for name, item in facts.items() if fact in item}


def read_judges(run: RunDirectory) -> dict[str, Any]:
    """Return the verifier's description of itself for each table of responses that it judged."""
    records = run.read_records()
    tables = {**{name: name for name in read_searches(run)}, **_list_decodes(run)}
    return {
        name: records[table].made_from["machine"].get("verifier", {}).get("describes", {})
        for name, table in tables.items()
        if records[table].facts.get("imported", {}).get("verdicts") != "file"
    }


def read_source(run: RunDirectory) -> dict[str, Any]:
    """Return the description of the model of a run's search; empty before it.

    Of imported responses less is known: another split's description comes first.
    """
    searches = read_searches(run).values()
    generated = [facts for facts in searches if "imported" not in facts]
    for facts in (*reversed(generated), *searches):
        source = dict(facts["source"])
        if "pretrained" in source:  # the store may have it from a run that names another folder
            source["pretrained"] = resolve_model_args(run.recipe)["pretrained"]
        return source
    return {}


def read_budgets(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """Return the facts of the training set and the budget of each arm that has them."""
    records = run.read_records()
    budgets = {}
    for arm in list_arms(run.recipe):
        names = (layout.selection_path(arm), layout.budget_path(arm))
        if all(name in records for name in names):
            budgets[arm.name] = {k: v for name in names for k, v in records[name].facts.items()}
    return budgets


def read_training(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """Return the trainer's facts on each trained arm.

    An arm that shares adapter and decisions with an earlier one names it as ``TRAINED_AS``. Where
    the decisions may depend on the arm's name, they have different keys.
    """
    records = run.read_records()
    first_by_place = dict[tuple[str, str], str]()
    training: dict[str, dict[str, Any]] = {}
    for arm in list_arms(run.recipe):
        adapter = layout.adapter_path(arm)
        decisions = layout.decisions_path(arm)
        if adapter not in records:
            continue
        facts = dict(records[adapter].facts)
        audited = records[decisions].place if decisions in records else ""
        original = first_by_place.setdefault((records[adapter].place, audited), arm.name)
        if original != arm.name:
            facts.pop("seconds", None)
            facts = {TRAINED_AS: original, **facts}
        training[arm.name] = facts
    return training


def list_warnings(run: RunDirectory) -> list[str]:
    """List the warnings for the report: of searches, stages and decodes, and of late changes."""
    facts = run.facts()
    lines = [
        *_list_table_warnings(read_searches(run)),
        *(line for stage in facts["warnings"].values() for line in stage),
        *_list_table_warnings(read_decodes(run)),
        *list_late_warnings(facts["history"]),
    ]
    return [*dict.fromkeys(lines)]


def _list_table_warnings(tables: Mapping[str, Facts]) -> list[str]:
    return [
        f"{name}: {line}" for name, facts in tables.items() for line in facts.get("warnings", ())
    ]
