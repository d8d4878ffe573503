"""Trained adapters with model cards: results, uncertainty, and provenance."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.files import unwritable, write_text
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.exporting.cards import asked, card, hub_name, model_name, seals
from gapft_harness.exporting.formats import arms_of
from gapft_harness.exporting.tables import reported
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Code, Section, Table, Text
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole
from gapft_harness.report.sections import comparison
from gapft_harness.report.sections.provenance import SETTINGS, flat
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.manifest import given_plugins

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
    arms = arms_of(run, conditions, seeds, layout.ADAPTERS)
    folders = [run.sealed(layout.adapter(arm)) for arm in arms]
    inputs, findings = reported(run, plugin_files)
    for arm, folder in zip(arms, folders, strict=True):
        try:
            shutil.copytree(folder, out / arm.name, ignore=shutil.ignore_patterns(_CARD))
            shutil.copyfile(run.path / layout.RECIPE, out / arm.name / layout.RECIPE)
        except OSError as error:
            raise unwritable(out / arm.name, error) from error
        write_text(out / arm.name / _CARD, _model_card(run, arm, inputs, findings))
    return [path for arm in arms for path in sorted((out / arm.name).rglob("*")) if path.is_file()]


def _model_card(run: RunDirectory, arm: Arm, inputs: ReportInputs, findings: Findings) -> str:
    from huggingface_hub import ModelCardData

    name, on_hub = model_name(run.recipe), hub_name(run.recipe)
    title = f"{run.recipe.name}, {condition_name(arm.condition)}, seed {arm.seed}"
    data = ModelCardData(
        base_model=on_hub,
        library_name="peft",
        pipeline_tag="text-generation",
        tags=["gapft-harness", "lora"],
        model_name=title,
        eval_results=_results(arm, inputs, findings),
    )
    base = f"A LoRA adapter of {name}"
    if on_hub is None:
        base += ", which is not a model of the hub; weights_sha256 below identifies it"
    task = inputs.task["name"]
    remarks = [f"{base}. Trained for {task} by GapFT Harness.", *inputs.recipe.get("notes", ())]
    if run.recipe.calibration is not None:
        remarks.append("This is the unscaled adapter: the run's scale for it is not applied.")
    tables = [table(split) for split in SPLITS for table in (layout.responses, layout.states)]
    made = [layout.adapter(arm), layout.selection(arm), layout.decisions(arm)]
    return card(
        data,
        title,
        [
            Section("", [*map(Text, remarks), _use(name, task)]),
            Section("Results", [_reached(arm, inputs, findings)]),
            Section("Contrasts", comparison.contrasts(inputs, findings)),
            Section("Where the change comes from", [comparison.decomposition(findings)]),
            Section("How it was made", [*asked(run), _training(run, arm)]),
            Section("How to reproduce it", _again(run)),
            Section("Seals", [seals(run, [*made, *tables])]),
        ],
    )


def _use(name: str, task: str) -> Code:
    model = f"pretrained={name},peft=THIS_FOLDER"
    return Code(f"lm_eval --model hf --model_args {model} --tasks {task}")


def _results(arm: Arm, inputs: ReportInputs, findings: Findings) -> list[EvalResult]:
    """Build the hub's results: this adapter's Pass@1, and the mean over seeds with its interval."""
    from huggingface_hub import EvalResult

    condition, task = findings.conditions[arm.condition], inputs.task["name"]
    found = condition.seeds[arm.seed].decomposition
    base, ends = float(findings.source.pass_at_1), condition.interval

    def result(name: str, value: float, **more: object) -> EvalResult:
        return EvalResult(
            task_type="text-generation",
            dataset_type=task,
            dataset_name=task,
            dataset_split="audit",
            metric_type="pass@1",
            metric_name=name,
            metric_value=value,
            metric_args={"problems": findings.source.n, "base_model": base, **more},
        )

    spread = {"seeds": [*condition.seeds], "ci95": [ends.low, ends.high]}
    mean = "Pass@1, greedy, mean over training seeds"
    return [
        result("Pass@1, greedy", float(found.pass_at_1)),
        result(mean, float(condition.mean.pass_at_1), **spread),
    ]


def _reached(arm: Arm, inputs: ReportInputs, findings: Findings) -> Table:
    condition = findings.conditions[arm.condition]
    one = condition.seeds[arm.seed]
    parts, budget = one.decomposition, one.budget
    change = findings.contrast(arm.condition, SOURCE)
    seeds = wording.listed([str(seed) for seed in condition.seeds])
    passed = f"{percent(parts.pass_at_1)} ({whole(parts.correct)} of {whole(parts.n)})"
    rows = [
        ("Pass@1 of this adapter", passed),
        ("Pass@1 of the base", percent(findings.source.pass_at_1)),
        ("Pass@1, mean over seeds", percent(condition.mean.pass_at_1)),
        ("its 95% interval", wording.percent_interval(condition.interval)),
        ("mean minus base, points", points(change.delta)),
        ("its 95% interval", wording.points_interval(change.interval)),
        ("K_eq", wording.k_eq(condition.k_eq, inputs.k)),
        ("S corrected", f"{whole(parts.corrected_s)} of {whole(parts.n_s)}"),
        ("U corrected", f"{whole(parts.corrected_u)} of {whole(parts.n_u)}"),
        ("G regressed", f"{whole(parts.regressed_g)} of {whole(parts.n_g)}"),
        ("example slots n", whole(budget.n)),
        ("exposures N", whole(budget.exposures)),
        ("processed tokens L", whole(budget.tokens)),
        ("optimizer steps J", whole(budget.steps)),
    ]
    note = (
        f"Greedy decodes. Intervals are for the mean over training seeds ({seeds}), not for this "
        "adapter alone; they resample seeds and problems jointly. G: problems that the base solves "
        f"in one decode; S: only by one of its {inputs.k} samples; U: by none. K_eq: the largest "
        "number of samples of the base, with a verifier to choose among them, that one decode of "
        "the adapter matches."
    )
    return Frame(REACHED, rows).table(note)


REACHED: tuple[Column[tuple[str, str]], ...] = (
    Column("", "", lambda row: row[0], ""),
    Column("", "a figure of this condition and seed", lambda row: row[1], "this adapter"),
)


def _training(run: RunDirectory, arm: Arm) -> Table:
    training = run.recipe.training_of(arm.condition).model_dump(mode="json")
    return Frame(SETTINGS, [*flat({"training": training})]).table(words=2)


def _again(run: RunDirectory) -> list[Text | Code]:
    manifest = run.manifest()
    version, files = manifest["gapft_harness"], given_plugins(manifest)
    given = "".join(f" --plugin {Path(file).name}" for file in files)
    said = f"recipe.yaml in this folder is the run's recipe. With gapft-harness {version}:"
    return [Text(said), Code(f"gapft run recipe.yaml --run-dir NEW_FOLDER{given}")]
