"""Additional audits, of another task with its own verifier, run with the real command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.end_to_end.letters_run import find_stored_files, find_workers, kill_command, read_result
from tests.end_to_end.test_scaled_run import wait_until
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest, read_rows, seal_again, write_rows

#: A verifier that the run's main task does not have.
LENIENT = '''

class Lenient:
    """Passes a response that contains the gold letter, large or small."""

    def verify(self, responses, golds):
        return [
            Verdict("pass" if g in r.lower() else "fail") for r, g in zip(responses, golds)
        ]


@hookimpl
def register_verifiers(register):
    register("contains", Contains)
    register("lenient", Lenient)
'''

AUDITS = """audits:
  half: {of: other, items: half.txt}
  other: {task: others}
"""

RUN = ("run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--run-dir")
OPTIONS = (
    "--set", "statistics.replicates=40", "--set", "executor.workers=1", "--seed", "13",
    "--condition", "gapft", "--set", "training.repetitions=1",
)  # fmt: skip
PLUGIN = ("--plugin", "plugin.py")
ARM = "gapft-seed13"


def other_questions(count: int) -> str:
    lines = ({"id": f"other{i}", "question": f"other {i}?", "answer": "tno"[i % 3]} for i in count)
    return "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs plain, added (a copy with more audits) and unhalved."""
    directory = tmp_path_factory.mktemp("audits")
    prepare(directory)
    plugin = (directory / "plugin.py").read_text()
    (directory / "plugin.py").write_text(plugin.partition("@hookimpl")[0] + LENIENT)
    task = (directory / "tasks/letters.yaml").read_text()
    for old, new in (
        ("task: letters", "task: others"),
        ("audit.jsonl", "others.jsonl"),
        ("contains", "lenient"),
        ("max_gen_toks: 12", "max_gen_toks: 9"),
    ):
        assert old in task
        task = task.replace(old, new)
    (directory / "tasks/others.yaml").write_text(task)
    (directory / "tasks/others.jsonl").write_text(other_questions(range(34)))
    succeed(*RUN, "plain", *OPTIONS, cwd=directory)
    recipe = (directory / "recipe.yaml").read_text()
    (directory / "recipe.yaml").write_text(recipe + AUDITS.replace("half:", "#"))
    succeed(*RUN, "unhalved", *OPTIONS, cwd=directory)
    ids = [
        row["problem_id"] for row in read_rows(directory / "unhalved/audit/other/problems.parquet")
    ]
    (directory / "half.txt").write_text("\n".join(ids[::2]))
    (directory / "recipe.yaml").write_text(recipe + AUDITS)
    for name in ("added", "killed"):
        shutil.copytree(directory / "plain", directory / name)
    succeed(*RUN, "added", *OPTIONS, cwd=directory)
    return directory


def read_manifest(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text())


def read_judged_rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path, columns=["problem_id", "index", "status", "text"]).to_pylist()


def test_added_audit_computes_only_what_is_missing(folder: Path) -> None:
    """The files are the same as in a run that had the audit from the beginning."""
    plain, added, at_once = (
        read_manifest(folder / name)["files"] for name in ("plain", "added", "unhalved")
    )
    assert plain.items() <= added.items()
    new = {f"audit/other/{table}.parquet" for table in ("problems", "responses", "states")}
    new |= {f"decisions/{ARM}@other.parquet", "audit/half/items.json"}
    assert added.keys() - plain.keys() == new
    assert {name: digest for name, digest in added.items() if "half" not in name} == at_once
    before, after = (read_result(folder / name) for name in ("plain", "added"))
    for name in before:
        if not name.startswith("report/") and name not in ("manifest.json", "recipe.yaml"):
            assert after[name] == before[name], name


