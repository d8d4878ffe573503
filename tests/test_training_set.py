"""Training sets of another run (selector ``training_set``), by the real command."""

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
from tests.pools import pool
from tests.test_conditions import recipe
from tests.tiny_models import byte_llama
from tests.verify.tampering import change_rows

N, SEED = 4, 13
ARM = f"theirs-seed{SEED}"
FIRST_TWO = {"first_two": {"selector": "uniform", "k": 2}}
TRAINING = {"dtype": "float32", "repetitions": 1}


def condition_of(run: str, condition: str, **keys: Any) -> dict[str, Any]:
    """A condition with the training sets of another run."""
    params = {"run": run, "condition": condition}
    return {"selector": "training_set", "params": params, **keys}


TAKES = {"theirs": condition_of("source", "gapft"), "uniform": {}}
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


def options(name: str, *overrides: str) -> Options:
    return Options(
        f"{name}.yaml", include_paths=["tasks"], plugin_files=["plugin.py"], overrides=overrides
    )


def loaded(*more: str) -> list[str]:
    return ["--include-path", "tasks", "--plugin", "plugin.py", *more]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that chose its sets, and one of another base that took one of them; both finished.

    In ``here``, with a copy of it all beside it: their paths are in their manifests.
    """
    folder = tmp_path_factory.mktemp("taken") / "here"
    folder.mkdir()
    byte_llama(folder / "model")
    byte_llama(folder / "other", seed=1)
    write_letters(folder, {"pool": 48, "audit": 12})
    (folder / "plugin.py").write_text(CONTAINS)
    write_recipe(folder, "source", "model", conditions=["gapft", "all_verified", FIRST_TWO])
    write_recipe(
        folder, "taking", "other", conditions=TAKES, training=TRAINING | {"repetitions": 3}
    )
    for name in ("source", "taking"):
        succeed("run", f"{name}.yaml", "--run-dir", name, *loaded(), cwd=folder)
    shutil.copytree(folder, folder.with_name("copy"))
    return folder


@pytest.fixture
def made(kept: Path) -> Path:
    """It all as it was."""
    shutil.rmtree(kept)
    shutil.copytree(kept.with_name("copy"), kept)
    return kept


@pytest.fixture
def work(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, and commands are given there."""
    monkeypatch.chdir(made)
    return made


def manifest_of(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(run, "manifest.json").read_text())
    return found


def checked(run: str = "taking", plugin: str = "plugin.py") -> tuple[list[str], list[str]]:
    found = verify(Path(run), [plugin])
    return found.differences, found.checked


