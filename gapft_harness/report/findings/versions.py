"""Find conditions that were made with other library versions or devices than the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gapft_harness.core.records import SOURCE
from gapft_harness.report.reading.inputs import ReportInputs

#: The key of a condition's own versions among its own settings.
VERSIONS = "versions"


def find_own_versions(inputs: ReportInputs) -> dict[str, Mapping[str, Any]]:
    """Find the libraries and devices of conditions that differ from those of the run.

    Those of the run are, for each step, those of the source's decodes, and for training those of
    most arms.

    Returns:
        By condition, under ``versions``: libraries and devices, with the seeds where these differ.
    """
    toolchains = inputs.toolchains
    usual = {step: [*item] for step, item in toolchains.get(SOURCE, {}).items()}
    trained = Counter(tuple(item["train"]) for item in toolchains.values() if "train" in item)
    if trained:
        usual["train"] = [*trained.most_common(1)[0][0]]
    own_versions: dict[str, Mapping[str, Any]] = {}
    for name in inputs.conditions:
        seeds: dict[str, list[str]] = {}
        for item in inputs.find_arms(name):
            if words := _find_differences(toolchains.get(item.arm.name, {}), usual):
                seeds.setdefault(words, []).append(str(item.arm.seed))
        if seeds:
            seed_count = len(inputs.seeds)
            descriptions = (
                words if len(item) == seed_count else f"{words} under seed {', '.join(item)}"
                for words, item in seeds.items()
            )
            own_versions[name] = {VERSIONS: "; ".join(descriptions)}
    return own_versions


def _find_differences(arm_toolchains: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Describe the libraries and devices of an arm that differ from those of the run."""
    words = dict[str, None]()
    for step, toolchains in arm_toolchains.items():
        own = {word for toolchain in usual.get(step, toolchains) for word in toolchain.split(", ")}
        for toolchain in toolchains:
            words |= dict.fromkeys(word for word in toolchain.split(", ") if word not in own)
            if own - {*toolchain.split(", ")} and not words:
                words[f"without {', '.join(sorted(own - {*toolchain.split(', ')}))}"] = None
    return ", ".join(words)
