"""``gapft gap RUN`` as a person runs it, on runs whose answers are known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gapft_harness.analysis.forecast.power import detectable
from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.forecast.document import judge, results, warnings
from gapft_harness.forecast.findings import Forecast, ForecastChoice, forecast
from gapft_harness.forecast.reading import Searched, SearchedRun, read_run
from gapft_harness.report.reading.tokens import Generated
from tests.command import succeed
from tests.training.letters import prepare

RECIPE = {
    "conditions": ["gapft", "uniform"],
    "seeds": [13, 21, 73],
    "budget": {"n": "recovered", "replay": 0},
    "training": {"repetitions": 8},
}


def searched(greedy: object, passed: object, complete: bool = True) -> Searched:
    made = np.array(passed, dtype=bool)
    count = len(made)
    tokens = Generated(10 * count, 20 * made.size, count, made.size)
    passing = made.sum(axis=1)
    return Searched(
        np.array(greedy, dtype=bool), passing, made.shape[1], made, complete, tokens, 50.0
    )


def recovered(of: Searched) -> int:
    return int((of.states == "S").sum())


def run_of(**splits: Searched) -> SearchedRun:
    k = next(iter(splits.values())).passed.shape[1]
    return SearchedRun(k, splits, 100.0, (1000, 4.0), RECIPE)


def drawn(problems: int, share: float, seed: int = 0, k: int = 8) -> Searched:
    """Problems whose greedy decode fails; of ``share`` of them one sample or more may pass."""
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(problems) < share, rng.beta(2, 3, problems), 0.0)
    return searched(np.zeros(problems), rng.random((problems, k)) < p[:, None])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the real command, to its report."""
    folder = tmp_path_factory.mktemp("forecast")
    command = prepare(folder)
    pool = folder / "tasks/pool.jsonl"
    pool.write_text("".join(pool.read_text().splitlines(keepends=True)[:24]))  # a small split
    succeed(*command, "run", "--seed", 13, "--condition", "gapft", cwd=folder)
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["gap", *map(str, arguments)])


def said(done: Result) -> str:
    """Its output without line ends, which fall anywhere."""
    return " ".join(done.output.split())