def rewrite(path: str, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Other examples in a set, which is sealed again."""
    run, relative = path.split("/", 1)
    change_rows(Path(run), relative, change)


def test_another_base_is_trained_by_other_settings_on_the_same_set(made: Path) -> None:
    there, here = (
        json.loads((made / r / "manifest.json").read_text()) for r in ("source", "taking")
    )
    assert read_examples(made / "taking" / SELECTION) == read_examples(made / SOURCE)
    assert here["budgets"][ARM]["taken"] == {
        "run": str((made / "source").resolve()),
        "arm": f"gapft-seed{SEED}",
        "sha256": sha256(made / SOURCE),
        "k": 4,
        "replay": 0,
    }
    assert here["budgets"][ARM]["matched"]
    assert here["budgets"][ARM]["exposures"] == 3 * N
    assert "taken" not in here["budgets"][f"uniform-seed{SEED}"]
    a, b = (
        found["training"][arm]["base_sha256"]
        for found, arm in ((there, f"gapft-seed{SEED}"), (here, ARM))
    )
    assert a != b
    report = (made / "taking/report/report.md").read_text("utf-8").replace("\\", "")
    assert "These training sets come from another run" in report
    assert f"theirs, seed {SEED}: gapft-seed{SEED} of {made.resolve() / 'source'}" in report
    results = json.loads((made / "taking/report/results.json").read_text())
    told = {"arm": f"gapft-seed{SEED}", "sha256": sha256(made / SOURCE), "k": 4, "replay": 0}
    assert results["conditions"]["theirs"]["seeds"][str(SEED)]["taken"] == told
    assert "taken" not in results["conditions"]["uniform"]["seeds"][str(SEED)]
    assert all(c["matched_budget"] for c in results["contrasts"] if c["b"] == "uniform")
    done = succeed("verify", "taking", "--plugin", "plugin.py", cwd=made)
    assert f"{ARM} was compared with its source" in " ".join(done.stdout.split())


def test_a_set_chosen_by_another_k_is_never_called_matched(made: Path) -> None:
    """It has as many examples as the others, and this run's recipe says nothing of its K."""
    conditions = {**TAKES, "early": condition_of("source", "first_two")}
    write_recipe(made, "wide", "other", conditions=conditions)
    succeed("run", "wide.yaml", "--run-dir", "wide", *loaded(), cwd=made)
    budgets = json.loads((made / "wide/manifest.json").read_text())["budgets"]
    early = budgets[f"early-seed{SEED}"]
    assert early["matched"], "it is the other run's matched budget"
    assert (early["taken"]["k"], early["taken"]["replay"]) == (2, 0)
    assert early["exposures"] == budgets[ARM]["exposures"]
    results = json.loads((made / "wide/report/results.json").read_text())
    matched = {(c["a"], c["b"]): c["matched_budget"] for c in results["contrasts"]}
    pairs = {frozenset(pair): same for pair, same in matched.items() if "source" not in pair}
    assert pairs == {
        frozenset({"theirs", "uniform"}): True,
        frozenset({"early", "theirs"}): False,
        frozenset({"early", "uniform"}): False,
    }
    report = (made / "wide/report/report.md").read_text("utf-8").replace("\\", "")
    assert "early (K = 2 of 4)" in report
    assert "verified" in succeed("verify", "wide", "--plugin", "plugin.py", cwd=made).stdout
    view = View(RunDirectory.open(made / "wide"), load_plugins(), ())
    assert [*find_setting_differences(view, "mine", ["theirs", "uniform"])] == []
    [fault] = find_setting_differences(view, "mine", ["uniform", "early"])
    assert "k not set → 2" in fault


def test_the_dry_run_says_where_sets_come_from_and_what_is_missing(work: Path) -> None:
    text = describe_dry_run(options("taking"), "new")
    assert "theirs (training_set), uniform" in text
    assert f"run: {work / 'source'}" in text
    assert "nothing: this recipe can run" in text
    Path("source").rename("away")
    text = describe_dry_run(options("taking"), "new")
    assert f"key 'conditions.theirs.params': {work / 'source'}: not a run directory" in text
    assert not Path("new").exists()


def another_tokenizer() -> None:
    file = Path("other/tokenizer.json")
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    file.write_text(json.dumps(content))


def another_task() -> None:
    file = Path("tasks/letters.yaml")
    file.write_text(file.read_text().replace('"{{question}}"', '"Q: {{question}}"'))


def edited() -> None:
    with Path(SOURCE).open("ab") as file:
        file.write(b"x")


def forged() -> None:
    rewrite(SOURCE, lambda rows: rows[1]["response_ids"].reverse())


@pytest.mark.parametrize(
    ("said", "change", "expected"),
    [
        (("nowhere", "gapft"), None, "key 'conditions.c.params': /.*/nowhere: not a run directory"),
        (("new", "gapft"), None, "key 'conditions.c.params': /.*/new is this run"),
        (("source", "c"), None, "source has no training set c-seed13; it has: gapft-seed13, all"),
        (("taking", "theirs"), None, "theirs-seed13 of .*taking is itself a set of /.*source"),
        (("source", "gapft"), edited, "was changed after it was sealed"),
        (("source", "gapft"), another_tokenizer, "tokenizer: tokenizer.json "),
        (("source", "gapft"), another_task, "task, doc_to_text .*Q: "),
    ],
)
def test_a_set_that_cannot_be_taken_is_refused_before_a_search(
    work: Path, said: tuple[str, str], change: Callable[[], None] | None, expected: str
) -> None:
    if change:
        change()
    write_recipe(work, "new", "other", conditions={"c": condition_of(*said)})
    with pytest.raises(UserError, match=expected):
        run_recipe(options("new"), "new")
    assert not list(Path("new").glob("pool/*"))


def test_the_command_refuses_without_a_traceback(work: Path) -> None:
    done = gapft(
        "run",
        "taking.yaml",
        "--run-dir",
        "new",
        "--set",
        "conditions.theirs.params.condition=gaptf",
        *loaded(),
        cwd=work,
    )
    assert done.returncode == 2
    assert "source has no training set gaptf-seed13" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (work / "new").exists()


def unselected(run: str) -> None:
    """The run as a kill left it after the set was written, and before the manifest was."""
    manifest = manifest_of(run)
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
        (forged, [], "slot 1, problem .* does not match the evidence in the states table; differ"),
        (None, ["budget.n=3"], f"has {N} examples, and there are 3 slots"),
        (None, ["budget.replay=1"], f"has {N} examples, and there are {N + 1} slots"),
        (
            None,
            ["conditions.theirs.params.condition=all_verified", "conditions.theirs.n=9"],
            "remove n",
        ),
    ],
)
def test_a_set_that_does_not_fit_is_refused_when_it_is_taken(
    work: Path, change: Callable[[], None] | None, settings: list[str], expected: str
) -> None:
    unselected("taking")
    if change:
        change()
    with pytest.raises(UserError, match=expected):
        run_stages_alone(["select"], "taking", options("taking", *settings))


