"""Pre-trains one policy of the study from random weights.

    python -m controlled_study pretrain --size small --seed 0 --kind mixed --out DIR

The learning rate rises, stays, and falls to zero once enough tuning problems are solved in one
decode: so a policy is in the middle of learning, whatever its size. Nothing is counted in seconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from controlled_study import tokens
from controlled_study.families import Problem
from controlled_study.sizes import SIZES, Size
from controlled_study.splits import Cell, Kind, drawn, exposures, spread
from demo_policies.pretrain import IGNORED_LABEL, save
from gapft_harness.verification.boxes import last_box

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import Dataset
    from transformers import LlamaForCausalLM

#: Facts of a pre-training, in the policy's folder.
FACTS: Final = "pretrain.json"
#: Share of the problems of its families that a policy of mastery solves in one decode.
MASTERED: Final = 0.97
#: Batches that a process makes at a time.
_AHEAD: Final = 8
_EVALUATED_AT_ONCE: Final = 1024


def build_model(size: Size, seed: int) -> LlamaForCausalLM:
    """A Llama with random float32 weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    tokenizer = tokens.tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.hidden * 8 // 3,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=tokens.CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def batch_of(kind: Kind, seed: int, number: int, size: int) -> list[Problem]:
    """The problems of one step: a function of the seed and the step's number alone."""
    rng = Random(f"pretrain:{kind}:{seed}:{number}")
    shares = exposures(kind, seed)
    cells: list[Cell] = rng.choices(list(shares), list(shares.values()), k=size)
    return [next(drawn("pretrain", cell, rng)) for cell in cells]


def encoded(problems: Sequence[Problem]) -> list[tuple[int, list[int]]]:
    """Of each problem the number of its prompt's tokens, and all its tokens with the end token."""
    end = int(tokens.tokenizer().eos_token_id)
    found = []
    for problem in problems:
        prompt = tokens.prompt_ids(problem)
        found.append((len(prompt), [*prompt, *tokens.response_ids(problem), end]))
    return found


@dataclass(frozen=True)
class _Batches:
    """Consecutive batches with their counts by cell, by the first one's number."""

    kind: Kind
    seed: int
    size: int

    def __getitem__(self, first: int) -> list[tuple[Counter[str], Any]]:
        numbers = range(first, first + _AHEAD)
        made = [batch_of(self.kind, self.seed, number, self.size) for number in numbers]
        return [(Counter(p.cell for p in problems), encoded(problems)) for problems in made]


def batches(
    kind: Kind, seed: int, size: int, processes: int
) -> Generator[tuple[Counter[str], list[tuple[int, list[int]]]], None, None]:
    """Endless batches; with ``processes`` they are made beside the training, in the same order."""
    from torch.utils.data import DataLoader

    for made in DataLoader(
        cast("Dataset[Any]", _Batches(kind, seed, size)),
        batch_size=None,
        sampler=count(0, _AHEAD),
        num_workers=processes,
        collate_fn=list,
        multiprocessing_context="spawn" if processes else None,
    ):
        yield from made


def padded(rows: Sequence[tuple[int, list[int]]], width: int | None) -> tuple[Tensor, Tensor]:
    """Ids and labels, (B, T) of int64, padded on the right; prompts and padding have no label."""
    import torch

    width = width or max(len(ids) for _, ids in rows)
    pad = int(tokens.tokenizer().pad_token_id)
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for _, row in rows])
    labels = torch.tensor(
        [
            [*[IGNORED_LABEL] * start, *row[start:], *[IGNORED_LABEL] * (width - len(row))]
            for start, row in rows
        ]
    )
    return ids, labels


def learning_rate(size: Size, step: int, falling_since: int | None) -> float:
    """Of step 0, 1, …: it rises, stays, and falls to zero from ``falling_since`` on."""
    rate = size.peak * min(1.0, (step + 1) / size.warmup)
    if falling_since is None:
        return rate
    return rate * (1 - (step - falling_since) / size.decay)


