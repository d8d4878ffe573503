"""Further audits, of another task with a verifier of its own, by the real command."""

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
from tests.end_to_end.letters_run import killed, result, stored, workers_of
from tests.end_to_end.test_scaled_run import wait_until
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest, read_rows, seal_again, write_rows

#: A verifier that the run's own task does not have.
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
    """``plain``: a finished run; ``added``: a copy with more audits; ``unhalved``: all at once."""
    made = tmp_path_factory.mktemp("audits")
    prepare(made)
    plugin = (made / "plugin.py").read_text()
    (made / "plugin.py").write_text(plugin.partition("@hookimpl")[0] + LENIENT)
    task = (made / "tasks/letters.yaml").read_text()
    for before, after in (
        ("task: letters", "task: others"),
        ("audit.jsonl", "others.jsonl"),
        ("contains", "lenient"),
        ("max_gen_toks: 12", "max_gen_toks: 9"),
    ):
        assert before in task
        task = task.replace(before, after)
    (made / "tasks/others.yaml").write_text(task)
    (made / "tasks/others.jsonl").write_text(other_questions(range(34)))
    succeed(*RUN, "plain", *OPTIONS, cwd=made)
    recipe = (made / "recipe.yaml").read_text()
    (made / "recipe.yaml").write_text(recipe + AUDITS.replace("half:", "#"))
    succeed(*RUN, "unhalved", *OPTIONS, cwd=made)
    ids = [row["problem_id"] for row in read_rows(made / "unhalved/audit/other/problems.parquet")]
    (made / "half.txt").write_text("\n".join(ids[::2]))
    (made / "recipe.yaml").write_text(recipe + AUDITS)
    for name in ("added", "killed"):
        shutil.copytree(made / "plain", made / name)
    succeed(*RUN, "added", *OPTIONS, cwd=made)
    return made


def manifest(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text())


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path, columns=["problem_id", "index", "status", "text"]).to_pylist()


def test_added_to_a_finished_run_it_makes_what_it_needs_and_no_more(folder: Path) -> None:
    """It comes to the same bytes as if it had been there from the beginning."""
    plain, added, at_once = (
        manifest(folder / name)["files"] for name in ("plain", "added", "unhalved")
    )
    assert plain.items() <= added.items()
    new = {f"audit/other/{table}.parquet" for table in ("problems", "responses", "states")}
    new |= {f"decisions/{ARM}@other.parquet", "audit/half/items.json"}
    assert added.keys() - plain.keys() == new
    assert {name: digest for name, digest in added.items() if "half" not in name} == at_once
    before, after = (result(folder / name) for name in ("plain", "added"))
    for name in before:
        if not name.startswith("report/") and name not in ("manifest.json", "recipe.yaml"):
            assert after[name] == before[name], name


def test_it_is_counted_by_its_own_verifier_and_never_with_the_other(folder: Path) -> None:
    run = folder / "added"
    results = json.loads((run / "report/results.json").read_text())
    assert list(results["audits"]) == ["half", "other"]
    plain = json.loads((folder / "plain/report/results.json").read_text())
    assert results.pop("chosen_after_results")
    apart = {key: of for key, of in results.items() if key not in ("audits", "judged_by")}
    assert apart == {key: of for key, of in plain.items() if key != "judged_by"}
    gold = {f"other{i}": "tno"[i % 3] for i in range(34)}
    half = set((folder / "half.txt").read_text().split())
    for name, found in results["audits"].items():

        def asked(row: dict[str, Any], name: str = name) -> bool:
            return name == "other" or row["problem_id"] in half

        def right(row: dict[str, Any]) -> bool:
            return gold[row["problem_id"].partition("-")[0]] in row["text"].lower()

        source = [row for row in rows(run / "audit/other/responses.parquet") if asked(row)]
        items = {row["problem_id"] for row in source}
        greedy = {row["problem_id"] for row in source if right(row) and row["index"] == -1}
        solved = {row["problem_id"] for row in source if right(row) and row["index"] >= 0}
        states = {"G": greedy, "S": solved - greedy, "U": items - greedy - solved}
        assert found["source"]["states"] == {state: len(of) for state, of in states.items()}
        assert len(items) == found["source"]["n"] == (34 if name == "other" else 17)
        decided = [row for row in rows(run / f"decisions/{ARM}@other.parquet") if asked(row)]
        passed = {row["problem_id"] for row in decided if right(row)}
        assert found["conditions"]["gapft"]["seeds"]["13"]["counts"] == {
            "correct": len(passed),
            "S_corrected": len(passed & states["S"]),
            "U_corrected": len(passed & states["U"]),
            "G_regressed": len(states["G"] - passed),
        }
        assert {(c["a"], c["b"]) for c in found["contrasts"]} == {("gapft", "source")}
    assert results["audits"]["other"]["task"] == "others"
    assert results["audits"]["half"]["of"] == "other"


def test_its_problems_are_decoded_as_its_task_says(folder: Path) -> None:
    table = pq.read_table(folder / f"added/decisions/{ARM}@other.parquet")
    assert max(map(len, table["token_ids"].to_pylist())) == 9
    assert max(map(len, pq.read_table(folder / f"added/decisions/{ARM}.parquet")["token_ids"])) > 9


