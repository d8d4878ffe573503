"""Arms trained a second time, by the real command: what changes, what repeats, what is verified."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.paired import Changes
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.experiments.retraining_noise import (
    NoiseFindings,
    Replicate,
    RetrainingNoise,
    _result,
    replicate_file,
)
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import read_examples, read_judged
from gapft_harness.stages.train.job import VARIED, seeds_of
from tests.command import gapft, succeed
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest, differences, seal_again

ARM = Arm("gapft", 13)
ASKED = ("none", "order", "dropout")
NOISE = {"conditions": ["gapft"], "vary": [*ASKED]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two conditions; it was finished before replicates were asked for."""
    folder = tmp_path_factory.mktemp("retrained")
    command = [*prepare(folder), "run"]
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text()) | {"budget": {"n": 6}, "executor": {"workers": 1}}
    content |= {"conditions": ["gapft", "uniform"], "seeds": [13, 21]}
    content["training"] |= {"accumulation": 1, "learning_rate": 0.02}  # several steps, large ones
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=folder)
    shutil.copytree(folder / "run", folder / "before")
    content["experiments"] = {"retraining_noise": NOISE}
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=folder)
    return folder


def again(variant: str, arm: Arm = ARM) -> Arm:
    return replace(arm, variant=variant)


def facts(run: Path, arm: Arm) -> dict[str, Any]:
    return dict(json.loads((run / layout.adapter(arm) / "training.json").read_text()))


def passed(run: Path, file: str) -> Any:
    return np.array([judged[0].verdict.passed for _, judged in read_judged(run / file)])


@given(st.integers(-9, 99))
def test_a_replicate_draws_anew_what_it_says_and_nothing_else(seed: int) -> None:
    arm = Arm("gapft", seed)
    assert seeds_of(arm) == seeds_of(again("none", arm)) == {}
    anew = {name: seeds_of(again(name, arm)) for name in VARIED}
    assert all(seed not in of.values() for of in anew.values())
    assert anew["all"] == {**anew["order"], **anew["dropout"], **anew["adapter"]}
    assert len({*anew["all"].values()}) == 3
    assert anew["all"] == seeds_of(Arm("uniform", seed, "all")), "of one seed, as arms are"


def test_a_finished_run_keeps_what_it_has_and_trains_its_replicates(made: Path) -> None:
    before, now = (
        json.loads((made / name / "manifest.json").read_text())["files"]
        for name in ("before", "run")
    )
    assert before.items() <= now.items()
    arms = [again(variant, Arm("gapft", seed)) for seed in (13, 21) for variant in ASKED]
    new = {file(arm) for arm in arms for file in (layout.adapter, replicate_file)}
    assert now.keys() - before.keys() == new
    assert differences(made, made / "run") == []


def test_with_nothing_drawn_anew_it_repeats_to_the_byte_and_is_trained_again(made: Path) -> None:
    run = made / "run"
    first, second = (run / layout.adapter(arm) for arm in (ARM, again("none")))
    assert weights_hash(first) == weights_hash(second)
    name = "training_log.jsonl"
    assert (first / name).read_bytes() == (second / name).read_bytes()
    assert facts(run, again("none")) == {**facts(run, ARM), "variant": "none", "seeds": {}}
    assert (
        "seconds"
        in json.loads((run / "manifest.json").read_text())["training"]["gapft-seed13@none"]
    ), "an adapter that is taken from another has none"
    assert "# gapft, seed 13, replicate none\n" in (second / "README.md").read_text()


def test_what_is_drawn_anew_changes_that_alone(made: Path) -> None:
    of = {variant: facts(made / "run", again(variant)) for variant in ASKED}
    assert of["order"]["plan_sha256"] != of["none"]["plan_sha256"]
    assert of["dropout"]["plan_sha256"] == of["none"]["plan_sha256"]
    assert len({found["adapter_sha256"] for found in of.values()}) == 3
    for found in of.values():
        assert found["sequences_sha256"] == of["none"]["sequences_sha256"]
        assert found["budget"] == of["none"]["budget"]


