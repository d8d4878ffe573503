"""Comparisons against independent computations, laws of all logs, and how logs are found."""

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

from gapft_harness.compare.comparison import Comparison
from gapft_harness.core.errors import UserError
from tests.compare.logs import compare_logs, join_notes, read_model, read_results, row, write_log

#: Values of each document before and after, 0 or 1.
PAIRS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)


def read_interval(result: dict[str, Any]) -> tuple[float, float]:
    return result["difference_low"], result["difference_high"]


@settings(max_examples=25)
@given(PAIRS, st.randoms(use_true_random=False))
def test_comparison_laws_hold(pairs: list[tuple[int, int]], random: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = write_log(folder / "a", [a for a, _ in pairs])
        after = write_log(folder / "b", [b for _, b in pairs])
        comparison = compare_logs(before, f"m={after}", by="subject")
        results, groups = read_model(comparison), read_results(comparison)["groups"]
        gained = sum(a < b for a, b in pairs)
        lost = sum(a > b for a, b in pairs)
        assert (results["gained"], results["lost"]) == (gained, lost)
        assert results["difference"] == pytest.approx((gained - lost) / len(pairs))
        assert results["after"] - results["before"] == pytest.approx(results["difference"])
        changed = gained + lost
        expected = stats.binomtest(gained, changed).pvalue if changed else 1.0
        assert (results["test"], results["p"]) == ("mcnemar", pytest.approx(expected))
        assert sum(group["documents"] for group in groups) == len(pairs)
        assert sum(group["gained"] for group in groups) == gained

        swapped = read_model(compare_logs(after, before, by="subject"))
        assert swapped["difference"] == -results["difference"]
        if len(pairs) == 1:
            assert read_interval(swapped) == read_interval(results) == (None, None)
        else:
            low, high = read_interval(results)
            assert read_interval(swapped) == (-high, -low)
            low, high = read_interval(read_model(compare_logs(before, before)))
            assert low < 0 < high, "no interval of finite data has width 0"
        assert swapped["p"] == results["p"]
        assert (swapped["gained"], swapped["lost"]) == (lost, gained)

        rows = [row(i, b) for i, (_, b) in enumerate(pairs)]
        random.shuffle(rows)
        for new_number, line in enumerate(rows):
            line["doc_id"] = new_number  # documents are joined by content, not by number
        shuffled = write_log(folder / "c", rows=rows)
        assert read_model(compare_logs(before, f"m={shuffled}", by="subject")) == results


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
        comparison = compare_logs(before, f"new={folder}/seed*", source_samples=samples)
        results, n = read_model(comparison), len(rows)
        (parts,) = read_results(comparison)["states"]
        members = {
            "S": [r for r in rows if not r[0] and any(r[3:])],
            "U": [r for r in rows if not r[0] and not any(r[3:])],
            "G": [r for r in rows if r[0]],
        }
        terms = {state: parts[f"term_{state}"] for state in members}
        assert sum(terms.values()) == pytest.approx(results["difference"], abs=1e-12)
        for state, own in members.items():
            assert parts[state] == len(own)
            assert terms[state] == pytest.approx(sum(r[1] + r[2] - 2 * r[0] for r in own) / 2 / n)
        for key, own in (("kappa_S", members["S"]), ("rho_G", members["G"])):
            rates = [abs(r[0] - value) for r in own for value in r[1:3]]
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
        read_model(compare_logs(before, after)),
        read_model(compare_logs(before, after, cluster="passage")),
    )
    assert alone["difference"] == together["difference"]
    widths = [high - low for low, high in map(read_interval, (alone, together))]
    assert widths[1] / widths[0] == pytest.approx(2, rel=0.15)  # four copies of each: sqrt(4)
    assert (alone["test"], together["test"]) == ("mcnemar", "sign_flip")
    assert (alone["clusters"], together["clusters"]) == (240, 60)


