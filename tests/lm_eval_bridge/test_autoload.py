"""The import hook of the stock lm_eval."""

import sys
from pathlib import Path

from gapft_harness import autoload
from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from tests.kit.command import lm_eval


def test_hook_ignores_other_imports(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("GAPFT_NO_AUTOLOAD", "1")
    before = list(sys.meta_path)
    autoload.install()
    assert sys.meta_path == before
    monkeypatch.delenv("GAPFT_NO_AUTOLOAD")
    autoload.install()
    hook = sys.meta_path[0]
    assert hook.find_spec("lm_eval") is None
    assert hook.find_spec("json") is None


def test_startup_ignores_package_without_hook(tmp_path, monkeypatch):
    """An older version of this package, or a folder with its name, may come first on the path."""
    line = (Path(autoload.__file__).parent / "gapft_harness_autoload.pth").read_text()
    monkeypatch.delenv("GAPFT_NO_AUTOLOAD", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = list(sys.meta_path)
    exec(line, {})
    assert sys.meta_path[1:] == before
    (tmp_path / "gapft_harness").mkdir()
    (tmp_path / "gapft_harness/__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sys.meta_path[:] = before
    exec(line, {})
    assert sys.meta_path == before


def test_lm_eval_runs_bundled_and_own_tasks(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.yaml").write_text(
        f"include: {tasks_path() / 'demo' / '_base_yaml'}\ntask: mine_too\n"
        "dataset_kwargs: {data_files: {pool: "
        f"{tasks_path() / 'demo' / 'pool.jsonl'}, audit: {tasks_path() / 'demo' / 'audit.jsonl'}"
        "}}\n",
        encoding="utf-8",
    )
    done = lm_eval(
        *("--model", "dummy", "--tasks", "gapft_demo,gapft_demo_passk,mine_too"),
        *("--limit", "3", "--include_path", tmp_path / "mine"),
        cwd=tmp_path,
    )
    for text in ("gapft_demo ", "gapft_demo_passk", "mine_too", "pass@8", "verifier_timeouts"):
        assert text in done.stdout
