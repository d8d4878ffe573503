"""Runs that earlier versions made are verified, gone on with and reported as those would.

``runs_of_before/README.md`` says what the runs are. What differs on purpose is named below.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.identities import same_task
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.stages.foundation.foundation import content
from gapft_harness.stages.foundation.foundation import differing as changes
from tests.command import succeed

RUNS = Path(__file__).parent / "runs_of_before"
NAMES = ("published", "main")

#: What ``gapft verify`` says of a run and did not say when the run was made.
TOLD_SINCE = {
    "published": [
        "not checked: whether task, data and plugins are as they were searched; an earlier "
        "version made this run and did not record them",
        "no problem of one split is in another (pool, audit)",
    ],
    "main": [],
}

#: What results.json has otherwise than when the run was made.
CHANGED = {
    "published": {
        "cases",  # which problems the page shows before and after
        "conditions.*.seeds.*.budget.problems",  # distinct problems beside example slots
        "contrasts.*.test.name",  # p values come from the interval's own replicates,
        "contrasts.*.test.p",  # no more from McNemar's test
        "ledger",  # new: what each gain cost
        "verifier_audit",  # new: what another rule says, here why there is none
    },
    "main": {
        "cases",
        "ledger",
        "scaling.checkpoints.*.audit.kappa_S",  # new: what the chosen scale corrects
        "scaling.checkpoints.*.audit.kappa_U",
        "verifier_audit",
    },
}

#: Columns that tables have got since, by their names or their folders'.
NEW_COLUMNS = {
    "responses.parquet": {"answer"},  # what the verifier read as the response's answer
    "decisions": {"answer"},
    "selections": {"origin"},  # whose response an example is
}

#: Runs whose tables are the same to the byte. Those of 0.1.0 differ in what their files say beside
#: the columns: warnings quote the commonest reasons since.
TO_THE_BYTE = {"main"}

#: Rounding of sums that are taken in another order.
ROUNDING = 1e-12


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a run's folder beside its model; what it says of its place says the copy's."""
    monkeypatch.delenv("GAPFT_DATA_DIR", raising=False)  # where it is set, data are read again
    shutil.copytree(RUNS / "model", tmp_path / "model")
    copied = Path(shutil.copytree(RUNS / name, tmp_path / name))
    for manifest in copied.glob("*/manifest.json"):
        text = manifest.read_text("utf-8").replace(f"/before/{name}", copied.as_posix())
        manifest.write_text(text, "utf-8")
    return copied


def test_verify_says_what_it_said(name: str, folder: Path) -> None:
    done = succeed("verify", "finished", "--plugin", "plugin.py", cwd=folder)
    then = (folder / "verified.txt").read_text("utf-8").splitlines()
    said = done.stdout.splitlines()
    assert [line for line in said if line not in then] == TOLD_SINCE[name]
    assert [line for line in said if line in then] == then


def test_report_has_the_same_findings(name: str, folder: Path) -> None:
    then = results(folder / "finished")
    succeed("report", "finished", cwd=folder)
    assert set(differing(then, results(folder / "finished"))) == CHANGED[name]


def test_run_goes_on_and_ends_in_the_same_tables(name: str, folder: Path) -> None:
    run, then = folder / "interrupted", folder / "finished"
    if name == "published":
        forget_what_is_journalled(run / "pool/responses.jsonl", folder / "responses.jsonl")
    succeed(
        *("run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py"),
        *("--run-dir", "interrupted"),
        cwd=folder,
    )
    assert files(run, "*.parquet") == files(then, "*.parquet")
    for table in files(then, "*.parquet"):
        require_same_table(run / table, then / table, exact=name in TO_THE_BYTE)
    for weights in files(then / "scaled", "*.safetensors") if (then / "scaled").exists() else ():
        assert (run / "scaled" / weights).read_bytes() == (then / "scaled" / weights).read_bytes()
    assert set(differing(results(then), results(run))) == CHANGED[name]
    done = succeed("verify", "interrupted", "--plugin", "plugin.py", cwd=folder)
    assert "verified: the arms differ in nothing" in done.stdout


def test_a_split_added_to_the_task_since_is_no_change_of_it(name: str, folder: Path) -> None:
    """One to calibrate on: neither pool nor audit is read from it. What they use still counts."""
    load_plugins([str(folder / "plugin.py")])
    manifest = json.loads((folder / "finished/manifest.json").read_text("utf-8"))
    task = folder / "tasks/letters.yaml"
    before = task.read_text("utf-8")
    more = before.replace("test: audit.jsonl}", "test: audit.jsonl, later: audit.jsonl}")
    for text, same in (
        (f"{more}\nvalidation_split: later\n", True),
        (before.replace("max_gen_toks: 8", "max_gen_toks: 9"), False),
    ):
        assert text != before
        task.write_text(text, "utf-8")
        now = load_task("letters", [folder / "tasks"])
        assert same_task(manifest["task"], now.fingerprints()) == same
        found = changes(manifest.get("rests_on", {}), content(now, (), {"audit": now.audit()}))
        said = ["task, generation_kwargs.max_gen_toks: 9 now, 8 then"]
        assert found == ([] if same or name == "published" else said)


def forget_what_is_journalled(journal: Path, responses: Path) -> None:
    """Takes the responses that a journal has committed out of the file that the sampler replays.

    Whoever asks for them again is told that they are missing.
    """
    kept = {line["problem_id"] for line in lines(journal) if "problem_id" in line}
    numbers = {int(re.findall(r"\d+", problem)[0]) for problem in kept}
    assert len(numbers) == 6
    prompts = {f"pool {number**2}?" for number in numbers}
    left = [
        line
        for line in lines(responses)
        if line["prompt"] not in prompts or line["index"] != "greedy" or "condition" in line
    ]
    assert len(left) == len(lines(responses)) - len(kept)
    responses.write_text("".join(json.dumps(line) + "\n" for line in left), "utf-8")


def require_same_table(now: Path, then: Path, exact: bool) -> None:
    """The same rows and columns, but for new ones; the same bytes if one library wrote both.

    What was sealed when the run was interrupted has no new columns.
    """
    a, b = pq.read_table(now), pq.read_table(then)
    new = set(a.column_names) - set(b.column_names)
    assert new in (set(), NEW_COLUMNS.get(now.name) or NEW_COLUMNS.get(now.parent.name)), now
    a = a.select(b.column_names)
    assert a.schema.equals(b.schema), now
    assert a.equals(b), now
    if exact and not new and writer(now) == writer(then):
        assert now.read_bytes() == then.read_bytes(), now


def writer(table: Path) -> str:
    """The library that wrote a table, with its version."""
    return str(pq.read_metadata(table).created_by)


def differing(then: Any, now: Any, key: str = "") -> Iterator[str]:
    """The keys at which two JSON values differ; ``*`` stands for an item or an arm's name."""
    if isinstance(then, dict) and isinstance(now, dict):
        for name in sorted({*then, *now}):
            part = "*" if key.endswith(("conditions", "seeds")) else name
            yield from differing(then.get(name), now.get(name), f"{key}.{part}".strip("."))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for a, b in zip(then, now, strict=True):
            yield from differing(a, b, f"{key}.*")
    elif isinstance(then, float) and isinstance(now, float):
        if abs(then - now) > ROUNDING:
            yield key
    elif then != now:
        yield key


def results(run: Path) -> dict[str, Any]:
    """What a run's report found."""
    found: dict[str, Any] = json.loads((run / "report/results.json").read_text("utf-8"))
    return found


def files(folder: Path, pattern: str) -> list[str]:
    """The files below a folder, by their paths in it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob(pattern))


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
