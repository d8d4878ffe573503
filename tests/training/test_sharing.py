"""Arms with the same training set are trained once, by the real command, and verified."""

from __future__ import annotations

from collections.abc import Callable

from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_decodes, read_training
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.verify.run import verify
from tests.kit.report_tables import index_rows, read_results
from tests.kit.runs import BaseRun

GAPFT, SHARED = Arm("gapft", 13), Arm("shared", 13)


def test_same_training_set_is_trained_once(run_at: Callable[..., BaseRun]) -> None:
    """In the base run, the condition ``shared`` has the selector of ``gapft``."""
    base = run_at("reported")
    directory = RunDirectory.open(base.path)
    training = read_training(directory)
    assert {arm: facts.get("trained_as") for arm, facts in training.items()} == {
        "shared-seed13": "gapft-seed13",
        **{f"{name}-seed13": None for name in ("gapft", "uniform", "drawn", "repeated")},
    }
    folders = [base.path / layout.adapter_path(arm) for arm in (GAPFT, SHARED)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    own, shared = (base.path / layout.decisions_path(arm) for arm in (GAPFT, SHARED))
    assert [*read_judged(own)] == [*read_judged(shared)]
    decodes = read_decodes(directory)
    assert decodes[SHARED.name] == decodes[GAPFT.name], "they name no arm"
    verified = verify(base.path, base.plugins)
    assert verified.differences == []
    assert any(line.startswith("1 arms share adapter and") for line in verified.checked)
    seeds = index_rows(read_results(base.path)["seeds"], "condition", "seed")
    assert seeds["shared", 13]["trained_as"] == "gapft-seed13"
    assert seeds["gapft", 13]["trained_as"] == ""
