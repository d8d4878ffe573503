"""Named subsets of an audit with the real command: added later, edited, forged."""

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
from tests.end_to_end.letters_run import read_result
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest, seal_again

OPTIONS = ("--set", "statistics.replicates=60", "--set", "executor.workers=1", "--seed", "13")
PLUGIN = ("--plugin", "plugin.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run without subsets, ``plain``; one with them, ``run``; files of ids."""
    subset_folder = tmp_path_factory.mktemp("subsets")
    command = prepare(subset_folder)
    succeed(*command, "plain", *OPTIONS, cwd=subset_folder)
    ids = pq.read_table(subset_folder / "plain/audit/problems.parquet")["problem_id"].to_pylist()
    (subset_folder / "some.txt").write_text("\n".join([*ids[30:8:-2], "", ""]))
    recipe = (subset_folder / "recipe.yaml").read_text()
    few = f"  few: {{of: audit, items: {json.dumps(ids[3:9])}}}\n"
    added = f"audits:\n  some: {{of: audit, items: some.txt}}\n{few}"
    (subset_folder / "recipe.yaml").write_text(recipe + added)
    shutil.copytree(subset_folder / "plain", subset_folder / "run")
    succeed(*command, "run", *OPTIONS, cwd=subset_folder)
    return subset_folder


def read_rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path, columns=["problem_id", "index", "status"]).to_pylist()


def test_added_subset_changes_no_sealed_file(folder: Path) -> None:
    before, after = (read_result(folder / name) for name in ("plain", "run"))
    sealed = json.loads(before["manifest.json"])["files"]
    now = json.loads(after["manifest.json"])["files"]
    assert now.keys() - sealed.keys() == {"audit/some/items.json", "audit/few/items.json"}
    assert sealed.items() <= now.items()
    for name in before:
        if not name.startswith("report/") and name not in ("manifest.json", "recipe.yaml"):
            assert after[name] == before[name], name
    assert b'"audits"' not in before["report/results.json"]


def test_subset_scores_match_sealed_decisions(folder: Path) -> None:
    """Recount every count of the report from the tables."""
    run = folder / "run"
    results = json.loads((run / "report/results.json").read_text())
    assert list(results["audits"]) == ["some", "few"]
    for name, subset in results["audits"].items():
        content = json.loads((run / f"audit/{name}/items.json").read_text())
        items = set(content["items"])
        assert subset["of"] == content["of"] == "audit"
        responses = [
            r for r in read_rows(run / "audit/responses.parquet") if r["problem_id"] in items
        ]
        greedy = {r["problem_id"] for r in responses if r["index"] == -1 and r["status"] == "pass"}
        solved = {r["problem_id"] for r in responses if r["index"] >= 0 and r["status"] == "pass"}
        states = {"G": greedy, "S": solved - greedy, "U": items - greedy - solved}
        assert subset["source"]["states"] == {
            state: len(state_rows) for state, state_rows in states.items()
        }
        assert subset["source"]["pass_at_1"] == len(greedy) / len(items)
        for condition, condition_scores in subset["conditions"].items():
            decided = read_rows(run / f"decisions/{condition}-seed13.parquet")
            right = {r["problem_id"] for r in decided if r["status"] == "pass"} & items
            assert condition_scores["seeds"]["13"]["counts"] == {
                "correct": len(right),
                "S_corrected": len(right & states["S"]),
                "U_corrected": len(right & states["U"]),
                "G_regressed": len(states["G"] - right),
            }
            (gain,) = [c for c in subset["contrasts"] if (c["a"], c["b"]) == (condition, "source")]
            assert gain["delta"] == pytest.approx((len(right) - len(greedy)) / len(items))
            assert sum(gain["terms"].values()) == pytest.approx(gain["delta"])
    assert [subset["source"]["n"] for subset in results["audits"].values()] == [11, 6]
    plain = json.loads((folder / "plain/report/results.json").read_text())
    assert results.pop("chosen_after_results")
    assert {key: state_rows for key, state_rows in results.items() if key != "audits"} == plain


def test_subset_has_its_own_tables_and_section(folder: Path) -> None:
    report = folder / "run/report"
    text = (report / "report.md").read_text()
    assert text.index("## Problems gained and lost") < text.index("## Audit some")
    assert "A named subset: 11 of the 40 problems of the audit." in text
    lines = (report / "tables/audits_problems.csv").read_text().splitlines()
    assert len([line for line in lines if line.startswith("some,")]) == 11
    assert not list((folder / "plain/report/tables").glob("audits_*"))
    again = succeed("run", "run", "--only", "report", *PLUGIN, cwd=folder)
    assert "Traceback" not in again.stderr


def test_verify_checks_subset_against_audit_and_recipe(folder: Path, tmp_path: Path) -> None:
    output = succeed("verify", folder / "run", *PLUGIN, cwd=folder).stdout
    assert "2 named subsets of problems of an audit, each problem once" in output
    assert "audits.some, audits.few" in output
    plain = succeed("verify", folder / "plain", *PLUGIN, cwd=folder).stdout
    assert "subset" not in plain
    run = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    path = run / "audit/some/items.json"
    content = json.loads(path.read_text())
    content["items"][0] = "nobody"
    path.write_text(json.dumps(content))
    differences = "\n".join(verify(run, [str(folder / "plugin.py")]).differences)
    assert "audit/some/items.json: was changed after it was sealed" in differences
    plugin = str(folder / "plugin.py")
    (line,) = [d for d in forge_subset(run, plugin) if "has other problems" in d]
    assert line.startswith("audit/some/items.json: has other problems than audit/problems.parqu")