def test_a_problem_that_this_pool_lacks_or_has_otherwise_is_refused(work: Path) -> None:
    unselected("taking")
    first = read_examples(Path(SOURCE))[0].problem_id
    for column in ("prompt_ids", "gold"):
        shutil.copytree("source", f"by_{column}")

        def change(rows: list[dict[str, Any]], column: str = column) -> None:
            row = next(row for row in rows if row["problem_id"] == first)
            row[column] = [*row[column], 3] if column == "prompt_ids" else '"z"'

        rewrite(f"by_{column}/pool/problems.parquet", change)
        with pytest.raises(UserError, match=f"1 of the .* first: {first}"):
            run_stages_alone(
                ["select"], "taking", options("taking", f"conditions.theirs.params.run=by_{column}")
            )
    write_recipe(work, "few", "other", conditions=TAKES, data={"task": "letters", "pool_limit": 6})
    with pytest.raises(UserError, match=r"of the 4 problems of gapft-seed13 in /.*source are not"):
        run_recipe(options("few"), "few")


def test_an_interrupted_selection_goes_on_and_a_sealed_one_needs_no_source(work: Path) -> None:
    before = sha256(Path("taking", SELECTION))
    unselected("taking")
    run_stages_alone(["select"], "taking", options("taking"))
    assert sha256(Path("taking", SELECTION)) == before
    assert manifest_of("taking")["files"][SELECTION] == before
    Path("source").rename("away")
    succeed("run", "taking.yaml", "--run-dir", "taking", *loaded(), cwd=work)
    assert sha256(Path("taking", SELECTION)) == before
    differences, told = checked()
    assert differences == []
    assert any(
        "verified, because the run that it comes from is not on this machine" in of for of in told
    )
    assert not any("was compared with its source" in line for line in told)
    with pytest.raises(UserError, match="not a run directory"):
        run_recipe(options("taking"), "new")


def test_other_settings_train_on_the_sealed_set_anew(work: Path) -> None:
    unselected("taking")
    run_stages_alone(["select"], "taking", options("taking"))
    with pytest.raises(UserError, match="there are 3 slots"):
        run_stages_alone(["select"], "taking", options("taking", "budget.n=3"))
    Path("source").rename("away")
    run_stages_alone(["select"], "taking", options("taking", "training.repetitions=2"))
    assert manifest_of("taking")["budgets"][ARM]["exposures"] == 2 * N
    assert manifest_of("taking")["budgets"][ARM]["taken"]["sha256"] == sha256(
        Path("away", SOURCE.partition("/")[2])
    )


