"""A third-party experiment, one file of the example package, run with the real command."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.stages.experiment import load_experiments
from gapft_harness.stages.verify.run import verify
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.tampering import change_manifest, seal_again

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests/example_plugin/gapft_answer_lengths.py"
NAME = "answer_lengths"
ARMS = [f"{condition}-seed{seed}" for condition in ("gapft", "all_verified") for seed in (13, 21)]

pytestmark = pytest.mark.xdist_group("example")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the letters task and a complete run of it with the experiment."""
    directory = tmp_path_factory.mktemp("experiment")
    prepare_letters_run(directory)
    with (directory / "recipe.yaml").open("a") as recipe:
        recipe.write(f"statistics: {{replicates: 20}}\nexperiments: {{{NAME}: {{long: 6}}}}\n")
    shutil.copy(FILE, directory / "mine.py")
    done = succeed(*build_arguments("whole"), cwd=directory)
    (directory / "output.txt").write_text(done.stdout + done.stderr)
    return directory


def build_arguments(run: str, *more: str) -> list[str]:
    """Return the arguments of a run in a directory, with the experiment's file as a plugin."""
    plugins = ["--plugin", "plugin.py", "--plugin", "mine.py"]
    return ["run", "recipe.yaml", "--include-path", "tasks", *plugins, "--run-dir", run, *more]


@pytest.fixture
def copied_folder(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder that a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "copy", symlinks=True))


def find_differences(folder: Path, run: str = "whole") -> str:
    result = verify(folder / run, [str(folder / "plugin.py"), str(folder / "mine.py")])
    return "\n".join(result.differences)


def test_experiment_appears_in_all_outputs(folder: Path) -> None:
    output, run = (folder / "output.txt").read_text(), folder / "whole"
    assert re.search(r"audit at .*\n(.*\n)+experiments at \d+ s\n(.*\n)+report at ", output)
    assert "✓ measure gapft-seed13" in output
    assert re.search(
        r"tokens of the median answer: source [\d.]+, gapft [\d.]+, all_verified", output
    )
    files = json.loads((run / "manifest.json").read_text())["files"]
    assert {f"{NAME}/{arm}.json" for arm in ARMS} <= files.keys()
    content = json.loads((run / "report/results.json").read_text())[NAME]
    assert content["conditions"].keys() == {"gapft", "all_verified"}
    assert content["long"] == 6
    page, text = (run / "report" / name for name in ("index.html", "report.md"))
    assert "<h2>Answer lengths</h2>" in page.read_text()
    assert f"figures/{NAME}.svg" in text.read_text()
    for file in (f"figures/{NAME}.svg", f"figures/{NAME}.png", f"tables/{NAME}.csv"):
        assert (run / "report" / file).stat().st_size > 50
    planned = succeed(*build_arguments("whole"), "--dry-run", cwd=folder).stdout
    assert f"measure answers of 4 training sets -> whole/{NAME}/" in planned
    assert f"{NAME}: 4 of 4" in planned
    listed = succeed("list", "plugins", "--plugin", folder / "mine.py").stdout
    assert re.search(rf"^experiment +{NAME} +.*lengths of the answers", listed, re.MULTILINE)


def test_results_match_sealed_tables(folder: Path) -> None:
    from statistics import fmean, median

    import pyarrow.parquet as pq

    def read_lengths(table: str, column: str) -> list[int]:
        return [len(ids) for ids in pq.read_table(folder / "whole" / table)[column].to_pylist()]

    content = json.loads((folder / "whole/report/results.json").read_text())[NAME]
    for condition, rates in content["conditions"].items():
        arms = [f"{condition}-seed{seed}" for seed in (13, 21)]
        for kind, table, column in (
            ("trained_on", "selections", "response_ids"),
            ("given", "decisions", "token_ids"),
        ):
            arm_lengths = [read_lengths(f"{table}/{arm}.parquet", column) for arm in arms]
            assert rates[kind]["median"] == fmean(map(median, arm_lengths))
            long = [length >= 6 for counts in arm_lengths for length in counts]
            assert rates[kind]["long"] == pytest.approx(sum(long) / len(long))


def test_verify_and_report_need_the_plugin(folder: Path) -> None:
    for command in (("verify", "whole"), ("run", "whole", "--only", "report")):
        done = gapft(*command, "--plugin", "plugin.py", cwd=folder)
        assert done.returncode == 2
        assert "mine.py" in done.stderr, done.stderr
        assert f"the experiment '{NAME}'" in done.stderr, done.stderr


