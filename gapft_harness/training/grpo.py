"""Train LoRA adapters online: TRL's ``GRPOTrainer`` on the pool's prompts, with flat groups masked.

TRL has no mask for flat groups (huggingface/trl#5588). This mask changes the mask and divisor of
TRL's loss after the responses are drawn, so sampling is the same with and without it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.pretrained import build_meta_model, load_tokenizer, to_id_list
from gapft_harness.core.streams import derive_key
from gapft_harness.core.thoughts import opens_thought, scan_thoughts
from gapft_harness.core.weights import find_hub_commit
from gapft_harness.hooks.protocols import SearchedPool, TrainingJob, Verifier
from gapft_harness.recipe.sections import Training
from gapft_harness.training.adapter import save_adapter
from gapft_harness.training.devices import check_dtype, choose_device
from gapft_harness.training.groups import (
    GROUPS,
    Group,
    format_json_lines,
    group_facts,
    is_flat,
    plan_prompts,
)
from gapft_harness.training.ledger import OPTIMIZER
from gapft_harness.training.memory import is_larger_than_gpu
from gapft_harness.training.model import (
    add_lora,
    check_targets,
    hash_searched_base,
    load_base,
    load_end_token,
)
from gapft_harness.training.plan import budget, build_training_prompt
from gapft_harness.training.tracking import open_tracker

#: Rewards by a verdict's status: 0 for anything that the audit counts as not passed; no reward for
#: an error.
REWARD_BY_STATUS: Mapping[str, float] = {"pass": 1.0, "fail": 0.0, "timeout": 0.0}


def train_grpo(job: TrainingJob) -> dict[str, Any]:
    """Train one arm for as many updates (J) as its training set has steps under the recipe.

    Prompts, the initial adapter and the samples of the first draw depend on the arm's seed alone,
    so that two conditions of a seed begin with the same responses.

    Args:
        job: the arm, with ``searched`` set.

    Returns:
        Facts for ``run.json``, also in ``training.json``.

    Raises:
        UserError: a setting or the task is not supported by GRPO.
        GapftError: too many responses without a reward.
    """
    start = time.monotonic()
    settings = Training.model_validate(dict(job.settings))
    searched = job.searched
    assert searched is not None
    _check_settings(job, settings, searched)
    torch.set_num_threads(job.threads)
    device = choose_device(job.model_args.get("device"))
    check_dtype(settings, device)
    meta_model = build_meta_model(job.model_args, dtype=settings.dtype)
    check_targets(meta_model, settings)
    if is_larger_than_gpu(meta_model, settings, device):
        raise UserError(f"{job.arm.name}: the trainer grpo needs a base that fits one GPU")
    base_hash = hash_searched_base(job)
    updates = budget(job.examples, settings).steps
    plan = plan_prompts(sorted(searched.states), updates, settings.grpo, job.arm.seed)
    model = add_lora(
        load_base(job.model_args, settings).to(device),
        settings,
        derive_key(job.arm.seed, "train/init") >> 33,
    )
    verifier = searched.verifier
    if settings.grpo.reward == "permissive":
        assert verifier.permissive is not None  # checked before the run
        verifier = verifier.permissive
    judge: Any = verifier.load()
    with (
        tempfile.TemporaryDirectory() as folder,
        judge,
        open_tracker(job) as log_update,
    ):
        trainer = _MaskingTrainer(
            job, settings, model, plan, judge,
            _build_config(job, settings, updates, folder, device), log_update,
        )  # fmt: skip
        trainer.train()
    facts = {
        "seed": job.arm.seed,
        "base_sha256": base_hash,
        "base_revision": find_hub_commit(job.model_args),
        "end_id": trainer.end.id,
        "end_token": trainer.end.text,
        "updates": trainer.state.global_step,
        **group_facts(trainer.groups),
        "reward": {"verifier": verifier.name, "params": dict(verifier.params)},
        "optimizer": OPTIMIZER,
        "settings": settings.model_dump(mode="json"),
        "versions": {
            name: version(name) for name in ("torch", "transformers", "peft", "accelerate", "trl")
        },
    }
    if settings.grpo.beta:
        model.delete_adapter("ref")  # TRL's copy of the initial adapter
    files = {
        GROUPS: format_json_lines(trainer.groups),
        "updates.jsonl": "".join(json.dumps(line) + "\n" for line in trainer.update_lines),
    }
    facts = save_adapter(job.output, model, facts, files)
    del trainer, model
    clear_device_cache(garbage_collection=True)
    return {**facts, "seconds": round(time.monotonic() - start, 3)}


def cut_completion(text: str, end: str, opened_by_prompt: bool) -> str:
    """Cut a completion to what search and audit judge.

    Args:
        text: the completion, as TRL decodes it; an end token that is not special is in it.
        end: the text of the end token.
        opened_by_prompt: whether the prompt opened a thought.

    Returns:
        The text without the end; empty if the thought is not closed.
    """
    text = text.removesuffix(end)
    return "" if opened_by_prompt and not scan_thoughts(text).is_closed else text


def _check_settings(job: TrainingJob, settings: Training, searched: SearchedPool) -> None:
    """Reject settings that TRL cannot match to search and audit."""
    stops = searched.decoding.until
    faults = {
        f"stop strings {list(stops)} of the task (TRL has none)": stops,
        "prompts without token ids (no tokenizer, or a prompt beyond the context)": not all(
            searched.prompt_ids.values()
        ),
        "training.kernels: fused": settings.kernels == "fused",
        "training.padding_free": settings.padding_free,
    }
    for fault, is_present in faults.items():
        if is_present:
            raise UserError(f"{job.arm.name}: the trainer grpo does not support this: {fault}")


def _build_config(
    job: TrainingJob, settings: Training, updates: int, folder: str, device: torch.device
) -> Any:
    """Convert the recipe's settings to TRL's configuration."""
    grpo = settings.grpo
    warmup_suffix = "_with_warmup" if settings.schedule == "constant" else ""
    assert job.searched is not None
    return GRPOConfig(
        output_dir=folder,
        seed=derive_key(job.arm.seed, "train/grpo") >> 33,
        max_steps=updates,
        per_device_train_batch_size=grpo.responses_per_pass,
        gradient_accumulation_steps=grpo.responses_per_step // grpo.responses_per_pass,
        num_generations=grpo.group_size,
        num_iterations=1,  # one update per draw: the ratio in the loss is 1, and nothing is clipped
        max_completion_length=grpo.max_tokens or job.searched.decoding.max_gen_toks,
        temperature=grpo.temperature,
        top_p=grpo.top_p,
        top_k=grpo.top_k,
        beta=grpo.beta,
        loss_type=grpo.loss,
        scale_rewards=grpo.scale_rewards,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule + warmup_suffix,
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip_norm,
        optim="adamw_torch",
        adam_beta1=OPTIMIZER["betas"][0],
        adam_beta2=OPTIMIZER["betas"][1],
        adam_epsilon=OPTIMIZER["eps"],
        gradient_checkpointing=settings.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=False,  # base in the recipe's dtype, adapter in float32, as for the trainer lora
        use_cpu=device.type == "cpu",
        shuffle_dataset=False,  # the plan fixes the order
        dataloader_pin_memory=device.type == "cuda",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


class _MaskingTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which draws for prompts by problem id and masks flat groups in the loss.

    Attributes:
        groups: the groups drawn so far.
        update_lines: TRL's log of each update.
        end: the token that ends a response.
    """

    def __init__(
        self,
        job: TrainingJob,
        settings: Training,
        model: Any,
        plan: Sequence[str],
        judge: Verifier,
        config: Any,
        log_update: Callable[[dict[str, Any], int], None],
    ) -> None:
        from datasets import Dataset

        assert job.searched is not None
        self.groups: list[Group] = []
        self.update_lines: list[dict[str, Any]] = []
        self._job = job
        self._grpo = settings.grpo
        self._judge = judge
        self._golds = {problem.id: problem.gold for problem in job.searched.problems}
        self._ids = {
            id: list(build_training_prompt(ids, settings))
            for id, ids in job.searched.prompt_ids.items()
        }
        self._log_update = log_update
        self._group_rewards: list[list[float | None]] = []
        tokenizer = load_tokenizer(job.model_args, padding_side="left")
        self.end = load_end_token(job.model_args, job.chat_template)
        self._end_text = str(tokenizer.convert_ids_to_tokens(self.end.id))
        self._open = {id for id, ids in self._ids.items() if opens_thought(tokenizer.decode(ids))}
        # TRL ends responses at these ids and at the tokenizer's end of sequence
        end_ids = to_id_list(model.generation_config.eos_token_id)
        model.generation_config.eos_token_id = sorted({self.end.id, *end_ids})
        super().__init__(
            model=model,
            reward_funcs=self._compute_rewards,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": list(plan)}),
            processing_class=tokenizer,
        )
        self.remove_callback(PrinterCallback)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """Return the prompt ids of the search's sampler; a prompt's text is its problem id."""
        return [self._ids[id] for id in prompts], None, {}

    def _compute_rewards(
        self, prompts: list[str], completions: list[str], **_: Any
    ) -> list[float | None]:
        texts = [
            cut_completion(text, self._end_text, id in self._open)
            for id, text in zip(prompts, completions, strict=True)
        ]
        verdicts = self._judge.verify(texts, [self._golds[id] for id in prompts])
        rewards = [REWARD_BY_STATUS.get(verdict.status) for verdict in verdicts]
        size = self._grpo.group_size
        self._group_rewards = [rewards[i : i + size] for i in range(0, len(rewards), size)]
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Call TRL's method, then mask flat groups in the loss and its divisor."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        size = self._grpo.group_size
        searched = self._job.searched
        assert searched is not None
        lengths = output["completion_mask"].sum(dim=1).tolist()
        flat = [is_flat(rewards) for rewards in self._group_rewards]
        number = self.groups[-1].draw + 1 if self.groups else 1
        for group, rewards in enumerate(self._group_rewards):
            start = group * size
            id = inputs[start]["prompt"]
            self.groups.append(
                Group(
                    draw=number,
                    problem_id=id,
                    state=searched.states[id],
                    rewards=tuple(rewards),
                    tokens=tuple(map(int, lengths[start : start + size])),
                    masked=self._grpo.mask_flat and flat[group],
                )
            )
        if self._grpo.mask_flat:
            output |= mask_flat_groups(output, flat, size)
        self._check_unjudged()
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Record an update's figures, except those that depend on the clock, and its progress."""
        super().log(logs, start_time)  # adds TRL's figures
        if "loss" not in logs:
            return
        keys = ("loss", "grad_norm", "learning_rate", "reward", "entropy", "kl")
        values = {key: float(logs[key]) for key in keys if key in logs}
        step = self.state.global_step
        self.update_lines.append({"update": step, **values})
        self._log_update(values, step)
        self._job.progress(step, self.state.max_steps)

    def _check_unjudged(self) -> None:
        facts = group_facts(self.groups)
        if facts["unjudged"] / facts["responses"] > self._grpo.max_unjudged:
            raise GapftError(
                f"{self._job.arm.name}: {facts['unjudged']} of {facts['responses']} responses got "
                f"no reward by draw {facts['draws']}: the verdict is an error; fix the verifier, "
                "or raise training.grpo.max_unjudged"
            )


def mask_flat_groups(output: Mapping[str, Any], flat: Sequence[bool], size: int) -> dict[str, Any]:
    """Compute the changes that mask flat groups in the inputs of TRL's loss.

    Args:
        output: TRL's output, with ``completion_mask`` of shape (responses, tokens).
        flat: whether each group is flat.
        size: responses per group.

    Returns:
        ``tool_mask``, which multiplies the loss's terms and the forward passes' token counts, and
        ``num_items_in_batch``, the divisor of the loss ``dapo``.
    """
    keep = torch.tensor(
        [not is_flat_group for is_flat_group in flat], device=output["completion_mask"].device
    )
    row_mask = keep.repeat_interleave(size).unsqueeze(1).int()
    mask = torch.ones_like(output["completion_mask"]) * row_mask
    return {"tool_mask": mask, "num_items_in_batch": (output["completion_mask"] * mask).sum()}
