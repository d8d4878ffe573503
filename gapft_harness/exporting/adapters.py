"""Trained adapters with model cards: results, uncertainty, and provenance."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.files import not_writable_error, write_text
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.exporting.cards import (
    build_card,
    build_hash_table,
    describe_search,
    find_hub_name,
    find_model_name,
)
from gapft_harness.exporting.formats import select_arms
from gapft_harness.exporting.tables import compute_report
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Code, Section, Table, Text
from gapft_harness.report.rendering.wording import condition_name, format_count, percent, points
from gapft_harness.report.sections import comparison
from gapft_harness.report.sections.provenance import SETTINGS, flatten
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.manifest import list_plugin_files

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

_CARD = "README.md"


def write_adapters(
    run: RunDirectory,
    out: Path,
    conditions: Sequence[str] = (),
    seeds: Sequence[int] = (),
    plugin_files: Sequence[str] = (),
) -> list[Path]:
    """Write a folder for each arm: the sealed adapter, the run's recipe, and the model card.

    Args:
        run: the run; its arms must be audited, because a card contains their results.
        out: the folder to write.
        conditions: only these conditions; empty: all.
        seeds: only these seeds; empty: all.
        plugin_files: files given by ``--plugin``.

    Returns:
        The paths of the files.

    Raises:
        UserError: an adapter does not exist, an arm is not audited yet, or a file was changed after
            it was sealed.
        GapftError: the folder cannot be written.
    """
    arms = select_arms(run, conditions, seeds, layout.ADAPTERS)
    folders = [run.sealed(layout.adapter_path(arm)) for arm in arms]
    inputs, findings = compute_report(run, plugin_files)
    for arm, folder in zip(arms, folders, strict=True):
        try:
            shutil.copytree(folder, out / arm.name, ignore=shutil.ignore_patterns(_CARD))
            shutil.copyfile(run.path / layout.RECIPE, out / arm.name / layout.RECIPE)
        except OSError as error:
            raise not_writable_error(out / arm.name, error) from error
        write_text(out / arm.name / _CARD, _build_model_card(run, arm, inputs, findings))
    return [path for arm in arms for path in sorted((out / arm.name).rglob("*")) if path.is_file()]


def _build_model_card(run: RunDirectory, arm: Arm, inputs: ReportInputs, findings: Findings) -> str:
    from huggingface_hub import ModelCardData

    name, hub_id = find_model_name(run.recipe), find_hub_name(run.recipe)
    title = f"{run.recipe.name}, {condition_name(arm.condition)}, seed {arm.seed}"
    data = ModelCardData(
        base_model=hub_id,
        library_name="peft",
        pipeline_tag="text-generation",
        tags=["gapft-harness", "lora"],
        model_name=title,
        eval_results=_build_eval_results(arm, inputs, findings),
    )
    description = f"A LoRA adapter of {name}"
    if hub_id is None:
        description += ", which is not a model of the hub; weights_sha256 below identifies it"
    task = inputs.task["name"]
    remarks = [
        f"{description}. Trained for {task} by GapFT Harness.",
        *inputs.recipe.get("notes", ()),
    ]
    if run.recipe.calibration is not None:
        remarks.append("This is the unscaled adapter: the run's scale for it is not applied.")
    tables = [
        table(split) for split in SPLITS for table in (layout.responses_path, layout.states_path)
    ]
    arm_files = [layout.adapter_path(arm), layout.selection_path(arm), layout.decisions_path(arm)]
    return build_card(
        data,
        title,
        [
            Section("", [*map(Text, remarks), _build_command(name, task)]),
            Section("Results", [_build_results_table(arm, inputs, findings)]),
            Section("Contrasts", comparison.build_contrast_tables(inputs, findings)),
            Section(
                "Where the change comes from", [comparison.build_decomposition_table(findings)]
            ),
            Section("How it was made", [*describe_search(run), _build_training_table(run, arm)]),
            Section("How to reproduce it", _build_instructions(run)),
            Section("Seals", [build_hash_table(run, [*arm_files, *tables])]),
        ],
    )


def _build_command(name: str, task: str) -> Code:
    model = f"pretrained={name},peft=THIS_FOLDER"
    return Code(f"lm_eval --model hf --model_args {model} --tasks {task}")


def _build_eval_results(arm: Arm, inputs: ReportInputs, findings: Findings) -> list[EvalResult]:
    """Build the hub's results: this adapter's Pass@1, and the mean over seeds with its interval."""
    from huggingface_hub import EvalResult

    condition, task = findings.conditions[arm.condition], inputs.task["name"]
    decomposition = condition.seeds[arm.seed].decomposition
    source_rate, interval = float(findings.source.pass_at_1), condition.interval

    def build_result(name: str, value: float, **more: object) -> EvalResult:
        return EvalResult(
            task_type="text-generation",
            dataset_type=task,
            dataset_name=task,
            dataset_split="audit",
            metric_type="pass@1",
            metric_name=name,
            metric_value=value,
            metric_args={"problems": findings.source.n, "base_model": source_rate, **more},
        )

    seed_facts = {"seeds": [*condition.seeds], "ci95": [interval.low, interval.high]}
    name = "Pass@1" if findings.source.deployment else "Pass@1, greedy"
    mean_name = f"{name}, mean over training seeds"
    return [
        build_result(name, float(decomposition.pass_at_1)),
        build_result(mean_name, float(condition.mean.pass_at_1), **seed_facts),
    ]


def _build_results_table(arm: Arm, inputs: ReportInputs, findings: Findings) -> Table:
    condition = findings.conditions[arm.condition]
    seed_findings = condition.seeds[arm.seed]
    parts, budget = seed_findings.decomposition, seed_findings.budget
    change = findings.find_contrast(arm.condition, SOURCE)
    seeds = wording.listed([str(seed) for seed in condition.seeds])

    def format_part(count: int, problems: int) -> str:
        return f"{format_count(count)} of {format_count(problems)}"

    passed = f"{percent(parts.pass_at_1)} ({format_part(parts.correct, parts.n)})"
    rows = [
        ("Pass@1 of this adapter", passed),
        ("Pass@1 of the base", percent(findings.source.pass_at_1)),
        ("Pass@1, mean over seeds", percent(condition.mean.pass_at_1)),
        ("its 95% interval", wording.percent_interval(condition.interval)),
        ("mean minus base, points", points(change.delta)),
        ("its 95% interval", wording.points_interval(change.interval)),
        ("K_eq", wording.format_k_eq(condition.k_eq, inputs.k)),
        ("S corrected", format_part(parts.corrected_s, parts.n_s)),
        ("U corrected", format_part(parts.corrected_u, parts.n_u)),
        ("G regressed", format_part(parts.regressed_g, parts.n_g)),
        ("example slots n", format_count(budget.n)),
        ("exposures N", format_count(budget.exposures)),
        ("processed tokens L", format_count(budget.tokens)),
        ("optimizer steps J", format_count(budget.steps)),
    ]
    deployment = findings.source.deployment
    decodes = wording.describe_deployment(deployment) if deployment else "Greedy decodes."
    note = (
        f"{decodes} Intervals are for the mean over training seeds ({seeds}), not for this "
        "adapter alone; they resample seeds and problems jointly. G: problems that the base "
        f"solves in one decode; S: only by one of its {inputs.k} samples; U: by none. K_eq: the "
        "largest number of samples of the base, with a verifier to choose among them, that one "
        "decode of the adapter matches."
    )
    return Frame(REACHED, rows).table(note)


REACHED: tuple[Column[tuple[str, str]], ...] = (
    Column("", "", lambda row: row[0], ""),
    Column("", "a figure of this condition and seed", lambda row: row[1], "this adapter"),
)


def _build_training_table(run: RunDirectory, arm: Arm) -> Table:
    training = run.recipe.resolve_training(arm.condition).model_dump(mode="json")
    return Frame(SETTINGS, [*flatten({"training": training})]).table(words=2)


def _build_instructions(run: RunDirectory) -> list[Text | Code]:
    manifest = run.manifest()
    version, files = manifest["gapft_harness"], list_plugin_files(manifest)
    plugin_options = "".join(f" --plugin {Path(file).name}" for file in files)
    text = f"recipe.yaml in this folder is the run's recipe. With gapft-harness {version}:"
    return [Text(text), Code(f"gapft run recipe.yaml --run-dir NEW_FOLDER{plugin_options}")]
