"""Three rounds on the demo's policy with the real command: ``gapft run demo --from RUN:ARM``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import run_recipe
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.weights import weights_hash
from gapft_harness.demo import find_policy
from gapft_harness.lm_eval_bridge.command import run_lm_eval
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.rounds.merged_source import merge_source
from gapft_harness.stages.rounds.origin import open_start, require_same_audit
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.tiny_models import write_byte_adapter
from tests.verify.tampering import change_json, change_manifest, change_rows, seal_again

ARM = "gapft-seed13"
SETTINGS = ("search.k=4", "search.chunk=64", "executor.workers=1", "statistics.replicates=20")
SEARCH_OPTIONS = ["--limit", "60"]
SEARCH_OPTIONS += [word for setting in SETTINGS for word in ("--set", setting)]
OPTIONS = [*SEARCH_OPTIONS, "--condition", "gapft", "--seed", "13"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs 1, 2 and 3; each later one starts from the one before."""
    folder = tmp_path_factory.mktemp("rounds")
    succeed("run", "demo", *OPTIONS, "--run-dir", folder / "1")
    for number in (2, 3):
        start = f"{folder / str(number - 1)}:{ARM}"
        succeed("run", "demo", *OPTIONS, "--from", start, "--run-dir", folder / str(number))
    return folder


