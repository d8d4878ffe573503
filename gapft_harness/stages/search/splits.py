"""The problems of each split of a run: limits, repeats, and calibration problems.

No problem is in two splits (``stages/integrity/disjoint.py``), and no prompt contains a few-shot
example that is an audit or calibration problem. All splits are checked for this before anything is
generated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import is_repeat
from gapft_harness.core.records import Problem
from gapft_harness.core.streams import derive
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, Split, splits_of
from gapft_harness.stages.integrity.disjoint import Keyed, Known, keyed, overlap, require_disjoint

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """The problems of one split.

    Attributes:
        problems: at least one.
        dropped: sentences with counts of dropped problems.
        golds: the task's split that contains the gold answers.
        warnings: sentences on counts that differ from the paper's.
    """

    problems: list[Problem]
    dropped: tuple[str, ...]
    golds: Split
    warnings: tuple[str, ...]


def read_splits(
    task: LoadedTask, recipe: Recipe, only: Sequence[Split] | None = None
) -> dict[Split, ReadSplit]:
    """Read all or some splits of a run's own task, and check that they are disjoint.

    Raises:
        UserError: missing or malformed data, an empty split, a problem in two splits, or few-shot
            examples that are audit or calibration problems.
    """
    own = [split for split in splits_of(recipe) if not layout.further(split)]
    own = [split for split in own if only is None or split in only]
    read = {split: read_split(task, recipe, split) for split in own}

    def texts(split: Split) -> list[Keyed]:
        return [(problem.id, task.question(problem)) for problem in read[split].problems]

    for split, other in (("pool", "audit"), (CALIBRATION, "pool"), (CALIBRATION, "audit")):
        if split not in read or other not in read:
            continue
        if recipe.data.keep_shared and (split, other) == ("pool", "audit"):
            if kept := overlap(texts(split), texts(other)):
                warned = (*read[split].warnings, kept)
                read[split] = replace(read[split], warnings=warned)
            continue
        require_disjoint(texts(split), texts(other), split, other, task.name)
    for split in ("audit", CALIBRATION):
        if split in read:
            _require_other_examples(task, recipe, split, texts(split))
    return read


def require_unseen(
    recipe: Recipe,
    task: LoadedTask,
    read: Mapping[Split, ReadSplit],
    audit: str,
    other: LoadedTask,
    audited: Mapping[Split, ReadSplit],
) -> None:
    """Require that a further audit shares no problem with the data that the run learns from.

    Raises:
        UserError: one of its problems is in the pool or the calibration split, or among the
            few-shot examples of either task.
    """
    ((split, found),) = audited.items()
    problems = [(problem.id, other.question(problem)) for problem in found.problems]
    for seen in ("pool", CALIBRATION):
        if seen in read:
            learned = [(problem.id, task.question(problem)) for problem in read[seen].problems]
            require_disjoint(learned, problems, seen, split, task.name)
    for shown, by in ((task, recipe), (other, recipe.on(audit))):
        _require_other_examples(shown, by, split, problems)


def _require_other_examples(
    task: LoadedTask, recipe: Recipe, split: Split, problems: Sequence[Keyed]
) -> None:
    """Require that no few-shot example of a task can be a problem of a split."""
    examples = task.examples()
    shared = Known(problems).shared(examples)
    if not shared:
        return
    instead = ""
    if split == CALIBRATION:
        other = "problems of its training split (calibration: a number)"
        if isinstance(recipe.calibration, int):
            other = "its validation split (calibration: validation)"
        instead = f", or calibrate on {other}"
    raise UserError(
        f"task {task.name}: num_fewshot is {task.shots}, and {len(shared)} of the {len(examples)} "
        f"records that examples are drawn from are {split} problems, first: {shared[0][0]} "
        f"(id in the {split} split: {shared[0][1]}), so prompts would show {split} problems with "
        "their answers. Name another split in the task's fewshot_split, remove the problems from "
        f"its data, set num_fewshot to 0{instead}"
    )


def read_split(task: LoadedTask, recipe: Recipe, split: Split) -> ReadSplit:
    """Read one split of a run, with the recipe's limits applied.

    Raises:
        UserError: missing or malformed data, or an empty split.
    """
    asks = recipe.data.drop_shared or recipe.calibration is not None
    if split == "audit" or not asks:
        return _read(task, recipe, split)
    return _read(task, recipe, split, _read(task, recipe, "audit").problems)


def _read(
    task: LoadedTask, recipe: Recipe, split: Split, audit: Sequence[Problem] = ()
) -> ReadSplit:
    """Read one split; calibration problems are never problems of ``audit``."""
    taken = recipe.calibration
    source: Split = "pool" if split == CALIBRATION and isinstance(taken, int) else split
    read: dict[Split, Callable[[], list[Problem]]] = {
        "pool": task.pool,
        "audit": task.audit,
        "calibration": task.validation,
    }
    before, warned = len(task.dropped), len(task.warnings)
    problems, halved = read[source](), ""
    dropped = task.dropped[before:]
    if recipe.data.deduplicate:
        kept = [problem for problem in problems if not is_repeat(problem.id)]
        if len(kept) < len(problems):
            dropped.append(
                f"{source}: {len(problems) - len(kept)} repeated problems dropped (deduplicate)"
            )
        problems = kept
    if source == "pool" and recipe.data.drop_shared:
        known = Known((problem.id, task.question(problem)) for problem in audit)
        kept = [p for p in problems if known.find((p.id, task.question(p))) is None]
        if gone := len(problems) - len(kept):
            dropped.append(
                f"pool: {gone} of {len(problems)} problems dropped because they are also in the "
                "audit (drop_shared)"
            )
        problems = kept
    if source == "pool" and isinstance(taken, int) and problems:
        division = divide(problems, taken, audit)
        if split == CALIBRATION:
            problems, dropped = division.calibration, []
        else:
            halved = _halved(taken, len(problems), len(division.pool))
            problems = division.pool
            dropped.append(
                f"pool: {taken} problems moved to the calibration split "
                "(experiments.scaling.calibration)"
            )
            dropped += [division.dropped] if division.dropped else []
    limits = {"pool": recipe.data.pool_limit, "audit": recipe.data.audit_limit}
    limit = limits.get(split)
    if limit is not None and limit < len(problems):
        first = recipe.data.limit_takes == "first"
        problems = (problems if first else hash_order(problems))[:limit]
    if not problems:
        why = f" ({'; '.join(dropped)})" if dropped else ""
        raise UserError(f"task {task.name}: its {split} split has no problems{why}")
    warnings = (*task.warnings[warned:], *filter(None, [halved]))
    return ReadSplit(problems, tuple(dropped), source, warnings)


def _halved(taken: int, before: int, left: int) -> str:
    """Warn if calibration uses at least half of the training split; else return an empty text."""
    if 2 * left > before:
        return ""
    return (
        f"experiments.scaling.calibration: {taken:,} leaves {left:,} of {before:,} training "
        "problems in the pool, so every condition can learn from half as many or fewer; use fewer, "
        "or calibrate on a validation split (experiments.scaling.calibration: validation)"
    )


@dataclass(frozen=True, slots=True)
class Division:
    """A training split divided into pool and calibration.

    Attributes:
        pool: the problems to search, in the order of the split.
        calibration: the problems moved to the calibration split.
        dropped: a sentence on pool problems dropped because calibration has the same content;
            empty if there are none.
    """

    pool: list[Problem]
    calibration: list[Problem]
    dropped: str


def hash_order(problems: Sequence[Problem]) -> list[Problem]:
    """Sort problems by the frozen hash of their ids: limits use the first, calibration the last."""
    return sorted(problems, key=lambda problem: derive("limit", problem.id))


def divide(problems: Sequence[Problem], count: int, audit: Sequence[Problem] = ()) -> Division:
    """Move the last ``count`` problems in hash order from a training split to calibration.

    A limited pool uses the first problems of that order, so calibration does not change it while
    there are enough problems for both. Problems with the same content as a calibration problem
    leave the pool too. Problems that are also in the audit (by the rule of
    ``stages/integrity/disjoint.py``) are not moved: they stay in the pool.

    Raises:
        UserError: there are too few problems, or none would be left for the pool.
    """
    audited = Known(keyed(audit))
    candidates = [p for p in problems if audited.find((p.id, p.prompt)) is None]
    shared = len(problems) - len(candidates)
    if shared and count > len(candidates):
        raise UserError(
            f"key 'experiments.scaling.calibration': asks for {count} of the {len(problems)} "
            f"problems of the training split, but {shared} of these are also in the audit; "
            f"expected at most {len(candidates)}"
        )
    taken = hash_order(candidates)[-count:]
    ids = {problem.id for problem in taken}
    rest = [problem for problem in problems if problem.id not in ids]
    known = Known(keyed(taken))
    pool = [p for p in rest if known.find((p.id, p.prompt)) is None]
    if not pool:
        raise UserError(
            f"key 'experiments.scaling.calibration': asks for {count} of the {len(problems)} "
            "problems of the training split, which leaves none for the pool; expected fewer"
        )
    repeats = len(rest) - len(pool)
    plural = "s" * (repeats > 1)
    dropped = f"pool: {repeats} problem{plural} dropped with the content of a calibration problem"
    return Division(pool, taken, dropped if repeats else "")
