"""From a recipe's ``trackers`` to what a trainer gets: names, packages, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from gapft_harness.core.errors import GapftError, UserError, describe
from gapft_harness.core.records import Arm
from gapft_harness.hooks.checked import require_methods
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import FAULTS, TrackerTraits, own_line
from gapft_harness.hooks.tracking import TrackedArm, Tracker, Tracking
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory


def missing_packages(recipe: Recipe, plugins: Plugins) -> list[str]:
    """A sentence for each package that a tracker of the recipe needs and this machine lacks.

    Raises:
        UserError: a tracker is unknown.
    """
    return [
        f"tracker {name!r} needs the package {package!r}, which is not installed; "
        f"pip install {package}, or take {name} out of the recipe's trackers"
        for name in recipe.trackers
        for package in plugins.get("tracker", name).declared(TrackerTraits).needs
        if not _installed(package)
    ]


def check_trackers(recipe: Recipe, plugins: Plugins) -> None:
    """Refuses a recipe whose trackers cannot work here, before anything expensive.

    Raises:
        UserError: a tracker is unknown, or a package that it needs is missing.
    """
    if missing := missing_packages(recipe, plugins):
        raise UserError("\n".join(missing))


def tracking(run: RunDirectory, arm: Arm, plugins: Plugins) -> Tracking:
    """The trackers of one arm, still to be opened."""
    openers: dict[str, Callable[[int], Tracker]] = {
        name: partial(_open, plugins, name, run, arm) for name in run.recipe.trackers
    }
    return Tracking(openers)


def _open(plugins: Plugins, name: str, run: RunDirectory, arm: Arm, first_step: int) -> Tracker:
    told = TrackedArm(
        project=run.recipe.name,
        run=run.path.resolve().name,
        arm=arm,
        folder=run.path / "tracking",
        first_step=first_step,
        settings=_settings(run, arm),
    )
    entry = plugins.get("tracker", name)
    try:
        opened: Tracker = entry.value(told)
    except FAULTS as error:
        raise GapftError(
            f"{arm.name}: {entry.who} cannot be opened: {describe(error)}"
            f"{own_line(error, entry.home)}. Set it up, or train without: --set trackers=[] (gapft "
            "run), or trackers: [] in the run's recipe.yaml"
        ) from error
    require_methods(entry, opened, "log", "finish")
    return opened


def _settings(run: RunDirectory, arm: Arm) -> dict[str, Any]:
    recipe = run.recipe
    budget: Mapping[str, Any] = run.manifest()["budgets"][arm.original.name]
    found = {
        "condition": arm.condition,
        "seed": arm.seed,
        "task": recipe.data.task,
        "base_model": recipe.model.args["pretrained"],
        **recipe.training_of(arm.condition).model_dump(mode="json"),
        **budget,
    }
    return {key: _plain(value) for key, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """A list as text: trackers tell hyperparameters apart by single values."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
