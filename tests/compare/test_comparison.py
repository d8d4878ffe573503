"""Comparisons against independent computations, and laws that hold for all logs."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import Comparison, compare
from gapft_harness.compare.document import build_document, build_results
from tests.compare.logs import row, write_log

#: Values of each document before and after, 0 or 1.
PAIRS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)


def compare_logs(before: Path, *after: object, **choice: Any) -> Comparison:
    return compare(str(before), [str(log) for log in after], CompareChoice(**choice))


def read_model_results(comparison: Comparison) -> dict[str, Any]:
    """Return the results of the only model, without its logs."""
    (model,) = build_results(comparison)["models"].values()
    return {key: value for key, value in model.items() if key != "logs"}


@settings(max_examples=25)
@given(PAIRS, st.randoms(use_true_random=False))
def test_comparison_laws_hold(pairs: list[tuple[int, int]], random: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = write_log(folder / "a", [a for a, _ in pairs])
        after = write_log(folder / "b", [b for _, b in pairs])
        results = read_model_results(compare_logs(before, after, by="subject"))
        gained = sum(a < b for a, b in pairs)
        lost = sum(a > b for a, b in pairs)
        assert (results["gained"], results["lost"]) == (gained, lost)
        assert results["difference"] == pytest.approx((gained - lost) / len(pairs))
        assert results["after"] - results["before"] == pytest.approx(results["difference"])
        changed = gained + lost
        expected = stats.binomtest(gained, changed).pvalue if changed else 1.0
        assert (results["test"], results["p"]) == ("mcnemar", pytest.approx(expected))
        assert sum(group["n"] for group in results["by"].values()) == len(pairs)
        assert sum(group["gained"] for group in results["by"].values()) == gained

        swapped = read_model_results(compare_logs(after, before, by="subject"))
        assert swapped["difference"] == -results["difference"]
        if len(pairs) == 1:
            assert swapped["ci95"] is results["ci95"] is None  # no interval for one document
        else:
            assert swapped["ci95"] == [-results["ci95"][1], -results["ci95"][0]]
        assert swapped["p"] == results["p"]
        assert (swapped["gained"], swapped["lost"]) == (lost, gained)

        rows = [row(i, b) for i, (_, b) in enumerate(pairs)]
        random.shuffle(rows)
        for new_number, line in enumerate(rows):
            line["doc_id"] = new_number  # documents are joined by content, not by number
        shuffled = write_log(folder / "c", rows=rows)
        assert read_model_results(compare_logs(before, shuffled, by="subject")) == results

        same = read_model_results(compare_logs(before, before))
        assert (same["difference"], same["p"]) == (0.0, 1.0)
        if len(pairs) == 1:
            assert same["ci95"] is None
        else:  # no interval of finite data has width 0
            low, high = same["ci95"]
            assert low < 0 < high


@settings(max_examples=20)
@given(st.lists(st.tuples(*[st.integers(0, 1)] * 6), min_size=2, max_size=12))
def test_decomposition_and_sign_flip_are_exact(rows: list[tuple[int, ...]]) -> None:
    """Check two seeds after and three samples before against plain loops."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns = list(zip(*rows, strict=True))
        before = write_log(folder / "before", columns[0])
        for seed in (1, 2):
            write_log(folder / f"seed{seed}", columns[seed])
        for sample in (3, 4, 5):
            drawn = enumerate(columns[sample])
            texts = [row(i, v, resps=[[f"sample {sample}"]]) for i, v in drawn]
            write_log(folder / f"sample{sample}", rows=texts)
        samples = [str(folder / "sample*")]
        results = read_model_results(
            compare_logs(before, f"new={folder}/seed*", source_samples=samples)
        )
        parts, n = results["decomposition"], len(rows)
        assert sum(parts["terms"].values()) == pytest.approx(results["difference"], abs=1e-12)
        recovered = [r for r in rows if not r[0] and any(r[3:])]
        missed = [r for r in rows if not r[0] and not any(r[3:])]
        solved = [r for r in rows if r[0]]
        assert parts["terms"]["S"] == pytest.approx(sum(r[1] + r[2] for r in recovered) / 2 / n)
        assert parts["terms"]["U"] == pytest.approx(sum(r[1] + r[2] for r in missed) / 2 / n)
        assert parts["terms"]["G"] == pytest.approx(-sum(2 - r[1] - r[2] for r in solved) / 2 / n)
        for key, members, wrong in (("kappa_S", recovered, 0), ("rho_G", solved, 1)):
            rates = [abs(wrong - value) for r in members for value in r[1:3]]
            assert parts[key] == (pytest.approx(np.mean(rates)) if rates else None)
        # Pass@k of three samples: the mean over all subsets of k
        reached = [
            k
            for k in (1, 2, 3)
            if np.mean([[any(c) for c in itertools.combinations(r[3:], k)] for r in rows])
            <= results["after"] + 1e-12
        ]
        assert parts["K_eq"] == (str(max(reached)) if reached else "<1")
        assert results["test"] == "sign_flip"
        sums = [r[1] + r[2] - 2 * r[0] for r in rows]
        totals = [
            sum(s * d for s, d in zip(signs, sums, strict=True))
            for signs in itertools.product((1, -1), repeat=n)
        ]
        assert results["p"] == pytest.approx(np.mean([abs(t) >= abs(sum(sums)) for t in totals]))


