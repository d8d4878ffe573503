"""Trains LoRA adapters online: TRL's ``GRPOTrainer`` on the pool's prompts, flat groups masked.

TRL has no mask for flat groups (huggingface/trl#3708). Ours goes into what its loss is masked and
divided by, after the responses are drawn, so sampling is the same with it and without.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from transformers import AutoTokenizer, GenerationConfig, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.streams import derive
from gapft_harness.core.weights import weights_folder, weights_hash
from gapft_harness.hooks.protocols import SearchedPool, TrainingJob
from gapft_harness.recipe.sections import Grpo, Training
from gapft_harness.training.adapter import save_adapter
from gapft_harness.training.devices import Devices
from gapft_harness.training.groups import (
    GROUPS,
    SEARCHES,
    Group,
    Searched,
    arm_plan,
    draws,
    group_facts,
    is_flat,
    json_lines,
    stretches,
)
from gapft_harness.training.ledger import OPTIMIZER
from gapft_harness.training.memory import give_back
from gapft_harness.training.model import (
    add_lora,
    check_targets,
    load_base,
    load_end_token,
    without_weights,
)
from gapft_harness.training.plan import budget, training_prompt
from gapft_harness.training.rewards import Rewards, reward_verifier


def train_grpo(job: TrainingJob) -> dict[str, Any]:
    """Trains one arm for as many updates as its training set has steps under the recipe (J).

    Prompts and the initial adapter depend on the arm's seed alone, as do the samples of the first
    draw, so that two conditions of a seed begin with the same responses.

    Args:
        job: with what the pool was searched with.

    Returns:
        Facts for the manifest, also in ``training.json``.

    Raises:
        UserError: settings that GRPO cannot have, a task that it cannot draw for, or no prompts.
        GapftError: too many responses without a reward, or an empty update where the recipe stops.
    """
    start = time.monotonic()
    settings, searched = Training.model_validate(dict(job.settings)), job.searched
    assert searched is not None
    _check(job, settings, searched)
    torch.set_num_threads(job.threads)
    devices = Devices.of(job)
    devices.check(settings)
    check_targets(without_weights(job.model_args, settings), settings)
    found = weights_hash(weights_folder(job.model_args))
    if job.base_sha256 is not None and found != job.base_sha256:
        raise UserError(
            f"{job.arm.name}: model {job.model_args['pretrained']} is not the one that was "
            "searched; restore the weights, or start a new run directory"
        )
    updates = budget(job.examples, settings).steps
    own = {example.problem_id for example in job.examples}
    plan = partial(arm_plan, searched.states, own, settings.grpo, job.seed_of("order"))
    plan(updates=1)  # there are prompts
    model = add_lora(
        devices.place(load_base(job.model_args, settings, devices.device)),
        settings,
        derive(job.seed_of("adapter"), "train/init") >> 33,
    )
    verifier = reward_verifier(searched.verifier, settings.grpo)
    with (
        tempfile.TemporaryDirectory() as folder,
        Rewards(verifier, settings.grpo.reward_seconds) as rewards,
        Rewards(searched.verifier, settings.grpo.reward_seconds) as verdicts,
    ):
        trainer = _Trainer(
            job, settings, model.to(devices.device), plan, rewards, verdicts,
            _config(job, settings, updates, folder, devices),
        )  # fmt: skip
        if job.tracking:
            with job.tracking.opened(1):
                trainer.train()
        else:
            trainer.train()
    facts = {
        "condition": job.arm.condition,
        "seed": job.arm.seed,
        "base_sha256": found,
        "base_model": job.model_args["pretrained"],
        "end_id": trainer.end.id,
        "end_token": trainer.end.text,
        "updates": trainer.state.global_step,
        **group_facts(trainer.groups, trainer.searches),
        "reward": {"verifier": verifier.name, "params": dict(verifier.params)},
        "optimizer": OPTIMIZER,
        "processes": devices.shares,
        "settings": settings.model_dump(mode="json"),
        "versions": {
            name: version(name) for name in ("torch", "transformers", "peft", "accelerate", "trl")
        },
    }
    if settings.grpo.beta:
        model.delete_adapter("ref")  # TRL's copy of the adapter before training
    files = {
        GROUPS: json_lines(trainer.groups),
        **({SEARCHES: json_lines(trainer.searches)} if trainer.searches else {}),
        "updates.jsonl": "".join(json.dumps(line) + "\n" for line in trainer.told),
        "README.md": _card(facts),
    }
    facts = save_adapter(job.output, model, facts, files)
    del trainer, model
    give_back()
    return {**facts, "seconds": round(time.monotonic() - start, 3)}


def _check(job: TrainingJob, settings: Training, searched: SearchedPool) -> None:
    """What TRL cannot do as search and audit do it."""
    stops = searched.decoding.until
    faults = {
        f"the task stops responses at {list(stops)}, and TRL draws without stop strings": stops,
        "the sampler gave no token ids of prompts": not all(searched.prompt_ids.values()),
        "training.kernels: fused": settings.kernels == "fused",
        "training.padding_free": settings.padding_free,
        "training.quantize": settings.quantize is not None,
        "executor.fsdp": job.fsdp,
    }
    for fault, there in faults.items():
        if there:
            raise UserError(f"{job.arm.name}: the trainer grpo cannot do this: {fault}")


def _config(
    job: TrainingJob, settings: Training, updates: int, folder: str, devices: Devices
) -> Any:
    """The recipe's settings in TRL's words."""
    if devices.shares > 1:
        raise UserError("the trainer grpo trains on one process; set executor.processes: 1")
    of = settings.grpo
    warm = "_with_warmup" if settings.schedule == "constant" else ""
    assert job.searched is not None
    return GRPOConfig(
        output_dir=folder,
        seed=derive(job.arm.seed, "train/grpo") >> 33,
        max_steps=updates,
        per_device_train_batch_size=of.forward,
        gradient_accumulation_steps=of.update // of.forward,
        num_generations=of.group_size,
        num_iterations=of.iterations,
        max_completion_length=of.max_tokens or job.searched.decoding.max_gen_toks,
        temperature=of.temperature,
        top_p=of.top_p,
        top_k=of.top_k,
        beta=of.beta,
        epsilon=of.epsilon,
        epsilon_high=of.epsilon_high,
        loss_type=of.loss,
        scale_rewards=of.scale_rewards,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule + warm,
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip_norm,
        optim="adamw_torch",
        adam_beta1=OPTIMIZER["betas"][0],
        adam_beta2=OPTIMIZER["betas"][1],
        adam_epsilon=OPTIMIZER["eps"],
        gradient_checkpointing=settings.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=False,  # the base is in the recipe's dtype, the adapter in float32, as lora's are
        use_cpu=devices.device.type == "cpu",
        shuffle_dataset=False,  # the plan is the order
        dataloader_pin_memory=devices.device.type == "cuda",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


class _Trainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which draws for prompts by their ids, and whose loss leaves out flat groups.

    TRL's dataset are the plan's places, as whose prompt has one may rest on a search yet to come.

    Attributes:
        groups: what was drawn.
        searches: what the policy's own searches found.
        told: of each update what TRL logs.
        end: the token that ends a response.
    """

    def __init__(
        self,
        job: TrainingJob,
        settings: Training,
        model: Any,
        plan: Callable[..., list[str]],
        rewards: Rewards,
        verdicts: Rewards,
        config: Any,
    ) -> None:
        from datasets import Dataset

        assert job.searched is not None
        self.groups: list[Group] = []
        self.searches: list[Searched] = []
        self.told: list[dict[str, Any]] = []
        self._job, self._grpo, self._plan = job, settings.grpo, plan
        self._rewards, self._verdicts = rewards, verdicts
        self._places: list[str] = []
        self._golds = {problem.id: problem.gold for problem in job.searched.problems}
        self._ids = {
            id: list(training_prompt(ids, settings)) for id, ids in job.searched.prompt_ids.items()
        }
        self._given: list[list[float | None]] = []
        places = draws(config.max_steps, self._grpo) * self._grpo.prompts_per_update
        name = job.model_args.get("tokenizer") or job.model_args["pretrained"]
        tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
        self.end = load_end_token(job.model_args, job.chat_template)
        # TRL ends responses at these, and at the tokenizer's end of sequence
        own = model.generation_config.eos_token_id
        own = own if isinstance(own, list) else [] if own is None else [own]
        model.generation_config.eos_token_id = sorted({self.end.id, *own})
        super().__init__(
            model=model,
            reward_funcs=self._reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": [str(place) for place in range(places)]}),
            processing_class=tokenizer,
            callbacks=[_Told(self)],
        )
        self.remove_callback(PrinterCallback)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """The ids that the search's sampler gave; a prompt's text is its problem's id here."""
        return [self._ids[id] for id in prompts], None, {}

    def _reward(self, prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
        size = self._grpo.group_size
        self._given = self._rewards.of(
            [
                (completions[at : at + size], self._golds[prompts[at]])
                for at in range(0, len(prompts), size)
            ]
        )
        return [reward for group in self._given for reward in group]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's, then the mask: flat groups leave the loss and what it is divided by."""
        number = self.groups[-1].draw + 1 if self.groups else 1
        self._begin(after=(number - 1) * self._grpo.iterations)
        inputs = [{**row, "prompt": self._places[int(row["prompt"])]} for row in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        size, searched = self._grpo.group_size, self._job.searched
        assert searched is not None
        lengths = output["completion_mask"].sum(dim=1).tolist()
        flat = [is_flat(rewards) for rewards in self._given]
        for group, rewards in enumerate(self._given):
            at = group * size
            id = inputs[at]["prompt"]
            self.groups.append(
                Group(
                    draw=number,
                    problem_id=id,
                    state=searched.states[id],
                    rewards=tuple(rewards),
                    tokens=tuple(map(int, lengths[at : at + size])),
                    masked=self._grpo.mask_flat and flat[group],
                )
            )
        if self._grpo.mask_flat:
            output |= masked(output, flat, size)
        self._stop_if_hopeless([of.rewards for of in self.groups], f"draw {number}", all(flat))
        return output

    def _begin(self, after: int) -> None:
        """Where a stretch begins: searches the pool, but for the first, and plans its prompts."""
        found = stretches(most := self.args.max_steps, self._grpo)
        if after in found:
            self.searches += self._search(after) if after else []
            self._places = self._plan(updates=min(after + found.step, most), searches=self.searches)

    def _search(self, after: int) -> list[Searched]:
        """One greedy decode and K samples of every problem, as the source was searched.

        Dropout is off, and training's random stream stays where it was.
        """
        searched, device = self._job.searched, self.accelerator.device
        assert searched is not None
        texts: dict[str, list[str]] = {id: [] for id in sorted(self._golds)}
        tokens: Counter[str] = Counter()
        ordered = sorted(texts, key=lambda id: (-len(searched.prompt_ids[id]), id))
        self.model.eval()
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(derive(self._job.arm.seed, "train/search", after) >> 33)
            for sampled, times in ((False, 1), (True, self._grpo.search_k or searched.k)):
                rows = [id for id in ordered for _ in range(times)]
                drawn = self._draw([list(searched.prompt_ids[id]) for id in rows], sampled)
                said = self.processing_class.batch_decode(drawn, skip_special_tokens=True)
                for id, ids, text in zip(rows, drawn, said, strict=True):
                    texts[id].append(text)
                    tokens[id] += len(ids)
        self.model.train()
        given = self._verdicts.of([(of, self._golds[id]) for id, of in texts.items()])
        self._stop_if_hopeless(given, f"the search after {after} updates", empty=False)
        return [Searched.of(after, id, v, tokens[id]) for id, v in zip(texts, given, strict=True)]

    def _draw(self, prompts: Sequence[list[int]], sampled: bool) -> list[list[int]]:
        """New token ids under the search's decoding, by TRL's own way, an update's at a time."""
        assert self._job.searched is not None
        of, size = self._job.searched.decoding, self._grpo.update
        was = self.generation_config, self.generation_kwargs
        how = {**self.generation_kwargs, "do_sample": sampled, "max_new_tokens": of.max_gen_toks}
        for key in ("temperature", "top_p", "top_k"):
            how[key] = getattr(of, key) if sampled else None
        self.generation_kwargs: dict[str, Any] = how
        self.generation_config: Any = GenerationConfig(**how, disable_compile=True)
        drawn: list[list[int]] = []
        for at in range(0, len(prompts), size):
            drawn += self._generate_single_turn(prompts[at : at + size], None, {}, 1)[0]
        self.generation_config, self.generation_kwargs = was
        return drawn

    def _stop_if_hopeless(self, given: Sequence[Any], by: str, empty: bool) -> None:
        unjudged, drawn = sum(of.count(None) for of in given), sum(map(len, given))
        if unjudged / drawn > self._grpo.max_unjudged:
            raise GapftError(
                f"{self._job.arm.name}: {unjudged} of {drawn} responses got no verdict by {by}: "
                f"the verifier raised or took longer than {self._grpo.reward_seconds:g} s; mend "
                "it, or raise training.grpo.reward_seconds or training.grpo.max_unjudged"
            )
        if empty and self._grpo.empty_updates == "stop":
            raise GapftError(
                f"{self._job.arm.name}: all groups of {by} are flat, so it teaches "
                "nothing; raise training.grpo.group_size or training.grpo.prompts_per_update, or "
                "set training.grpo.empty_updates: count"
            )


def masked(output: Mapping[str, Any], flat: Sequence[bool], size: int) -> dict[str, Any]:
    """What masking flat groups changes in what TRL's loss is computed from, and nothing else.

    Args:
        output: TRL's: ``completion_mask`` of shape (responses, tokens).
        flat: of each group.
        size: responses of a group.

    Returns:
        ``tool_mask``, which multiplies the loss's terms and the forward passes' token counts, and
        ``num_items_in_batch``, the divisor of the loss ``dapo``.
    """
    keep = torch.tensor([not of for of in flat], device=output["completion_mask"].device)
    kept = keep.repeat_interleave(size).unsqueeze(1).int()
    mask = torch.ones_like(output["completion_mask"]) * kept
    return {"tool_mask": mask, "num_items_in_batch": (output["completion_mask"] * mask).sum()}


class _Told(TrainerCallback):  # type: ignore[misc]
    """Keeps what TRL logs of each update, and tells of its progress."""

    def __init__(self, trainer: _Trainer) -> None:
        self._trainer = trainer

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """An update's figures; what depends on the clock is not kept."""
        if "loss" not in logs:
            return
        kept = ("loss", "grad_norm", "learning_rate", "reward", "entropy", "kl")
        line = {"update": state.global_step, **{k: float(logs[k]) for k in kept if k in logs}}
        self._trainer.told.append(line)
        values = {key: value for key, value in line.items() if key != "update"}
        self._trainer._job.tracking.log(state.global_step, values)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """One update more."""
        self._trainer._job.progress(state.global_step, state.max_steps)


def _card(facts: Mapping[str, Any]) -> str:
    of: Mapping[str, Any] = Grpo.model_validate(facts["settings"].get("grpo", {})).model_dump()
    rows = "\n".join(f"| {key} | {value} |" for key, value in of.items())
    return _CARD.format(**facts, rows=rows)


_CARD = """---
base_model: {base_model}
library_name: peft
tags: [gapft-harness, lora, grpo]
---

# {condition}, seed {seed}

A LoRA adapter of `{base_model}`, trained online by GRPO (TRL) for {updates} updates on
{completion_tokens} tokens of {responses} responses. Of {groups} groups, {flat} were flat and
{masked} left out of the loss.

| | |
|---|---|
{rows}

`groups.jsonl` holds the rewards of every group, `updates.jsonl` the figures of every update,
`training.json` the settings.
"""
