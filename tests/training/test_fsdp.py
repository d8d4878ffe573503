"""FSDP on two CPU processes: each holds a part of the base and complete adapters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.tiny_models import write_byte_llama

SCRIPT = """
import dataclasses
import sys
from pathlib import Path

import torch

from gapft_harness.training import objective
from gapft_harness.training.model import add_lora, load_base, remove_lora
from gapft_harness.training.devices import Devices
from gapft_harness.training.passes import Member
from gapft_harness.training.plan import build_sequences
from tests.training.examples import examples, job, settings

training_job = job(Path(sys.argv[1]), Path(sys.argv[2]), examples(2))
devices = Devices.of(dataclasses.replace(training_job, fsdp=True))
base = load_base(training_job.model_args, settings())
whole = sum(p.numel() for p in base.parameters())
ids = torch.arange(3, 20).unsqueeze(0)
right = base(input_ids=ids).logits
base = devices.place_model(base)
for _ in range(2):
    adapted = add_lora(base, settings(), 1)
    logits = adapted(input_ids=ids).logits
    assert torch.allclose(logits, right, atol=1e-5)
    logits.sum().backward()
    held = [p.to_local().numel() for p in adapted.parameters() if not p.requires_grad]
    trained = [p for p in adapted.parameters() if p.requires_grad]
    assert all(type(p.grad) is torch.Tensor and p.grad.shape == p.shape for p in trained)
    remove_lora(adapted, settings())

# logits in chunks: the processes need not have equal numbers of chunks
chosen = examples(3 + 4 * devices.rank)
members = [Member(s, 0.1) for s in build_sequences(chosen, settings())]
adapted = add_lora(base, settings(), 1)
trained = [p for p in adapted.parameters() if p.requires_grad]
results = []
for objective.MAX_LOGITS["cpu"] in (1 << 27, 5 * 259):
    loss = objective.compute_loss(adapted, objective.collate(members, 2), is_head_last=True)
    results.append([loss.detach(), *torch.autograd.grad(loss, trained)])
for at_once, chunked in zip(*results, strict=True):
    torch.testing.assert_close(chunked, at_once, rtol=1e-4, atol=1e-6)
held = [p.to_local().numel() for p in adapted.parameters() if not p.requires_grad]
remove_lora(adapted, settings())

counts = devices.gather(sum(held))
assert sum(counts) == whole, (counts, whole)
assert max(counts) < 0.6 * whole, (counts, whole)
# a single write: output that print writes in parts mixes with the other process's
sys.stdout.write(f"held {devices.rank}\\n")
torch.distributed.barrier()  # no process exits while another still reads
torch.distributed.destroy_process_group()
"""


def test_each_process_holds_half_of_base(tmp_path: Path) -> None:
    model = write_byte_llama(tmp_path / "model", hidden=64)
    (tmp_path / "script.py").write_text(SCRIPT)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, tmp_path / "script.py", model, tmp_path / "out"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["0", "1", "held", "held"]