def test_models_do_not_affect_each_other(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [0, 1, 0, 1])
    paths = [write_log(tmp_path / f"s{i}", [i % 2] * 4) for i in (1, 2, 3)]
    several = read_results(compare_logs(before, *paths))["models"]
    assert [(model["model"], model["seeds"]) for model in several] == [(str(p), 1) for p in paths]
    alone = read_model(compare_logs(before, paths[0]))
    assert several[0] == {**alone, "p_holm": several[0]["p_holm"]}
    assert several[0]["p_holm"] is not None
    assert alone["p_holm"] is None
    by_flag = read_model(compare_logs(before, *paths, seeds=True))
    assert (by_flag["model"], by_flag["seeds"]) == ("after", 3)
    by_name = read_results(compare_logs(before, f"mine={tmp_path}/s*", f"other={paths[0]}"))
    assert [(m["model"], m["seeds"]) for m in by_name["models"]] == [("mine", 3), ("other", 1)]
    assert by_name["models"][0]["difference"] == by_flag["difference"]


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
        pairs = read_results(compare_logs(logs["before"], *named))["pairs"]
        names = [(pair["minus"], pair["model"]) for pair in pairs]
        assert names == [(None, m) for m in "abc"] + [*itertools.combinations("abc", 2)]
        for (first, second), pair in zip(names, pairs, strict=True):
            alone = read_model(compare_logs(logs[first or "before"], logs[second]))
            for key in ("before", "after", "difference", "test", "p", "gained", "lost"):
                assert pair[key] == pytest.approx(alone[key]), key
            low, high = read_interval(pair)
            assert low <= pair["difference"] <= high
        raw = [pair["p"] for pair in pairs]
        order = np.argsort(raw, kind="stable")
        holm = np.maximum.accumulate([min(1, (6 - i) * raw[j]) for i, j in enumerate(order)])
        assert [pairs[j]["p_holm"] for j in order] == pytest.approx(holm)


def test_pairs_include_variance_of_both_models_seeds(tmp_path: Path) -> None:
    """The seeds of each model agree on no document, so they determine the interval."""
    before = write_log(tmp_path / "before", [0, 1] * 20)
    for model in "xy":
        for seed in (0, 1):
            write_log(tmp_path / f"{model}{seed}", [seed] * 40)
    globs = [f"{model}={tmp_path}/{model}*" for model in "xy"]
    pair = read_results(compare_logs(before, *globs))["pairs"][-1]
    assert (pair["minus"], pair["model"]) == ("x", "y")
    assert (pair["difference"], pair["p"], pair["test"]) == (0, 1, "sign_flip")
    assert read_interval(pair) == (-1, 1)
    assert "pairs" not in read_results(compare_logs(before, globs[0])), "one model has no pairs"


def test_compares_numeric_metrics(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0.25, 0.5, 0.75, 1.0], higher=False)
    after = write_log(tmp_path / "b", [0.5, 0.5, 1.0, 1.25], higher=False)
    results = read_model(compare_logs(before, after))
    assert results["difference"] == pytest.approx(0.1875)
    assert (results["test"], results["p"]) == ("sign_flip", 2 / 2**3)
    assert (results["higher"], results["lower"]) == (3, 0)
    assert "gained" not in results


def test_pairs_repeated_documents(tmp_path: Path) -> None:
    twin = row(0, 1, doc_id=7)
    before = write_log(tmp_path / "a", rows=[row(0, 0), row(1, 0), twin])
    after = write_log(tmp_path / "b", rows=[twin | {"exact_match": 0}, row(0, 1), row(1, 0)])
    results = read_model(compare_logs(before, after))
    assert (results["gained"], results["lost"]) == (1, 1)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write_log(tmp_path / "before", [0, 1, 0, 1])


