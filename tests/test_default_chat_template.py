"""Prompts use the tokenizer's chat template unless recipe or command disable it."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

from gapft_harness.core.chat_template import render_template
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.hooks.registration import SamplerTraits
from tests.kit.command import call
from tests.kit.letters import prepare_letters_run
from tests.kit.recording_run import IN_PROCESS_PLUGIN
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

ASKED = (
    *("--include-path", "tasks", "--plugin", "plugin.py"),
    *("--plugin", "here.py", "--set", "executor.name=here"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe without template settings, whose model has a template."""
    folder = tmp_path_factory.mktemp("chat")
    prepare_letters_run(folder)
    write_byte_llama(folder / "model", chat_template=CHAT_TEMPLATE)
    write_byte_llama(folder / "base")
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content["data"] |= {"pool_limit": 4, "audit_limit": 4}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    (folder / "here.py").write_text(IN_PROCESS_PLUGIN)
    return folder


def run_here(folder: Path, *words: str) -> CompletedProcess[str]:
    """Run a command with its jobs in this process, and require success."""
    with contextlib.chdir(folder):
        done = call(*words)
    assert done.returncode == 0, done.stderr
    return done


def test_gap_and_dry_run_apply_template(folder: Path) -> None:
    model = ("--model-args", f"pretrained={folder / 'model'},dtype=float32", "--k", "2")
    done = run_here(folder, "gap", "letters", *ASKED, *model, "--limit", "2", "--out", "gap")
    assert "model.chat_template" in done.stderr
    assert (
        yaml.safe_load((folder / "gap/recipe.yaml").read_text())["model"]["chat_template"] is True
    )
    dry = run_here(folder, "run", "recipe.yaml", *ASKED, "--dry-run", "--run-dir", "dry").stdout
    assert "chat_template: true" in dry


def test_dry_run_names_a_changed_default(folder: Path) -> None:
    run = ("run", "recipe.yaml", *ASKED, "--run-dir", "changed")
    run_here(folder, *run, "--only", "search")
    other = f"model.args.pretrained={folder / 'base'}"
    dry = run_here(folder, *run, "--set", other, "--dry-run").stdout
    (line,) = [line for line in dry.splitlines() if "are recomputed" in line]
    assert "model.chat_template true → false" in line


CLOCK_TEMPLATE = "{{ strftime_now('%d %H') }}:" + CHAT_TEMPLATE


@pytest.mark.parametrize("backend", ["hf", "vllm"])
def test_template_writes_the_recipes_time(tmp_path: Path, backend: str) -> None:
    """A template that writes the current time is refused: see test_refused_early.py."""
    model = write_byte_llama(tmp_path / "m", chat_template=CLOCK_TEMPLATE)
    count_tokens = (
        load_plugins().get("sampler", backend).require_traits(SamplerTraits).prompt_lengths
    )
    assert count_tokens is not None

    def count(**more: str) -> list[int]:
        args = {"pretrained": str(model), "chat_template_args": more}
        settings = SamplerSettings(backend, args, chat_template=True)
        return [*(count_tokens(settings, [Problem("a", "Spell.", "gold", {})]) or ())]

    assert count(strftime_now="2026-01-31T12:00") == [len("31 12:B<user>Spell.\n<assistant>")]
    with pytest.raises(UserError, match="writes the current time"):
        count()
    with pytest.raises(UserError, match="found 'noon'; expected a date or a time"):
        count(strftime_now="noon")


def test_threads_render_one_time(tmp_path: Path) -> None:
    """A server's sampler renders the prompts of several requests at once."""
    slow = "{% for i in range(300) %}{{ strftime_now('%H') }}{% endfor %}"
    tokenizer = AutoTokenizer.from_pretrained(
        write_byte_llama(tmp_path / "m", chat_template=slow + CHAT_TEMPLATE)
    )
    times = {f"2026-01-31T{hour:02}:00": f"{hour:02}" for hour in range(24)}
    turns = [{"role": "user", "content": "Spell."}]

    def render(time: str) -> str:
        return render_template(tokenizer, {"strftime_now": time}, turns)

    with ThreadPoolExecutor(8) as pool:
        texts = [*pool.map(render, [*times] * 4)]
    for text, hour in zip(texts, [*times.values()] * 4, strict=True):
        assert text.startswith(hour * 300)
    assert chat_template_utils.datetime is datetime, "the library has its own clock again"


def test_default_depends_on_backend(folder: Path) -> None:
    plugins = load_plugins()

    def is_applied(backend: str, folder_name: str, **more: str) -> bool:
        args = {"pretrained": str(folder / folder_name), **more}
        return plugins.is_chat_template_default(SamplerSettings(backend, args))

    for backend in ("hf", "vllm", "recorded"):
        assert is_applied(backend, "model")
        assert not is_applied(backend, "base")
        if backend != "hf":
            assert is_applied(backend, "base", tokenizer=str(folder / "model"))
    url = {"base_url": "http://127.0.0.1:1/v1/completions", "model": "m"}
    assert is_applied("local-completions", "model", **url)
    assert not is_applied("local-completions", "base", **url)
    assert not is_applied("local-completions", "model", tokenizer_backend="none", **url)
    chat = {"base_url": "http://127.0.0.1:1/v1/chat/completions", "model": "m"}
    assert is_applied("local-chat-completions", "base", **chat), "the server renders the prompts"
    assert not is_applied("dummy", "model")
    with pytest.raises(UserError, match="pretrained"):
        is_applied("hf", "nowhere/at/all")
