"""``gapft scaling-report``: scaled adapters of several runs, each an environment, in one table."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gapft_harness.analysis.scaling import FIXED
from gapft_harness.errors import UserError
from gapft_harness.files import replace_file, write_json
from gapft_harness.remote_run import placed
from gapft_harness.report import markdown, scaling_section
from gapft_harness.report.blocks import Section, Table
from gapft_harness.report.scaled_runs import ScaledRun, read_scaled_run
from gapft_harness.report.scaling import ScalingFindings, compute_scaling
from gapft_harness.report.tables import as_csv
from gapft_harness.report.wording import whole
from gapft_harness.run_directory import RunDirectory
from gapft_harness.scale import FOLDER, read_choice, scaled_file
from gapft_harness.selection import arms


@dataclass(frozen=True, slots=True)
class PooledRun:
    """One run as an environment.

    Attributes:
        place: the run directory as it was given.
        files: hashes of its sealed files, which tell it from other runs.
        task: the task's name.
        model: the source model.
        rule: level and tolerance.
        replicates: of its recipe's intervals.
        seed: of these.
        scaled: what its adapters decided.
    """

    place: str
    files: str
    task: str
    model: str
    rule: tuple[float, float]
    replicates: int
    seed: int
    scaled: ScaledRun


@dataclass(frozen=True, slots=True)
class Pooled:
    """Several runs, and what they come to together."""

    runs: tuple[PooledRun, ...]
    found: ScalingFindings

    @property
    def text(self) -> str:
        """All of it as Markdown."""
        rows = [
            [
                run.scaled.name,
                run.task,
                run.model,
                whole(len(run.scaled.item_ids)),
                whole(int(run.scaled.source.sum())),
            ]
            for run in self.runs
        ]
        columns = ["environment", "task", "model", "audit problems", "solved by the source"]
        count = f"{len(rows)} environment{'s' * (len(rows) > 1)}"
        sections = [
            Section("", scaling_section.blocks(self.found)),
            Section("Environments", [Table(columns, rows, words=3)]),
        ]
        return markdown.render(f"Adapter scaling, {count}", "", sections)

    def write(self, folder: Path) -> None:
        """Writes scaling.md, scaling.json, scaling.csv and scaling_bounds.csv.

        Raises:
            GapftError: the folder cannot be written.
        """
        texts = {
            "scaling.md": self.text,
            "scaling.csv": as_csv(scaling_section.checkpoint_rows(self.found)),
            "scaling_bounds.csv": as_csv(scaling_section.bound_rows(self.found)),
        }
        for name, text in texts.items():
            replace_file(folder / name, lambda beside, text=text: beside.write_text(text, "utf-8"))  # type: ignore[misc]
        write_json(folder / "scaling.json", scaling_section.content(self.found))


def pool_scaling(places: Sequence[str]) -> Pooled:
    """Takes the scaled adapters of several runs together.

    Every run is one environment of each of its conditions. Intervals have the most replicates that
    a run's recipe asks for, and the lowest of their seeds; the order of runs changes nothing.

    Args:
        places: run directories, folders or URLs, that have been audited.

    Raises:
        UserError: a run that scales nothing or is not audited, one that is given twice, or runs
            whose scales were chosen by different rules.
    """
    with contextlib.ExitStack() as stack:
        runs = [_read(place, stack.enter_context(placed(place))[0]) for place in places]
    first = runs[0]
    seen: dict[str, PooledRun] = {}
    for run in runs:
        if (other := seen.setdefault(run.files, run)) is not run:
            raise UserError(f"{other.place} and {run.place} are the same run; give each once")
        if run.rule != first.rule:
            raise UserError(
                f"{first.place} chose its scales at level {first.rule[0]:g} and tolerance "
                f"{first.rule[1]:g}, {run.place} at {run.rule[0]:g} and {run.rule[1]:g}; expected "
                "one rule"
            )
    runs = _named(runs)
    found = compute_scaling(
        [run.scaled for run in runs],
        max(run.replicates for run in runs),
        min(run.seed for run in runs),
    )
    return Pooled(tuple(sorted(runs, key=lambda run: run.scaled.name)), found)


def _read(place: str, path: Path) -> PooledRun:
    run = RunDirectory.open(path)
    recipe, manifest = run.recipe, run.manifest()
    trained = [arm for arm in arms(recipe) if arm.name in manifest["budgets"]]
    if recipe.scaling is None or not trained:
        why = "its recipe has no section scaling" if trained else "it has trained nothing"
        raise UserError(f"{place}: {why}, so it has no scaled adapters to compare")
    run.sealed("audit/responses.parquet")
    for arm in trained:
        run.sealed(f"{FOLDER}/{arm.name}")
        chosen = read_choice(path, arm)["scale"]
        for scale in {chosen, FIXED, 1.0} - {0.0}:
            run.sealed(scaled_file(arm, scale))
    scaled = read_scaled_run(path, manifest, trained)
    assert scaled is not None
    return PooledRun(
        place=place,
        files=json.dumps(manifest["files"], sort_keys=True),
        task=manifest["task"]["name"],
        model=recipe.model.args["pretrained"],
        rule=(recipe.scaling.level, recipe.scaling.tolerance),
        replicates=recipe.statistics.replicates,
        seed=recipe.statistics.seed,
        scaled=scaled,
    )


def _named(runs: Sequence[PooledRun]) -> list[PooledRun]:
    """Environments are named as their recipes; those of one name get their place beside it."""
    counts = Counter(run.scaled.name for run in runs)
    return [
        run
        if counts[run.scaled.name] == 1
        else replace(
            run, scaled=replace(run.scaled, name=f"{run.scaled.name} ({run.place.rstrip('/')})")
        )
        for run in runs
    ]