def train(
    model: LlamaForCausalLM, size: Size, kind: Kind, seed: int, processes: int
) -> dict[str, Any]:
    """Pre-trains a model in place, and returns how it went."""
    import torch

    device = model.device
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )
    shares = {f"{family.name}-{length}" for (family, length) in exposures(kind, seed)}
    tuning = [p for p in spread("tuning", size.tuning) if p.cell in shares]
    target = size.target if kind == "mixed" else MASTERED
    seen: Counter[str] = Counter()
    checks: list[dict[str, Any]] = []
    falling_since: int | None = None
    stream = batches(kind, seed, size.batch, processes)
    for step in range(size.most + size.decay):
        if falling_since is not None and step == falling_since + size.decay:
            break
        if step and step % size.check == 0 and falling_since is None:
            checks.append({"step": step, "solved": _share(solved(model, tuning))})
            print(f"step {step}: {checks[-1]['solved']:.3f} of the tuning problems", flush=True)
            if checks[-1]["solved"] >= target or step >= size.most:
                falling_since = step
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(size, step, falling_since)
        cells, rows = next(stream)
        seen += cells
        ids, labels = padded(rows, tokens.WIDTH if on_gpu else None)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            # Padding is on the right and attention causal, so no token sees it.
            logits = model(input_ids=ids.to(device)).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten().to(device), ignore_index=IGNORED_LABEL
        )
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    stream.close()
    model.eval()
    return {
        "steps": step + (falling_since is None or step < falling_since + size.decay),
        "checks": checks,
        "examples": dict(sorted(seen.items())),
        "solved": by_cell(tuning, solved(model, tuning)),
    }


def by_cell(problems: Sequence[Problem], right: Sequence[bool]) -> dict[str, float]:
    """The share of every cell's problems that are solved."""
    found: dict[str, list[bool]] = {}
    for problem, is_right in zip(problems, right, strict=True):
        found.setdefault(problem.cell, []).append(is_right)
    return {cell: _share(each) for cell, each in found.items()}


def _share(right: Sequence[bool]) -> float:
    return sum(right) / len(right)


def solved(model: LlamaForCausalLM, problems: Sequence[Problem]) -> list[bool]:
    """Whether the greedy response to each problem has the right answer in its box."""
    import torch

    tokenizer = tokens.tokenizer()
    was_training, right = model.training, list[bool]()
    model.eval()
    for first in range(0, len(problems), _EVALUATED_AT_ONCE):
        members = problems[first : first + _EVALUATED_AT_ONCE]
        inputs = tokenizer([p.question for p in members], return_tensors="pt", padding=True)
        with torch.inference_mode():
            ids = model.generate(
                **inputs.to(model.device),
                do_sample=False,
                max_new_tokens=tokens.MAX_NEW_TOKENS,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
        width = inputs["input_ids"].shape[1]
        texts = tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)
        right += [last_box(t) == p.answer for t, p in zip(texts, members, strict=True)]
    model.train(was_training)
    return right


def pretrain(size_name: str, kind: Kind, seed: int, out: Path) -> None:
    """Makes a policy; ``out`` is there only once it is whole."""
    import os

    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    size = SIZES[size_name]
    on_gpu = torch.cuda.is_available()
    model = build_model(size, seed).to("cuda" if on_gpu else "cpu")
    print(f"{model.num_parameters():,} parameters, {len(tokens.tokenizer())} tokens", flush=True)
    facts = train(model, size, kind, seed, processes=2 if on_gpu else 0)
    beside = out.with_name(f"{out.name}.part")
    save(model.cpu(), tokens.tokenizer(), beside)
    facts = {"size": size_name, "kind": kind, "seed": seed, "torch": torch.__version__,
             "device": torch.cuda.get_device_name() if on_gpu else "cpu",
             "parameters": model.num_parameters()} | facts  # fmt: skip
    (beside / FACTS).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
    beside.rename(out)