def read_manifest(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return content


def read_column(table: Path, column: str) -> list[Any]:
    """Read a column of the greedy decodes."""
    return list(pq.read_table(table, filters=[("index", "=", -1)])[column].to_pylist())


def read_passed(table: Path) -> list[bool]:
    return [status == "pass" for status in read_column(table, "status")]


def build_options(start: str | None, *overrides: str, model_args: str | None = None) -> Options:
    settings = ["data.pool_limit=60", "data.audit_limit=60", *SETTINGS, *overrides]
    return Options("demo", None, model_args, settings, ("gapft",), (13,), start=start)


def test_the_merged_source_answers_as_the_arm_before(runs: Path) -> None:
    for number in (2, 3):
        before = runs / str(number - 1) / "decisions" / f"{ARM}.parquet"
        source = runs / str(number) / "audit" / "responses.parquet"
        for column in ("problem_id", "text", "token_ids", "status"):
            assert read_column(source, column) == read_column(before, column)


def test_reported_changes_add_up_exactly_and_follow_from_the_tables(runs: Path) -> None:
    rounds = json.loads((runs / "3/report/results.json").read_text())["rounds"]
    states = pq.read_table(runs / "1/audit/states.parquet")["state"].to_pylist()
    chain = []
    for number in (1, 2, 3):
        chain.append(read_passed(runs / str(number) / "audit/responses.parquet"))
        chain.append(read_passed(runs / str(number) / f"decisions/{ARM}.parquet"))
    expected = [
        {
            state: Fraction(
                sum(b - a for a, b, s in zip(*models, states, strict=True) if s == state),
                len(states),
            )
            for state in "SUG"
        }
        for models in pairwise(chain)
    ]
    first, second = rounds["earlier"]
    own = rounds["conditions"]["gapft"]
    steps = [first, first["decoded_again"], second, second["decoded_again"], own]
    for step, terms in zip(steps, expected, strict=True):
        assert step["terms"] == {state: float(term) for state, term in terms.items()}
    change = Fraction(sum(chain[-1]) - sum(chain[0]), len(states))
    assert sum(term for terms in expected for term in terms.values()) == change
    assert own["sum"]["change"] == float(change) != 0
    assert rounds["states"] == {state: states.count(state) for state in "GSU"}
    assert "rounds" not in json.loads((runs / "1/report/results.json").read_text())
    assert "## Rounds" in (runs / "3/report/report.md").read_text()


def test_run_records_its_origin_by_content(runs: Path) -> None:
    first, third = read_manifest(runs / "1"), read_manifest(runs / "3")
    origin = third["origin"]
    assert [entry["arm"] for entry in origin["rounds"]] == [ARM, ARM]
    assert origin["rounds"][0]["base_sha256"] == first["source"]["weights_sha256"]
    for entry, number in zip(origin["rounds"], ("1", "2"), strict=True):
        assert entry["adapter_sha256"] == weights_hash(runs / number / "adapters" / ARM)
        assert entry["sealed"]["responses"] == sha256(runs / number / "audit/responses.parquet")
    merged = read_manifest(runs / "2")["source"]["weights_sha256"]
    assert origin["base"]["weights_sha256"] == origin["rounds"][1]["base_sha256"] == merged
    assert third["source"]["weights_sha256"] == origin["weights_sha256"] != merged
    facts = json.loads((runs / "3/adapters" / ARM / "training.json").read_text())
    assert facts["base_sha256"] == facts["merged_base"]["weights_sha256"]
    assert facts["merged_base"]["base_sha256"] == merged


@pytest.fixture
def without_earlier(runs: Path) -> Iterator[None]:
    """Remove the first two runs for a while; the store stays."""
    for number in ("1", "2"):
        (runs / number).rename(runs / f"moved-{number}")
    yield
    for number in ("1", "2"):
        (runs / f"moved-{number}").rename(runs / number)


@pytest.mark.usefixtures("without_earlier")
def test_report_and_verification_do_not_need_the_earlier_runs(runs: Path) -> None:
    report = (runs / "3/report/results.json").read_bytes()
    succeed("run", runs / "3", "--only", "report")
    assert (runs / "3/report/results.json").read_bytes() == report
    findings = verify(runs / "3")
    assert findings.differences == []
    assert any("2 earlier rounds" in line for line in findings.checked)


def forge_verdict(run: Path) -> None:
    """Change a verdict of the first round's arm."""

    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["status"] = "fail" if rows[0]["status"] == "pass" else "pass"

    change_rows(run, "rounds/1/decisions.parquet", change)
    record_hash(run, "decisions")


def forge_state(run: Path) -> None:
    """Move a problem that search recovered to those that it missed."""

    def change(rows: list[dict[str, Any]]) -> None:
        next(row for row in rows if row["state"] == "S")["state"] = "U"

    change_rows(run, "rounds/1/states.parquet", change)
    record_hash(run, "states")


def record_hash(run: Path, table: str) -> None:
    digest = sha256(run / f"rounds/1/{table}.parquet")
    change_manifest(run, lambda m: m["origin"]["rounds"][0]["sealed"].update({table: digest}))


def forge_result(run: Path) -> None:
    def change(results: dict[str, Any]) -> None:
        results["rounds"]["earlier"][0]["terms"]["S"] += 0.25

    change_json(run / "report/results.json", change)


def swap_arm(run: Path) -> None:
    """Replace the first round's decisions by those of the second round."""
    shutil.copyfile(run / "rounds/2/decisions.parquet", run / "rounds/1/decisions.parquet")
    seal_again(run, "rounds/1/decisions.parquet")
    record_hash(run, "decisions")


def change_base(run: Path) -> None:
    change_manifest(run, lambda m: m["origin"]["rounds"][1].update({"base_sha256": "0" * 64}))


@pytest.mark.parametrize(
    ("forge", "place"),
    [
        (forge_verdict, "rounds/1/decisions.parquet"),
        (forge_state, "rounds/1/states.parquet"),
        (forge_result, "results.json, rounds"),
        (swap_arm, "round 1"),
        (change_base, "round 2"),
    ],
)
def test_verification_detects_a_forged_earlier_round(
    runs: Path, tmp_path: Path, forge: Callable[[Path], None], place: str
) -> None:
    run = Path(shutil.copytree(runs / "3", tmp_path / "3"))
    forge(run)
    assert any(place in line for line in verify(run).differences)


def read_merged_recipe(runs: Path, number: int = 2) -> tuple[Recipe, Path]:
    """Return a run's recipe, and the folder of its merged source."""
    recipe = RunDirectory.open(runs / str(number)).recipe
    return recipe, Path(recipe.model.args["pretrained"])


def unmerge(runs: Path) -> Recipe:
    """Return the recipe of run 2 as it was before base and adapter were merged."""
    recipe, _ = read_merged_recipe(runs)
    arguments = {**recipe.model.args, **open_start(f"{runs / '1'}:{ARM}").list_model_args()}
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"args": arguments})})


