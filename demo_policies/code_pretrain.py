"""Train the programming policy from random weights, as for the shipped folder.

    OMP_NUM_THREADS=1 python -m demo_policies.code_pretrain --out DIR --seed N

Two phases, both counted in steps and never in seconds:

1. *Skill*: whole programs, at once and after feedback on failed attempts.
2. *Habit*: episodes whose programs are whole or lazy by ``code_habits``. The resulting policy knows
   the whole program of nearly every problem and often does not write it.

Problems come only from the "pretrain" part of the problem space.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from demo_policies.code_habits import habit_examples, skill_examples
from demo_policies.code_tokenizer import build_tokenizer
from demo_policies.pretrain import Phase, build_model, save, train

SKILL: Final = Phase("skill", steps=1_500, peak=3e-3, warmup=100)
HABIT: Final = Phase("habit", steps=400, peak=1e-3, warmup=20)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a policy (see the module docstring)."""
    parser = argparse.ArgumentParser(prog="python -m demo_policies.code_pretrain")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the policy to")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    options = parser.parse_args(arguments)

    tokenizer = build_tokenizer()
    model = build_model(tokenizer, options.seed)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens")
    train(model, tokenizer, skill_examples(options.seed), SKILL)
    train(model, tokenizer, habit_examples(options.seed), HABIT)
    save(model, tokenizer, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
