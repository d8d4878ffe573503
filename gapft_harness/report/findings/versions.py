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
    known = inputs.toolchains
    usual = {step: [*of] for step, of in known.get(SOURCE, {}).items()}
    trained = Counter(tuple(of["train"]) for of in known.values() if "train" in of)
    if trained:
        usual["train"] = [*trained.most_common(1)[0][0]]
    found: dict[str, Mapping[str, Any]] = {}
    for name in inputs.conditions:
        seeds: dict[str, list[str]] = {}
        for of in inputs.of(name):
            if words := _differing(known.get(of.arm.name, {}), usual):
                seeds.setdefault(words, []).append(str(of.arm.seed))
        if seeds:
            every = len(inputs.seeds)
            said = (
                words if len(of) == every else f"{words} under seed {', '.join(of)}"
                for words, of in seeds.items()
            )
            found[name] = {VERSIONS: "; ".join(said)}
    return found


def _differing(mine: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Describe the libraries and devices of an arm that differ from those of the run."""
    words = dict[str, None]()
    for step, toolchains in mine.items():
        own = {word for of in usual.get(step, toolchains) for word in of.split(", ")}
        for of in toolchains:
            words |= dict.fromkeys(word for word in of.split(", ") if word not in own)
            if own - {*of.split(", ")} and not words:
                words[f"without {', '.join(sorted(own - {*of.split(', ')}))}"] = None
    return ", ".join(words)
