"""Adapters that an earlier command left unsealed: whether they are what would be trained now.

A stage seals its adapters when all of its jobs have ended. Until then no recipe is held to what
they were trained on: a selector or a budget may have been changed, and the selections made anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import TrainerTraits
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.differences import unequal
from gapft_harness.stages.train.sharing import TRAINED_AS, sequences_of


def stale(run: RunDirectory, arms: Iterable[Arm], plugins: Plugins) -> dict[Arm, str]:
    """Unsealed adapters that were trained otherwise than they would be now, or are copies.

    Args:
        run: the run, whose selections are sealed.
        arms: the arms to train.
        plugins: those that are loaded. Of what a trainer that is not as documented wrote, what it
            says of its training is compared, and no more.

    Returns:
        By arm, in words, what is wrong with its adapter. One that is not whole is not among them:
        ``adapter_facts`` tells of it.
    """
    manifest, found = run.manifest(), {}
    for arm in arms:
        settings = run.recipe.training_of(arm.condition)
        where = layout.adapter(arm)
        facts = None if where in manifest["files"] else _facts(run.path / where)
        if facts is None:
            continue
        if TRAINED_AS in facts:
            found[arm] = f"{where}: is a copy of {facts[TRAINED_AS]}'s"
            continue
        right = {
            "seed": arm.seed,
            "sequences_sha256": sequences_of(run, arm),
            "settings": settings.model_dump(mode="json"),
        }
        if (base := manifest["source"].get("weights_sha256")) is not None:
            right["base_sha256"] = base
        trainer = plugins.get("trainer", settings.trainer)
        if not trainer.declared(TrainerTraits).as_documented:
            right = {key: value for key, value in right.items() if key in facts}
        says = "the selection and the recipe give"
        if wrong := next(iter(unequal(f"{where}/training.json", facts, right, says)), None):
            found[arm] = wrong
    return found


def remove(run: RunDirectory, found: Mapping[Arm, str], say: Callable[[str], None]) -> None:
    """Takes away adapters that ``stale`` found, and says of each why; the run's lock is held."""
    for arm, why in found.items():
        run.unseal([layout.adapter(arm)])
        say(f"{why}; an earlier command left it unsealed, so it was removed and is made anew")


def _facts(folder: Path) -> dict[str, Any] | None:
    """What an adapter says of itself, if that can be read."""
    try:
        facts = json.loads((folder / "training.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None