def forge_subset(run: Path, plugin: str) -> list[str]:
    """Change and reseal a subset, without its recipe key; return the differences."""
    seal_again(run, "audit/some/items.json")
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace("some.txt", "gone.txt"))
    change_manifest(run, lambda m: m["recipe"]["audits"]["some"].update(items=remove_id_file(run)))
    return verify(run, [plugin]).differences


def remove_id_file(run: Path) -> str:
    """Remove the file of ids; return its path as the run's recipe has it."""
    import yaml

    return str(yaml.safe_load((run / "recipe.yaml").read_text())["audits"]["some"]["items"])


def test_edited_id_file_is_named_with_changes(folder: Path) -> None:
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
            message = " ".join(done.stderr.split())
            assert f"audits.some.items, {folder / 'some.txt'}: 1 id removed: '{first}'" in message
        (folder / "some.txt").write_text(ids.replace(second, "nobody"))
        message = gapft("run", "run", "--only", "report", *PLUGIN, cwd=folder).stderr
        assert "1 id added: 'nobody'" in message
        assert f"1 id removed: '{second}'" in message
    finally:
        (folder / "some.txt").write_text(ids)
    succeed("run", "run", "--only", "report", *PLUGIN, cwd=folder)


def test_missing_ids_are_named_with_lines(folder: Path) -> None:
    before = read_result(folder / "run")
    ids = (folder / "some.txt").read_text().split()
    (folder / "wrong.txt").write_text(f"{ids[0]}\nnobody\n\n{ids[1]}\n{ids[2][:-1]}\n")
    command = ("run", "recipe.yaml", "--include-path", "tasks", *PLUGIN, *OPTIONS, "--run-dir")
    wrong = ("--set", "audits.wrong.of=audit", "--set", "audits.wrong.items=wrong.txt")
    for where in ("run", "new"):
        done = gapft(*command, where, *wrong, cwd=folder)
        assert done.returncode == 2
        message = " ".join(done.stderr.split())
        assert f"key 'audits.wrong.items': {folder / 'wrong.txt'}: 2 of 4 ids" in message
        assert f"'nobody' (line 2), '{ids[2][:-1]}' (line 5)" in message
        assert "Traceback" not in message
    assert not (folder / "new").exists(), "nothing was generated"
    assert read_result(folder / "run") == before
    (folder / "wrong.txt").write_text(f"{ids[0]}\n{ids[0]}\n")
    done = gapft(*command, "run", *wrong, cwd=folder)
    assert f"line 2: '{ids[0]}' is already on line 1" in " ".join(done.stderr.split())


def test_subset_can_match_another_tasks_audit(folder: Path) -> None:
    """Problems match by content: one has another id, and one is not in the audit."""
    data = (folder / "tasks/audit.jsonl").read_text().splitlines(keepends=True)
    few = [*data[4:9], data[9].replace("audit9", "ninth"), data[0].replace("0?", "new?")]
    (folder / "tasks/few.jsonl").write_text("".join(few))
    task = (folder / "tasks/letters.yaml").read_text()
    changed = task.replace("task: letters", "task: few").replace("audit.jsonl", "few.jsonl")
    (folder / "tasks/few.yaml").write_text(changed)
    shutil.copytree(folder / "plain", folder / "matched")
    command = ("run", "recipe.yaml", "--include-path", "tasks", *PLUGIN, *OPTIONS)
    arguments = (
        *command,
        "--run-dir",
        "matched",
        "--set",
        "audits={shared: {of: audit, task: few}}",
    )
    output = succeed(*arguments, "--dry-run", cwd=folder).stdout
    assert "shared: the problems of the audit that are also in the audit of few" in output
    succeed(*arguments, cwd=folder)
    content = json.loads((folder / "matched/audit/shared/items.json").read_text())
    assert [item.partition("-")[0] for item in content["items"]] == [
        f"audit{number}" for number in range(4, 10)
    ]
    results = json.loads((folder / "matched/report/results.json").read_text())
    assert results["audits"]["shared"]["source"]["n"] == 6
    output = " ".join(succeed("verify", "matched", *PLUGIN, cwd=folder).stdout.split())
    assert "audit/shared/items.json was matched again with the audit of task few" in output
    check_forged_match(folder)
    (folder / "tasks/few.jsonl").write_text("".join(few[1:]))
    done = gapft("verify", "matched", *PLUGIN, cwd=folder)
    assert done.returncode == 2
    assert "→ 6 problems (" in done.stderr
    (folder / "tasks/few.jsonl").write_text(few[-1])
    done = gapft(*arguments[:-1], "audits={none: {of: audit, task: few}}", cwd=folder)
    assert "no problem of the audit is in the audit of task few" in " ".join(done.stderr.split())


def check_forged_match(folder: Path) -> None:
    """Verify finds a resealed complement of the subset while the task's data are available."""
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
    checks = " ".join(verify(forged_run, [plugin]).checked)
    assert "not matched again: audit/shared/items.json: task few cannot be read" in checks
    (folder / "few.yaml").rename(folder / "tasks/few.yaml")


def test_compares_recorded_audit_when_ids_are_missing(folder: Path, tmp_path: Path) -> None:
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
        f"not checked, because it is not on this machine: {remove_id_file(run)} (audits.some)"
    ]


@pytest.mark.parametrize(
    ("setting", "expected"),
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
def test_rejects_invalid_subset_by_key(setting: str, expected: str) -> None:
    from gapft_harness.core.errors import UserError
    from gapft_harness.recipe.reading import check_recipe, parse_override

    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with pytest.raises(UserError) as caught:
        check_recipe(content, "test", [parse_override(setting)])
    assert expected in str(caught.value)
    assert "audits" in str(caught.value)
