"""Named subsets of an audit, by the real command: added to a finished run, edited, forged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.integrity.subsets import compare_subsets
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.end_to_end.letters_run import result
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest, seal_again

OPTIONS = ("--set", "statistics.replicates=60", "--set", "executor.workers=1", "--seed", "13")
PLUGIN = ("--plugin", "plugin.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run without subsets, ``plain``; one with them, ``run``; files of ids."""
    made = tmp_path_factory.mktemp("subsets")
    command = prepare(made)
    succeed(*command, "plain", *OPTIONS, cwd=made)
    ids = pq.read_table(made / "plain/audit/problems.parquet")["problem_id"].to_pylist()
    (made / "some.txt").write_text("\n".join([*ids[30:8:-2], "", ""]))
    recipe = (made / "recipe.yaml").read_text()
    few = f"  few: {{of: audit, items: {json.dumps(ids[3:9])}}}\n"
    added = f"audits:\n  some: {{of: audit, items: some.txt}}\n{few}"
    (made / "recipe.yaml").write_text(recipe + added)
    shutil.copytree(made / "plain", made / "run")
    succeed(*command, "run", *OPTIONS, cwd=made)
    return made


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path, columns=["problem_id", "index", "status"]).to_pylist()


def test_a_subset_added_to_a_finished_run_changes_no_sealed_byte(folder: Path) -> None:
    before, after = (result(folder / name) for name in ("plain", "run"))
    sealed = json.loads(before["manifest.json"])["files"]
    now = json.loads(after["manifest.json"])["files"]
    assert now.keys() - sealed.keys() == {"audit/some/items.json", "audit/few/items.json"}
    assert sealed.items() <= now.items()
    for name in before:
        if not name.startswith("report/") and name not in ("manifest.json", "recipe.yaml"):
            assert after[name] == before[name], name
    assert b'"audits"' not in before["report/results.json"]


def test_a_subset_is_scored_from_the_sealed_decisions(folder: Path) -> None:
    """Every count of the report, counted again from the tables."""
    run = folder / "run"
    results = json.loads((run / "report/results.json").read_text())
    assert list(results["audits"]) == ["some", "few"]
    for name, found in results["audits"].items():
        content = json.loads((run / f"audit/{name}/items.json").read_text())
        items = set(content["items"])
        assert found["of"] == content["of"] == "audit"
        responses = [r for r in rows(run / "audit/responses.parquet") if r["problem_id"] in items]
        greedy = {r["problem_id"] for r in responses if r["index"] == -1 and r["status"] == "pass"}
        solved = {r["problem_id"] for r in responses if r["index"] >= 0 and r["status"] == "pass"}
        states = {"G": greedy, "S": solved - greedy, "U": items - greedy - solved}
        assert found["source"]["states"] == {state: len(of) for state, of in states.items()}
        assert found["source"]["pass_at_1"] == len(greedy) / len(items)
        for condition, told in found["conditions"].items():
            decided = rows(run / f"decisions/{condition}-seed13.parquet")
            right = {r["problem_id"] for r in decided if r["status"] == "pass"} & items
            assert told["seeds"]["13"]["counts"] == {
                "correct": len(right),
                "S_corrected": len(right & states["S"]),
                "U_corrected": len(right & states["U"]),
                "G_regressed": len(states["G"] - right),
            }
            (gain,) = [c for c in found["contrasts"] if (c["a"], c["b"]) == (condition, "source")]
            assert gain["delta"] == pytest.approx((len(right) - len(greedy)) / len(items))
            assert sum(gain["terms"].values()) == pytest.approx(gain["delta"])
    assert [found["source"]["n"] for found in results["audits"].values()] == [11, 6]
    plain = json.loads((folder / "plain/report/results.json").read_text())
    assert results.pop("chosen_after_results")
    assert {key: of for key, of in results.items() if key != "audits"} == plain


def test_its_tables_and_its_section_stand_apart(folder: Path) -> None:
    report = folder / "run/report"
    text = (report / "report.md").read_text()
    assert text.index("## Problems gained and lost") < text.index("## Audit some")
    assert "A named subset: 11 of the 40 problems of the audit." in text
    lines = (report / "tables/audits_problems.csv").read_text().splitlines()
    assert len([line for line in lines if line.startswith("some,")]) == 11
    assert not list((folder / "plain/report/tables").glob("audits_*"))
    again = succeed("run", "run", "--only", "report", *PLUGIN, cwd=folder)
    assert "Traceback" not in again.stderr