def test_changed_settings_or_code_recompute_results(copied_folder: Path) -> None:
    path, plugin_file = copied_folder / f"whole/{NAME}/gapft-seed13.json", copied_folder / "mine.py"
    original, source = path.read_bytes(), plugin_file.read_text()
    plugin_file.write_text(source.replace("Answer lengths", "How long answers are"))
    succeed(*build_arguments("whole", "--only", "report"), cwd=copied_folder)
    assert "How long answers are" in (copied_folder / "whole/report/report.md").read_text()
    assert f"{NAME}/gapft-seed13.json: code is" in find_differences(copied_folder)
    written = path.stat().st_mtime_ns
    done = succeed(*build_arguments("whole"), cwd=copied_folder)
    assert f"{NAME}: making 4 files again: the plugin changed" in done.stderr
    assert path.read_bytes() == original
    assert path.stat().st_mtime_ns != written
    assert find_differences(copied_folder) == ""
    done = succeed(*build_arguments("whole"), cwd=copied_folder)
    assert " again: " not in done.stderr
    for file in path.parent.glob("*.json"):
        file.unlink()
    succeed(*build_arguments("whole"), cwd=copied_folder)
    assert find_differences(copied_folder) == ""
    setting = ("--set", f"experiments.{NAME}.long=13")
    planned = succeed(*build_arguments("whole"), *setting, "--dry-run", cwd=copied_folder)
    assert f"{NAME}: 0 of 4" in planned.stdout
    succeed(*build_arguments("whole"), *setting, "--only", "select", cwd=copied_folder)
    done = gapft(*build_arguments("whole"), *setting, "--only", "report", cwd=copied_folder)
    assert done.returncode == 2
    assert "gapft run --only experiments makes it again" in done.stderr
    done = succeed(*build_arguments("whole"), *setting, cwd=copied_folder)
    assert f"{NAME}: making 4 files again: settings changed" in done.stderr
    assert json.loads(path.read_text())["long"] == 0 < json.loads(original)["long"]
    assert find_differences(copied_folder) == ""


def test_verify_reports_files_without_a_step(copied_folder: Path) -> None:
    run = copied_folder / "whole"
    for name in (f"{NAME}/more.json", "decisions/gapft-seed13.more.parquet", "other/x.json"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("{}")
        seal_again(run, name)
        assert f"{name}: does not record its inputs" in find_differences(copied_folder)
    change_manifest(run, lambda manifest: manifest.pop("steps"))
    assert f"{NAME}/gapft-seed13.json: does not record its inputs" in find_differences(
        copied_folder
    )


def test_verify_checks_experiments_removed_from_recipe(copied_folder: Path) -> None:
    run = copied_folder / "whole"
    path = copied_folder / "recipe.yaml"
    path.write_text(path.read_text().replace(f"experiments: {{{NAME}: {{long: 6}}}}", ""))
    succeed(*build_arguments("whole"), cwd=copied_folder)
    assert "answer_lengths" not in json.loads((run / "report/results.json").read_text())
    assert find_differences(copied_folder) == ""
    file = f"{NAME}/gapft-seed13.json"
    change_manifest(run, lambda manifest: manifest["steps"][file]["settings"].update(long=7))
    assert f"manifest.json, steps, {file}: key is" in find_differences(copied_folder)


MISTAKES = {
    f"experiments.{NAME}.long=0": f"key 'experiments.{NAME}.long': input should be greater than 0",
    f"experiments.{NAME}.lng=6": f"unknown key 'experiments.{NAME}.lng'; did you mean "
    f"'experiments.{NAME}.long'?",
    f"experiments.{NAME}=6": f"key 'experiments.{NAME}': expected keys with values",
    "experiments.answer_length={}": f"'answer_length'; did you mean '{NAME}'?",
}


@pytest.mark.parametrize("setting", MISTAKES)
def test_rejects_wrong_settings(folder: Path, setting: str) -> None:
    done = gapft(*build_arguments("none", "--set", setting), cwd=folder)
    assert done.returncode == 2
    assert MISTAKES[setting] in done.stderr
    assert f"--set {setting}: " in done.stderr or "answer_length=" in setting
    assert done.stderr.count("\n") == 1
    assert not (folder / "none").exists()


def test_settings_error_names_the_recipe(folder: Path) -> None:
    content = {
        "name": "r",
        "data": {"task": "t"},
        "model": {"args": {"pretrained": "m"}},
        "experiments": {NAME: {"long": "much"}},
    }
    with pytest.raises(UserError, match=rf"^recipe r: key 'experiments\.{NAME}\.long': input"):
        load_experiments(check_recipe(content, "test"), load_plugins([str(FILE)]))


def test_docs_quote_the_example_file(folder: Path) -> None:
    page = (ROOT / "docs/experiments.md").read_text()
    quoted = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(quoted) >= 4
    assert [block for block in quoted if block not in FILE.read_text()] == []