def test_an_edited_source_is_found_by_verify(work: Path) -> None:
    edited()
    (difference,) = checked()[0]
    assert "gapft-seed13.parquet: was changed after it was sealed" in difference


def test_verify_finds_a_source_that_was_sealed_anew(work: Path) -> None:
    rewrite(SOURCE, lambda rows: rows.reverse())
    differences = checked()[0]
    assert any("the budget of theirs-seed13 has taken = " in line for line in differences)
    assert any(f"{SELECTION}: slot 0 has problem " in line for line in differences)


def test_verify_finds_a_set_that_is_not_the_one_that_was_taken(work: Path) -> None:
    rewrite(f"taking/{SELECTION}", lambda rows: rows.reverse())
    assert any(f"{SELECTION}: slot 0 has problem " in line for line in checked()[0])


@pytest.mark.parametrize("away", [False, True])
def test_verify_finds_audit_problems_in_a_taken_set(work: Path, away: bool) -> None:
    audit = pq.read_table("taking/audit/problems.parquet").to_pylist()[:N]

    def leak(rows: list[dict[str, Any]]) -> None:
        for row, problem in zip(rows, audit, strict=True):
            row["problem_id"] = row["origin"] = problem["problem_id"]
            row["prompt_ids"] = problem["prompt_ids"]

    rewrite(f"taking/{SELECTION}", leak)
    if away:
        Path("source").rename("away")
    differences, told = checked()
    lacking = [line for line in differences if "is not a problem of this run's pool" in line]
    assert [line.partition(": ")[2].partition(",")[0] for line in lacking] == [
        f"slot {slot}" for slot in range(N)
    ]
    assert not any("its prompt" in line for line in told)


def test_verify_finds_other_prompt_tokens_without_the_source(work: Path) -> None:
    rewrite(f"taking/{SELECTION}", lambda rows: rows[2]["prompt_ids"].append(3))
    Path("source").rename("away")
    (line,) = [line for line in checked()[0] if "other prompt tokens" in line]
    assert line.startswith(f"{SELECTION}: slot 2, problem ")


def test_verify_judges_the_responses_of_a_taken_set_again(work: Path) -> None:
    """The source says that a failed response passed; all that it keeps fits that."""
    told = checked()[1]
    assert any("that passed there, and passed again," in line for line in told)
    first = read_examples(Path(SOURCE))[0]

    def fail(rows: list[dict[str, Any]]) -> None:
        of = (first.problem_id, first.response_index)
        next(row for row in rows if (row["problem_id"], row["index"]) == of)["text"] = ""

    rewrite("source/pool/responses.parquet", fail)
    differences, told = checked()
    (line,) = differences
    assert f"problem {first.problem_id}, index {first.response_index} has the verdict pass" in line
    assert "source/pool/responses.parquet" in line
    assert "judged again it is fail" in line
    assert not any("passed again" in line for line in told)


def test_verify_says_what_it_cannot_judge_again(work: Path) -> None:
    plugin = "costly.py"
    Path(plugin).write_text(CONTAINS.replace(", Contains)", ", Contains, rejudge=False)"))
    sealed = {run: manifest_of(run) for run in ("source", "taking")}
    code = load_plugins([plugin]).find_code_hash("verifier", "contains")
    for run, manifest in sealed.items():
        manifest["rests_on"]["plugins"]["verifier contains"] = code
        write_json(Path(run, "manifest.json"), manifest)
    differences, told = checked(plugin=plugin)
    assert differences == []
    assert any("that passed there, as recorded, not judged again" in line for line in told)
    Path("source").rename("away")
    differences, told = checked(plugin=plugin)
    assert differences == []
    assert any("its verdicts and its budget were not verified" in line for line in told)


def test_verify_computes_whether_a_set_of_another_run_is_matched(work: Path) -> None:
    for run, arm in (("source", f"gapft-seed{SEED}"), ("taking", ARM)):
        manifest = manifest_of(run)
        manifest["budgets"][arm]["matched"] = False
        write_json(Path(run, "manifest.json"), manifest)
    (line,) = [line for line in checked()[0] if "has matched = " in line]
    assert line.endswith("give True")
    Path("source").rename("away")
    assert any("its budget were not verified" in line for line in checked()[1])


