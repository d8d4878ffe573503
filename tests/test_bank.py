"""A bank of arms: sealed, verified, reported and exported; and methods beside planted effects."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from gapft_harness.api import AttributionItem, Bank
from gapft_harness.cli.dry_run import describe
from gapft_harness.cli.options import Options
from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import Arm
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.bank import Scored, score
from gapft_harness.exporting.bank import LOADER
from gapft_harness.exporting.kinds import Asked, export
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.registered import Registered
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.report.reading.bank import read_bank
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.experiment.registered import asked
from tests.end_to_end.readme import blocks
from tests.test_changed_recipe import Changing, write
from tests.verify.tampering import seal_again

ARMS, N = 18, 8
BANK: dict[str, Any] = {
    "conditions": {"bank": {"selector": "drawn_share"}},
    "seeds": f"0-{ARMS - 1}",
    "budget": {"n": N},
    "experiments": {"bank": {}},
}

#: An arm solves a problem that the source fails if the problem's place is below the arm's share.
PLANTED = """
    if arm is not None and not solved(problem_id):
        drawn = int(arm.removeprefix("bank-seed")) * 0x9E3779B97F4A7C15 % 2**64 / 2**64
        return share(problem_id, "place") < 0.2 + 0.6 * drawn
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Changing:
    """Arms that correct the more failures, the more of their slots are recovered failures."""
    made = write(tmp_path_factory.mktemp("bank"))
    plugin = made.folder / "by_scale.py"
    head, text = "def right(arm, scale, problem_id):\n", plugin.read_text()
    assert head in text
    plugin.write_text(text.replace(head, head + PLANTED.lstrip("\n")))
    made.change(**BANK)
    return made


@pytest.fixture
def run(finished: Changing) -> RunDirectory:
    return RunDirectory.open(finished.folder / "r")


def test_shares_are_spread_and_each_arm_has_its_own_seed(run: RunDirectory) -> None:
    bank = read_bank(run.path, [Arm("bank", seed) for seed in range(ARMS)])
    counts = (bank.shares * N).astype(int)
    assert {*counts} == {*range(N + 1)}
    assert len({*bank.slots}) == ARMS
    for arm, slots in zip(bank.arms, bank.slots, strict=True):
        examples = read_examples(run.path / layout.selection(arm))
        found = [bank.examples[slot] for slot in slots]
        assert [e.problem_id for e in examples] == [item.id for item in found]
        assert [e.response_ids for e in examples] == [item.response_ids for item in found]
        assert all(item.response.startswith("it is ") for item in found)


def test_the_report_finds_what_was_planted(finished: Changing) -> None:
    found = finished.results()["bank"]
    assert (found["condition"], found["arms"]) == ("bank", ARMS)
    rises = {row["state"]: row for row in found["rises"]}
    assert 0.3 < rises["S"]["rise"] < 0.9
    low, high = rises["S"]["ci95"]
    assert 0 < low < rises["S"]["rise"] < high
    assert rises["all"]["problems"] == 30
    scores = {(row["method"], row["by"]): row for row in found["scores"]}
    assert scores["states", "pass_at_1"]["correlation"] > 0.8
    assert scores["states", "problem"]["correlation"] > 0.4
    assert scores["states", "problem"]["permuted"][1] < scores["states", "problem"]["ci95"][0]
    assert scores["states", "given_share"]["correlation"] == 0
    report = (finished.folder / "r/report/report.md").read_text()
    assert f"## A bank of {ARMS} arms" in report
    assert f"Each seed: of {ARMS}, from the lowest to the highest." in report


def test_every_set_is_recomputed_by_verify(finished: Changing, run: RunDirectory) -> None:
    assert finished.holds() == []
    place = layout.selection(Arm("bank", 3))
    path = run.path / place
    before = path.read_bytes()
    table = pq.read_table(path)
    pq.write_table(table.take([1, 0, *range(2, N)]), path)
    seal_again(run.path, place)
    assert any(f"{place}: slot 0 holds problem" in line for line in finished.holds())
    path.write_bytes(before)
    seal_again(run.path, place)
    assert finished.holds() == []


