"""gapft eval reports unknown tasks and models in one line; lm_eval handles the rest."""

import sys

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.command import run_lm_eval
from tests.kit.command import gapft


@pytest.fixture
def mistake(capsys):
    """Run a command that must end with a UserError before lm_eval starts."""

    def run(*arguments: str) -> str:
        before = list(sys.argv)
        with pytest.raises(UserError) as caught:
            run_lm_eval(["--model", "dummy", *arguments])
        assert sys.argv == before
        return str(caught.value)

    return run


def test_reads_own_task_and_config_file(mistake, tmp_path):
    (tmp_path / "mine.yaml").write_text("task: mine_alone\n", encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(f"tasks: [mine_alone, mine_alne]\ninclude_path: {tmp_path}\n", "utf-8")
    message = mistake("--config", str(config))
    assert "mine_alne" in message
    assert "mine_alone" not in message


def test_rejects_folder_without_model(mistake, tmp_path):
    (tmp_path / "weights.txt").touch()
    for arguments in ([f"pretrained={tmp_path},dtype=float32"], [f"pretrained={tmp_path}", "a=1"]):
        message = mistake("--model", "hf", "--model_args", *arguments, "--tasks", "gapft_demo")
        assert message == (
            f"--model_args pretrained={tmp_path}: not a model folder: expected a config.json; "
            "found: weights.txt"
        )


def test_checks_model_of_config_file(mistake, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"tasks: gapft_demo\nmodel_args: pretrained={tmp_path}\n", "utf-8")
    assert "expected a config.json" in mistake("--config", str(config), "--model", "hf")


def test_rejects_missing_path(mistake, tmp_path):
    path = str(tmp_path / "nowhere")
    message = mistake("--model", "hf", "--model_args", f"pretrained={path}", "--tasks", "x")
    assert "folder not found" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "dummy", "--model_args", "pretrained=FOLDER", "--tasks", "gapft_de*"],
        ["--model", "dummy", "--tasks", "gsm8k,gapft"],
        ["--model", "hf", "--model_args", "pretrained=FOLDER,gguf_file=a", "--tasks", "gapft_demo"],
        ["--model", "hf", "--model_args", "pretrained=owner/name", "--tasks", "gapft_demo"],
        ["--model", "dummy", "--tasks", "FOLDER"],
        ["--model", "dummy", "--tasks", "FOLDER/none.yaml"],
        ["ls", "tasks"],
        ["validate", "--tasks", "no_such_task"],
    ],
)
def test_forwards_other_commands(arguments, tmp_path, monkeypatch):
    from lm_eval._cli import HarnessCLI

    reached = []
    monkeypatch.setattr(HarnessCLI, "execute", lambda self, parsed: reached.append(parsed))
    assert run_lm_eval([a.replace("FOLDER", str(tmp_path)) for a in arguments]) == 0
    assert len(reached) == 1


def test_command_prints_one_line(tmp_path):
    done = gapft("eval", "--model", "dummy", "--tasks", "gapft_demo,gapft_dmeo", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("gapft: --tasks: ")]
    assert "gapft_dmeo" in line
    assert "gapft_demo" not in line
