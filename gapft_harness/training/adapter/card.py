"""The model card of an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CARD = """---
base_model: {base_model}
library_name: peft
tags: [gapft-harness, lora]
---

# {condition}, seed {seed}{replicate}

A LoRA adapter of `{base_model}`, trained by GapFT Harness on the verified responses in {n}
example slots of the condition `{condition}`, {repetitions} exposures of each slot.

| | |
|---|---|
| example slots n, exposures N | {n}, {exposures} |
| processed tokens L, of them supervised | {tokens}, {supervised_tokens} |
| optimizer steps J | {steps} |
| rank, alpha, dropout | {rank}, {alpha}, {dropout} |
| learning rate (AdamW), schedule, warm-up | {learning_rate}, {schedule}, {warmup_steps} |
| weight decay | {weight_decay} |
| sequences a step | {batch} |
| loss | {normalization} over response tokens |
| base dtype | {dtype} |

Load it with lm-eval:

    lm_eval --model hf --model_args pretrained={base_model},peft=THIS_FOLDER --tasks TASK

`training_log.jsonl` holds loss, gradient norm and the examples of every step; `training.json` the
settings, the budget and the hashes that arms of one comparison can be checked by.
"""


def model_card(facts: Mapping[str, Any]) -> str:
    """The README.md of an adapter folder, from the trainer's facts."""
    return _CARD.format(
        **{**facts["settings"], **facts["budget"], **_top(facts)}, batch=_batch(facts)
    )


def _top(facts: Mapping[str, Any]) -> dict[str, Any]:
    said = f", replicate {facts['variant']}" if "variant" in facts else ""
    return {"replicate": said, **{key: facts[key] for key in ("base_model", "condition", "seed")}}


def _batch(facts: Mapping[str, Any]) -> str:
    settings, budget = facts["settings"], facts["budget"]
    micro = settings["micro_batch"]
    if settings["update_groups"] is None:
        return f"{micro} x {settings['accumulation']}"
    least, more = divmod(budget["exposures"], budget["steps"])
    return f"{least}{f' or {least + 1}' if more else ''}, {micro} a forward pass"
