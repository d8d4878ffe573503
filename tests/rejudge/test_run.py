"""``gapft rejudge`` of a run: held against a run that the other rule judged from the beginning."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from tests.command import succeed
from tests.compare.logs import row, write
from tests.rejudge.runs import finished
from tests.tiny_models import byte_llama

RULES = ("whole_response", "first_explicit")
ARMS = [f"{c}-seed{s}" for c in ("gapft", "uniform", "all_verified") for s in (13, 21)]
pytestmark = pytest.mark.xdist_group("rejudge_runs")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By rule a run of the same responses, which that rule judged all along."""
    folder = tmp_path_factory.mktemp("rejudge")
    return {rule: finished(folder / rule, rule) for rule in RULES}


def rejudge(run: Path, *arguments: object) -> Result:
    given = ("rejudge", run, "--plugin", run.parent / "plugin.py", *arguments)
    return CliRunner().invoke(app, [*map(str, given)], env={"COLUMNS": "160"})


def judged(run: Path, rule: str, out: Path) -> dict[str, Any]:
    done = rejudge(
        run, "--verifier", "option_letter", "--param", f"rule={rule}", "--out", out
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def rows(run: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(run / table).to_pylist()
    return found


def reported(run: Path) -> dict[str, Any]:
    """The sealed report's audit: what was trained on is of the run itself."""
    content = json.loads((run / "report/results.json").read_text())
    return without_budgets({key: content[key] for key in ("source", "conditions", "contrasts")})


def without_budgets(of_audit: dict[str, Any]) -> dict[str, Any]:
    for condition in of_audit["conditions"].values():
        for seed in condition["seeds"].values():
            del seed["budget"]
    return of_audit


def hashes(run: Path) -> dict[str, str]:
    return {str(file): sha256(file) for file in sorted(run.rglob("*")) if file.is_file()}


@pytest.mark.parametrize(("of", "by"), [RULES, RULES[::-1]])
def test_it_is_the_run_that_the_other_rule_judged_from_the_beginning(
    runs: dict[str, Path], tmp_path: Path, of: str, by: str
) -> None:
    before, other = runs[of], runs[by]
    untouched = hashes(before)
    found = judged(before, by, tmp_path / "out")
    assert hashes(before) == untouched
    assert without_budgets(found["before"]) == reported(before)
    assert without_budgets(found["after"]) == reported(other)
    sizes = [json.loads((run / "manifest.json").read_text())["n"] for run in (before, other)]
    assert found["n"] == sizes
    assert sizes[0] != sizes[1]
    for split in ("pool", "audit"):
        table = f"{split}/states.parquet"
        pairs = zip(rows(before, table), rows(other, table), strict=True)
        counts = Counter((a["state"], b["state"]) for a, b in pairs)
        for was, row_of in found["states"][split].items():
            assert row_of == {now: counts[was, now] for now in "GSU"}
    assert list(found["arms"]) == ARMS
    for arm, told in found["arms"].items():
        sets = []
        for run in (before, other):
            examples = rows(run, f"selections/{arm}.parquet")
            sets.append(Counter((e["problem_id"], tuple(e["response_ids"])) for e in examples))
        same = (sets[0] & sets[1]).total()
        assert told["n"] == [of.total() for of in sets]
        assert (told["same"], told["dropped"]) == (same, sets[0].total() - same)
        assert told["new"] == sets[1].total() - same
        assert told["differs"] == (sets[0] != sets[1])


def test_every_flip_is_listed_with_its_text(runs: dict[str, Path], tmp_path: Path) -> None:
    before, other = (runs[rule] for rule in RULES)
    found = judged(before, RULES[1], tmp_path)
    tables = {"audit": "audit/responses", "pool": "pool/responses"}
    tables |= {arm: f"decisions/{arm}" for arm in ARMS}
    expected = {}
    for name, table in tables.items():
        pairs = [*zip(*(rows(of, f"{table}.parquet") for of in (before, other)), strict=True)]
        flips = [(a, b) for a, b in pairs if (a["status"] == "pass") != (b["status"] == "pass")]
        right = sum(b["status"] == "pass" for _, b in flips)
        told = found["tables"][name]
        assert (told["right_now"], told["wrong_now"]) == (right, len(flips) - right)
        assert told["responses"] == len(pairs)
        assert told["was_right"] == sum(a["status"] == "pass" for a, _ in pairs)
        assert told["is_right"] == sum(b["status"] == "pass" for _, b in pairs)
        for a, b in flips:
            expected[name, a["problem_id"], str(a["index"])] = (
                *("right now" if b["status"] == "pass" else "wrong now", a["text"]),
                *(a["answer"] or "", b["answer"] or ""),
            )
    listed = list(csv.DictReader((tmp_path / "flips.csv").open(newline="")))
    assert len(listed) == len(expected) == found["right_now"] + found["wrong_now"]
    assert expected == {
        (f["where"], f["document"], f["response"]): (
            *(f["flip"], f["text"], f["was_answer"], f["now_answer"]),
        )
        for f in listed
    }


def test_the_same_rule_changes_nothing(runs: dict[str, Path], tmp_path: Path) -> None:
    for rule, run in runs.items():
        found = judged(run, rule, tmp_path / rule)
        assert (found["right_now"], found["wrong_now"], found["refused"]) == (0, 0, None)
        assert found["before"] == found["after"]
        assert found["n"][0] == found["n"][1]
        for was, row_of in found["states"]["audit"].items():
            assert [now for now, count in row_of.items() if count and now != was] == []
        for arm in found["arms"].values():
            assert (arm["dropped"], arm["new"], arm["differs"]) == (0, 0, False)
        for one in found["conclusions"]:
            assert one["was"] == one["is"] == one["agreeing"][0] == one["agreeing"][1]
            assert one["retrained"] == pytest.approx([one["is"]] * 2)
            assert one["verdict"] in ("holds", "stays open")


def test_imported_verdicts_are_not_said_to_be_the_rules(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    """A run of one rule, whose pool has the verdicts that a file took from the other."""
    folder = Path(shutil.copytree(runs[RULES[0]].parent, tmp_path / "imported"))
    shutil.rmtree(folder / "run")
    lines = [
        {
            "id": of["problem_id"], "index": "greedy" if of["index"] == -1 else of["index"],
            "text": of["text"], "passed": of["status"] == "pass",
        }
        for of in rows(runs[RULES[1]], "pool/responses.parquet")
    ]  # fmt: skip
    (folder / "pool.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for name, old, new in (
        ("recipe.yaml", "pretrained: none", f"pretrained: {byte_llama(tmp_path / 'model')}"),
        ("plugin.py", '"stated", Stated)', '"stated", Stated, start_tokens=True)'),
    ):
        (folder / name).write_text((folder / name).read_text().replace(old, new))
    given = ("--include-path", "tasks", "--plugin", "plugin.py")
    succeed("import", "run", "pool.jsonl", "--recipe", "recipe.yaml", *given, cwd=folder)
    succeed("run", "recipe.yaml", *given, "--run-dir", "run", cwd=folder)
    found = judged(folder / "run", RULES[0], tmp_path / "out")
    changed = {name for name, of in found["tables"].items() if of["right_now"] + of["wrong_now"]}
    assert changed == {"pool"}, "the rule is the run's own, but for what the file says"
    assert found["was"]["imported"] == {"pool": "passed"}
    (note,) = found["notes"]
    assert note.startswith("pool: the source's verdicts before are those of the imported files")
    page = " ".join((tmp_path / "out/rejudged.md").read_text().split())
    assert "(for the source's responses on pool: the imported files' verdicts): " in page
    assert note.partition(" (")[0] in page
    assert "imported" not in judged(runs[RULES[0]], RULES[0], tmp_path / "own")["was"]


def test_what_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[RULES[0]].parent, tmp_path / "copy")) / "run"
    rule = ("--verifier", "option_letter")
    for option in ("--gold", "--metric", "--filter", "--task", "--was"):
        done = rejudge(run, *rule, option, "doc")
        assert f"{option}: is of sample logs" in str(done.exception)
    log = write(tmp_path / "log", rows=[row(0, 1)])
    for error in (
        rejudge(run, log, *rule).exception,
        rejudge(run, *rule, "--out", run / "again").exception,
        rejudge(run, *rule, "--param", "rule=none").exception,
    ):
        assert isinstance(error, UserError)
    done = CliRunner().invoke(app, ["rejudge", str(run), "--verifier", "program_tests"])
    assert "problem" in str(done.exception)
    assert "program_tests" in str(done.exception)
    assert not (run / "again").exists()


def test_out_overwrites_nothing_silently(runs: dict[str, Path], tmp_path: Path) -> None:
    rule = ("--verifier", "option_letter", "--out", tmp_path / "out")
    assert rejudge(runs[RULES[0]], *rule).exit_code == 0
    (tmp_path / "out/flips.csv").write_text("mine\n")
    done = rejudge(runs[RULES[0]], *rule)
    assert isinstance(done.exception, UserError)
    assert "holds rejudged.md already; give another folder, or --overwrite" in str(done.exception)
    assert (tmp_path / "out/flips.csv").read_text() == "mine\n"
    assert rejudge(runs[RULES[0]], *rule, "--overwrite").exit_code == 0
    assert (tmp_path / "out/flips.csv").read_text() != "mine\n"


@pytest.mark.parametrize(
    "table", ["audit/responses", "pool/problems", "pool/states", "decisions/uniform-seed21"]
)
def test_an_edited_run_is_refused(runs: dict[str, Path], tmp_path: Path, table: str) -> None:
    run = Path(shutil.copytree(runs[RULES[0]].parent, tmp_path / "copy")) / "run"
    edited = run / f"{table}.parquet"
    edited.write_bytes(edited.read_bytes() + b" ")
    done = rejudge(run, "--verifier", "option_letter", "--out", tmp_path / "out")
    assert isinstance(done.exception, UserError)
    assert done.exception.exit_status == 2
    assert f"{edited}: was changed after it was sealed" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_recipe_that_is_not_the_manifests_and_a_run_under_way_are_refused(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(runs[RULES[0]].parent, tmp_path / "copy")) / "run"
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace("- 21\n", "- 22\n"))
    done = rejudge(run, "--verifier", "option_letter")
    assert "is not the recipe of the manifest; differing: seeds" in str(done.exception)
    (run / "recipe.yaml").write_text(recipe)
    (run / "decisions" / f"{ARMS[0]}.parquet").unlink()
    done = rejudge(run, "--verifier", "option_letter")
    assert "is not there yet" in str(done.exception)