def test_verify_holds_it_to_its_audit_and_to_the_recipe(folder: Path, tmp_path: Path) -> None:
    told = succeed("verify", folder / "run", *PLUGIN, cwd=folder).stdout
    assert "2 named subsets of problems of an audit, each problem once" in told
    assert "audits.some, audits.few" in told
    plain = succeed("verify", folder / "plain", *PLUGIN, cwd=folder).stdout
    assert "subset" not in plain
    run = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    path = run / "audit/some/items.json"
    content = json.loads(path.read_text())
    content["items"][0] = "nobody"
    path.write_text(json.dumps(content))
    said = "\n".join(verify(run, [str(folder / "plugin.py")]).differences)
    assert "audit/some/items.json: was changed after it was sealed" in said
    plugin = str(folder / "plugin.py")
    (line,) = [d for d in forged(run, plugin) if "has other problems" in d]
    assert line.startswith("audit/some/items.json: has other problems than audit/problems.parqu")


def forged(run: Path, plugin: str) -> list[str]:
    """The differences of a run whose subset was changed and sealed again; the recipe is silent."""
    seal_again(run, "audit/some/items.json")
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace("some.txt", "gone.txt"))
    change_manifest(run, lambda m: m["recipe"]["audits"]["some"].update(items=gone(run)))
    return verify(run, [plugin]).differences


def gone(run: Path) -> str:
    """The path of a file of ids that is not there, as the run's recipe has it."""
    import yaml

    return str(yaml.safe_load((run / "recipe.yaml").read_text())["audits"]["some"]["items"])


def test_an_edited_file_is_named_with_what_changed(folder: Path) -> None:
    ids = (folder / "some.txt").read_text()
    first, second, *_ = ids.splitlines()
    (folder / "some.txt").write_text(ids.replace(f"{first}\n", ""))
    try:
        for command in (
            ["run", "run", "--only", "report"],
            ["verify", "run"],
        ):
            done = gapft(*command, *PLUGIN, cwd=folder)
            assert done.returncode == 2, command
            said = " ".join(done.stderr.split())
            assert f"audits.some.items, {folder / 'some.txt'}: 1 id removed: '{first}'" in said
        (folder / "some.txt").write_text(ids.replace(second, "nobody"))
        said = gapft("run", "run", "--only", "report", *PLUGIN, cwd=folder).stderr
        assert "1 id added: 'nobody'" in said
        assert f"1 id removed: '{second}'" in said
    finally:
        (folder / "some.txt").write_text(ids)
    succeed("run", "run", "--only", "report", *PLUGIN, cwd=folder)


def test_ids_that_the_audit_lacks_are_named_with_their_lines(folder: Path) -> None:
    before = result(folder / "run")
    ids = (folder / "some.txt").read_text().split()
    (folder / "wrong.txt").write_text(f"{ids[0]}\nnobody\n\n{ids[1]}\n{ids[2][:-1]}\n")
    command = ("run", "recipe.yaml", "--include-path", "tasks", *PLUGIN, *OPTIONS, "--run-dir")
    wrong = ("--set", "audits.wrong.of=audit", "--set", "audits.wrong.items=wrong.txt")
    for where in ("run", "new"):
        done = gapft(*command, where, *wrong, cwd=folder)
        assert done.returncode == 2
        said = " ".join(done.stderr.split())
        assert f"key 'audits.wrong.items': {folder / 'wrong.txt'}: 2 of 4 ids are no prob" in said
        assert f"'nobody' (line 2), '{ids[2][:-1]}' (line 5)" in said
        assert "Traceback" not in said
    assert not (folder / "new").exists(), "nothing was generated"
    assert result(folder / "run") == before
    (folder / "wrong.txt").write_text(f"{ids[0]}\n{ids[0]}\n")
    done = gapft(*command, "run", *wrong, cwd=folder)
    assert f"line 2: '{ids[0]}' is already on line 1" in " ".join(done.stderr.split())


