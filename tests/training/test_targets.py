"""What a dry run says about the modules that adapters change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2MoeConfig

from gapft_harness.core import cpu
from gapft_harness.core.cpu import describe_slow_dtype
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.tiny_models import write_byte_llama

MLP = ("gate_proj", "up_proj", "down_proj")


def write_mixture(folder: Path, **changes: Any) -> Path:
    """Write a random mixture of experts with a shared expert in each of two layers."""
    write_byte_llama(folder)
    settings = {
        "vocab_size": len(AutoTokenizer.from_pretrained(folder)), "hidden_size": 32,
        "intermediate_size": 64, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_experts": 4, "num_experts_per_tok": 2, "bos_token_id": 1, "eos_token_id": 2,
        "pad_token_id": 0, **changes,
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(Qwen2MoeConfig(**settings))
    model.save_pretrained(folder)
    return folder


def test_run_and_dry_run_say_it(tmp_path: Path) -> None:
    prepare_letters_run(tmp_path)
    write_mixture(tmp_path / "mixture")
    content = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    content["training"] = {**content.get("training", {}), "target_modules": [*MLP]}
    content["model"]["args"]["pretrained"] = str(tmp_path / "mixture")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
    line = "adapted modules: gate_proj, up_proj, down_proj: 1 in each of 2 layers"
    asked = ("recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py")
    dry = succeed("run", *asked, "--dry-run", cwd=tmp_path).stdout
    assert line in dry
    assert "experts of the mixture stay frozen" in dry.partition("# warnings")[2]
    done = gapft("run", *asked, "--run-dir", "run", "--only", "train", cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert line in said
    assert "warning: training.target_modules: the experts of the mixture stay frozen" in said
    assert "nothing is searched yet" in said


@pytest.mark.parametrize(
    ("flags", "is_slow"), [("fpu avx512f amx_bf16", False), ("fpu avx2", True)]
)
def test_names_cpus_without_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, is_slow: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(cpu, "_CPU_INFO", tmp_path / "cpuinfo")
    assert ("float32" in describe_slow_dtype("cpu", "torch.bfloat16", "float32")) is is_slow
    assert describe_slow_dtype("cuda", "torch.bfloat16", "") == ""
    assert describe_slow_dtype("cpu", "torch.float32", "") == ""