def test_versions_of_the_task_are_compared(before: Path, tmp_path: Path) -> None:
    """Under its name a log has a version; under another name a note says that none is known."""
    after = write_log(tmp_path / "after", [1] * 4, version=2)
    with pytest.raises(UserError):
        compare_logs(before, after)
    renamed = after.rename(tmp_path / "renamed.jsonl")
    assert "versions may differ" in join_notes(compare_logs(before, renamed))


@pytest.mark.parametrize("name", ["lr=1e-4", "out[1]", "a=b[2]", "what?", "x=y"])
def test_accepts_special_characters_in_paths(
    before: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test the path alone, after a model name, and in a pattern."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        write_log(tmp_path / f"{name}_seed{seed}", [1] * 4)
        write_log(tmp_path / name / f"seed{seed}", [1] * 4)
    for argument, model, seeds in (
        (f"{name}_seed1", f"{name}_seed1", 1),
        (f"tuned={name}_seed1", "tuned", 1),
        (f"{name.replace('[', '[[]')}_seed*", None, 2),
        (f"{name}/seed*", None, 2),
        (f"tuned={name}/seed*", "tuned", 2),
    ):
        comparison = compare_logs(before, argument)
        (paired,) = comparison.models.values()
        assert (paired.before, paired.after, paired.seeds) == (0.5, 1.0, seeds), argument
        assert model in (None, *comparison.models), argument


def build_verdicts(passing: int, count: int) -> list[dict[str, str]]:
    return [{"status": "pass" if i < passing else "fail"} for i in range(count)]


def test_greedy_decode_is_not_a_sample(tmp_path: Path) -> None:
    before, after = write_log(tmp_path / "b", [0, 1, 0, 1]), write_log(tmp_path / "a", [1] * 4)
    rows = {k: [row(i, 0, verdicts=build_verdicts(i, k)) for i in range(4)] for k in (1, 8)}
    greedy = write_log(tmp_path / "both", rows=rows[1])
    passk = write_log(tmp_path / "both", rows=rows[8], task="toy_passk")
    with pytest.raises(UserError) as caught:
        compare_logs(before, after, source_samples=[str(tmp_path / "both")], tasks=["toy"])
    assert str(greedy) in str(caught.value)
    assert str(passk) in str(caught.value)
    samples = compare_logs(before, after, source_samples=[str(passk)]).samples
    assert samples is not None
    assert (samples.k, sorted(samples.passing.tolist())) == (8, [0, 1, 2, 3])


def test_reports_and_drops_copied_samples(tmp_path: Path) -> None:
    passing = [0, 1, 1, 1, 2, 3] * 4

    def compare_samples(texts: list[str], **choice: Any) -> Comparison:
        rows = [
            row(i, c / 4, verdicts=build_verdicts(c, 4), resps=[texts])
            for i, c in enumerate(passing)
        ]
        before, after = (write_log(tmp_path / name, [0] * 23 + [1]) for name in ("b", "a"))
        samples = write_log(tmp_path / "samples", rows=rows)
        return compare_logs(before, after, source_samples=[str(samples)], **choice)

    copied = compare_samples(["a", "a", "b", "c"])
    assert "samples 0 and 1 are the same" in join_notes(copied)
    assert copied.samples is not None
    assert copied.samples.k == 4
    cached = compare_samples(["a"] * 4)
    assert "all 4 samples are the same" in join_notes(cached)
    assert "samples 0 and 1 are the same" in join_notes(compare_samples(["", "", "b", "c"]))
    without_copies = compare_samples(["a", "a", "b", "c"], drop_copies=True)
    assert without_copies.samples is not None
    assert without_copies.samples.k == 3
    kept = [c - (c > 1) for c in passing]  # the second of four samples is a copy of the first
    assert sorted(without_copies.samples.passing.tolist()) == sorted(kept)
    assert "1 of 4 are dropped" in join_notes(without_copies)
    distinct = compare_samples(["a", "b", "c", "d"])
    assert "the same" not in join_notes(distinct)