NEVER = """

class Never:
    def verify(self, responses, golds):
        return [Verdict("fail", "never") for _ in responses]


@hookimpl
def register_verifiers(register):
    register("never", Never)
"""


def test_a_rule_that_passes_nothing_leaves_nothing_to_train_on(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "never.py").write_text(f"from gapft_harness.api import Verdict, hookimpl\n{NEVER}")
    done = rejudge(
        runs[RULES[1]], "--verifier", "never", "--plugin", tmp_path / "never.py", "--out",
        tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert found["n"][1] == 0
    assert found["arms"] == {}
    assert {one["retrained"] for one in found["conclusions"]} == {None}
    assert found["after"]["source"]["states"] == {"G": 0, "S": 0, "U": 90}
    assert "there is nothing to train on" in done.output
    assert "never: none of 1190 responses passed" in " ".join(done.output.split())


def test_where_search_stopped_at_what_is_no_success_nothing_is_said_of_training_again(
    tmp_path: Path,
) -> None:
    run = finished(tmp_path / "stopped", RULES[1], stop="first_pass", keep="first")
    same = judged(run, RULES[1], tmp_path / "same")
    assert (same["stopped_early"], same["right_now"], same["wrong_now"]) == (0, 0, 0)
    assert all(one["retrained"] for one in same["conclusions"])
    found = judged(run, RULES[0], tmp_path / "out")
    by_problem: dict[str, list[str]] = {}
    for response in rows(run, "pool/responses.parquet"):
        by_problem.setdefault(response["problem_id"], []).append(response["text"])
    golds = {p["problem_id"]: json.loads(p["gold"]) for p in rows(run, "pool/problems.parquet")}
    stopped = [
        problem
        for problem, texts in by_problem.items()
        if len(texts) < 5 and not {golds[problem], f"({golds[problem]})"} & {*texts}
    ]
    assert found["stopped_early"] == len(stopped) > 0
    assert {one["retrained"] for one in found["conclusions"]} == {None}
    assert "nothing is said of training again" in (tmp_path / "out/rejudged.md").read_text()
