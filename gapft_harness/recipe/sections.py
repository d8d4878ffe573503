"""The sections of a recipe: every key with its default, its bounds and what it means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from gapft_harness.core.cgroups import threads_per_process, usable_cores


class RecipeSection(BaseModel):
    """Base class of a section of a recipe, a pydantic model.

    Each key is a field with type, bounds, default and description. Unknown keys are errors; values
    are read strictly and do not change.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


Normalization = Literal["token_mean", "sequence_mean", "token_sum"]


class Grpo(RecipeSection):
    """Online training by TRL's GRPOTrainer; what no paper says has TRL's default."""

    prompts_per_update: int = Field(4, ge=1, description="prompts of one optimizer step")
    group_size: int = Field(8, ge=2, description="responses drawn for each prompt")
    mask_flat: bool = Field(
        False,
        description="leave groups whose rewards are all equal out of the loss, after they are "
        "drawn; nothing is drawn in their place",
    )
    reward: Literal["task", "permissive"] = Field(
        "task",
        description="1 for a response that passes the task's verifier, or the more permissive one "
        "that it declares; else 0",
    )
    reward_seconds: float = Field(
        10.0, gt=0, description="seconds for a group's rewards, and then for each response's"
    )
    max_unjudged: float = Field(
        0.05,
        ge=0,
        le=1,
        description="share of an arm's responses without a reward above which it ends with an "
        "error",
    )
    max_tokens: int | None = Field(
        None, ge=1, description="maximum of new tokens in a response; default: the search's"
    )
    micro_batch: int | None = Field(
        None, ge=1, description="responses per forward pass; default: all of an update"
    )
    temperature: float = Field(1.0, gt=0, description="sampling temperature")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass")
    top_k: int = Field(0, ge=0, description="top-k cut; 0 means none")
    beta: float = Field(0.0, ge=0, description="weight of the KL term against the source")
    loss: Literal["dapo", "bnpo", "grpo", "dr_grpo"] = Field(
        "dapo",
        description="divisor of the loss: response tokens of the update, of each forward pass, "
        "each response's own, or a constant",
    )
    scale_rewards: Literal["group", "batch", "none"] = Field(
        "group", description="advantages are divided by the deviation of these rewards"
    )

    @model_validator(mode="after")
    def _fits(self) -> Grpo:
        if self.update % self.forward:
            raise ValueError(
                f"micro_batch is {self.forward}, and an update has {self.update} responses "
                "(prompts_per_update x group_size); take a divisor"
            )
        if self.mask_flat and self.loss in ("grpo", "dr_grpo") and self.beta == 0:
            raise ValueError(
                f"mask_flat changes nothing with loss: {self.loss} and beta: 0, as flat groups "
                "have advantage 0 and no say in the divisor; take loss: dapo or bnpo"
            )
        return self

    @property
    def update(self) -> int:
        """Responses of one optimizer step."""
        return self.prompts_per_update * self.group_size

    @property
    def forward(self) -> int:
        """Responses of one forward pass."""
        return self.micro_batch or self.update