def test_a_bank_may_grow_and_keeps_its_arms(tmp_path: Path) -> None:
    made = write(tmp_path)
    made.change(**BANK | {"seeds": "0-8"})
    before = made.sealed("selections", "adapters", "decisions")
    made.change(**BANK | {"seeds": "0-10"})
    after = made.sealed("selections", "adapters", "decisions")
    assert before.items() <= after.items()
    assert len(after) == len(before) + 2 * 3
    assert made.results()["bank"]["arms"] == 11


def test_the_export_is_what_is_sealed_and_its_card_reads_it(
    run: RunDirectory, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(run, "bank", Asked(out))
    names: dict[str, Any] = {}
    exec(LOADER.replace("FOLDER", str(out)), names)
    card = (out / "README.md").read_text()
    assert LOADER in card
    bank, sealed = read_bank(run.path, [Arm("bank", s) for s in range(ARMS)]), run.manifest()
    assert names["included"].tolist() == bank.included.tolist()
    assert names["passed"].tolist() == bank.passed.tolist()
    assert names["arms"].arm.tolist() == [f"bank-seed{seed}" for seed in range(ARMS)]
    assert np.allclose(names["passed"].mean(axis=1), names["arms"].pass_at_1)
    for name, items in (("examples", bank.examples), ("problems", bank.problems)):
        for column, field in (("problem_id", "id"), ("state", "state"), ("response", "response")):
            assert names[name][column].tolist() == [getattr(item, field) for item in items]
    states = names["examples"].state.to_numpy()
    shares = (names["included"] * (states == "S")).sum(axis=1) / N
    assert np.allclose(shares, names["arms"].recovered_share)
    for seed, row in enumerate(names["arms"].itertuples()):
        arm = Arm("bank", seed)
        assert row.adapter_sha256 == sealed["files"][layout.adapter(arm)]
        assert row.decisions_sha256 == sealed["files"][layout.decisions(arm)]
    loaded = load_dataset(str(out), "arms", cache_dir=str(tmp_path / "cache"))
    assert loaded["train"]["passed"] == bank.passed.tolist()


def test_an_export_of_some_arms_has_these_alone(run: RunDirectory, tmp_path: Path) -> None:
    export(run, "bank", Asked(tmp_path / "out", seeds=[11, 4]))
    assert pq.read_table(tmp_path / "out/data/arms.parquet")["arm"].to_pylist() == [
        "bank-seed4",
        "bank-seed11",
    ]
    with pytest.raises(UserError, match="--seed 99"):
        export(run, "bank", Asked(tmp_path / "other", seeds=[99]))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"conditions": ["gapft"]}, r"'experiments.bank.condition': 'bank' is no condition"),
        (
            {"experiments": {"bank": {"attributions": ["state"]}}},
            r"attribution 'state'.*did you mean 'states'",
        ),
    ],
)
def test_a_recipe_that_can_be_no_bank_is_refused_at_once(
    changes: dict[str, Any], expected: str
) -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with pytest.raises(UserError, match=expected):
        asked(check_recipe({**content, **BANK, **changes}, "test"), load_plugins())


def test_too_few_arms_are_refused_before_training_and_left_out_of_a_report(
    finished: Changing, tmp_path: Path
) -> None:
    expected = r"needs 8 or more; found 2: give seeds: 0-63 for 64"
    with pytest.raises(UserError, match=expected):
        write(tmp_path).change(**BANK | {"seeds": [1, 2]})
    assert not (tmp_path / "r/adapters").exists()
    with pytest.raises(UserError, match=expected):
        describe(Options("controls/bank", seeds=[1, 2]), None)
    assert "bank" not in finished.report(seeds=[1, 2])
    assert "bank" in finished.report()


def test_a_dry_run_tells_what_the_bank_costs() -> None:
    text = describe(Options("controls/bank"), None)
    assert "train   64 adapters" in text
    assert "bank    64 of the adapters, bank; scored on it: states, similarity, datamodel" in text


# Planted effects of examples, beyond their states


def item(number: int, state: Any, prompt: str) -> AttributionItem:
    return AttributionItem(f"q{number:03}", state, 0.5, prompt, "", (), ())


