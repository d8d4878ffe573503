"""A bank as a dataset: which arm was trained on which examples, and all that it decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.files import write_text
from gapft_harness.exporting.cards import model_name
from gapft_harness.exporting.dataset import dataset_card
from gapft_harness.exporting.formats import arms_of
from gapft_harness.hooks.protocols import AttributionItem
from gapft_harness.report.frame import Frame
from gapft_harness.report.reading.bank import Bank, bank_files, read_bank
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.report.sections.provenance import SETTINGS, flat
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.parquet import Values, write_batches

if TYPE_CHECKING:
    import pyarrow as pa

_ITEM = {
    "problem_id": ("string", "of the data itself, never a row number"),
    "state": ("string", "G: the source's greedy response passes; S: a sample does; U: none does"),
    "solve_rate": ("float64", "share of the source's samples that pass; null: it drew none"),
    "prompt": ("string", "as the task renders it"),
    "response": (
        "string",
        "of an example, what arms are trained on; of a problem, the verified response that the "
        "search kept (empty where it missed it)",
    ),
}

#: The columns of each table, with their types and what they mean.
TABLES = {
    "arms": {
        "arm": ("string", "condition and seed, the seed of its training set and of its training"),
        "recovered_share": ("float64", "share of its training set that is of state S"),
        "pass_at_1": ("float64", "share of the problems that it solves in one greedy decode"),
        "slots": ("list of int32", "its training set in order, as row numbers of examples, from 0"),
        "passed": ("list of bool", "whether it solves each problem, in the order of problems"),
        "selection_sha256": ("string", "of its sealed training set"),
        "adapter_sha256": ("string", "of its sealed adapter"),
        "decisions_sha256": ("string", "of its sealed responses to the problems"),
    },
    "examples": _ITEM,
    "problems": _ITEM,
}

#: Reads it as matrices: arms × examples, and arms × problems.
LOADER = """import numpy as np
import pandas as pd

names = "arms", "examples", "problems"
arms, examples, problems = (pd.read_parquet(f"FOLDER/data/{name}.parquet") for name in names)
included = np.stack([np.bincount(slots, minlength=len(examples)) for slots in arms.slots])
passed = np.stack(arms.passed)"""


def write_bank(
    run: RunDirectory, out: Path, conditions: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[Path]:
    """Writes the three tables and ``README.md``, the card.

    Args:
        run: the run; its arms are audited.
        out: the folder.
        conditions: only these; none: all.
        seeds: likewise.

    Returns:
        The files.

    Raises:
        UserError: no such arm, one that is not audited yet, or something was changed after it was
            sealed.
    """
    arms = sorted(
        arms_of(run, conditions, seeds, layout.ADAPTERS), key=lambda arm: (arm.condition, arm.seed)
    )
    kinds = (layout.problems, layout.states, layout.responses)
    places = [kind(split) for split in SPLITS for kind in kinds]
    for place in (*places, *bank_files(arms)):
        run.sealed(place)
    bank, known = read_bank(run.path, arms), run.manifest()["files"]
    rows = {
        "arms": _arms(bank, known),
        "examples": [*map(_item, bank.examples)],
        "problems": [*map(_item, bank.problems)],
    }
    files = {name: Path("data") / f"{name}.parquet" for name in TABLES}
    for name, file in files.items():
        write_batches(out / file, _schema(name), iter([rows[name]]))
    task = run.manifest()["task"]["name"]
    told = (
        f"{len(arms)} adapters of {model_name(run.recipe)}, each trained on another choice "
        f"of {len(bank.examples)} verified responses to {task}, and what each decides on "
        f"{len(bank.problems)} other problems in one greedy decode: a ground truth of which "
        "training examples correct or break which problems. Arms also differ in their training "
        "seed. The problems are those of the benchmark, under its licence; the responses are the "
        "source model's, under what its licence says of outputs."
    )
    said = {
        name: {
            "selector": run.recipe.conditions[name].selector,
            "params": dict(run.recipe.conditions[name].params),
            "training": run.recipe.training_of(name).model_dump(mode="json"),
        }
        for name in dict.fromkeys(arm.condition for arm in arms)
        if name in run.recipe.conditions
    }
    card = dataset_card(
        run,
        f"Bank of {run.recipe.name}",
        "data-attribution",
        files,
        [Text(told)],
        {
            f"Columns of {name}": {column: f"{kind}: {told}" for column, (kind, told) in of.items()}
            for name, of in TABLES.items()
        },
        places,
        LOADER,
        [Frame(SETTINGS, [*flat(said)]).table(words=2)],
    )
    write_text(out / "README.md", card)
    return [*(out / file for file in files.values()), out / "README.md"]


def _schema(name: str) -> pa.Schema:
    import pyarrow as pa

    lists = {"list of int32": pa.list_(pa.int32()), "list of bool": pa.list_(pa.bool_())}
    return pa.schema(
        [
            (column, lists.get(of) or pa.type_for_alias(of))
            for column, (of, _) in TABLES[name].items()
        ]
    )


def _arms(bank: Bank, sealed: Mapping[str, str]) -> list[Values]:
    return [
        (
            arm.name,
            float(share),
            float(passed.mean()),
            slots,
            passed.tolist(),
            *(sealed[of(arm)] for of in (layout.selection, layout.adapter, layout.decisions)),
        )
        for arm, share, slots, passed in zip(
            bank.arms, bank.shares, bank.slots, bank.passed, strict=True
        )
    ]


def _item(item: AttributionItem) -> Values:
    return item.id, item.state, item.solve_rate, item.prompt, item.response
