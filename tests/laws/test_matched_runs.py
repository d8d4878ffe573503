"""The laws of a comparison, in the files of runs with every selector and random verdicts.

Matched conditions have equal budgets; the change of Pass@1 is decomposed exactly.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import call
from tests.kit.planted_run import (
    SEEDS,
    K,
    PlantedTask,
    read_json,
    read_selection,
    write_planted_task,
)
from tests.kit.report_tables import find_row
from tests.kit.searched_pool import list_selectors
from tests.kit.selector_rows import ROWS
from tests.kit.tampering import Rows, change_rows, read_rows
from tests.presentation.exploring import unpack_page

POOL, AUDIT = range(150), range(200, 300)
SLOTS, REPLAY = 8, 3
BUDGET = {"n": SLOTS, "replay": REPLAY}
TRAITS = list_selectors()
#: Conditions that see fewer samples, or repeat another's training.
MORE = {
    "gapft_2": {"selector": "gapft", "k": 2},
    "gapft_again": {"selector": "gapft", "replicate": 1},
}
#: Trained conditions by comparison group: equal n and settings. References are in no group.
GROUPS: list[dict[str, dict[str, Any]]] = [
    {name: {} for name in ("gapft", "uniform", "replay", "concentrated", "unverified", "wrong")},
    {
        # names that look like a run's paths
        "a-seed1": {"selector": "uniform", "n": 12},
        # its own K is the run's
        "x.y": {"selector": "uniform_with_replacement", "n": 12, "k": K},
    },
    {"fast": {"selector": "gapft", "training": {"learning_rate": 0.001}}},
    {"two_samples": {"selector": "gapft", "k": 2}},
    {"older": {"selector": "gapft", "training": {"start_tokens": 1}}},
    {"online": {"selector": "gapft", "training": {"trainer": "online"}}},
]
#: The setting in which a condition differs from the run.
OWN_SETTING = {
    "fast": "training.learning_rate",
    "two_samples": "k",
    "older": "training.start_tokens",
    "online": "training.trainer",
}
REFERENCES: dict[str, dict[str, Any]] = {"all_verified": {}}
TRAINED = {name: settings for group in [*GROUPS, REFERENCES] for name, settings in group.items()}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> PlantedTask:
    return write_planted_task(tmp_path_factory.mktemp("planted") / "task", POOL, AUDIT)


@pytest.fixture(scope="module")
def selected(task: PlantedTask) -> Path:
    """Select with every row; the shared core needs the number of verified problems."""
    stages = ("--only", "states", "--only", "select")
    run = task.run("selected", "--only", "search", *stages[:2], budget=BUDGET)
    verified = sum(row["state"] != "U" for row in read_rows(run / "states/pool.parquet"))
    conditions = {
        name: {"selector": row.selector, "params": dict(row.params)}
        | ({"n": verified - REPLAY} if row.takes_all_verified else {})
        for name, row in ROWS.items()
    }
    run = task.run("selected", *stages, budget=BUDGET, conditions={**conditions, **MORE})
    assert task.verify("selected")
    return run


def count_supervised_tokens(rows: list[dict[str, Any]]) -> int:
    return sum(len(row["response_ids"]) + row["ended"] for row in rows)


def test_trains_on_judged_responses_of_the_pool_alone(selected: Path) -> None:
    judged = {
        (row["problem_id"], row["index"]): row
        for row in read_rows(selected / "pool/responses.parquet")
    }
    audit = {row["problem_id"] for row in read_rows(selected / "audit/problems.parquet")}
    assert len(audit) == len(AUDIT)
    for name, row in ROWS.items():
        for seed in SEEDS:
            rows = read_selection(selected, name, seed)
            for example in rows if TRAITS[row.selector].budget == "own" else rows[:-REPLAY]:
                response = judged[example["origin"], example["response_index"]]
                assert response["token_ids"] == example["response_ids"], name
                assert response["status"] in row.statuses, name
                assert not {example["problem_id"], example["origin"]} & audit, name


def test_fewer_samples_are_the_first_ones(task: PlantedTask, selected: Path) -> None:
    """A condition with its own K chooses as a run with that K does."""
    own = task.run(
        "two_samples",
        *("--only", "search", "--only", "states", "--only", "select"),
        search={"k": 2},
        budget=BUDGET,
        conditions=["gapft"],
    )
    for seed in SEEDS:
        rows = read_selection(selected, "gapft_2", seed)
        assert rows == read_selection(own, "gapft", seed)
        assert {row["first_success"] for row in rows[:SLOTS]} <= {0, 1}
        assert {row["response_index"] for row in rows[:SLOTS]} <= {0, 1}
        replay = read_selection(selected, "gapft", seed)[SLOTS:]
        assert [r["response_ids"] for r in rows[SLOTS:]] == [r["response_ids"] for r in replay]


def exchange_response(judged: Rows, rows: Rows) -> None:
    """Train on another sample of a problem, with the same verdict and other tokens."""
    status = {(row["problem_id"], row["index"]): row["status"] for row in judged}
    row, other = next(
        (row, other)
        for row in rows
        for other in judged
        if other["problem_id"] == row["origin"]
        and other["token_ids"] != row["response_ids"]
        and other["status"] == status[row["origin"], row["response_index"]]
    )
    row["response_ids"], row["response_index"] = other["token_ids"], other["index"]


def reverse_slots(judged: Rows, rows: Rows) -> None:
    rows.reverse()


@pytest.mark.parametrize("change", [exchange_response, reverse_slots])
def test_verification_names_every_changed_selection(
    task: PlantedTask, selected: Path, change: Callable[[Rows, Rows], None]
) -> None:
    forged = Path(shutil.copytree(selected, task.folder / change.__name__))
    judged = read_rows(forged / "pool/responses.parquet")
    tables = [f"selections/{name}-seed{seed}.parquet" for name in [*ROWS, *MORE] for seed in SEEDS]
    for table in tables:
        change_rows(forged, table, partial(change, judged))
    done = call("verify", forged, "--plugin", task.folder / "plugin.py")
    assert done.returncode == 1
    assert [table for table in tables if table not in done.stderr] == []


@pytest.fixture(scope="module")
def trained(task: PlantedTask) -> Path:
    run = task.run("trained", budget=BUDGET, conditions=TRAINED, model={"start_tokens": 2})
    assert task.verify("trained")
    return run


@pytest.fixture(scope="module")
def results(trained: Path) -> dict[str, Any]:
    return read_json(trained / "report/results.json")


@pytest.fixture(scope="module")
def states(trained: Path) -> dict[str, str]:
    """Classify the audit's problems by the recorded verdicts alone."""
    passed = read_passes(trained / "audit/responses.parquet")
    return {
        problem: "G" if passed[problem, -1] else "S" if any(samples) else "U"
        for problem, samples in each_problem(passed)
    }


