"""Training sets of another run (selector ``training_set``) with the real command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import run_recipe, run_stages_alone
from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.files import sha256, write_json
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.experiment import View
from gapft_harness.stages.experiment.comparable import find_setting_differences
from gapft_harness.stages.selection.choosing import NotEvidence, build_example, find_evidence
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.letters_task import CONTAINS, write_letters
from tests.pools import build_pool
from tests.test_conditions import build_recipe
from tests.tiny_models import write_byte_llama
from tests.verify.tampering import change_rows

N, SEED = 4, 13
ARM = f"theirs-seed{SEED}"
FIRST_TWO = {"first_two": {"selector": "uniform", "k": 2}}
TRAINING = {"dtype": "float32", "repetitions": 1}


def build_condition(run: str, condition: str, **keys: Any) -> dict[str, Any]:
    """Build a condition that uses another run's training sets."""
    params = {"run": run, "condition": condition}
    return {"selector": "training_set", "params": params, **keys}


TAKES = {"theirs": build_condition("source", "gapft"), "uniform": {}}
SELECTION = f"selections/{ARM}.parquet"
SOURCE = f"source/selections/gapft-seed{SEED}.parquet"


def write_recipe(folder: Path, name: str, model: str, **keys: Any) -> None:
    content = {
        "name": name,
        "data": {"task": "letters"},
        "model": {"args": {"pretrained": model, "dtype": "float32", "device": "cpu"}},
        "search": {"k": 4, "temperature": 1.0, "top_p": 1.0},
        "seeds": [SEED],
        "budget": {"n": N},
        "training": TRAINING,
        "statistics": {"replicates": 20},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**content, **keys}))


def build_options(name: str, *overrides: str) -> Options:
    return Options(
        f"{name}.yaml", include_paths=["tasks"], plugin_files=["plugin.py"], overrides=overrides
    )


def plugin_arguments(*more: str) -> list[str]:
    return ["--include-path", "tasks", "--plugin", "plugin.py", *more]


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its own sets and a run on another base that reuses one; both finished.

    They are in ``here``, with a copy beside it: manifests hold their paths.
    """
    folder = tmp_path_factory.mktemp("taken") / "here"
    folder.mkdir()
    write_byte_llama(folder / "model")
    write_byte_llama(folder / "other", seed=1)
    write_letters(folder, {"pool": 48, "audit": 12})
    (folder / "plugin.py").write_text(CONTAINS)
    write_recipe(folder, "source", "model", conditions=["gapft", "all_verified", FIRST_TWO])
    write_recipe(
        folder, "taking", "other", conditions=TAKES, training=TRAINING | {"repetitions": 3}
    )
    for name in ("source", "taking"):
        succeed("run", f"{name}.yaml", "--run-dir", name, *plugin_arguments(), cwd=folder)
    shutil.copytree(folder, folder.with_name("copy"))
    return folder


@pytest.fixture
def runs_folder(finished_runs: Path) -> Path:
    """The finished runs, restored to their first state."""
    shutil.rmtree(finished_runs)
    shutil.copytree(finished_runs.with_name("copy"), finished_runs)
    return finished_runs


@pytest.fixture
def working_folder(runs_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The restored runs, as the working folder."""
    monkeypatch.chdir(runs_folder)
    return runs_folder