def test_the_report_tells_what_moves_a_gain(made: Path) -> None:
    run = made / "run"
    found = json.loads((run / "report/results.json").read_text())["retraining_noise"]
    by_cause = {of["cause"]: of for of in found["causes"]}
    assert [*by_cause] == [*ASKED, "items"]
    deltas = {
        cause: [of["delta"] for of in found["replicates"] if of["vary"] == cause] for cause in ASKED
    }
    for cause, of in deltas.items():
        assert by_cause[cause]["variance"] == pytest.approx(np.mean(np.square(of)) / 2)
        assert by_cause[cause]["freedom"] == 2
    rates = [passed(run, layout.decisions(Arm("gapft", seed))).mean() for seed in (13, 21)]
    low, high = found["predicted"]["gapft"]
    source = json.loads((run / "report/results.json").read_text())["source"]["pass_at_1"]
    assert (low + high) / 2 == pytest.approx(np.mean(rates) - source)
    page = (run / "report/report.md").read_text("utf-8")
    assert "GapFT: 80 of 100 further training seeds would gain" in page
    with (run / "report/tables/retraining_noise_causes.csv").open() as file:
        assert [row["cause"] for row in csv.DictReader(file)] == [*by_cause]


def test_the_report_counts_the_decisions_that_changed(made: Path) -> None:
    run = made / "run"
    found = json.loads((run / "report/results.json").read_text())["retraining_noise"]
    assert [(r["vary"], r["seed"]) for r in found["replicates"]] == [
        (variant, seed) for variant in ASKED for seed in (13, 21)
    ]
    for of in found["replicates"]:
        arm = Arm("gapft", of["seed"], of["vary"])
        a, b = (passed(run, file) for file in (layout.decisions(arm.original), replicate_file(arm)))
        assert (of["lost"], of["gained"]) == (int((a & ~b).sum()), int((b & ~a).sum()))
        assert of["changed"] == of["lost"] + of["gained"]
        assert of["delta"] == pytest.approx((b.sum() - a.sum()) / 40)
        assert of["same_weights"] == (of["vary"] == "none")
        assert of["changed"] <= of["reworded"]
    assert any(of["reworded"] for of in found["replicates"]), "else this shows nothing"
    seeds = [passed(run, layout.decisions(Arm("gapft", seed))) for seed in (13, 21)]
    between = found["between_seeds"]["gapft"]
    assert between["changed_share"] == pytest.approx(float((seeds[0] != seeds[1]).mean()))
    page = (run / "report/report.md").read_text("utf-8")
    assert (
        "## Retraining noise\n\nTrained again with nothing drawn anew, 2 adapters came out the "
        "same to the byte: 0 of 80 decisions changed. Training and decoding repeat on this machine"
    ) in page
    with (run / "report/tables/retraining_noise.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["vary"], int(r["changed"])) for r in rows] == [
        (of["vary"], of["changed"]) for of in found["replicates"]
    ]


def test_changes_that_cancel_are_not_told_as_none() -> None:
    made = [
        Replicate(Arm("gapft", seed, variant), Changes(100, lost, gained), 9, False)
        for variant, seed, lost, gained in (
            ("none", 13, 7, 2), ("none", 21, 2, 7), ("all", 13, 1, 4), ("all", 21, 0, 3)
        )
    ]  # fmt: skip
    text = _result(NoiseFindings(made, ()))
    assert "18 of 200 decisions changed (9.0%), and Pass@1 by −5.00 to +5.00 points" in text
    assert "8 of 200 decisions changed (4.0%), and Pass@1 by +3.00 points" in text


def test_whether_weights_are_the_same_is_read_off_the_sealed_adapters(
    made: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(made / "run", tmp_path / "run"))
    change_manifest(run, lambda m: m["training"][ARM.name].update(adapter_sha256="0" * 64))
    succeed("run", run, "--only", "report")
    found = json.loads((run / "report/results.json").read_text())["retraining_noise"]
    assert [of["same_weights"] for of in found["replicates"] if of["vary"] == "none"] == [True] * 2
    where = layout.adapter(again("none"))
    with (run / where / "adapter_model.safetensors").open("ab") as file:
        file.write(b" ")
    done = gapft("run", run, "--only", "report")
    assert done.returncode == 2
    assert f"{where}: was changed after it was sealed" in done.stderr