def read_passes(table: Path) -> dict[tuple[str, int], bool]:
    return {(r["problem_id"], r["index"]): r["status"] == "pass" for r in read_rows(table)}


def each_problem(passed: dict[tuple[str, int], bool]) -> Iterator[tuple[str, list[bool]]]:
    for problem in sorted({problem for problem, _ in passed}):
        yield problem, [passed[problem, index] for index in range(K)]


def count_terms(trained: Path, states: dict[str, str], name: str, seed: int) -> Counter[str]:
    """Count the corrected S and U, and the G that regressed (negative), of one arm."""
    terms = Counter[str]()
    for (problem, _), passes in read_passes(
        trained / f"decisions/{name}-seed{seed}.parquet"
    ).items():
        terms[states[problem]] += passes - (states[problem] == "G")
    return terms


def test_results_have_equal_budgets_within_a_group(results: dict[str, Any]) -> None:
    for group in GROUPS:
        n = REPLAY + next(iter(group.values())).get("n", SLOTS)
        for row in (row for row in results["seeds"] if row["condition"] in group):
            sizes = [row[key] for key in ("slots", "repetitions", "exposures")]
            assert sizes == [n, 2, 2 * n], row["label"]
            assert row["steps"] == -(-2 * n // 3), row["label"]
    for contrast in results["contrasts"]:
        pair = {contrast["a"], contrast["b"]}
        assert contrast["matched_budget"] == any(pair <= group.keys() for group in GROUPS), pair
        own = {OWN_SETTING[name] for name in pair & OWN_SETTING.keys() if "source" not in pair}
        assert {*contrast["differs"].split()} == own, pair
        assert contrast["label"].endswith("‡") == bool(own), pair


def test_results_count_tokens_problems_and_unverified_examples(
    trained: Path, results: dict[str, Any]
) -> None:
    judged = read_rows(trained / "pool/responses.parquet")
    status = {(row["problem_id"], row["index"]): row["status"] for row in judged}
    for name in TRAINED:
        for seed in SEEDS:
            rows = read_selection(trained, name, seed)
            entry = find_row(results["seeds"], condition=name, seed=seed)
            supervised = count_supervised_tokens(rows)
            prompts = sum(len(row["prompt_ids"]) for row in rows)
            assert entry["supervised_tokens"] == 2 * supervised, name
            assert entry["tokens"] == 2 * (supervised + prompts), name
            assert entry["problems"] == len({row["problem_id"] for row in rows}), name
            failed = sum(status[r["problem_id"], r["response_index"]] != "pass" for r in rows)
            assert entry["unverified"] == failed, name
            assert (failed > 0) == (name in ("unverified", "wrong")), name


def test_change_of_every_seed_is_decomposed_exactly(
    trained: Path, results: dict[str, Any], states: dict[str, str]
) -> None:
    """A(post) - A(source) = p_S κ_S + p_U κ_U - p_G ρ_G (Equation 9)."""
    sizes, n = Counter(states.values()), len(states)
    assert all(sizes[state] for state in "GSU")
    for state in "GSU":
        row = find_row(results["states"], split="audit", state=state)
        assert row["problems"] == sizes[state]
    source = Fraction(sizes["G"], n)
    assert results["conditions"][0]["pass_at_1"] == float(source)
    for name in TRAINED:
        for seed in SEEDS:
            terms = count_terms(trained, states, name, seed)
            row = find_row(results["seeds"], condition=name, seed=seed)
            changes = [row[key] for key in ("corrected_s", "corrected_u", "regressed_g")]
            assert changes == [terms["S"], terms["U"], -terms["G"]], name
            decided = read_passes(trained / f"decisions/{name}-seed{seed}.parquet")
            after = Fraction(sum(decided.values()), n)
            assert Fraction(sum(terms.values()), n) == after - source
            assert row["pass_at_1"] == float(after)
            assert row["correct"] == sum(decided.values())


def test_conditions_and_contrasts_are_means_over_seeds(
    trained: Path, results: dict[str, Any], states: dict[str, str]
) -> None:
    means: dict[str, dict[str, Fraction]] = {"source": dict.fromkeys("SUG", Fraction(0))}
    for name in TRAINED:
        total = Counter[str]()
        for seed in SEEDS:
            total.update(count_terms(trained, states, name, seed))
        decodes = len(SEEDS) * len(states)
        means[name] = {state: Fraction(total[state], decodes) for state in "SUG"}
        terms = find_row(results["decomposition"], condition=name)
        assert [terms[f"term_{s}"] for s in "SUG"] == [float(means[name][s]) for s in "SUG"]
        source = Fraction([*states.values()].count("G"), len(states))
        entry = find_row(results["conditions"], condition=name)
        assert entry["pass_at_1"] == float(source + sum(means[name].values()))
    pairs = {(contrast["a"], contrast["b"]) for contrast in results["contrasts"]}
    assert {("gapft", name) for name in TRAINED if name != "gapft"} <= pairs
    assert {(name, "source") for name in TRAINED} <= pairs
    for contrast in results["contrasts"]:
        a, b = means[contrast["a"]], means[contrast["b"]]
        parts = [contrast[f"term_{state}"] for state in "SUG"]
        assert parts == [float(a[state] - b[state]) for state in "SUG"]
        assert contrast["delta"] == float(sum(a.values()) - sum(b.values()))
        assert contrast["delta_low"] <= contrast["delta"] <= contrast["delta_high"]


def test_explorer_has_every_response(trained: Path) -> None:
    """The page holds the source's responses, those of every arm, and the samples, in full."""
    index, texts = unpack_page(trained / "report/explorer.html")
    problems = {row["problem_id"]: row for row in read_rows(trained / "audit/problems.parquet")}
    assert [row["id"] for row in index["problems"]] == [*problems]
    responses = {
        (row["problem_id"], row["index"]): row["text"]
        for row in read_rows(trained / "audit/responses.parquet")
    }
    decisions = [
        {
            row["problem_id"]: row["text"]
            for row in read_rows(trained / f"decisions/{condition}-seed{seed}.parquet")
        }
        for condition in TRAINED
        for seed in SEEDS
    ]
    assert len(index["models"]) == 1 + len(decisions)
    for name, item in zip(problems, texts, strict=True):
        assert item["prompt"] == problems[name]["prompt"]
        assert [response["text"] for response in item["responses"]] == [
            responses[name, -1],
            *(arm[name] for arm in decisions),
        ]
        assert [sample["text"] for sample in item["samples"]] == [
            responses[name, number] for number in range(K)
        ]
