"""Named subsets of an audit: which of its problems each has, sealed as ``audit/NAME/items.json``.

Nothing is decoded for a subset: the decisions on its audit are scored on these problems alone.
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

#: Ids that a message names.
_NAMED = 5


def items_of(
    name: str, audit: str, items: str | Sequence[str], known: Collection[str]
) -> list[str]:
    """The ids of a subset's problems, ascending.

    Raises:
        UserError: the file cannot be read or names an id twice, or ids are none of the audit's;
            the message names them with their lines.
    """
    key = f"key 'audits.{name}.items'"
    placed = _read(items, key)
    source = f"{key}: {items}" if isinstance(items, str) else key
    missing = [(place, item) for item, place in placed.items() if item not in known]
    if missing:
        told = ", ".join(f"{item!r}{place}" for place, item in missing[:_NAMED])
        more = f" and {len(missing) - _NAMED} more" if missing[_NAMED:] else ""
        raise UserError(
            f"{source}: {len(missing)} of {len(placed)} ids are no problem of {words(audit)}, "
            f"which has {len(known)}: {told}{more}; expected ids as its problems.parquet and the "
            f"report's tables/problems.csv have them; {_nearest(missing[0][1], known)}"
        )
    return sorted(placed)


def words(audit: str) -> str:
    """An audit in words."""
    return "the audit" if audit == "audit" else f"the audit {audit}"


def split_of(audit: str) -> str:
    """An audit's split, by what a subset says that it is of."""
    return layout.audit("" if audit == "audit" else audit)


def _read(items: str | Sequence[str], key: str) -> dict[str, str]:
    """Ids, each with the words that say where it stands; those of a list need none."""
    if not isinstance(items, str):
        return dict.fromkeys(items, "")
    found: dict[str, str] = {}
    for number, line in read_lines(Path(items)):
        if not (item := line.strip()):
            continue
        if item in found:
            where = found[item].strip(" ()")
            raise UserError(f"{key}: {items}, line {number}: {item!r} stands on {where} already")
        found[item] = f" (line {number})"
    if not found:
        raise UserError(f"{key}: {items}: names no problem; expected one id a line")
    return found


def _nearest(item: str, known: Collection[str]) -> str:
    told = did_you_mean(item, known)
    return told.partition("known: ")[0].strip() or f"one of them is {min(known)!r}"


def check_items(recipe: Recipe, ids: Mapping[str, Iterable[str]]) -> None:
    """Finds every subset's problems in its audit, before anything is generated.

    Raises:
        UserError: as ``items_of``.
    """
    for name, choice in recipe.subsets.items():
        if choice.of is not None and choice.items is not None:
            items_of(name, choice.of, choice.items, {*ids[split_of(choice.of)]})


def told(choice: AuditChoice) -> str:
    """A subset in words, for the dry run: how many problems, where that can be read here."""
    of = words(str(choice.of))
    if choice.items is None:
        return f"the problems of {of} that are also in the audit of {choice.task}"
    try:
        count = len(_read(choice.items, ""))
    except UserError:
        return f"the problems of {of} that {choice.items} names"
    return f"{count:,} problem{'s' * (count > 1)} of {of}"


def unsealed(run: RunDirectory) -> Iterator[tuple[str, AuditChoice]]:
    """Yields the subsets that are not sealed yet, and whose audit is searched."""
    files = run.manifest()["files"]
    for name, choice in run.recipe.subsets.items():
        there = layout.items(layout.audit(name)) in files
        if not there and layout.responses(split_of(str(choice.of))) in files:
            yield name, choice


def seal_subsets(run: RunDirectory) -> None:
    """Seals every subset whose problems are given by ids, once its audit is searched.

    Raises:
        UserError: as ``items_of``.
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
    """Compares what the recipe says of sealed subsets with what was sealed.

    Args:
        files: the manifest's; a subset whose file was changed is not compared, others say so.

    Returns:
        Sentences on what is another now; names of the subsets that are as they were; sentences
        on what could not be compared.
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
            unchecked.append(f"not checked, for it is not here: {choice.items} (audits.{name})")
            lines += found
            continue
        found += _other_ids(name, choice, sealed)
        lines += found
        alike += [] if found else [f"audits.{name}"]
    return lines, alike, unchecked


def _renamed(name: str, choice: AuditChoice, audit: str, task: str | None) -> Iterator[str]:
    """Sentences on a subset that is of another audit, or chosen by another task, than sealed."""
    for part, given, then in (("of", choice.of, audit), ("task", choice.task, task)):
        if given != then:
            change = describe_change(f"audits.{name}.{part}", then, given)
            yield f"{change}; another audit takes another name"


def _other_ids(name: str, choice: AuditChoice, sealed: Sequence[str]) -> Iterator[str]:
    """Sentences on a subset whose ids are others than it was sealed with."""
    key = f"audits.{name}"
    if choice.items is None:
        return
    try:
        now = [*_read(choice.items, f"key '{key}.items'")]
    except UserError as error:
        yield str(error)
        return
    source = f", {choice.items}" if isinstance(choice.items, str) else ""
    for what, ids in (("added", {*now} - {*sealed}), ("taken away", {*sealed} - {*now})):
        if ids:
            more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
            yield (
                f"{key}.items{source}: {len(ids)} id{'s' * (len(ids) > 1)} {what}: "
                f"{', '.join(map(repr, sorted(ids)[:_NAMED]))}{more}; another subset of the audit "
                "takes another name"
            )


def check_subsets(
    run: RunDirectory, manifest: Manifest, match: Callable[[str], list[str]], findings: Differences
) -> None:
    """For ``gapft verify``: every sealed subset holds problems of its audit, each once.

    One that another task chooses is matched again, where that task's data are here.

    Args:
        match: the ids of a subset that another task chooses, by its name.
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
            "once"
        )


def _match_again(
    run: RunDirectory, name: str, match: Callable[[str], list[str]], findings: Differences
) -> None:
    task, file = run.recipe.audits[name].task, layout.items(layout.audit(name))
    try:
        ids = match(name)
    except Exception as error:  # a task's own code and its data's readers raise nearly anything
        words = " ".join(str(error).split())
        findings.checked.append(
            f"not matched again: {file}, for task {task} cannot be read ({words})"
        )
        return

    def compare() -> Iterable[str]:
        shared = f"the problems that the audit of task {task} has too"
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