def test_each_audit_uses_its_own_verifier(folder: Path) -> None:
    run = folder / "added"
    results = json.loads((run / "report/results.json").read_text())
    assert list(results["audits"]) == ["half", "other"]
    plain = json.loads((folder / "plain/report/results.json").read_text())
    assert results.pop("chosen_after_results")
    apart = {key: value for key, value in results.items() if key not in ("audits", "judged_by")}
    assert apart == {key: value for key, value in plain.items() if key != "judged_by"}
    gold = {f"other{i}": "tno"[i % 3] for i in range(34)}
    half = set((folder / "half.txt").read_text().split())
    for name, audit in results["audits"].items():

        def is_included(row: dict[str, Any], name: str = name) -> bool:
            return name == "other" or row["problem_id"] in half

        def is_right(row: dict[str, Any]) -> bool:
            return gold[row["problem_id"].partition("-")[0]] in row["text"].lower()

        source = [
            row
            for row in read_judged_rows(run / "audit/other/responses.parquet")
            if is_included(row)
        ]
        items = {row["problem_id"] for row in source}
        greedy = {row["problem_id"] for row in source if is_right(row) and row["index"] == -1}
        solved = {row["problem_id"] for row in source if is_right(row) and row["index"] >= 0}
        states = {"G": greedy, "S": solved - greedy, "U": items - greedy - solved}
        assert audit["source"]["states"] == {state: len(value) for state, value in states.items()}
        assert len(items) == audit["source"]["n"] == (34 if name == "other" else 17)
        decided = [
            row
            for row in read_judged_rows(run / f"decisions/{ARM}@other.parquet")
            if is_included(row)
        ]
        passed = {row["problem_id"] for row in decided if is_right(row)}
        assert audit["conditions"]["gapft"]["seeds"]["13"]["counts"] == {
            "correct": len(passed),
            "S_corrected": len(passed & states["S"]),
            "U_corrected": len(passed & states["U"]),
            "G_regressed": len(states["G"] - passed),
        }
        assert {(c["a"], c["b"]) for c in audit["contrasts"]} == {("gapft", "source")}
    assert results["audits"]["other"]["task"] == "others"
    assert results["audits"]["half"]["of"] == "other"


def test_audit_uses_its_task_decoding(folder: Path) -> None:
    table = pq.read_table(folder / f"added/decisions/{ARM}@other.parquet")
    assert max(map(len, table["token_ids"].to_pylist())) == 9
    assert max(map(len, pq.read_table(folder / f"added/decisions/{ARM}.parquet")["token_ids"])) > 9


def test_verify_checks_added_audits(folder: Path, tmp_path: Path) -> None:
    output = succeed("verify", "added", *PLUGIN, cwd=folder).stdout
    assert "no problem of one split is in another (pool, audit, audit/other)" in output
    assert "1 arms' decisions are of the audit other's problems, each once" in output
    assert "verdicts of lenient were judged again" in output
    plugin = [str(folder / "plugin.py")]

    def verify_changed(relative: str, change: Any) -> str:
        run = tmp_path / f"{len([*tmp_path.iterdir()])}"
        shutil.copytree(folder / "added", run)
        change(run, run / relative)
        seal_again(run, relative)
        return "\n".join(verify(run, plugin).differences)

    decisions = f"decisions/{ARM}@other.parquet"

    def flip_verdict(run: Path, path: Path) -> None:
        table = read_rows(path)
        table[3]["status"] = "fail" if table[3]["status"] == "pass" else "pass"
        write_rows(path, table)

    differences = verify_changed(decisions, flip_verdict)
    assert f"{decisions}: problem " in differences
    assert "judged again it is" in differences
    differences = verify_changed("audit/other/responses.parquet", flip_verdict)
    assert "audit/other/responses.parquet: problem " in differences
    differences = verify_changed(decisions, lambda run, path: write_rows(path, read_rows(path)[1:]))
    assert f"{decisions}: has other problems than audit/other/problems.parquet" in differences
    state = "audit/other/states.parquet"

    def change_state(run: Path, path: Path) -> None:
        table = read_rows(path)
        table[0]["state"] = "U" if table[0]["state"] != "U" else "S"
        write_rows(path, table)

    assert f"{state}: problem " in verify_changed(state, change_state)

    def copy_prompt(run: Path, path: Path) -> None:
        pool = read_rows(run / "pool/problems.parquet")
        table = read_rows(path)
        table[0]["prompt"] = pool[0]["prompt"]
        write_rows(path, table)

    assert "1 of 60 pool problems are also in the audit/other" in verify_changed(
        "audit/other/problems.parquet", copy_prompt
    )
    run = Path(shutil.copytree(folder / "added", tmp_path / "without"))
    change_manifest(run, lambda m: m["files"].pop(decisions))
    (run / decisions).unlink()
    assert f"{ARM} is not audited on other" in verify(run, plugin).missing