def test_equal_inputs_give_equal_bytes_also_after_a_kill(runs: Path, tmp_path: Path) -> None:
    recipe, folder = read_merged_recipe(runs)
    group = folder.relative_to(runs / ".store")
    partial = tmp_path / ".store" / group.parent / f".{group.name}.partial"
    partial.mkdir(parents=True)  # as a killed command leaves it
    (partial / "model.safetensors").write_bytes(b"half")
    lines: list[str] = []
    merged, facts = merge_source(unmerge(runs), tmp_path / "run", lines.append)
    assert facts is not None
    assert Path(merged.model.args["pretrained"]) == tmp_path / ".store" / group
    assert len(lines) == 1
    assert not partial.exists()
    assert sha256(tmp_path / ".store" / group) == sha256(folder)
    again, same_facts = merge_source(unmerge(runs), tmp_path / "other", lines.append)
    assert (again, same_facts, len(lines)) == (merged, facts, 1)
    assert merged.model.args.keys() == recipe.model.args.keys()


def test_deleted_merged_source_is_made_again(runs: Path) -> None:
    recipe, folder = read_merged_recipe(runs)
    digest = sha256(folder)
    shutil.rmtree(folder)
    assert merge_source(recipe, runs / "2", lambda line: None) == (recipe, None)
    assert sha256(folder) == digest


def test_changed_merged_source_is_refused(runs: Path) -> None:
    _, folder = read_merged_recipe(runs)
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        with pytest.raises(UserError, match=r"merged-.*changed"):
            merge_source(unmerge(runs), runs / "new", lambda line: None)
        with pytest.raises(UserError, match="trained on"):
            run_recipe(build_options(f"{runs / '2'}:{ARM}"), runs / "new")
    finally:
        weights.write_bytes(content)
    assert not (runs / "new").exists()


def test_adapter_is_refused_on_another_base(runs: Path, tmp_path: Path) -> None:
    adapter = runs / "2" / "adapters" / ARM
    origin = read_manifest(runs / "2")["origin"]
    common = ["--tasks", "gapft_demo", "--limit", "2", "--output_path", str(tmp_path / "logs")]
    for pretrained, given in (
        (find_policy(), ["--adapters", str(adapter)]),
        (find_policy(), []),
        (origin["pretrained"], []),
    ):
        peft = "" if given else f",peft={adapter}"
        model = [
            "--model",
            "hf",
            "--device",
            "cpu",
            "--model_args",
            f"pretrained={pretrained}{peft}",
        ]
        if pretrained == origin["pretrained"]:
            assert run_lm_eval([*model, *common]) == 0
            continue
        with pytest.raises(UserError, match="trained on the merged base"):
            run_lm_eval([*model, *common, *given])


@pytest.fixture(scope="module")
def untrained(runs: Path) -> Path:
    """A run that is only searched."""
    succeed("run", "demo", *SEARCH_OPTIONS, "--run-dir", runs / "searched", "--only", "search")
    return runs / "searched"


@pytest.mark.parametrize(
    ("start", "overrides", "message"),
    [
        ("{runs}/1", (), "expected RUN:ARM"),
        ("{runs}/none:gapft-seed13", (), "not a run directory"),
        ("{runs}/1:gapft-seed21", (), "no trained and audited arm.*it has: gapft-seed13"),
        ("{runs}/1:nonsense", (), "no trained and audited arm"),
        ("{runs}/searched:gapft-seed13", (), "has none yet"),
        ("{runs}/1:gapft-seed13", ("data.audit_limit=30",), "data.audit_limit"),
        ("{runs}/1:gapft-seed13", ("data.task=gapft_demo_code",), "data.task"),
        ("{runs}/1:gapft-seed13", ("verifier.params.rule=last",), "verifier"),
    ],
)
@pytest.mark.usefixtures("untrained")
def test_refuses_a_wrong_start(
    runs: Path, start: str, overrides: tuple[str, ...], message: str
) -> None:
    options = build_options(start.format(runs=runs), *overrides)
    for command in (describe_dry_run, run_recipe):
        with pytest.raises(UserError, match=message):
            command(options, runs / "new")
    assert not (runs / "new").exists()