def test_verify_holds_it_to_all_that_holds_of_the_audit(folder: Path, tmp_path: Path) -> None:
    told = succeed("verify", "added", *PLUGIN, cwd=folder).stdout
    assert "no problem of one split is in another (pool, audit, audit/other)" in told
    assert "1 arms' decisions are of the audit other's problems, each once" in told
    assert "verdicts of lenient were judged again" in told
    plugin = [str(folder / "plugin.py")]

    def broken(relative: str, change: Any) -> str:
        run = tmp_path / f"{len([*tmp_path.iterdir()])}"
        shutil.copytree(folder / "added", run)
        change(run, run / relative)
        seal_again(run, relative)
        return "\n".join(verify(run, plugin).differences)

    decisions = f"decisions/{ARM}@other.parquet"

    def flip(run: Path, path: Path) -> None:
        table = read_rows(path)
        table[3]["status"] = "fail" if table[3]["status"] == "pass" else "pass"
        write_rows(path, table)

    said = broken(decisions, flip)
    assert f"{decisions}: problem " in said
    assert "judged again it is" in said
    said = broken("audit/other/responses.parquet", flip)
    assert "audit/other/responses.parquet: problem " in said
    said = broken(decisions, lambda run, path: write_rows(path, read_rows(path)[1:]))
    assert f"{decisions}: has other problems than audit/other/problems.parquet" in said
    state = "audit/other/states.parquet"

    def restate(run: Path, path: Path) -> None:
        table = read_rows(path)
        table[0]["state"] = "U" if table[0]["state"] != "U" else "S"
        write_rows(path, table)

    assert f"{state}: problem " in broken(state, restate)

    def share(run: Path, path: Path) -> None:
        pool = read_rows(run / "pool/problems.parquet")
        table = read_rows(path)
        table[0]["prompt"] = pool[0]["prompt"]
        write_rows(path, table)

    assert "1 of 60 pool problems are also in the audit/other" in broken(
        "audit/other/problems.parquet", share
    )
    run = Path(shutil.copytree(folder / "added", tmp_path / "without"))
    change_manifest(run, lambda m: m["files"].pop(decisions))
    (run / decisions).unlink()
    assert f"{ARM} is not audited on other" in verify(run, plugin).missing


def test_a_pool_problem_in_it_is_refused_before_anything_is_generated(folder: Path) -> None:
    data = folder / "tasks/shared.jsonl"
    pool = (folder / "tasks/pool.jsonl").read_text().splitlines(keepends=True)
    data.write_text(other_questions(range(3)) + pool[7].replace("pool7", "another"))
    task = (folder / "tasks/others.yaml").read_text()
    shared = task.replace("task: others", "task: shared").replace("others.jsonl", "shared.jsonl")
    (folder / "tasks/shared.yaml").write_text(shared)
    before = result(folder / "added")
    setting = ("--set", "audits={leak: {task: shared}}")
    for where in ("new", "added"):
        done = gapft(*RUN, where, *OPTIONS, *setting, cwd=folder)
        assert done.returncode == 2, done.stdout
        said = " ".join(done.stderr.split())
        assert "1 of 60 pool problems are also in the audit/leak, first: pool7-" in said
        assert "drop_shared=true)" not in said, "it would not help"
    assert not (folder / "new").exists()
    assert result(folder / "added").keys() == before.keys()
    told = gapft(*RUN, "new", *OPTIONS, *setting, "--dry-run", cwd=folder).stdout
    assert "1 of 60 pool problems are also in the audit/leak" in told
    for made in (data, folder / "tasks/shared.yaml"):  # later runs would rest on them
        made.unlink()


@contextlib.contextmanager
def edited(path: Path, before: str, after: str) -> Iterator[None]:
    """A file with another text for a while; then it is as it was, its times too."""
    text, stat = path.read_text(), path.stat()
    assert before in text
    path.write_text(text.replace(before, after))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_other_settings_and_edited_data_are_told(folder: Path) -> None:
    limit = ("--set", "audits.other.limit=5", "--dry-run")
    assert (
        "audits.other.limit not set → 5"
        in gapft(*RUN, "added", *OPTIONS, *limit, cwd=folder).stdout
    )
    data, task = folder / "tasks/others.jsonl", folder / "tasks/others.yaml"
    with edited(data, "other 5?", "other five?"):
        done = gapft("verify", "added", *PLUGIN, cwd=folder)
        assert done.returncode == 2
        assert "data, audit/other: 34 problems (" in done.stderr
    with edited(task, "max_gen_toks: 9", "max_gen_toks: 8"):
        done = gapft("run", "added", "--only", "report", *PLUGIN, cwd=folder)
        assert "audits.other, task, generation_kwargs.max_gen_toks 9 → 8" in done.stderr
    succeed("run", "added", "--only", "report", *PLUGIN, cwd=folder)


def test_killed_while_it_decodes_it_goes_on_and_ends_with_the_same_bytes(folder: Path) -> None:
    arguments = [*RUN, "killed", *OPTIONS]
    env = {"GAPFT_STORE": str(folder / "killed.store")}  # the other run's has all responses
    started = subprocess.Popen(
        [sys.executable, "-m", "gapft_harness.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: bool(stored(folder / "killed.store", split="audit/other")), started)
    assert killed(started, workers_of(started)), "it ended before it was killed"
    succeed(*arguments, cwd=folder, env=env)
    after, whole = result(folder / "killed"), result(folder / "added")
    assert after.keys() == whole.keys()
    assert [name for name in after if after[name] != whole[name]] == []


def test_several_workers_search_it_alone(folder: Path) -> None:
    search = ("run", *RUN[1:-1], "--run-dir", "divided", *OPTIONS, "--set", "executor.workers=2")
    search = tuple(each for each in search if each not in ("--seed", "13", "--condition", "gapft"))
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
    ("setting", "said"),
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
def test_what_cannot_be_an_audit_is_refused_by_its_key(setting: str, said: str) -> None:
    from gapft_harness.core.errors import UserError
    from gapft_harness.recipe.reading import check_recipe, parse_override

    made = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with pytest.raises(UserError) as caught:
        check_recipe(made, "test", [parse_override(setting)])
    assert said in str(caught.value)