def read_manifest(run: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(Path(run, "manifest.json").read_text())
    return manifest


def verify_run(run: str = "taking", plugin: str = "plugin.py") -> tuple[list[str], list[str]]:
    result = verify(Path(run), [plugin])
    return result.differences, result.checked


def rewrite_set(path: str, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the examples of a set and seal it again."""
    run, relative = path.split("/", 1)
    change_rows(Path(run), relative, change)


def test_another_base_trains_on_the_same_set(runs_folder: Path) -> None:
    source_manifest, reusing_manifest = (
        json.loads((runs_folder / r / "manifest.json").read_text()) for r in ("source", "taking")
    )
    assert read_examples(runs_folder / "taking" / SELECTION) == read_examples(runs_folder / SOURCE)
    assert reusing_manifest["budgets"][ARM]["taken"] == {
        "run": str((runs_folder / "source").resolve()),
        "arm": f"gapft-seed{SEED}",
        "sha256": sha256(runs_folder / SOURCE),
        "k": 4,
        "replay": 0,
    }
    assert reusing_manifest["budgets"][ARM]["matched"]
    assert reusing_manifest["budgets"][ARM]["exposures"] == 3 * N
    assert "taken" not in reusing_manifest["budgets"][f"uniform-seed{SEED}"]
    a, b = (
        run_manifest["training"][arm]["base_sha256"]
        for run_manifest, arm in ((source_manifest, f"gapft-seed{SEED}"), (reusing_manifest, ARM))
    )
    assert a != b
    report = (runs_folder / "taking/report/report.md").read_text("utf-8").replace("\\", "")
    assert "These training sets come from another run" in report
    assert f"theirs, seed {SEED}: gapft-seed{SEED} of {runs_folder.resolve() / 'source'}" in report
    results = json.loads((runs_folder / "taking/report/results.json").read_text())
    recorded = {
        "arm": f"gapft-seed{SEED}",
        "sha256": sha256(runs_folder / SOURCE),
        "k": 4,
        "replay": 0,
    }
    assert results["conditions"]["theirs"]["seeds"][str(SEED)]["taken"] == recorded
    assert "taken" not in results["conditions"]["uniform"]["seeds"][str(SEED)]
    assert all(c["matched_budget"] for c in results["contrasts"] if c["b"] == "uniform")
    done = succeed("verify", "taking", "--plugin", "plugin.py", cwd=runs_folder)
    assert f"{ARM} was compared with its source" in " ".join(done.stdout.split())


def test_set_chosen_with_other_k_is_unmatched(runs_folder: Path) -> None:
    """It has as many examples as the others, and this run's recipe does not give its K."""
    conditions = {**TAKES, "early": build_condition("source", "first_two")}
    write_recipe(runs_folder, "wide", "other", conditions=conditions)
    succeed("run", "wide.yaml", "--run-dir", "wide", *plugin_arguments(), cwd=runs_folder)
    budgets = json.loads((runs_folder / "wide/manifest.json").read_text())["budgets"]
    early = budgets[f"early-seed{SEED}"]
    assert early["matched"], "it is the other run's matched budget"
    assert (early["taken"]["k"], early["taken"]["replay"]) == (2, 0)
    assert early["exposures"] == budgets[ARM]["exposures"]
    results = json.loads((runs_folder / "wide/report/results.json").read_text())
    matched = {(c["a"], c["b"]): c["matched_budget"] for c in results["contrasts"]}
    pairs = {frozenset(pair): same for pair, same in matched.items() if "source" not in pair}
    assert pairs == {
        frozenset({"theirs", "uniform"}): True,
        frozenset({"early", "theirs"}): False,
        frozenset({"early", "uniform"}): False,
    }
    report = (runs_folder / "wide/report/report.md").read_text("utf-8").replace("\\", "")
    assert "early (K = 2 of 4)" in report
    assert "verified" in succeed("verify", "wide", "--plugin", "plugin.py", cwd=runs_folder).stdout
    view = View(RunDirectory.open(runs_folder / "wide"), load_plugins(), ())
    assert [*find_setting_differences(view, "mine", ["theirs", "uniform"])] == []
    [fault] = find_setting_differences(view, "mine", ["uniform", "early"])
    assert "k not set → 2" in fault


def test_dry_run_names_sources_and_missing_sets(working_folder: Path) -> None:
    text = describe_dry_run(build_options("taking"), "new")
    assert "theirs (training_set), uniform" in text
    assert f"run: {working_folder / 'source'}" in text
    assert "nothing: this recipe can run" in text
    Path("source").rename("away")
    text = describe_dry_run(build_options("taking"), "new")
    assert (
        f"key 'conditions.theirs.params': {working_folder / 'source'}: not a run directory" in text
    )
    assert not Path("new").exists()


def change_tokenizer() -> None:
    file = Path("other/tokenizer.json")
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    file.write_text(json.dumps(content))


def change_task() -> None:
    file = Path("tasks/letters.yaml")
    file.write_text(file.read_text().replace('"{{question}}"', '"Q: {{question}}"'))


def edit_source() -> None:
    with Path(SOURCE).open("ab") as file:
        file.write(b"x")


def forge_source() -> None:
    rewrite_set(SOURCE, lambda rows: rows[1]["response_ids"].reverse())


@pytest.mark.parametrize(
    ("source", "change", "expected"),
    [
        (("nowhere", "gapft"), None, "key 'conditions.c.params': /.*/nowhere: not a run directory"),
        (("new", "gapft"), None, "key 'conditions.c.params': /.*/new is this run"),
        (("source", "c"), None, "source has no training set c-seed13; it has: gapft-seed13, all"),
        (("taking", "theirs"), None, "theirs-seed13 of .*taking is itself a set of /.*source"),
        (("source", "gapft"), edit_source, "was changed after it was sealed"),
        (("source", "gapft"), change_tokenizer, "tokenizer: tokenizer.json "),
        (("source", "gapft"), change_task, "task, doc_to_text .*Q: "),
    ],
)
def test_unusable_set_is_refused_before_search(
    working_folder: Path, source: tuple[str, str], change: Callable[[], None] | None, expected: str
) -> None:
    if change:
        change()
    write_recipe(working_folder, "new", "other", conditions={"c": build_condition(*source)})
    with pytest.raises(UserError, match=expected):
        run_recipe(build_options("new"), "new")
    assert not list(Path("new").glob("pool/*"))


def test_refuses_without_a_traceback(working_folder: Path) -> None:
    done = gapft(
        "run",
        "taking.yaml",
        "--run-dir",
        "new",
        "--set",
        "conditions.theirs.params.condition=gaptf",
        *plugin_arguments(),
        cwd=working_folder,
    )
    assert done.returncode == 2
    assert "source has no training set gaptf-seed13" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (working_folder / "new").exists()


def unseal_selection(run: str) -> None:
    """Restore the state after a kill between writing the set and the manifest."""
    manifest = read_manifest(run)
    del manifest["n"]
    for section in ("budgets", "training"):
        manifest[section] = {}
    manifest["files"] = {k: v for k, v in manifest["files"].items() if k[:4] in ("pool", "audi")}
    write_json(Path(run, "manifest.json"), manifest)
    for folder in ("adapters", "decisions", "report"):
        shutil.rmtree(Path(run, folder))


@pytest.mark.parametrize(
    ("change", "settings", "expected"),
    [
        (
            forge_source,
            [],
            "slot 1: problem .* response_ids",
        ),
        (None, ["budget.n=3"], f"{N} examples, .* 3 slots"),
        (None, ["budget.replay=1"], f"{N} examples, .* {N + 1} slots"),
        (
            None,
            ["conditions.theirs.params.condition=all_verified", "conditions.theirs.n=9"],
            "remove n",
        ),
    ],
)
def test_unsuitable_set_is_refused_when_selected(
    working_folder: Path, change: Callable[[], None] | None, settings: list[str], expected: str
) -> None:
    unseal_selection("taking")
    if change:
        change()
    with pytest.raises(UserError, match=expected):
        run_stages_alone(["select"], "taking", build_options("taking", *settings))


def test_rejects_missing_or_different_problems(working_folder: Path) -> None:
    unseal_selection("taking")
    first = read_examples(Path(SOURCE))[0].problem_id
    for column in ("prompt_ids", "gold"):
        shutil.copytree("source", f"by_{column}")

        def change(rows: list[dict[str, Any]], column: str = column) -> None:
            row = next(row for row in rows if row["problem_id"] == first)
            row[column] = [*row[column], 3] if column == "prompt_ids" else '"z"'

        rewrite_set(f"by_{column}/pool/problems.parquet", change)
        with pytest.raises(UserError, match=f"1 of the .* first: {first}"):
            run_stages_alone(
                ["select"],
                "taking",
                build_options("taking", f"conditions.theirs.params.run=by_{column}"),
            )
    write_recipe(
        working_folder, "few", "other", conditions=TAKES, data={"task": "letters", "pool_limit": 6}
    )
    with pytest.raises(UserError, match=r"of the 4 problems of gapft-seed13 in /.*source are not"):
        run_recipe(build_options("few"), "few")


def test_resumes_selection_without_sealed_source(working_folder: Path) -> None:
    before = sha256(Path("taking", SELECTION))
    unseal_selection("taking")
    run_stages_alone(["select"], "taking", build_options("taking"))
    assert sha256(Path("taking", SELECTION)) == before
    assert read_manifest("taking")["files"][SELECTION] == before
    Path("source").rename("away")
    succeed("run", "taking.yaml", "--run-dir", "taking", *plugin_arguments(), cwd=working_folder)
    assert sha256(Path("taking", SELECTION)) == before
    differences, checks = verify_run()
    assert differences == []
    assert any(
        "verified, because the run that it comes from is not on this machine" in check_line
        for check_line in checks
    )
    assert not any("was compared with its source" in line for line in checks)
    with pytest.raises(UserError, match="not a run directory"):
        run_recipe(build_options("taking"), "new")


def test_other_settings_retrain_on_the_sealed_set(working_folder: Path) -> None:
    unseal_selection("taking")
    run_stages_alone(["select"], "taking", build_options("taking"))
    with pytest.raises(UserError, match="there are 3 slots"):
        run_stages_alone(["select"], "taking", build_options("taking", "budget.n=3"))
    Path("source").rename("away")
    run_stages_alone(["select"], "taking", build_options("taking", "training.repetitions=2"))
    assert read_manifest("taking")["budgets"][ARM]["exposures"] == 2 * N
    assert read_manifest("taking")["budgets"][ARM]["taken"]["sha256"] == sha256(
        Path("away", SOURCE.partition("/")[2])
    )


def test_verify_finds_edited_source(working_folder: Path) -> None:
    edit_source()
    (difference,) = verify_run()[0]
    assert "gapft-seed13.parquet: was changed after it was sealed" in difference


def test_verify_finds_resealed_source(working_folder: Path) -> None:
    rewrite_set(SOURCE, lambda rows: rows.reverse())
    differences = verify_run()[0]
    assert any("the budget of theirs-seed13 has taken = " in line for line in differences)
    assert any(f"{SELECTION}: slot 0 has problem " in line for line in differences)


def test_verify_finds_replaced_set(working_folder: Path) -> None:
    rewrite_set(f"taking/{SELECTION}", lambda rows: rows.reverse())
    assert any(f"{SELECTION}: slot 0 has problem " in line for line in verify_run()[0])


@pytest.mark.parametrize("away", [False, True])
def test_verify_finds_audit_problems_in_set(working_folder: Path, away: bool) -> None:
    audit = pq.read_table("taking/audit/problems.parquet").to_pylist()[:N]

    def leak(rows: list[dict[str, Any]]) -> None:
        for row, problem in zip(rows, audit, strict=True):
            row["problem_id"] = row["origin"] = problem["problem_id"]
            row["prompt_ids"] = problem["prompt_ids"]

    rewrite_set(f"taking/{SELECTION}", leak)
    if away:
        Path("source").rename("away")
    differences, checks = verify_run()
    lacking = [line for line in differences if "is not a problem of this run's pool" in line]
    assert [line.partition(": ")[2].partition(",")[0] for line in lacking] == [
        f"slot {slot}" for slot in range(N)
    ]
    assert not any("its prompt" in line for line in checks)


def test_verify_finds_other_prompt_tokens_without_source(working_folder: Path) -> None:
    rewrite_set(f"taking/{SELECTION}", lambda rows: rows[2]["prompt_ids"].append(3))
    Path("source").rename("away")
    (line,) = [line for line in verify_run()[0] if "other prompt tokens" in line]
    assert line.startswith(f"{SELECTION}: slot 2, problem ")


def test_verify_rejudges_reused_responses(working_folder: Path) -> None:
    """The source records a failed response as passed, consistently in all its files."""
    checks = verify_run()[1]
    assert any("that passed there, and passed again," in line for line in checks)
    first = read_examples(Path(SOURCE))[0]

    def fail(rows: list[dict[str, Any]]) -> None:
        response_key = (first.problem_id, first.response_index)
        next(row for row in rows if (row["problem_id"], row["index"]) == response_key)["text"] = ""

    rewrite_set("source/pool/responses.parquet", fail)
    differences, checks = verify_run()
    (line,) = differences
    assert f"problem {first.problem_id}, index {first.response_index} has the verdict pass" in line
    assert "source/pool/responses.parquet" in line
    assert "judged again it is fail" in line
    assert not any("passed again" in line for line in checks)


def test_verify_reports_responses_it_cannot_rejudge(working_folder: Path) -> None:
    plugin = "costly.py"
    Path(plugin).write_text(CONTAINS.replace(", Contains)", ", Contains, rejudge=False)"))
    sealed = {run: read_manifest(run) for run in ("source", "taking")}
    code = load_plugins([plugin]).find_code_hash("verifier", "contains")
    for run, manifest in sealed.items():
        manifest["rests_on"]["plugins"]["verifier contains"] = code
        write_json(Path(run, "manifest.json"), manifest)
    differences, checks = verify_run(plugin=plugin)
    assert differences == []
    assert any("that passed there, as recorded, not judged again" in line for line in checks)
    Path("source").rename("away")
    differences, checks = verify_run(plugin=plugin)
    assert differences == []
    assert any("its verdicts and its budget were not verified" in line for line in checks)


def test_verify_checks_matching_of_reused_sets(working_folder: Path) -> None:
    for run, arm in (("source", f"gapft-seed{SEED}"), ("taking", ARM)):
        manifest = read_manifest(run)
        manifest["budgets"][arm]["matched"] = False
        write_json(Path(run, "manifest.json"), manifest)
    (line,) = [line for line in verify_run()[0] if "has matched = " in line]
    assert line.endswith("give True")
    Path("source").rename("away")
    assert any("its budget were not verified" in line for line in verify_run()[1])


def test_condition_reads_sets_of_named_run(working_folder: Path) -> None:
    recorded = read_manifest("taking")["recipe"]["conditions"]["theirs"]
    assert recorded["params"]["run"] == str(working_folder / "source")
    shutil.copytree("source", "twin")
    manifest = read_manifest("taking")
    manifest["budgets"][ARM]["taken"]["run"] = str(working_folder / "twin")
    write_json(Path("taking/manifest.json"), manifest)
    for name in ("source", "away"):
        (line,) = verify_run()[0]
        assert line.startswith(f"manifest.json: the budget of {ARM} has taken = ")
        if name == "source":
            Path("source").rename("away")


def test_verify_finds_forged_origin(working_folder: Path) -> None:
    manifest = read_manifest("taking")
    reused = manifest["budgets"][ARM].pop("taken")
    write_json(Path("taking/manifest.json"), manifest)
    assert f"the budget of {ARM} has taken = None" in "".join(verify_run()[0])
    manifest["budgets"][ARM]["taken"] = reused
    manifest["budgets"][f"uniform-seed{SEED}"]["taken"] = reused
    write_json(Path("taking/manifest.json"), manifest)
    assert "the budget of uniform-seed13 has taken = " in "".join(verify_run()[0])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"params": {"run": "r"}}, "condition"),
        ({"params": {"condition": "gapft"}}, "run"),
        ({"params": {"run": 3, "condition": "gapft"}}, "conditions.c.params.run"),
        (build_condition("r", "gapft", k=1), "conditions.c.k"),
    ],
)
def test_rejects_other_keys_beside_training_set(keys: dict[str, Any], expected: str) -> None:
    conditions = {"c": {"selector": "training_set", **keys}}
    with pytest.raises(UserError, match=expected):
        find_selector(build_recipe(conditions), "c", load_plugins())