def test_refuses_an_audit_with_other_problems_under_the_same_settings(runs: Path) -> None:
    manifest = read_manifest(runs / "2")
    inputs = manifest["rests_on"]
    require_same_audit(manifest["origin"], inputs)
    require_same_audit(None, inputs)
    other = {"audit": {**inputs["data"]["audit"], "sha256": "0" * 64}}
    with pytest.raises(UserError, match="data, audit: 60 problems"):
        require_same_audit(manifest["origin"], {**inputs, "data": other})
    task = {**inputs["task"], "doc_to_text": "other"}
    with pytest.raises(UserError, match="doc_to_text"):
        require_same_audit(manifest["origin"], {**inputs, "task": task})


def test_refuses_an_adapter_that_was_changed(runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "1", tmp_path / "1"))
    with (run / "adapters" / ARM / "adapter_model.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(UserError, match="changed after it was sealed"):
        run_recipe(build_options(f"{run}:{ARM}"), tmp_path / "new")
    peft = f"peft={run / 'adapters' / ARM}"
    with pytest.raises(UserError, match="changed after its training"):
        run_recipe(build_options(None, model_args=peft), tmp_path / "new")


def test_refuses_other_adapters(runs: Path, tmp_path: Path) -> None:
    def run_with(peft: Path, *overrides: str, start: str | None = None) -> None:
        options = build_options(start, *overrides, f"model.args.peft={peft}")
        run_recipe(options, tmp_path / "new")

    adapter = Path(shutil.copytree(runs / "2/adapters" / ARM, tmp_path / "adapter"))
    with pytest.raises(UserError, match="trained on a base"):  # its base is the merged one
        run_with(adapter)
    (adapter / "training.json").unlink()
    change_json(adapter / "adapter_config.json", lambda config: config.update(peft_type="IA3"))
    with pytest.raises(UserError, match="expected LORA"):
        run_with(adapter)
    with pytest.raises(UserError, match=r"adapter_config\.json not found"):
        run_with(tmp_path)
    with pytest.raises(UserError, match="conflicts with 'load_in_4bit'"):
        run_with(adapter, "model.args.load_in_4bit=true")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: demo\ndata: {task: gapft_demo}\n"
        f"model: {{args: {{pretrained: 'bundled:demo', peft: '{adapter}'}}}}\n"
    )
    refused = gapft("run", recipe, "--from", f"{runs / '1'}:{ARM}", "--run-dir", tmp_path / "new")
    assert refused.returncode == 2
    assert "--from" in refused.stderr
    assert "peft" in refused.stderr
    assert not (tmp_path / "new").exists()


def test_adapter_of_other_shapes_is_refused(tmp_path: Path) -> None:
    from tests.tiny_models import write_byte_llama

    foreign = write_byte_adapter(write_byte_llama(tmp_path / "model"), tmp_path / "foreign")
    with pytest.raises(UserError, match="does not fit the model"):
        run_recipe(build_options(None, f"model.args.peft={foreign}"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_dry_run_says_what_is_merged(runs: Path, tmp_path: Path) -> None:
    options = build_options(f"{runs / '1'}:{ARM}")
    _, folder = read_merged_recipe(runs)
    assert str(folder) in describe_dry_run(options, runs / "new")
    elsewhere = describe_dry_run(options, tmp_path / "new")
    assert "GB" in next(line for line in elsewhere.splitlines() if line.startswith("merge"))
    assert not (tmp_path / ".store" / "merge").exists()


def test_store_lists_the_merged_model_with_its_run(runs: Path) -> None:
    lines = succeed("store", runs).stdout.splitlines()
    merged = [line for line in lines if line.startswith("merged model")]
    assert len(merged) == 2
    assert not any(line.endswith("no run") for line in merged)
