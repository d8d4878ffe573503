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
from gapft_harness.stages.integrity.differences import Differences, unequal_ids

#: Maximum number of ids that a message names.
_NAMED = 5


def items_of(
    name: str, audit: str, items: str | Sequence[str], known: Collection[str]
) -> list[str]:
    """Return the ids of a subset's problems in ascending order.

    Raises:
        UserError: the file cannot be read or repeats an id, or ids are not in the audit; the
            message names them with their lines.
    """
    key = f"key 'audits.{name}.items'"
    placed = _read(items, key)
    source = f"{key}: {items}" if isinstance(items, str) else key
    missing = [(place, item) for item, place in placed.items() if item not in known]
    if missing:
        told = ", ".join(f"{item!r}{place}" for place, item in missing[:_NAMED])
        more = f" and {len(missing) - _NAMED} more" if missing[_NAMED:] else ""
        raise UserError(
            f"{source}: {len(missing)} of {len(placed)} ids are not problems of {words(audit)}, "
            f"which has {len(known)}: {told}{more}; expected ids as in its problems.parquet and "
            f"the report's tables/problems.csv; {_nearest(missing[0][1], known)}"
        )
    return sorted(placed)


def words(audit: str) -> str:
    """Return the words for an audit."""
    return "the audit" if audit == "audit" else f"the audit {audit}"


def split_of(audit: str) -> str:
    """Return an audit's split, from the name in a subset's ``of``."""
    return layout.audit("" if audit == "audit" else audit)


def _read(items: str | Sequence[str], key: str) -> dict[str, str]:
    """Read ids with the text that gives their line; ids of a list have none."""
    if not isinstance(items, str):
        return dict.fromkeys(items, "")
    found: dict[str, str] = {}
    for number, line in read_lines(Path(items)):
        if not (item := line.strip()):
            continue
        if item in found:
            where = found[item].strip(" ()")
            raise UserError(f"{key}: {items}, line {number}: {item!r} is already on {where}")
        found[item] = f" (line {number})"
    if not found:
        raise UserError(f"{key}: {items}: has no ids; expected one id on each line")
    return found


def _nearest(item: str, known: Collection[str]) -> str:
    told = did_you_mean(item, known)
    return told.partition("known: ")[0].strip() or f"one of its ids is {min(known)!r}"


def check_items(recipe: Recipe, ids: Mapping[str, Iterable[str]]) -> None:
    """Check that every subset's ids are in its audit, before anything is generated.

    Raises:
        UserError: as ``resolve_items``.
    """
    for name, choice in recipe.subsets.items():
        if choice.of is not None and choice.items is not None:
            items_of(name, choice.of, choice.items, {*ids[split_of(choice.of)]})


def told(choice: AuditChoice) -> str:
    """Describe a subset for the dry run, with its number of problems if that can be read."""
    of = words(str(choice.of))
    if choice.items is None:
        return f"the problems of {of} that are also in the audit of {choice.task}"
    try:
        count = len(_read(choice.items, ""))
    except UserError:
        return f"the problems of {of} that {choice.items} names"
    return f"{count:,} problem{'s' * (count > 1)} of {of}"


def unsealed(run: RunDirectory) -> Iterator[tuple[str, AuditChoice]]:
    """Yield the subsets that are not sealed yet and whose audit is searched."""
    files = run.manifest()["files"]
    for name, choice in run.recipe.subsets.items():
        there = layout.items(layout.audit(name)) in files
        if not there and layout.responses(split_of(str(choice.of))) in files:
            yield name, choice


def seal_subsets(run: RunDirectory) -> None:
    """Seal every subset given by ids whose audit is searched.

    Raises:
        UserError: as ``resolve_items``.
    """
    for name, choice in [*unsealed(run)]:
        if choice.of is not None and choice.items is not None:
            file = layout.items(layout.audit(name))
            ids = {*read_ids(run.sealed(layout.problems(split_of(choice.of))))}
            write_items(run.path / file, choice.of, items_of(name, choice.of, choice.items, ids))
            run.seal(file)


def changed_subsets(
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
    alike: list[str] = []
    unchecked: list[str] = []
    for name, choice in run.recipe.audits.items():
        file = layout.items(layout.audit(name))
        path = run.path / file
        if file not in files or not path.exists() or sha256(path) != files[file]:
            continue
        of, sealed, task = read_items(path)
        found = [*_renamed(name, choice, of, task)]
        if isinstance(choice.items, str) and not Path(choice.items).exists():
            unchecked.append(
                f"not checked, because it is not on this machine: {choice.items} (audits.{name})"
            )
            lines += found
            continue
        found += _other_ids(name, choice, sealed)
        lines += found
        alike += [] if found else [f"audits.{name}"]
    return lines, alike, unchecked


def _renamed(name: str, choice: AuditChoice, audit: str, task: str | None) -> Iterator[str]:
    """Describe a subset whose audit or task differs from the sealed one."""
    for part, given, then in (("of", choice.of, audit), ("task", choice.task, task)):
        if given != then:
            change = describe_change(f"audits.{name}.{part}", then, given)
            yield f"{change}; give a subset of another audit another name"


def _other_ids(name: str, choice: AuditChoice, sealed: Sequence[str]) -> Iterator[str]:
    """Describe a subset whose ids differ from the sealed ones."""
    key = f"audits.{name}"
    if choice.items is None:
        return
    try:
        now = [*_read(choice.items, f"key '{key}.items'")]
    except UserError as error:
        yield str(error)
        return
    source = f", {choice.items}" if isinstance(choice.items, str) else ""
    for what, ids in (("added", {*now} - {*sealed}), ("removed", {*sealed} - {*now})):
        if ids:
            more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
            yield (
                f"{key}.items{source}: {len(ids)} id{'s' * (len(ids) > 1)} {what}: "
                f"{', '.join(map(repr, sorted(ids)[:_NAMED]))}{more}; give another subset of the "
                "audit another name"
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
    places = {file: layout.read(file) for file in manifest["files"]}
    subsets = [file for file, place in places.items() if place and place.kind == layout.ITEMS]
    for file in subsets:
        findings.gather(file, partial(_check, run, file))
    for name, choice in run.recipe.subsets.items():
        if (file := layout.items(layout.audit(name))) not in subsets:
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
    task, file = run.recipe.audits[name].task, layout.items(layout.audit(name))
    try:
        ids = match(name)
    except Exception as error:  # a task's code and the readers of its data raise nearly anything
        words = " ".join(str(error).split())
        findings.checked.append(f"not matched again: {file}: task {task} cannot be read ({words})")
        return

    def compare() -> Iterable[str]:
        shared = f"the problems shared with the audit of task {task}"
        return unequal_ids(file, read_items(run.path / file)[1], shared, sorted(ids))

    before = len(findings.differences)
    findings.gather(file, compare)
    if len(findings.differences) == before:
        findings.checked.append(f"{file} was matched again with the audit of task {task}")


def _check(run: RunDirectory, file: str) -> Iterable[str]:
    of, items, _ = read_items(run.path / file)
    problems = layout.problems(split_of(of))
    there = {*read_ids(run.path / problems)}
    yield from unequal_ids(file, items, problems, sorted({*items} & there))