WORDS = ("apples", "bridges", "comets", "drums", "elephants", "foxes", "gardens", "harbours")


def planted(seed: int, arms: int = 160) -> Bank:
    """Problems that examples of their own word correct; half of the words are in either state."""
    rng = np.random.default_rng(seed)
    words = np.arange(48) % len(WORDS)
    examples = [item(i, "GS"[i % 2], f"count {WORDS[word]}") for i, word in enumerate(words)]
    asked_words = np.arange(40) % len(WORDS)
    problems = [item(i, "S", f"sum of {WORDS[word]}") for i, word in enumerate(asked_words)]
    recovered = np.arange(48) % 2 == 1
    slots = []
    for share in rng.permutation(np.linspace(0, 1, arms)):
        count = round(16 * share)
        of_s, of_g = (rng.permutation(np.flatnonzero(of)) for of in (recovered, ~recovered))
        slots.append((*of_s[:count].tolist(), *of_g[: 16 - count].tolist()))
    included = np.array([np.bincount(of, minlength=48) for of in slots])
    alike = (words[:, None] == asked_words).astype(float)
    outcome = included @ alike + rng.normal(size=(arms, 40))
    passed = outcome > np.median(outcome, axis=0)
    named = tuple(Arm("bank", number) for number in range(arms))
    return Bank(named, tuple(examples), tuple(problems), tuple(slots), passed, passed[0])


def scores(bank: Bank, method: Registered) -> dict[str, Scored]:
    found = score(bank, method.name, method, {}, 400, Stream(0, "test"))
    return {of.by: of for of in found}


@pytest.mark.parametrize("name", ["similarity", "datamodel"])
def test_methods_that_can_know_find_planted_effects_of_words(name: str) -> None:
    bank = planted(0)
    of = scores(bank, load_plugins().get("attribution", name))["given_share"].agreement
    assert of is not None
    assert of.score > of.interval.low > of.permuted.high > 0


def test_states_alone_know_nothing_of_words() -> None:
    of = scores(planted(0), load_plugins().get("attribution", "states"))["given_share"].agreement
    assert of is not None
    assert of.score == of.interval.low == of.interval.high == 0


@pytest.mark.parametrize("name", ["states", "similarity", "datamodel"])
def test_permuted_inclusion_gives_no_method_anything(name: str) -> None:
    """The method is fitted on permuted training sets, too; the interval holds 0 as 95% says."""
    holds = []
    for seed in range(20):
        bank = planted(seed, arms=80)
        order = np.random.default_rng(seed).permutation(80)
        permuted = dataclasses.replace(bank, slots=tuple(bank.slots[i] for i in order))
        of = scores(permuted, load_plugins().get("attribution", name))["problem"].agreement
        assert of is not None
        holds.append(of.interval.low <= 0 <= of.interval.high)
    assert sum(holds) >= 17


def test_what_the_page_shows_works(tmp_path: Path) -> None:
    page = Path(__file__).parents[1] / "docs/bank.md"
    (method,) = (of for of in blocks(page) if of.title)
    (tmp_path / method.title).write_text(method.text)
    found = load_plugins([str(tmp_path / method.title)]).get("attribution", "nearest_length")
    assert scores(planted(0), found)["problem"].agreement is not None
    assert LOADER.replace("FOLDER", "exported/bank") in page.read_text()


@pytest.mark.parametrize(
    ("gives", "expected"),
    [
        ("np.zeros((2, 2))", r"gave scores of shape \(2, 2\), expected finite ones of shape \(48"),
        ("np.full((48, 40), np.nan)", "expected finite ones"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_method_that_breaks_its_contract_is_named(
    tmp_path: Path, gives: str, expected: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\nfrom gapft_harness.api import hookimpl\n\n\n"
        f"def mine(task):\n    return {gives}\n\n\n"
        "@hookimpl\ndef register_attributions(register):\n    register('mine', mine)\n"
    )
    method = load_plugins([str(file)]).get("attribution", "mine")
    with pytest.raises(PluginError, match=expected) as caught:
        scores(planted(0), method)
    assert "attribution 'mine'" in str(caught.value)