def test_a_run_is_forecast_and_nothing_in_it_changes(
    finished: Path, run: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = command(run, "--k", 32, "--k", 4, "--out", tmp_path / "out", "--details")
    assert done.exit_code == 0, done.output
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    report = json.loads((finished / "report/results.json").read_text())
    found = json.loads((tmp_path / "out/forecast.json").read_text())
    for split, states in (
        ("pool", report["pool"]["states"]),
        ("audit", report["source"]["states"]),
    ):
        of = found["splits"][split]
        assert (of["recovered"], of["missed"]) == (states["S"], states["U"])
        assert of["first_recovered"] == sorted(of["first_recovered"])
        assert of["first_recovered"][-1] == 1
        assert of["recovered"] <= of["recoverable"]["32"]["low"]
        assert of["recoverable"]["32"]["high"] <= of["recovered"] + of["missed"]
    measured = found["splits"]["audit"]["measured_pass_at_k"]
    reported = report["source"]["pass_at_k"]
    assert {str(k): pytest.approx(measured[k - 1]) for k in (1, 2, 4)} == reported
    drawn = json.loads((finished / "manifest.json").read_text())["drawn"]
    counted = {split: read_run(run).splits[split].tokens for split in ("pool", "audit")}
    assert {s: of.samples for s, of in counted.items() if of} == {
        split: drawn[split]["tokens"] for split in ("pool", "audit")
    }
    assert "k = 4: 4 samples were drawn, so it is measured" in said(done)
    assert "fewer than 30" in said(done)
    assert (tmp_path / "out/forecast.md").read_text().startswith("# Forecast")


def test_a_run_after_its_search_alone_is_enough(run: Path) -> None:
    """States, selections and training are not there yet; training's rate is said to lack."""
    manifest = json.loads((run / "manifest.json").read_text())
    kept = [name for name in manifest["files"] if "responses" in name or "problems" in name]
    manifest["files"] = {name: manifest["files"][name] for name in kept}
    manifest |= {"training": {}, "budgets": {}, "stages": {}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    for name in ("selections", "adapters", "decisions", "scaled", "report"):
        shutil.rmtree(run / name, ignore_errors=True)
    (run / "pool/states.parquet").unlink()
    done = command(run, "--details")
    assert done.exit_code == 0, done.output
    assert "the search's seconds are not recorded" in said(done)
    assert "no training of this run has recorded its seconds" in said(done)


def test_a_merged_run_does_not_know_how_long_its_search_took(run: Path) -> None:
    """``gapft run`` on it times a search stage that finds everything there."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["stages"] |= {"merge": {"seconds": 3.0}, "search": {"seconds": 0.02}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert read_run(run).seconds is None
    assert "the search's seconds are not recorded" in said(command(run, "--details"))


def test_what_cannot_be_forecast_is_said_and_ends_with_2(run: Path, tmp_path: Path) -> None:
    recipe = (run / "recipe.yaml").read_text()
    refused: list[tuple[str, Callable[[], object], str]] = [
        ("one sample", lambda: (run / "recipe.yaml").write_text(recipe.replace("k: 4", "k: 1")),
         "drew 1 sample of each problem"),
        ("no search", lambda: forget(run), "nothing is searched yet"),
        ("changed", lambda: (run / "pool/responses.parquet").write_bytes(b"x"), "was changed"),
    ]  # fmt: skip
    whole = {name: (run / name).read_bytes() for name in ("recipe.yaml", "manifest.json")}
    for name, spoil, told in refused:
        spoil()
        with pytest.raises(UserError, match=told):
            read_run(run)
        for file, content in whole.items():
            (run / file).write_bytes(content)
        assert name
    with pytest.raises(UserError, match="is no run directory"):
        read_run(tmp_path)


def forget(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "files": {}}))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--k", "0"], "--k 0: expected 1 or more"),
        (["--training-seeds", "0"], "--training-seeds 0"),
        (["--items", "-3"], "--items -3"),
        (["--shared", "1.5"], "--shared 1.5"),
        (["--discordance", "3/0"], "--discordance 3/0"),
        (["--discordance", "some"], "such as 0.1 or 71/500"),
    ],
)
def test_options_out_of_bounds_are_named(run: Path, options: list[str], told: str) -> None:
    done = command(run, *options)
    assert isinstance(done.exception, UserError)
    assert told in str(done.exception)


def of(run: SearchedRun, **choice: object) -> Forecast:
    return forecast(run, ForecastChoice(**choice))  # type: ignore[arg-type]


def test_none_and_all_solved_are_told_and_not_extrapolated() -> None:
    none = of(run_of(pool=searched([0] * 40, np.zeros((40, 8)))), items=40)
    assert none.splits["pool"].pass_at_k == none.splits["pool"].recoverable == {}
    assert any("no sample passed" in said for said in warnings(none))
    assert judge(none).answer == "not worth training"
    assert "nothing to train on" in judge(none).why
    everything = of(run_of(audit=searched([1] * 40, np.ones((40, 8)))))
    assert any("every sample passed" in said for said in warnings(everything))
    assert judge(everything).answer == "not worth training"
    json.dumps(results(everything))


def test_the_papers_cases_of_qwen_and_llama() -> None:
    """LogiQA 2.0, 1,367 items, 3 seeds, K = 8: p_S of 2.1% and of a quarter of the audit."""

    def made(recovered: int, solved: int) -> Forecast:
        greedy = np.arange(1367) < solved
        passed = np.zeros((1367, 8), bool)
        passed[solved : solved + recovered, 0] = True
        return of(run_of(audit=searched(greedy, passed)))

    qwen = judge(made(29, 937))
    assert qwen.answer == "not worth training"
    assert "Search recovers 2.1%" in qwen.why
    assert "Qwen2.5-7B" in qwen.why
    llama = made(362, 688)
    assert judge(llama).answer == "worth training"
    least = detectable(seeds=3, items=1367, discordance=331 / 1367)
    assert llama.detectable[3] == least
    assert judge(made(60, 800)).answer == "may be too little to see"


def test_the_audits_failures_stand_in_for_a_pool_that_stopped_early() -> None:
    audit, pool = drawn(600, 0.6, 1), drawn(900, 0.6, 2)
    stopped = replace(pool, complete=False)
    found = of(run_of(pool=stopped, audit=audit)).splits["pool"]
    whole = of(run_of(pool=pool, audit=audit)).splits["pool"]
    assert found.pass_at_k == {}
    assert found.recoverable[64].value == pytest.approx(whole.recoverable[64].value, rel=0.05)
    alone = of(run_of(pool=stopped), items=600)
    assert alone.splits["pool"].recoverable == {}
    assert any("stopped early" in said for said in warnings(alone))


def test_recovered_problems_at_a_larger_k_are_those_of_a_longer_search() -> None:
    """Half of a search of 16 samples foretells the whole, and so do the held-back samples."""
    inside = []
    for seed in range(8):
        whole = drawn(800, 0.7, seed, k=16)
        half = searched(whole.greedy, whole.passed[:, :8])
        guess = of(run_of(pool=half), depths=(16,), items=800).splits["pool"].recoverable[16]
        inside.append(guess.low <= recovered(whole) <= guess.high)
        assert guess.value == pytest.approx(recovered(whole), rel=0.1)
    assert sum(inside) >= 4, "80% intervals"
    found = of(run_of(pool=whole), items=800).splits["pool"].failures
    assert found is not None
    assert found.held is not None
    assert found.held.found == recovered(whole) - recovered(half)
    assert found.held.forecast.value == pytest.approx(found.held.found, rel=0.5)


def test_without_an_audit_its_items_must_be_said() -> None:
    """A pool's size is no audit's: 2,000 items would see what 300 cannot."""
    alone = run_of(pool=drawn(2000, 0.1))
    with pytest.raises(UserError, match=r"no audit is searched .* --items M"):
        of(alone)
    few, many = of(alone, items=300), of(alone, items=30_000)
    assert (few.items, many.items) == (300, 30_000)
    assert judge(few).answer != judge(many).answer


def test_a_misfit_is_warned_of() -> None:
    mixed = np.zeros((1000, 8), bool)
    mixed[:300], mixed[300:700, :4] = True, True
    found = of(run_of(pool=searched(np.zeros(1000), mixed)), items=1000)
    assert any("does not fit" in said for said in warnings(found))
    assert any("no family fits" in said for said in warnings(found))
    assert results(found)["splits"]["pool"]["fit"]["all"]["p"] < 0.05
    fits = of(run_of(pool=drawn(1000, 0.7)), items=1000)
    assert not any("no family fits" in said for said in warnings(fits))


def test_a_wide_interval_is_warned_of() -> None:
    """What 3 samples of 40 problems tell of Pass@1024, and 16 of 800 of Pass@32."""
    few, many = drawn(40, 0.8, k=3), drawn(800, 0.7, k=16)
    assert any(
        "the 80% interval of Pass@1024 is" in said and "3 samples of 40 problems" in said
        for said in warnings(of(run_of(pool=few), depths=(1024,), items=40))
    )
    told = warnings(of(run_of(pool=many), depths=(32,), items=800))
    assert not any("points wide" in said for said in told)


def test_families_weights_are_written_by_shape_and_sum_to_1() -> None:
    found = results(of(run_of(pool=drawn(400, 0.7)), items=400))["splits"]["pool"]["fit"]["all"]
    weights = [of_one for shape in ("beta", "logit_normal") for of_one in found["weights"][shape]]
    assert weights == ["one", "zero", "two"] * 2
    total = sum(sum(shape.values()) for shape in found["weights"].values())
    assert total == pytest.approx(1)


def test_costs_are_tokens_times_problems_at_the_runs_rates() -> None:
    pool, audit = drawn(100, 0.5, 1), drawn(50, 0.5, 2)
    found = of(run_of(pool=pool, audit=audit), depths=(64,)).costs
    assert found.search.tokens == 150 * 10 + 150 * 8 * 20
    assert found.deeper[64].tokens == 150 * (64 * 20 + 10), "a new run: nothing is kept"
    rate = found.search.tokens / 100
    assert found.deeper[64].seconds == pytest.approx(150 * (64 * 20 + 10) / rate)
    assert found.arms == 6
    assert found.training.tokens == 6 * recovered(pool) * 8 * 50
    own = {"gapft": None, "two": {"selector": "uniform", "k": 2, "n": "verified", "replay": 3}}
    other = replace(run_of(pool=pool, audit=audit), recipe={**RECIPE, "conditions": own})
    early = int(pool.passed[:, :2].any(axis=1).sum())
    assert of(other).costs.training.tokens == 3 * (recovered(pool) + early + 3) * 8 * 50, (
        "of a condition its own K, n and replay count"
    )
    assert found.training.seconds == pytest.approx(found.training.tokens * 4 / 1000)
    assert found.audit.tokens == 6 * 50 * 10
    stopped = of(run_of(pool=replace(pool, complete=False), audit=audit)).costs
    assert stopped.deeper[64].tokens is stopped.deeper[64].seconds is None
    assert stopped.training.tokens == found.training.tokens


def test_forecast_json_holds_what_is_documented(run: Path, tmp_path: Path) -> None:
    assert command(run, "--out", tmp_path).exit_code == 0
    page = (Path(__file__).parents[2] / "docs/gap.md").read_text("utf-8")
    for key in json.loads((tmp_path / "forecast.json").read_text()):
        assert f"| `{key}" in page, key