class Training(RecipeSection):
    """LoRA fine-tuning; the defaults are the paper's logic settings (Table 4)."""

    trainer: str = Field("lora", description="trainer: lora, grpo, or a plugin's")
    rank: int = Field(8, ge=1, description="LoRA rank")
    alpha: float = Field(16, gt=0, description="LoRA alpha")
    dropout: float = Field(0.05, ge=0, lt=1, description="LoRA dropout")
    target_modules: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        description="modules that get adapters",
    )
    learning_rate: float = Field(5e-5, gt=0, description="AdamW learning rate, the highest")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="course of the learning rate after the warm-up"
    )
    warmup_steps: int = Field(
        0, ge=0, description="optimizer steps over which the learning rate rises from 0"
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay")
    clip_norm: float = Field(1.0, gt=0, description="gradient norm is clipped to this")
    micro_batch: int = Field(2, ge=1, description="sequences per forward pass")
    accumulation: int = Field(8, ge=1, description="forward passes per optimizer step")
    padding_free: bool = Field(
        False,
        description="concatenate a step's sequences in one forward pass instead of padding them; "
        "`micro_batch` then only counts for the size of a step",
    )
    max_tokens: int | None = Field(
        None,
        ge=2,
        description="maximum of tokens in one forward pass without padding; default: 16,384, on a "
        "CPU 1,024 (a longer sequence is a pass alone)",
    )
    update_groups: int | None = Field(
        None,
        ge=1,
        description="exactly this many optimizer steps, with the exposures divided evenly among "
        "them; `accumulation` is then ignored",
    )
    repetitions: int = Field(8, ge=1, description="R, exposures of each example")
    start_tokens: int | None = Field(
        None,
        ge=1,
        le=2,
        description="start tokens of the training prompt alone, 1 or 2, where `model.start_tokens` "
        "says what the generator saw; default: as many as there",
    )
    max_length: int = Field(2048, ge=2, description="longest sequence in tokens")
    too_long: Literal["refuse", "truncate"] = Field(
        "refuse", description="a longer sequence is an error, or loses its end (counted)"
    )
    normalization: Normalization = Field(
        "token_mean",
        description="loss: mean over a step's supervised tokens, mean over its sequences' means, "
        "or sum over its supervised tokens",
    )
    supervise_eos: bool = Field(
        True, description="train on the end-of-sequence token after a response that ended"
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="dtype of the frozen base; adapters stay float32"
    )
    quantize: Literal["8bit", "4bit"] | None = Field(
        None,
        description="store the frozen base's linear layers in 8 or 4 bits (bitsandbytes); training "
        "then uses another base than the search",
    )
    kernels: Literal["plain", "fused"] = Field(
        "plain",
        description="`fused`: LoRA layers that compute in the base's 16 bits, and Liger's kernels; "
        "a CUDA device only: refused elsewhere, before the search",
    )
    gradient_checkpointing: bool = Field(False, description="trade speed for memory")
    grpo: Grpo = Field(default_factory=Grpo)

    @model_serializer(mode="wrap")
    def _said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it always was where nothing is said of GRPO: adapters are compared by this."""
        said: dict[str, Any] = dump(self)
        if said.get("grpo") == Grpo().model_dump(mode="json"):
            del said["grpo"]
        return said

    @model_validator(mode="after")
    def _one_fits(self) -> Training:
        if self.padding_free and self.max_tokens and self.max_tokens < self.max_length:
            raise ValueError(
                f"max_tokens is {self.max_tokens}, but a sequence may have max_length "
                f"{self.max_length} tokens; raise max_tokens or lower max_length"
            )
        if self.kernels == "fused" and (self.dtype == "float32" or self.quantize is not None):
            raise ValueError(
                "kernels: fused is for a base of 16 bits; set dtype: bfloat16 and leave quantize "
                "out, or set kernels: plain"
            )
        if self.padding_free and self.quantize == "8bit":
            raise ValueError(
                "quantize: 8bit looks for outliers over a whole forward pass, so sequences laid "
                "end to end would have a say in each other; take 4bit, or padding_free: false"
            )
        return self


class Data(RecipeSection):
    """Which problems: an lm-eval task's training split is the pool, its test split the audit."""

    task: str = Field(description="lm-eval task whose splits are used, e.g. gapft_logiqa")
    pool_limit: int | None = Field(
        None, ge=1, description="use this many pool problems, drawn by a frozen hash of their ids"
    )
    audit_limit: int | None = Field(
        None, ge=1, description="use this many audit problems, drawn by a frozen hash of their ids"
    )
    limit_takes: Literal["hash", "first"] = Field(
        "hash",
        description="which problems a limit takes: `hash`, as above, or `first`, the first of the "
        "split, as lm_eval's --limit",
    )
    deduplicate: bool = Field(
        False, description="drop problems whose content repeats an earlier one of the same split"
    )
    drop_shared: bool = Field(
        False, description="drop pool problems that are also in the audit; else they are an error"
    )
    keep_shared: bool = Field(
        False,
        description="keep pool problems that are also in the audit, and count them: for the "
        "paper's older protocol alone",
    )

    @field_validator("keep_shared")
    @classmethod
    def _not_both(cls, keep: bool, info: ValidationInfo) -> bool:
        if keep and info.data.get("drop_shared"):
            raise ValueError("cannot be true where data.drop_shared is; expected one of them")
        return keep


class Model(RecipeSection):
    """The source policy and how it is run, spelled as lm-eval's --model and --model_args."""

    backend: str = Field("hf", description="sampler: hf, recorded, or a plugin's")
    args: dict[str, Any] = Field(
        description="lm-eval model_args; `pretrained` names the base model of search and training"
    )
    chat_template: bool | None = Field(
        None,
        description="render prompts through the chat template; default: whether the tokenizer has "
        "one, as `gapft run` and `gapft gap` then say",
    )
    system_instruction: str | None = Field(None, description="system turn of the chat template")
    fewshot_as_multiturn: bool = Field(
        True,
        description="with a chat template, each few-shot example is a user's and an assistant's "
        "turn, as with lm_eval's `--apply_chat_template`; false: all in the user's turn",
    )
    start_tokens: int | None = Field(
        None,
        ge=1,
        le=2,
        description="start tokens before every prompt, 1 or 2, in search, audit and, where "
        "`training.start_tokens` says nothing else, training; default: what lm-eval makes of it",
    )

    @field_validator("args")
    @classmethod
    def _has_pretrained(cls, args: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(args.get("pretrained"), str):
            raise ValueError(
                "needs `pretrained`, a model folder or a hub name: --model-args pretrained=MODEL"
            )
        return args


class VerifierChoice(RecipeSection):
    """Overrides the task's verifier or its rule for this model. Empty: as the task says."""

    name: str | None = Field(None, description="verifier to use instead of the task's own")
    params: dict[str, Any] = Field(
        default_factory=dict, description="parameters that replace the task's, e.g. rule"
    )


class Search(RecipeSection):
    """One greedy decode and K samples per problem, on the pool and on the audit."""

    k: int = Field(8, ge=1, description="K, samples per problem")
    temperature: float = Field(0.7, gt=0, description="sampling temperature")
    top_p: float = Field(0.95, gt=0, le=1, description="nucleus mass")
    top_k: int = Field(0, ge=0, description="top-k cut; 0 means none")
    max_gen_toks: int | None = Field(
        None, ge=1, description="maximum of new tokens in a response; default: the task's"
    )
    seed: int = Field(0, ge=0, description="seed of all samples of the run")
    chunk: int = Field(
        16,
        ge=1,
        description="problems per stored chunk, the unit of resumption; eight times as many "
        "where each gets a single response",
    )
    stop: Literal["never", "first_pass"] = Field(
        "never",
        description="first_pass: a pool problem that is solved gets no further samples; the audit "
        "always gets all K",
    )
    round: int = Field(
        1, ge=1, description="samples per problem that are drawn before `stop` checks them"
    )

    @field_validator("round")
    @classmethod
    def _needs_stop(cls, size: int, info: ValidationInfo) -> int:
        if size > 1 and info.data.get("stop") == "never":
            raise ValueError("has a meaning only with search.stop: first_pass")
        return size


class EpisodeChoice(RecipeSection):
    """Overrides how a task's episodes go: attempts with feedback in between. Empty: as it says."""

    attempts: int | None = Field(
        None, ge=1, description="maximum of attempts in one decode; default: the task's, 1 for most"
    )
    executions: int | None = Field(
        None,
        ge=1,
        description="times that a greedy episode's programs are run, an odd number; its label is "
        "the majority's; default: the task's, 1 for most",
    )

    @field_validator("executions")
    @classmethod
    def _odd(cls, executions: int | None) -> int | None:
        if executions is not None and executions % 2 == 0:
            raise ValueError("must be odd, so that there is a majority")
        return executions


class EvidenceChoice(RecipeSection):
    """Which verified sample of a recovered problem is kept; frozen before training."""

    keep: str | None = Field(
        None, description="response rule: shortest, first, or a plugin's; default: the task's"
    )
    context: Literal["conversation", "problem"] = Field(
        "conversation",
        description="what an episode's final attempt is trained on: the whole conversation that it "
        "answered, or the problem's prompt alone",
    )


def _positive(n: int | str) -> int | str:
    if isinstance(n, int) and n < 1:
        raise ValueError("must be at least 1, `recovered` or `verified`")
    return n


#: How many example slots a condition has: a number, or what is known after search.
Slots = Annotated[int | Literal["recovered", "verified"], AfterValidator(_positive)]


class BudgetChoice(RecipeSection):
    """The matched budget."""

    n: Slots = Field(
        "recovered",
        description="example slots per condition; `recovered` is |E_S,K| of the pool, `verified` "
        "|E_G| + |E_S,K|",
    )

    replay: int = Field(
        0,
        ge=0,
        description="further slots that hold the same draw of solved problems in every matched "
        "condition of a seed",
    )
    token_tolerance: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="most that supervised tokens may differ between matched conditions of a seed, "
        "as a share of the larger; default: reported only",
    )


class ExecutorChoice(RecipeSection):
    """Where jobs run. Not part of a run's identity: it may change between two commands."""

    name: str = Field("local", description="executor: local, ray, or a plugin's")
    workers: int = Field(
        1,
        ge=1,
        description="processes that run jobs in parallel, and into how many jobs the searches are "
        "divided, which changes no sample; a cluster runs as many jobs at once as it can",
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="CPU threads of each process; default: the cores that the command may use, "
        "divided by `workers`, at least 1 and at most OMP_NUM_THREADS; 1 on a cluster",
    )
    address: str | None = Field(
        None,
        description="ray: the cluster, `auto` or host:port; default: a Ray of its own here",
    )
    gpus: float | None = Field(
        None, ge=0, description="ray: GPUs of each job; default: 1 where there are any"
    )
    memory_gb: float | None = Field(
        None, gt=0, description="ray: memory that each job reserves, in GB; default: none"
    )
    processes: int = Field(
        1, ge=1, description="processes that share every optimizer step of one training"
    )
    fsdp: bool = Field(
        False,
        description="split the frozen base's weights among the processes of a training (FSDP), for "
        "bases that do not fit one device; needs several processes",
    )
    checkpoint_steps: int | None = Field(
        None,
        ge=1,
        description="optimizer steps between two checkpoints of a training; default: none, a "
        "training that was killed starts its arm again",
    )

    @property
    def threads_each(self) -> int:
        """CPU threads of each worker process."""
        if self.threads is not None:
            return self.threads
        return threads_per_process(self.workers) if self.address is None else 1

    def for_executor(self) -> dict[str, Any]:
        """Return the section as executors receive it, with the number of threads."""
        return {**self.model_dump(), "threads": self.threads_each}

    def describe_processes(self) -> str:
        """Say how many processes and threads compute."""
        threads = f"{self.threads_each} CPU thread{'s' if self.threads_each > 1 else ''}"
        if self.address is not None:
            return f"each job has {threads}"
        workers = f"{self.workers} worker process{'es' if self.workers > 1 else ''}"
        return f"{workers} with {threads} each, on {usable_cores():g} cores"

    @property
    def sharing(self) -> int:
        """Worker processes that share a machine's memory, as far as is known."""
        return self.workers if self.address is None else 1


class AuditChoice(RecipeSection):
    """A further audit, of another task; or a named subset of an audit, which decodes nothing."""

    task: str | None = Field(
        None,
        description="a further audit: the lm-eval task whose audit problems are searched by the "
        "source and decoded by every adapter, too; with `of`: a subset of those that are also in "
        "that task's audit",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="with `task`: use this many of its problems, drawn by a frozen hash of their "
        "ids",
    )
    verifier: VerifierChoice = Field(
        default_factory=VerifierChoice,
        description="with `task`: its `name` and `params` override that task's verifier or its "
        "rule; the recipe's section `verifier` is for `data.task` alone",
    )
    of: str | None = Field(
        None,
        description="a named subset: the audit whose problems it takes, `audit` or the name of a "
        "further one",
    )
    items: str | tuple[str, ...] | None = Field(
        None,
        description="with `of`: the problems' ids, a list or the path of a text file with one id "
        "a line",
    )

    @field_validator("items")
    @classmethod
    def _some(cls, items: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if items is not None and not items:
            raise ValueError("names no problem; expected a file, or ids")
        if isinstance(items, tuple) and (twice := [i for i in items if items.count(i) > 1]):
            raise ValueError(f"names {twice[0]!r} twice")
        return items

    def fault(self) -> str:
        """What of it does not belong together; empty if all does."""
        of_task = self.limit is not None or self.verifier != VerifierChoice()
        if self.of is None and (self.task is None or self.items is not None):
            return "lacks what it is of: expected `task`, or `of` with `items` or `task`"
        if self.of is not None and (of_task or (self.task is None) == (self.items is None)):
            return "is a subset: expected `of` with either `items` or `task`, and nothing else"
        return ""

    def said(self) -> dict[str, Any]:
        """What it says, without defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Statistics(RecipeSection):
    """Intervals: replicates resample seeds and, jointly, audit items (Section 4.1)."""

    replicates: int = Field(2000, ge=1, description="bootstrap replicates")
    items: Literal["crossed", "nested"] = Field(
        "crossed",
        description="a replicate's audit problems: drawn once for all its seeds, or for each seed "
        "that it drew again, which understates the spread (intervals of conditions and contrasts)",
    )
    seed: int = Field(0, ge=0, description="seed of the replicates")
