"""``gapft gap`` on the command line: wrong options, bundled tasks, a real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from gapft_harness.presentation import page as pages
from tests.gap.results import read_rates, read_results, read_states
from tests.gap.stock import CHOICE, STOCK, run_gap, write_stock, write_task
from tests.kit.command import succeed

GENERATED = """\
include: pears_choice.yaml
task: pears_said
output_type: generate_until
doc_to_text: "{{question}} Is it 7 (A) or 8 (B)? Answer by the letter.\\nAnswer:"
doc_to_choice: null
doc_to_target: A
generation_kwargs: {do_sample: false, max_gen_toks: 8, until: ["\\n"]}
filter_list: [{name: letter, filter: [{function: regex, regex_pattern: "([AB])"}, {function: take_first}]}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""  # noqa: E501 as docs/gap.md has it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    tasks = write_stock(folder)
    (tasks / "choice.yaml").write_text(CHOICE)
    (tasks / "said.yaml").write_text(GENERATED.replace("pears_choice.yaml", "choice.yaml"))
    for name in ("pears_choice", "pears_said"):
        (folder / f"{name}.json").write_text((folder / "gsm8k.json").read_text())
    return folder


def test_measures_converted_multiple_choice_task(folder: Path) -> None:
    done = run_gap(folder, "pears_said", "--limit", "3")
    assert done.exit_code == 0, (done.output, done.exception)
    (search,) = read_results(folder / "pears_said")["search"]
    assert (search["problems"], search["filter"]) == (3, "letter")


def test_draws_different_k_in_same_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_gap(folder, "triviaqa", out="bound")
    assert done.exit_code == 0, (done.output, done.exception)
    other = run_gap(folder, "triviaqa", "--k", "3", out="bound")
    assert other.exit_code == 0, (other.output, other.exception)
    assert "search.k" in other.output

    def close_output(*_: object) -> None:
        raise SystemExit(1)  # rich does this when piped into ``head``

    monkeypatch.setattr(pages, "print_sections", close_output)
    again = run_gap(folder, "triviaqa", out="bound")
    assert again.exit_code == 0, (again.output, again.exception)


def test_rejects_problems_shared_by_splits(folder: Path) -> None:
    gsm8k, name = STOCK["gsm8k"], "pears_twice"
    rows = [gsm8k.document(number) for number in range(4)]
    splits = {"test": rows, "train": rows[2:]}
    write_task(folder / "tasks", name, gsm8k.file, splits, num_fewshot=0)
    (folder / f"{name}.json").write_text((folder / "gsm8k.json").read_text())
    audit = run_gap(folder, name)
    assert audit.exit_code == 0, (audit.output, audit.exception)
    items = (folder / name / "gap" / "tables" / "items.csv").read_text()
    requests = (folder / f"{name}.asked").read_text()
    pool = run_gap(folder, name, "--split", "pool")
    assert isinstance(pool.exception, UserError), pool.output
    assert (folder / f"{name}.asked").read_text() == requests, "searched, and then refused"
    assert (folder / name / "gap" / "tables" / "items.csv").read_text() == items
    elsewhere = run_gap(folder, name, "--split", "pool", out="alone")
    assert elsewhere.exit_code == 0, "no audit is there to hold it apart from"


def test_limit_selects_same_documents_as_lm_eval(tmp_path: Path) -> None:
    """lm_eval's dummy model needs no ``pretrained``."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    done = CliRunner().invoke(
        app,
        [
            "gap", "--tasks", "gapft_demo", "--model", "dummy", "--limit", "7", "--k", "2",
            "--out", str(tmp_path / "gap"),
        ],
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    manager = TaskManager(include_path=[str(tasks_path())], include_defaults=False)
    expected = simple_evaluate(
        model="dummy", tasks=["gapft_demo"], limit=7, task_manager=manager, bootstrap_iters=0
    )["samples"]["gapft_demo"]
    (log,) = (tmp_path / "gap" / "gap" / "greedy").glob("samples_*.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(row["doc_id"] for row in rows) == [row["doc_id"] for row in expected]
    by_id = {row["doc_id"]: row["doc"] for row in rows}
    assert all(by_id[row["doc_id"]] == row["doc"] for row in expected)


def test_measures_demo_policy(tmp_path: Path) -> None:
    """Measure the demo policy in separate processes and read the terminal's table."""
    model = ("--model", "hf", "--model_args", "pretrained=bundled:demo,dtype=float32,device=cpu")
    done = succeed(
        "gap", "--tasks", "gapft_demo", *model, "--k", 4, "--limit", 24, "--set",
        "search.temperature=0.9", cwd=tmp_path,
    )  # fmt: skip
    results = read_results(tmp_path / "gaps/gapft_demo")
    (search,) = results["search"]
    settings = {row["setting"]: row["value"] for row in results["settings"]}
    assert (search["problems"], search["metric"], settings["temperature"]) == (24, "pass@1", 0.9)
    counts = read_states(results)["none"]
    assert sum(counts.values()) == 24
    greedy = read_rates(results)["none"]["greedy"]["rate"]
    assert 0 < greedy < 1
    folder = tmp_path / "gaps/gapft_demo/gap"
    for text in (done.stdout, *((folder / page).read_text() for page in ("gap.html", "gap.md"))):
        assert f"{100 * greedy:.1f}%" in text
        assert "Pass@4" in text
    assert (folder / "figures/pass_at_k.svg").exists()
    compared = CliRunner().invoke(
        app,
        [
            "compare", *[str(tmp_path / "gaps/gapft_demo/gap/greedy")] * 2,
            "--source-samples", str(tmp_path / "gaps/gapft_demo/gap/samples"),
            *("--out", str(tmp_path / "compared")),
        ],
    )  # fmt: skip
    assert compared.exit_code == 0, compared.output
    results = json.loads((tmp_path / "compared/results.json").read_text())
    before, after = results["cut"]
    assert before["cut"] == after["cut"]
    assert {state: results["states"][0][state] for state in "GSU"} == counts


def test_measures_sampled_deployment_decodes(tmp_path: Path) -> None:
    """The figures follow from the verdicts of the decode and samples in both logs."""
    succeed(
        *("gap", "gapft_demo", "--model-args", "pretrained=bundled:demo,dtype=float32"),
        *("--k", 2, "--limit", 16, "--set", "search.deployment={temperature: 0.9}"),
        cwd=tmp_path,
    )
    folder = tmp_path / "gaps/gapft_demo/gap"
    results = read_results(folder.parent)
    passed = {}
    for kind in ("greedy", "samples"):
        (log,) = (folder / kind).glob("samples_*.jsonl")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        passed[kind] = [[v["status"] == "pass" for v in row["verdicts"]] for row in rows]
        assert [row["pass@1"] for row in rows] == [sum(p) / len(p) for p in passed[kind]]
    states = [
        "G" if decoded else "S" if any(samples) else "U"
        for (decoded,), samples in zip(*passed.values(), strict=True)
    ]
    assert read_states(results)["none"] == {state: states.count(state) for state in "GSU"}
    assert read_rates(results)["none"]["greedy"]["rate"] == states.count("G") / 16
    compared = CliRunner().invoke(app, ["compare", *[str(folder / "greedy")] * 2])
    assert compared.exit_code == 0, compared.output
