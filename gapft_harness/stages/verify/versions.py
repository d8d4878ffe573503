"""Verification of the versions and devices that a run was made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, list_toolchains
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.stages.integrity.differences import Differences


def check_versions(
    run: RunDirectory, manifest: Manifest, arms: Sequence[Arm], findings: Differences
) -> Iterator[str]:
    """Compare the manifest's versions with the sealed tables, and report mixed versions.

    Args:
        run: the run.
        manifest: its manifest.
        arms: the trained arms.
        findings: receives a sentence if arms were made by several versions.
    """
    for name, recorded in manifest.get("made_with", {}).items():
        table = layout.judged_table_path(name)
        if table in manifest["files"]:
            sealed = read_facts(run.path / table).get("made_with")
            if sealed != recorded:
                yield f"manifest.json, made_with of {name}: is {recorded}, but {table} has {sealed}"
    mixed: dict[str, set[str]] = {}
    for item in (None, *arms):
        for step, toolchains in list_toolchains(manifest, item).items():
            mixed.setdefault(step, set()).update(toolchains)
    for step, toolchains_of_step in mixed.items():
        if len(toolchains_of_step) > 1:
            counts = Counter(word for item in toolchains_of_step for word in item.split(", "))
            differing = sorted(
                word for word, count in counts.items() if count < len(toolchains_of_step)
            )
            findings.checked.append(
                f"made by several versions or on several devices ({step}): {', '.join(differing)}; "
                "the report marks the contrasts"
            )


def has_recorded_versions(manifest: Manifest, *arms: Arm) -> bool:
    """Return whether the manifest records different versions for the training of arms."""
    toolchains: list[Any] = [
        manifest["training"].get(arm.name, {}).get("made_with") for arm in arms
    ]
    return None not in toolchains and len({*toolchains}) > 1