def test_a_replicate_that_is_another_adapter_is_found(made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made / "run", tmp_path / "run"))
    where = layout.adapter(again("order"))
    shutil.rmtree(run / where)
    shutil.copytree(run / layout.adapter(ARM), run / where)
    seal_again(run, where)
    text = "\n".join(differences(made, run))
    assert f"{where}/training.json: plan_sha256" in text
    assert f"{where}/training.json: does not say variant" in text
    assert f"{replicate_file(again('order'))}: was decoded with another adapter" in text
    (run / replicate_file(again("none"))).unlink()
    assert f"{replicate_file(again('none'))}: is sealed in the manifest and not there" in "\n".join(
        differences(made, run)
    )


def test_one_that_was_lost_is_trained_again(made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made / "run", tmp_path / "run"))
    before = weights_hash(run / layout.adapter(again("dropout")))
    shutil.rmtree(run / layout.adapter(again("dropout")))
    succeed("run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py",
            "--run-dir", run, cwd=made)  # fmt: skip
    assert weights_hash(run / layout.adapter(again("dropout"))) == before
    assert differences(made, run) == []


@pytest.mark.parametrize(
    ("noise", "training", "message"),
    [
        ({"conditions": ["gaptf"]}, {}, r"'gaptf' is no condition .* did you mean 'gapft'"),
        ({"seeds": [5]}, {}, r"retraining_noise.seeds': 5 is none of the recipe's seeds: 13, 21"),
        ({"vary": ["dropout"]}, {"dropout": 0}, r"training\.dropout is 0"),
        ({"vary": ["init"]}, {}, r"experiments\.retraining_noise\.vary"),
        ({"conditions": []}, {}, r"experiments\.retraining_noise\.conditions"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(
    made: Path, noise: dict[str, Any], training: dict[str, Any], message: str
) -> None:
    content = yaml.safe_load((made / "recipe.yaml").read_text())
    content["experiments"]["retraining_noise"] |= {"vary": ["none"], **noise}
    content["training"] |= training
    with pytest.raises(UserError, match=message):
        RetrainingNoise().settings(check_recipe(content, "here"))


def test_responses_that_are_of_no_replicate_are_refused(made: Path, tmp_path: Path) -> None:
    """A trainer that draws in ways of its own cannot draw one thing anew."""
    plugin = tmp_path / "own.py"
    plugin.write_text(
        "from gapft_harness.api import hookimpl, train_lora\n\n\n@hookimpl\n"
        'def register_trainers(register):\n    register("own", train_lora)\n'
    )
    run = tmp_path / "run"
    done = gapft(
        "run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--plugin",
        plugin, "--set", "training.trainer=own", "--run-dir", run, cwd=made,
    )  # fmt: skip
    assert done.returncode == 2
    assert "vary: order, dropout: the trainer 'own' draws in ways of its own" in done.stderr
    assert not (run / "adapters").exists()


def test_examples_are_the_same_where_their_responses_are_too(tmp_path: Path) -> None:
    """All recovered failures are taken by both: one with its kept responses, one draws them."""
    command = [*prepare(tmp_path), "run"]
    path = tmp_path / "recipe.yaml"
    params = {"states": "S", "responses": "drawn", "tokens": None}
    content = yaml.safe_load(path.read_text()) | {
        "conditions": ["gapft", {"own": {"selector": "matched_strata", "params": params}}],
        "budget": {"n": "recovered"},
        "experiments": {"retraining_noise": {"conditions": ["gapft", "own"], "vary": ["all"]}},
    }
    content["search"] |= {"k": 32}
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=tmp_path)
    run = tmp_path / "run"
    sets = {
        arm: read_examples(run / layout.selection(arm))
        for arm in (Arm(name, seed) for name in ("gapft", "own") for seed in (13, 21))
    }
    assert len({frozenset(e.problem_id for e in of) for of in sets.values()}) == 1
    first, second = (
        {e.problem_id: e.response_ids for e in sets[Arm("own", seed)]} for seed in (13, 21)
    )
    assert first != second, "else this shows nothing"
    found = json.loads((run / "report/results.json").read_text())["retraining_noise"]
    by_condition = {of["condition"]: of for of in found["causes"] if of["cause"] == "selection"}
    assert by_condition["gapft"]["variance"] == 0 == max(by_condition["gapft"]["variance_ci95"])
    assert by_condition["own"]["variance_ci95"][1] > 0
    page = (run / "report/report.md").read_text("utf-8")
    assert page.count("Its seeds have the same examples, so their choice moves nothing.") == 1