def test_clusters_widen_interval(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    easy = np.repeat(random.random(60) < 0.5, 4)  # all four documents of a passage change together
    before = write_log(tmp_path / "a", [0] * 240)
    after = write_log(tmp_path / "b", easy.astype(int).tolist())
    alone, together = (
        read_model_results(compare_logs(before, after)),
        read_model_results(compare_logs(before, after, cluster="passage")),
    )
    assert alone["difference"] == together["difference"]
    widths = [model["ci95"][1] - model["ci95"][0] for model in (alone, together)]
    assert widths[1] / widths[0] == pytest.approx(2, rel=0.15)  # four copies of each: sqrt(4)
    assert (alone["test"], together["test"]) == ("mcnemar", "sign_flip")
    assert build_results(compare_logs(before, after, cluster="passage"))["clusters"] == 60


def test_interval_includes_seed_variance(tmp_path: Path) -> None:
    """One seed gains all and one loses all, so the seeds alone determine the interval."""
    before = write_log(tmp_path / "before", [0, 1] * 20)
    write_log(tmp_path / "s1", [1, 1] * 20)
    write_log(tmp_path / "s2", [0, 0] * 20)
    results = read_model_results(compare_logs(before, tmp_path / "s*"))
    assert results["difference"] == 0
    assert results["ci95"][0] == pytest.approx(-0.55, abs=0.12)
    assert results["ci95"][1] == pytest.approx(0.55, abs=0.12)


def test_distinguishes_models_and_seeds(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [0, 1, 0, 1])
    paths = [write_log(tmp_path / f"s{i}", [i % 2] * 4) for i in (1, 2, 3)]
    several = build_results(compare_logs(before, *paths))["models"]
    assert {name: model["seeds"] for name, model in several.items()} == {str(p): 1 for p in paths}
    assert all(model["p_holm"] is not None for model in several.values())
    alone = build_results(compare_logs(before, paths[0]))["models"][str(paths[0])]
    assert several[str(paths[0])]["ci95"] == alone["ci95"]  # other models have no effect
    assert alone["p_holm"] is None
    by_flag = build_results(compare_logs(before, *paths, seeds=True))["models"]
    assert {name: model["seeds"] for name, model in by_flag.items()} == {"after": 3}
    by_name = build_results(compare_logs(before, f"mine={tmp_path}/s*", f"other={paths[0]}"))[
        "models"
    ]
    assert {name: model["seeds"] for name, model in by_name.items()} == {"mine": 3, "other": 1}
    assert by_name["mine"]["difference"] == by_flag["after"]["difference"]


@settings(max_examples=15)
@given(st.lists(st.tuples(*[st.integers(0, 1)] * 4), min_size=2, max_size=30))
def test_pairs_of_models_equal_their_own_comparisons(rows: list[tuple[int, ...]]) -> None:
    """Three models after: each pair as if it was compared alone, and Holm over all six."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = {
            model: write_log(folder / model, [values[number] for values in rows])
            for number, model in enumerate(("before", "a", "b", "c"))
        }
        named = [f"{model}={logs[model]}" for model in "abc"]
        results = build_results(compare_logs(logs["before"], *named))
        pairs = {(pair["minus"], pair["model"]): pair for pair in results["pairs"]}
        assert [*pairs] == [(None, m) for m in "abc"] + [*itertools.combinations("abc", 2)]
        for (first, second), pair in pairs.items():
            alone = read_model_results(compare_logs(logs[first or "before"], logs[second]))
            for key in ("before", "after", "difference", "test", "p", "gained", "lost"):
                assert pair[key] == pytest.approx(alone[key]), key
            low, high = pair["ci95"]
            assert low <= pair["difference"] <= high
        raw = [pair["p"] for pair in pairs.values()]
        order = np.argsort(raw, kind="stable")
        holm = np.maximum.accumulate([min(1, (6 - i) * raw[j]) for i, j in enumerate(order)])
        assert [[*pairs.values()][j]["p_holm"] for j in order] == pytest.approx(holm)


def test_pairs_include_variance_of_both_models_seeds(tmp_path: Path) -> None:
    """The seeds of each model agree on no document, so they determine the interval."""
    before = write_log(tmp_path / "before", [0, 1] * 20)
    for model in "xy":
        for seed in (0, 1):
            write_log(tmp_path / f"{model}{seed}", [seed] * 40)
    globs = [f"{model}={tmp_path}/{model}*" for model in "xy"]
    pair = build_results(compare_logs(before, *globs))["pairs"][-1]
    assert (pair["minus"], pair["model"]) == ("x", "y")
    assert (pair["difference"], pair["p"], pair["test"]) == (0, 1, "sign_flip")
    assert pair["ci95"] == [-1, 1]
    page = build_document(compare_logs(before, *globs)).to_markdown()
    assert "Between the models" in page
    assert "all 3 pairs" in page


def test_one_model_has_no_pairs(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [0, 1] * 20)
    for seed in (0, 1):
        write_log(tmp_path / f"s{seed}", [seed] * 40)
    comparison = compare_logs(before, tmp_path / "s0", tmp_path / "s1", seeds=True)
    assert build_results(comparison)["pairs"] == []
    assert "Between the models" not in build_document(comparison).to_markdown()


def test_compares_numeric_metrics(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0.25, 0.5, 0.75, 1.0], higher=False)
    after = write_log(tmp_path / "b", [0.5, 0.5, 1.0, 1.25], higher=False)
    comparison = compare_logs(before, after)
    results = read_model_results(comparison)
    assert results["difference"] == pytest.approx(0.1875)
    assert (results["test"], results["p"]) == ("sign_flip", 2 / 2**3)
    assert (results["higher"], results["lower"]) == (3, 0)
    assert "gained" not in results
    assert any("other than 0 and 1" in note.text for note in comparison.notes)
    assert any("lower is better" in note.text for note in comparison.notes)


def test_compares_several_tasks(tmp_path: Path) -> None:
    for side, value in (("a", 0), ("b", 1)):
        write_log(tmp_path / side, [value] * 6, task="one")
        write_log(tmp_path / side, [1] * 3, task="two", date="2026-01-02T00-00-00.1")
    results = build_results(compare_logs(tmp_path / "a", tmp_path / "b"))
    (model,) = results["models"].values()
    assert (results["n"], results["by"]) == (9, "task")
    assert {name: second_task["difference"] for name, second_task in model["by"].items()} == {
        "one": 1,
        "two": 0,
    }
    assert model["by"]["one"]["p_holm"] == pytest.approx(2 * 2 / 2**6)
    second_task = build_results(compare_logs(tmp_path / "a", tmp_path / "b", tasks=["two"]))
    assert ([*second_task["tasks"]], second_task["n"]) == (["two"], 3)


def test_pairs_repeated_documents(tmp_path: Path) -> None:
    twin = row(0, 1, doc_id=7)
    before = write_log(tmp_path / "a", rows=[row(0, 0), row(1, 0), twin])
    after = write_log(tmp_path / "b", rows=[twin | {"exact_match": 0}, row(0, 1), row(1, 0)])
    comparison = compare_logs(before, after)
    assert (read_model_results(comparison)["gained"], read_model_results(comparison)["lost"]) == (
        1,
        1,
    )
    assert any("share their content" in note.text for note in comparison.notes)


def test_joins_documents_on_chosen_fields(tmp_path: Path) -> None:
    rows = [row(i, i % 2) for i in range(4)]
    other = [line | {"doc": line["doc"] | {"shuffled": i}} for i, line in enumerate(rows)]
    before, after = write_log(tmp_path / "a", rows=rows), write_log(tmp_path / "b", rows=other)
    assert read_model_results(compare_logs(before, after, on=["question"]))["difference"] == 0


def test_common_drops_unshared_documents(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0, 0, 0, 0])
    short = write_log(tmp_path / "b", [1, 1])
    shorter = write_log(tmp_path / "c", [1])
    results = build_results(compare_logs(before, short, shorter, common=True))
    assert results["n"] == 1
    assert any(note.startswith("3 documents") for note in results["notes"])


def test_reports_default_metric_and_filter(tmp_path: Path) -> None:
    def rows(strict: int, loose: int) -> list[dict[str, Any]]:
        both = {"metrics": ["exact_match", "f1"], "f1": 0.5}
        return [
            row(i, value, filter=name, **both)
            for name, value in (("strict", strict), ("loose", loose))
            for i in range(3)
        ]

    before, after = (
        write_log(tmp_path / "a", rows=rows(0, 1)),
        write_log(tmp_path / "b", rows=rows(1, 1)),
    )
    first = compare_logs(before, after)
    assert (first.metric.metric, first.metric.filter) == ("exact_match", "strict")
    assert read_model_results(first)["difference"] == 1
    notes = " ".join(note.text for note in first.notes)
    assert "others: f1 (--metric)" in notes
    assert "others: loose (--filter)" in notes
    assert read_model_results(compare_logs(before, after, filter="loose"))["difference"] == 0
    assert (
        read_model_results(compare_logs(before, after, metric="f1", filter="strict"))["difference"]
        == 0
    )


def test_warns_about_changed_prompts_and_golds(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0, 1, 1])
    rows = [row(i, 1, arguments={"gen_args_0": {"arg_0": f"few-shot {i}"}}) for i in range(3)]
    rows[2]["target"] = "another"
    notes = compare_logs(before, write_log(tmp_path / "b", rows=rows)).notes
    warnings = [note.text for note in notes if note.role == "warning"]
    assert [note for note in warnings if "prompt" in note and "3 of 3" in note]
    assert [note for note in warnings if "gold" in note and "1 of 3" in note]
