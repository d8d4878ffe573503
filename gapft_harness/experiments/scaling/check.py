"""What ``gapft verify`` checks of scaled adapters: the choice, the export, what was decoded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.analysis.scaling import SCALES
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.experiments.scaling.job import (
    FOLDER,
    audited_scales,
    calibration_file,
    choose,
    greedy_passed,
)
from gapft_harness.experiments.scaling.settings import Scaling
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.integrity.differences import unequal


def check_scaled(
    run: RunDirectory, arm: Arm, settings: Scaling, manifest: Mapping[str, Any]
) -> Iterable[str]:
    """Chooses one arm's scale again from the sealed decisions, and scales its adapter again."""
    where, trained = layout.of_arm(FOLDER, arm), layout.adapter(arm)
    recorded = read_choice(run.path, arm)
    choice = choose(run, arm, settings)
    plain = asdict(choice) | {"scales": [asdict(at) for at in choice.scales]}
    expected = plain | {"condition": arm.condition, "seed": arm.seed}
    with tempfile.TemporaryDirectory() as folder:
        hashes = {
            scale: _hash_at(run.path / trained, Path(folder) / f"{scale:g}", scale)
            for scale in (0.0, *SCALES)
        }
    exported = weights_hash(run.path / where)
    if exported != hashes[choice.scale]:
        yield f"{where}: is not {trained} at scale {choice.scale:g}"
    configs = [run.path / folder / "adapter_config.json" for folder in (trained, where)]
    if configs[0].read_bytes() != configs[1].read_bytes():
        yield f"{where}/adapter_config.json: is not that of {trained}"
    expected["adapter_sha256"] = exported
    yield from unequal(f"{where}/scaling.json", recorded, expected)
    if of_manifest := manifest.get("scaling", {}).get(arm.name):
        yield from unequal(f"{where}/scaling.json", recorded, of_manifest, "the manifest has")
    else:
        yield f"manifest.json: holds no scaling of {arm.name}"
    right = {**hashes, 1.0: weights_hash(run.path / trained)}
    audited = {layout.decisions_at(arm, scale): scale for scale in audited_scales(choice.scale)}
    if (run.path / layout.decisions(arm)).exists():
        yield from _check_audited(run, audited)
    files = {calibration_file(arm, scale): scale for scale in SCALES} | audited
    used = {
        file: (read_facts(run.path / file).get("adapter") or {}).get("weights_sha256")
        for file in files
        if (run.path / file).exists()
    }
    # a sampler may say nothing of its adapter, but not of some decodes alone
    for file, found in used.items():
        if any(used.values()) and found != right[files[file]]:
            yield (
                f"{file}: was decoded with another adapter than {arm.name} at scale "
                f"{files[file]:g}, or with none"
            )


def _check_audited(run: RunDirectory, audited: Iterable[str]) -> Iterable[str]:
    """An audit that is done has decided every audit problem at every scale that is compared."""
    problems = {p.id for p, _ in read_problems(run.path / layout.problems("audit"))}
    for file in audited:
        if not (run.path / file).exists():
            yield f"{file}: is missing, and the audit is done"
        elif greedy_passed(run.path / file).keys() != problems:
            yield f"{file}: holds other problems than the audit"


def _hash_at(folder: Path, output: Path, scale: float) -> str:
    from gapft_harness.training.adapter import scale_adapter

    scale_adapter(folder, output, scale, {})
    return weights_hash(output)