def test_rejects_pool_problems_before_generation(folder: Path) -> None:
    data = folder / "tasks/shared.jsonl"
    pool = (folder / "tasks/pool.jsonl").read_text().splitlines(keepends=True)
    data.write_text(other_questions(range(3)) + pool[7].replace("pool7", "another"))
    task = (folder / "tasks/others.yaml").read_text()
    shared = task.replace("task: others", "task: shared").replace("others.jsonl", "shared.jsonl")
    (folder / "tasks/shared.yaml").write_text(shared)
    files_before = read_result(folder / "added")
    setting = ("--set", "audits={leak: {task: shared}}")
    for where in ("new", "added"):
        done = gapft(*RUN, where, *OPTIONS, *setting, cwd=folder)
        assert done.returncode == 2, done.stdout
        message = " ".join(done.stderr.split())
        assert "1 of 60 pool problems are also in the audit/leak, first: pool7-" in message
        assert "drop_shared=true)" not in message, "this setting would not help"
    assert not (folder / "new").exists()
    assert read_result(folder / "added").keys() == files_before.keys()
    output = gapft(*RUN, "new", *OPTIONS, *setting, "--dry-run", cwd=folder).stdout
    assert "1 of 60 pool problems are also in the audit/leak" in output
    for file in (data, folder / "tasks/shared.yaml"):  # later runs would use them
        file.unlink()


@contextlib.contextmanager
def edit_file(path: Path, old: str, new: str) -> Iterator[None]:
    """Replace text in a file inside the block; restore the file and its times afterwards."""
    text, stat = path.read_text(), path.stat()
    assert old in text
    path.write_text(text.replace(old, new))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_reports_changed_settings_and_data(folder: Path) -> None:
    limit = ("--set", "audits.other.limit=5", "--dry-run")
    assert (
        "audits.other.limit not set → 5"
        in gapft(*RUN, "added", *OPTIONS, *limit, cwd=folder).stdout
    )
    data, task = folder / "tasks/others.jsonl", folder / "tasks/others.yaml"
    with edit_file(data, "other 5?", "other five?"):
        done = gapft("verify", "added", *PLUGIN, cwd=folder)
        assert done.returncode == 2
        assert "data, audit/other: 34 problems (" in done.stderr
    with edit_file(task, "max_gen_toks: 9", "max_gen_toks: 8"):
        done = gapft("run", "added", "--only", "report", *PLUGIN, cwd=folder)
        assert "audits.other, task, generation_kwargs.max_gen_toks 9 → 8" in done.stderr
    succeed("run", "added", "--only", "report", *PLUGIN, cwd=folder)


def test_resumes_after_kill_with_same_bytes(folder: Path) -> None:
    arguments = [*RUN, "killed", *OPTIONS]
    # its own store, since the store of the other run has all responses
    env = {"GAPFT_STORE": str(folder / "killed.store")}
    started = subprocess.Popen(
        [sys.executable, "-m", "gapft_harness.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(
        lambda: bool(find_stored_files(folder / "killed.store", split="audit/other")), started
    )
    assert kill_command(started, find_workers(started)), "the run ended before it was killed"
    succeed(*arguments, cwd=folder, env=env)
    after, whole = read_result(folder / "killed"), read_result(folder / "added")
    assert after.keys() == whole.keys()
    assert [name for name in after if after[name] != whole[name]] == []


def test_workers_search_one_audit(folder: Path) -> None:
    search = ("run", *RUN[1:-1], "--run-dir", "divided", *OPTIONS, "--set", "executor.workers=2")
    search = tuple(word for word in search if word not in ("--seed", "13", "--condition", "gapft"))
    env = {"GAPFT_STORE": str(folder / "divided.store")}
    succeed(*search, "--only", "search", "--split", "audit/other", cwd=folder, env=env)
    run = folder / "divided"
    columns = ["problem_id", "index", "text", "status"]
    tables = [
        pq.read_table(folder / name / "audit/other/responses.parquet", columns=columns)
        for name in ("divided", "added")
    ]
    assert tables[0].equals(tables[1])
    assert "not yet: the pool is not searched" in succeed("verify", run, *PLUGIN, cwd=folder).stdout


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "audits.x={task: t, of: audit, items: [a]}",
            "'x' is a subset: expected `of` with either `items` or `task`",
        ),
        (
            "audits.x={limit: 3}",
            "'x' has no problems: expected `task`, or `of` with `items` or `task`",
        ),
        ("audits.x={of: y, items: [a]}", "'x': unknown audit 'y' in `of`; known: audit"),
    ],
)
def test_rejects_invalid_audits(setting: str, message: str) -> None:
    from gapft_harness.core.errors import UserError
    from gapft_harness.recipe.reading import check_recipe, parse_override

    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with pytest.raises(UserError) as caught:
        check_recipe(content, "test", [parse_override(setting)])
    assert message in str(caught.value)
