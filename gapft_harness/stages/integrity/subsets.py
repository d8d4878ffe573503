"""Named subsets of an audit's problems, sealed as ``audit/NAME/items.json``.

Nothing is decoded for a subset: the decisions on its audit are scored on its problems alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.files import sha256
from gapft_harness.core.json_values import describe_change
from gapft_harness.core.text import read_lines
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import AuditChoice
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_ids
from gapft_harness.run_directory.tables import read_items, write_items
from gapft_harness.stages.integrity.differences import Differences, compare_ids

#: Maximum number of ids that a message names.
_MAX_NAMED = 5


def resolve_items(
    name: str, audit: str, items: str | Sequence[str], audit_ids: Collection[str]
) -> list[str]:
    """Return the ids of a subset's problems in ascending order.

    Raises:
        UserError: the file cannot be read or repeats an id, or ids are not in the audit; the
            message names them with their lines.
    """
    key = f"key 'audits.{name}.items'"
    places_by_id = _read_ids(items, key)
    source = f"{key}: {items}" if isinstance(items, str) else key
    missing = [(place, item) for item, place in places_by_id.items() if item not in audit_ids]
    if missing:
        shown_ids = ", ".join(f"{item!r}{place}" for place, item in missing[:_MAX_NAMED])
        more = f" and {len(missing) - _MAX_NAMED} more" if missing[_MAX_NAMED:] else ""
        raise UserError(
            f"{source}: {len(missing)} of {len(places_by_id)} ids are not problems of "
            f"{name_audit(audit)}, which has {len(audit_ids)}: {shown_ids}{more}; expected ids as "
            "in its problems.parquet and the report's tables/problems.csv; "
            f"{_suggest_id(missing[0][1], audit_ids)}"
        )
    return sorted(places_by_id)


def name_audit(audit: str) -> str:
    """Return the words for an audit."""
    return "the audit" if audit == "audit" else f"the audit {audit}"


def find_audit_split(audit: str) -> str:
    """Return an audit's split, from the name in a subset's ``of``."""
    return layout.audit_split("" if audit == "audit" else audit)


def _read_ids(items: str | Sequence[str], key: str) -> dict[str, str]:
    """Read ids with the text that gives their line; ids of a list have none."""
    if not isinstance(items, str):
        return dict.fromkeys(items, "")
    places_by_id: dict[str, str] = {}
    for number, line in read_lines(Path(items)):
        if not (item := line.strip()):
            continue
        if item in places_by_id:
            where = places_by_id[item].strip(" ()")
            raise UserError(f"{key}: {items}, line {number}: {item!r} is already on {where}")
        places_by_id[item] = f" (line {number})"
    if not places_by_id:
        raise UserError(f"{key}: {items}: has no ids; expected one id on each line")
    return places_by_id


def _suggest_id(item: str, audit_ids: Collection[str]) -> str:
    suggestion = did_you_mean(item, audit_ids)
    return suggestion.partition("known: ")[0].strip() or f"one of its ids is {min(audit_ids)!r}"


def check_items(recipe: Recipe, ids: Mapping[str, Iterable[str]]) -> None:
    """Check that every subset's ids are in its audit, before anything is generated.

    Raises:
        UserError: as ``resolve_items``.
    """
    for name, choice in recipe.subsets.items():
        if choice.of is not None and choice.items is not None:
            resolve_items(name, choice.of, choice.items, {*ids[find_audit_split(choice.of)]})


def describe_subset(choice: AuditChoice) -> str:
    """Describe a subset for the dry run, with its number of problems if that can be read."""
    audit_name = name_audit(str(choice.of))
    if choice.items is None:
        return f"the problems of {audit_name} that are also in the audit of {choice.task}"
    try:
        count = len(_read_ids(choice.items, ""))
    except UserError:
        return f"the problems of {audit_name} that {choice.items} names"
    return f"{count:,} problem{'s' * (count > 1)} of {audit_name}"


def find_unsealed_subsets(run: RunDirectory) -> Iterator[tuple[str, AuditChoice]]:
    """Yield the subsets that are not sealed yet and whose audit is searched."""
    files = run.manifest()["files"]
    for name, choice in run.recipe.subsets.items():
        is_sealed = layout.items_path(layout.audit_split(name)) in files
        if not is_sealed and layout.responses_path(find_audit_split(str(choice.of))) in files:
            yield name, choice


def seal_subsets(run: RunDirectory) -> None:
    """Seal every subset given by ids whose audit is searched.

    Raises:
        UserError: as ``resolve_items``.
    """
    for name, choice in [*find_unsealed_subsets(run)]:
        if choice.of is not None and choice.items is not None:
            file = layout.items_path(layout.audit_split(name))
            ids = {*read_ids(run.sealed(layout.problems_path(find_audit_split(choice.of))))}
            write_items(
                run.path / file, choice.of, resolve_items(name, choice.of, choice.items, ids)
            )
            run.seal(file)


def compare_subsets(
    run: RunDirectory, files: Mapping[str, str]
) -> tuple[list[str], list[str], list[str]]:
    """Compare the recipe's settings of sealed subsets with what was sealed.

    Args:
        run: the run.
        files: the manifest's files; a subset whose file changed is not compared here, since other
            checks report it.

    Returns:
        Sentences on changes; names of unchanged subsets; sentences on what could not be compared.
    """
    lines: list[str] = []
    unchanged: list[str] = []
    unchecked: list[str] = []
    for name, choice in run.recipe.audits.items():
        file = layout.items_path(layout.audit_split(name))
        path = run.path / file
        if file not in files or not path.exists() or sha256(path) != files[file]:
            continue
        audit, sealed, task = read_items(path)
        subset_changes = [*_describe_changed_source(name, choice, audit, task)]
        if isinstance(choice.items, str) and not Path(choice.items).exists():
            unchecked.append(
                f"not checked, because it is not on this machine: {choice.items} (audits.{name})"
            )
            lines += subset_changes
            continue
        subset_changes += _describe_changed_ids(name, choice, sealed)
        lines += subset_changes
        unchanged += [] if subset_changes else [f"audits.{name}"]
    return lines, unchanged, unchecked


def _describe_changed_source(
    name: str, choice: AuditChoice, audit: str, task: str | None
) -> Iterator[str]:
    """Describe a subset whose audit or task differs from the sealed one."""
    for part, value, sealed_value in (("of", choice.of, audit), ("task", choice.task, task)):
        if value != sealed_value:
            change = describe_change(f"audits.{name}.{part}", sealed_value, value)
            yield f"{change}; give a subset of another audit another name"


def _describe_changed_ids(name: str, choice: AuditChoice, sealed: Sequence[str]) -> Iterator[str]:
    """Describe a subset whose ids differ from the sealed ones."""
    key = f"audits.{name}"
    if choice.items is None:
        return
    try:
        current_ids = [*_read_ids(choice.items, f"key '{key}.items'")]
    except UserError as error:
        yield str(error)
        return
    source = f", {choice.items}" if isinstance(choice.items, str) else ""
    for change, ids in (
        ("added", {*current_ids} - {*sealed}),
        ("removed", {*sealed} - {*current_ids}),
    ):
        if ids:
            more = f" and {len(ids) - _MAX_NAMED} more" if len(ids) > _MAX_NAMED else ""
            yield (
                f"{key}.items{source}: {len(ids)} id{'s' * (len(ids) > 1)} {change}: "
                f"{', '.join(map(repr, sorted(ids)[:_MAX_NAMED]))}{more}; give another subset of "
                "the audit another name"
            )


def check_subsets(
    run: RunDirectory, manifest: Manifest, match: Callable[[str], list[str]], findings: Differences
) -> None:
    """Verify that every sealed subset has problems of its audit, each once.

    A subset that a task defines is matched again if that task's data are on this machine.

    Args:
        run: the run.
        manifest: its manifest.
        match: returns the ids of a subset that a task defines, by the subset's name.
        findings: the verification's findings.
    """
    places = {file: layout.parse_path(file) for file in manifest["files"]}
    subsets = [file for file, place in places.items() if place and place.kind == layout.ITEMS]
    for file in subsets:
        findings.collect(file, partial(_check_subset, run, file))
    for name, choice in run.recipe.subsets.items():
        if (file := layout.items_path(layout.audit_split(name))) not in subsets:
            findings.missing.append(f"the subset {name} of an audit is not sealed")
        elif choice.task is not None:
            _match_again(run, name, match, findings)
    if subsets:
        findings.checked.append(
            f"{len(subsets)} named subset{'s' * (len(subsets) > 1)} of problems of an audit, each "
            "problem once"
        )


def _match_again(
    run: RunDirectory, name: str, match: Callable[[str], list[str]], findings: Differences
) -> None:
    task, file = run.recipe.audits[name].task, layout.items_path(layout.audit_split(name))
    try:
        ids = match(name)
    except Exception as error:  # a task's code and the readers of its data raise nearly anything
        reason = " ".join(str(error).split())
        findings.checked.append(f"not matched again: {file}: task {task} cannot be read ({reason})")
        return

    def compare() -> Iterable[str]:
        shared = f"the problems shared with the audit of task {task}"
        return compare_ids(file, read_items(run.path / file)[1], shared, sorted(ids))

    difference_count = len(findings.differences)
    findings.collect(file, compare)
    if len(findings.differences) == difference_count:
        findings.checked.append(f"{file} was matched again with the audit of task {task}")


def _check_subset(run: RunDirectory, file: str) -> Iterable[str]:
    audit, items, _ = read_items(run.path / file)
    problems = layout.problems_path(find_audit_split(audit))
    audit_ids = {*read_ids(run.path / problems)}
    yield from compare_ids(file, items, problems, sorted({*items} & audit_ids))