def test_parameter_paths_resolve_from_any_folder(working_folder: Path) -> None:
    """This includes paths that a custom plugin declares."""
    Path("own.py").write_text(OWN)
    conditions = {
        "theirs": build_condition("source", "gapft"),
        "own": {"params": {"list": "a.txt"}},
    }
    resolved = build_recipe(conditions).with_absolute_paths(load_plugins(["own.py"])).conditions
    assert resolved["theirs"].params == {
        "run": str(working_folder / "source"),
        "condition": "gapft",
    }
    assert resolved["own"].params == {"list": str(working_folder / "a.txt")}


OWN = """
from gapft_harness import hookimpl


def own(pool, n, rng, list):
    return pool.verified[:n]


def invents(pool, n, rng, run, condition):
    return pool.verified[:n]


def halves(pool, n, rng, run, condition):
    return pool.foreign[::2] * 2


@hookimpl
def register_selectors(register):
    register("own", own, files=("list",))
    register("invents", invents, responses="foreign", files=("run",))
    register("halves", halves, responses="foreign", files=("run",), repeats=True)
"""


def test_custom_selector_uses_only_the_other_run(working_folder: Path) -> None:
    Path("own.py").write_text(OWN)
    unseal_selection("taking")
    choice = replace(build_options("taking"), plugin_files=["plugin.py", "own.py"])
    for name in ("invents", "halves"):
        changed_options = replace(choice, overrides=[f"conditions.theirs.selector={name}"])
        if name == "invents":
            with pytest.raises(PluginError, match=r"invents.*not in the other run's set"):
                run_stages_alone(["select"], "taking", changed_options)
        else:
            run_stages_alone(["select"], "taking", changed_options)
    source_examples = read_examples(Path(SOURCE))
    assert read_examples(Path("taking", SELECTION)) == source_examples[::2] * 2


#: A change for each column of an example; none of them is a verified response of the pool.
CHANGES: dict[str, Any] = {
    "problem_id": "another",
    "state": "U",
    "prompt_ids": (9, 9),
    "response_ids": (9, 9, 9),
    "response_index": 77,
    "first_success": 55,
    "ended": None,
    "origin": "another",
}


@given(st.integers(0, 5), st.integers(1, 5), st.data())
def test_pool_examples_are_valid_until_changed(
    solved: int, recovered: int, data: st.DataObject
) -> None:
    source = build_pool(solved, recovered)
    evidence_by_id = {e.problem_id: e for e in (*source.verified, *source.missed)}
    example = build_example(data.draw(st.sampled_from(source.verified)))
    assert build_example(find_evidence(example, evidence_by_id)) == example
    column = data.draw(st.sampled_from(sorted(CHANGES)))
    changed = not example.ended if column == "ended" else CHANGES[column]
    with pytest.raises(NotEvidence):
        find_evidence(replace(example, **{column: changed}), evidence_by_id)