def test_a_subset_is_of_the_problems_that_another_task_audits_too(folder: Path) -> None:
    """By content: one has another id there, and one is not in the audit at all."""
    data = (folder / "tasks/audit.jsonl").read_text().splitlines(keepends=True)
    few = [*data[4:9], data[9].replace("audit9", "ninth"), data[0].replace("0?", "new?")]
    (folder / "tasks/few.jsonl").write_text("".join(few))
    task = (folder / "tasks/letters.yaml").read_text()
    changed = task.replace("task: letters", "task: few").replace("audit.jsonl", "few.jsonl")
    (folder / "tasks/few.yaml").write_text(changed)
    shutil.copytree(folder / "plain", folder / "matched")
    command = ("run", "recipe.yaml", "--include-path", "tasks", *PLUGIN, *OPTIONS)
    asked = (*command, "--run-dir", "matched", "--set", "audits={shared: {of: audit, task: few}}")
    told = succeed(*asked, "--dry-run", cwd=folder).stdout
    assert "shared: the problems of the audit that are also in the audit of few" in told
    succeed(*asked, cwd=folder)
    content = json.loads((folder / "matched/audit/shared/items.json").read_text())
    assert [item.partition("-")[0] for item in content["items"]] == [
        f"audit{number}" for number in range(4, 10)
    ]
    results = json.loads((folder / "matched/report/results.json").read_text())
    assert results["audits"]["shared"]["source"]["n"] == 6
    told = " ".join(succeed("verify", "matched", *PLUGIN, cwd=folder).stdout.split())
    assert "audit/shared/items.json was matched again with the audit of task few" in told
    check_forged_match(folder)
    (folder / "tasks/few.jsonl").write_text("".join(few[1:]))
    done = gapft("verify", "matched", *PLUGIN, cwd=folder)
    assert done.returncode == 2
    assert "→ 6 problems (" in done.stderr
    (folder / "tasks/few.jsonl").write_text(few[-1])
    done = gapft(*asked[:-1], "audits={none: {of: audit, task: few}}", cwd=folder)
    assert "no problem of the audit is in the audit of task few" in " ".join(done.stderr.split())


def check_forged_match(folder: Path) -> None:
    """The complement of what the task chooses, sealed again, is found while its data are here."""
    forged_run = Path(shutil.copytree(folder / "matched", folder / "complement"))
    path = forged_run / "audit/shared/items.json"
    content = json.loads(path.read_text())
    ids = pq.read_table(folder / "plain/audit/problems.parquet")["problem_id"].to_pylist()
    path.write_text(json.dumps(content | {"items": sorted({*ids} - {*content["items"]})}))
    seal_again(forged_run, "audit/shared/items.json")
    plugin = str(folder / "plugin.py")
    (line,) = [d for d in verify(forged_run, [plugin]).differences if "shared" in d]
    assert "other problems than the problems shared with the audit of task few: 34 and 6" in line
    (folder / "tasks/few.yaml").rename(folder / "few.yaml")
    told = " ".join(verify(forged_run, [plugin]).checked)
    assert "not matched again: audit/shared/items.json: task few cannot be read" in told
    (folder / "few.yaml").rename(folder / "tasks/few.yaml")


def test_the_audit_of_a_subset_is_compared_where_its_ids_are_not_here(
    folder: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace("some.txt", "gone.txt"))
    path = run / "audit/some/items.json"
    path.write_text(path.read_text().replace('"of": "audit"', '"of": "other"'))
    seal_again(run, "audit/some/items.json")
    files = json.loads((run / "manifest.json").read_text())["files"]
    lines, _, unchecked = compare_subsets(RunDirectory.open(run), files)
    assert lines == ["audits.some.of other → audit; give a subset of another audit another name"]
    assert unchecked == [
        f"not checked, because it is not on this machine: {gone(run)} (audits.some)"
    ]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("audits.a/b={of: audit, items: [x]}", "'a/b' cannot name an audit"),
        ("audits.states={of: audit, items: [x]}", "'states' cannot name an audit"),
        ("audits.x={of: pool, items: [x]}", "'x': unknown audit 'pool' in `of`; known: audit"),
        ("audits.x={of: audit, items: []}", "is empty"),
        ("audits.x={of: audit, items: [y, y]}", "contains 'y' twice"),
        ("audits.x={of: audit, item: [y]}", "did you mean 'audits.x.items'?"),
        ("audits.x={of: audit}", "'x' is a subset: expected `of` with either `items` or `task`"),
    ],
)
def test_a_subset_that_cannot_be_is_refused_by_its_key(setting: str, said: str) -> None:
    from gapft_harness.core.errors import UserError
    from gapft_harness.recipe.reading import check_recipe, parse_override

    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with pytest.raises(UserError) as caught:
        check_recipe(content, "test", [parse_override(setting)])
    assert said in str(caught.value)
    assert "audits" in str(caught.value)