def test_a_condition_takes_its_sets_from_the_run_that_its_recipe_names(work: Path) -> None:
    recorded = manifest_of("taking")["recipe"]["conditions"]["theirs"]
    assert recorded["params"]["run"] == str(work / "source")
    shutil.copytree("source", "twin")
    manifest = manifest_of("taking")
    manifest["budgets"][ARM]["taken"]["run"] = str(work / "twin")
    write_json(Path("taking/manifest.json"), manifest)
    for name in ("source", "away"):
        (line,) = checked()[0]
        assert line.startswith(f"manifest.json: the budget of {ARM} has taken = ")
        if name == "source":
            Path("source").rename("away")


def test_verify_finds_a_forged_origin(work: Path) -> None:
    manifest = manifest_of("taking")
    taken = manifest["budgets"][ARM].pop("taken")
    write_json(Path("taking/manifest.json"), manifest)
    assert f"the budget of {ARM} has taken = None" in "".join(checked()[0])
    manifest["budgets"][ARM]["taken"] = taken
    manifest["budgets"][f"uniform-seed{SEED}"]["taken"] = taken
    write_json(Path("taking/manifest.json"), manifest)
    assert "the budget of uniform-seed13 has taken = " in "".join(checked()[0])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"params": {"run": "r"}}, "condition"),
        ({"params": {"condition": "gapft"}}, "run"),
        ({"params": {"run": 3, "condition": "gapft"}}, "conditions.c.params.run"),
        (condition_of("r", "gapft", k=1), "conditions.c.k"),
    ],
)
def test_a_condition_with_a_set_of_another_run_says_which_alone(
    keys: dict[str, Any], expected: str
) -> None:
    conditions = {"c": {"selector": "training_set", **keys}}
    with pytest.raises(UserError, match=expected):
        find_selector(recipe(conditions), "c", load_plugins())


def test_the_paths_among_parameters_are_found_from_any_folder(work: Path) -> None:
    """Those that a plugin of one's own declares too."""
    Path("own.py").write_text(OWN)
    conditions = {"theirs": condition_of("source", "gapft"), "own": {"params": {"list": "a.txt"}}}
    known = recipe(conditions).with_absolute_paths(load_plugins(["own.py"])).conditions
    assert known["theirs"].params == {"run": str(work / "source"), "condition": "gapft"}
    assert known["own"].params == {"list": str(work / "a.txt")}


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


def test_a_selector_of_ones_own_gives_examples_of_the_other_run_alone(work: Path) -> None:
    Path("own.py").write_text(OWN)
    unselected("taking")
    choice = replace(options("taking"), plugin_files=["plugin.py", "own.py"])
    for name in ("invents", "halves"):
        said = replace(choice, overrides=[f"conditions.theirs.selector={name}"])
        if name == "invents":
            with pytest.raises(PluginError, match=r"invents.*not in the other run's set"):
                run_stages_alone(["select"], "taking", said)
        else:
            run_stages_alone(["select"], "taking", said)
    theirs = read_examples(Path(SOURCE))
    assert read_examples(Path("taking", SELECTION)) == theirs[::2] * 2


#: A change of each column of an example; none of them gives a verified response of the pool.
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
def test_what_a_pool_gives_has_no_fault_and_any_change_of_it_has(
    solved: int, recovered: int, data: st.DataObject
) -> None:
    source = pool(solved, recovered)
    known = {e.problem_id: e for e in (*source.verified, *source.missed)}
    example = build_example(data.draw(st.sampled_from(source.verified)))
    assert build_example(find_evidence(example, known)) == example
    column = data.draw(st.sampled_from(sorted(CHANGES)))
    changed = not example.ended if column == "ended" else CHANGES[column]
    with pytest.raises(NotEvidence):
        find_evidence(replace(example, **{column: changed}), known)
