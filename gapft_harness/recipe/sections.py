"""The sections of a recipe: every key with its type, default, bounds and description."""

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

from gapft_harness.core.cgroups import compute_threads_per_process, count_usable_cores
from gapft_harness.hooks.thoughts import THINK_END_TOKEN, find_think_end_fault


class RecipeSection(BaseModel):
    """Base class of the sections of a recipe, a pydantic model.

    Each key is a field with type, bounds, default and description. Unknown keys are errors; values
    are validated strictly and are immutable.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def _refuse_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) != len(values):
        raise ValueError(f"found a value twice: {list(values)}; remove one")
    return values


def _require_odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd, so that there is a majority")
    return value


#: For values that must all differ.
Distinct = AfterValidator(_refuse_repeats)
#: How often a program is run; the majority decides.
Odd = Annotated[int, Field(ge=1), AfterValidator(_require_odd)]

Normalization = Literal["token_mean", "sequence_mean", "token_sum"]


class Grpo(RecipeSection):
    """Online training by TRL's GRPOTrainer; keys that no paper states have TRL's defaults."""

    prompts_per_update: int = Field(4, ge=1, description="prompts of one optimizer step")
    group_size: int = Field(8, ge=2, description="responses drawn for each prompt")
    mask_flat: bool = Field(
        False,
        description="leave flat groups, whose rewards are all equal, out of the loss; they are "
        "drawn and counted, and no other group replaces them",
    )
    reward: Literal["task", "permissive"] = Field(
        "task",
        description="1 for a response that passes the task's verifier, or the more permissive "
        "verifier that it declares; else 0",
    )
    max_unjudged: float = Field(
        0.05,
        ge=0,
        le=1,
        description="largest share of an arm's responses that may lack a reward; above it the arm "
        "fails",
    )
    max_tokens: int | None = Field(
        None, ge=1, description="maximum number of new tokens per response; default: the search's"
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
        "group", description="advantages are divided by the standard deviation of these rewards"
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Grpo:
        if self.responses_per_step % self.responses_per_pass:
            raise ValueError(
                f"micro_batch is {self.responses_per_pass}, but must divide the "
                f"{self.responses_per_step} responses of an update (prompts_per_update x "
                "group_size)"
            )
        if self.mask_flat and self.loss in ("grpo", "dr_grpo") and self.beta == 0:
            raise ValueError(
                f"mask_flat has no effect with loss: {self.loss} and beta: 0, because flat groups "
                "have advantage 0 and do not change the divisor; set loss: dapo or bnpo"
            )
        return self

    @property
    def responses_per_step(self) -> int:
        """Responses of one optimizer step."""
        return self.prompts_per_update * self.group_size

    @property
    def responses_per_pass(self) -> int:
        """Responses of one forward pass."""
        return self.micro_batch or self.responses_per_step


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
    learning_rate: float = Field(5e-5, gt=0, description="highest learning rate of AdamW")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="learning rate schedule after the warm-up"
    )
    warmup_steps: int = Field(
        0, ge=0, description="optimizer steps over which the learning rate rises from 0"
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay")
    clip_norm: float = Field(
        1.0, gt=0, description="maximum gradient norm; larger gradients are clipped to it"
    )
    micro_batch: int = Field(2, ge=1, description="sequences per forward pass")
    accumulation: int = Field(8, ge=1, description="forward passes per optimizer step")
    padding_free: bool = Field(
        False,
        description="concatenate a step's sequences in one forward pass instead of padding them; "
        "`micro_batch` then only affects the size of a step",
    )
    max_tokens: int | None = Field(
        None,
        ge=2,
        description="maximum number of tokens in one forward pass without padding; default: "
        "16,384, on a CPU 1,024 (a longer sequence gets its own pass)",
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
        description="number of start tokens of training prompts, 1 or 2, if it differs from "
        "`model.start_tokens` (that of search and audit, which must then be set)",
    )
    max_length: int = Field(2048, ge=2, description="maximum length of a sequence in tokens")
    too_long: Literal["refuse", "truncate"] = Field(
        "refuse",
        description="a longer sequence is an error, or is truncated at its end (and counted)",
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
    kernels: Literal["plain", "fused"] = Field(
        "plain",
        description="`fused`: LoRA layers that compute in the base's 16 bits, and Liger's kernels; "
        "needs a CUDA device, which is checked before the search",
    )
    gradient_checkpointing: bool = Field(False, description="use less memory, at lower speed")
    grpo: Grpo = Field(default_factory=Grpo)

    @model_serializer(mode="wrap")
    def _omit_default_grpo(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit GRPO defaults, so that adapters without GRPO keys compare equal."""
        content: dict[str, Any] = dump(self)
        if content.get("grpo") == Grpo().model_dump(mode="json"):
            del content["grpo"]
        return content

    @model_validator(mode="after")
    def _check_combinations(self) -> Training:
        if self.padding_free and self.max_tokens and self.max_tokens < self.max_length:
            raise ValueError(
                f"max_tokens is {self.max_tokens}, but must be at least max_length "
                f"({self.max_length}); raise max_tokens or lower max_length"
            )
        if self.kernels == "fused" and self.dtype == "float32":
            raise ValueError(
                "kernels: fused needs a base in 16 bits; set dtype: bfloat16, or kernels: plain"
            )
        return self


class Data(RecipeSection):
    """The problems: an lm-eval task's training split is the pool, its test split the audit."""

    task: str = Field(description="lm-eval task whose splits are used, e.g. gapft_logiqa")
    pool_limit: int | None = Field(
        None, ge=1, description="number of pool problems to use, drawn by a fixed hash of their ids"
    )
    audit_limit: int | None = Field(
        None,
        ge=1,
        description="number of audit problems to use, drawn by a fixed hash of their ids",
    )
    limit_takes: Literal["hash", "first"] = Field(
        "hash",
        description="problems that a limit selects: `hash`, as above, or `first`, the first of the "
        "split, like lm_eval's --limit",
    )
    deduplicate: bool = Field(
        False, description="drop problems with the same content as an earlier one of the same split"
    )
    drop_shared: bool = Field(
        False,
        description="drop pool problems that are also in the audit; otherwise they are an error",
    )
    keep_shared: bool = Field(
        False,
        description="keep pool problems that are also in the audit, and count them; only for the "
        "paper's older protocol",
    )

    @field_validator("keep_shared")
    @classmethod
    def _check_shared(cls, keep: bool, info: ValidationInfo) -> bool:
        if keep and info.data.get("drop_shared"):
            raise ValueError("cannot be true together with data.drop_shared; remove one of them")
        return keep


class Model(RecipeSection):
    """The source policy and its backend, in the terms of lm-eval's --model and --model_args."""

    backend: str = Field("hf", description="a sampler of the page Samplers, or a plugin's")
    args: dict[str, Any] = Field(
        description="lm-eval model_args; `pretrained` names the base model of search and training"
    )
    chat_template: bool | None = Field(
        None,
        description="render prompts through the chat template; default: true if the tokenizer has "
        "one, as `gapft run` and `gapft gap` report",
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
        description="start tokens before every prompt, 1 or 2, in search, audit and training (see "
        "`training.start_tokens`); default: as lm-eval adds them",
    )

    @field_validator("args")
    @classmethod
    def _check_pretrained(cls, args: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(args.get("pretrained"), str):
            raise ValueError(
                "`pretrained` is missing; expected a model folder or a hub name: --model-args "
                "pretrained=MODEL"
            )
        if args.get("gguf_file") or args["pretrained"].endswith(".gguf"):
            raise ValueError(
                "expected a model folder, not a GGUF file, which cannot be trained; load it once "
                "with transformers' from_pretrained(FOLDER, gguf_file=FILE) and save it with "
                "save_pretrained"
            )
        token = args.get(THINK_END_TOKEN)
        if token is not None and (fault := find_think_end_fault(token)):
            raise ValueError(fault)
        return _move_enable_thinking(args)


def _move_enable_thinking(args: dict[str, Any]) -> dict[str, Any]:
    """Move ``enable_thinking``, lm-eval's shorthand, into the chat template's arguments."""
    if args.get("enable_thinking") is None:
        return {key: value for key, value in args.items() if key != "enable_thinking"}
    enabled = args["enable_thinking"]
    template_args = args.get("chat_template_args") or {}
    if not isinstance(enabled, bool):
        raise ValueError(f"enable_thinking: found {enabled!r}; expected true or false")
    if not isinstance(template_args, dict):
        raise ValueError(
            f"chat_template_args: found {template_args!r}; expected a mapping, as "
            "{enable_thinking: false}"
        )
    if template_args.get("enable_thinking", enabled) != enabled:
        raise ValueError(
            f"enable_thinking: found {enabled}, but chat_template_args has "
            f"{template_args['enable_thinking']}; remove one of them"
        )
    return {
        **{key: value for key, value in args.items() if key != "enable_thinking"},
        "chat_template_args": {**template_args, "enable_thinking": enabled},
    }


class VerifierChoice(RecipeSection):
    """Overrides the task's verifier or its parameters. Empty: as the task declares."""

    name: str | None = Field(None, description="verifier that replaces the task's own")
    params: dict[str, Any] = Field(
        default_factory=dict, description="parameters that override the task's, e.g. rule"
    )


class Deployment(RecipeSection):
    """A sampled deployment decode, for models that must not be decoded greedily."""

    temperature: float = Field(
        gt=0,
        description="sampling temperature of the deployment decode; needed if the section is set, "
        "else the decode is greedy: see [its section](run.md#a-sampled-deployment-decode)",
    )
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass of the deployment decode")
    top_k: int = Field(0, ge=0, description="top-k cut of the deployment decode; 0 means none")


class LogResponses(RecipeSection):
    """Logs whose responses the search takes instead of generating them."""

    pool: tuple[str, ...] = Field(
        (),
        description="logs of the pool's responses; default: the model generates them. Plain JSON "
        "lines have greedy responses and samples, other logs have samples",
    )
    audit: tuple[str, ...] = Field((), description="the same for the audit")
    greedy: dict[Literal["pool", "audit"], str] = Field(
        default_factory=dict, description="by split, a log of greedy responses"
    )
    on: tuple[str, ...] = Field(
        (),
        description="fields of a log's documents that identify the problem, FIELD or "
        "LOG_FIELD=TASK_FIELD; default: all fields of the task's documents",
    )
    metric: str | None = Field(
        None, description="metric of 0 and 1 with the verdicts; default: the format's"
    )
    filter: str | None = Field(
        None, description="lm-eval's filter whose rows are used; default: the first row's"
    )
    judge: bool = Field(
        False, description="the task's verifier judges, instead of the verdicts of the logs"
    )
    ignore_unknown: bool = Field(
        False, description="leave out responses to problems that the split does not have"
    )

    def list_logs(self, split: str) -> list[str]:
        """List the logs of a split, that of greedy responses first; empty if the model
        generates them.
        """
        logs: dict[str, tuple[str, ...]] = {"pool": self.pool, "audit": self.audit}
        greedy = [log for name, log in self.greedy.items() if name == split]
        return [*greedy, *logs.get(split, ())]

    def list_joined_fields(self) -> list[tuple[str, str]]:
        """List the pairs (field of a log's document, field of the task's document) of ``on``."""
        parts = (text.partition("=") for text in self.on)
        return [(field, task_field or field) for field, _, task_field in parts]


class Search(RecipeSection):
    """A deployment decode and K samples per problem, on the pool and on the audit."""

    k: int = Field(8, ge=1, description="K, the number of samples per problem")
    temperature: float = Field(0.7, gt=0, description="sampling temperature")
    top_p: float = Field(0.95, gt=0, le=1, description="nucleus mass")
    top_k: int = Field(0, ge=0, description="top-k cut; 0 means none")
    max_gen_toks: int | None = Field(
        None, ge=1, description="maximum number of new tokens per response; default: the task's"
    )
    seed: int = Field(0, ge=0, description="seed of all samples of the run")
    chunk: int = Field(
        16,
        ge=1,
        description="problems per stored chunk, the unit of resumption; eight times as many "
        "if each problem gets a single response",
    )
    deployment: Deployment | None = Field(
        None,
        description="sample the deployment decode, here and in the audit; default: it is greedy",
    )
    responses: LogResponses | None = Field(
        None,
        description="take responses from logs: see "
        "[its page](run-directory.md#search-with-the-responses-of-logs)",
    )

    @model_serializer(mode="wrap")
    def _omit_absent_sections(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit sections that are not set, so that searches without them compare equal."""
        content: dict[str, Any] = dump(self)
        for key in ("deployment", "responses"):
            if content.get(key) is None:
                content.pop(key, None)
        return content

    @model_validator(mode="after")
    def _check_responses(self) -> Search:
        if self.responses is not None and self.deployment is not None:
            raise ValueError(
                "deployment and responses cannot both be set: logs have one greedy response to "
                "each problem; remove one of them"
            )
        return self

    def list_logs(self, split: str) -> list[str]:
        """List the logs that have a split's responses; empty if the model generates them."""
        return [] if self.responses is None else self.responses.list_logs(split)


class EpisodeChoice(RecipeSection):
    """Overrides a task's episodes (attempts with feedback in between). Empty: the task's values."""

    attempts: int | None = Field(
        None, ge=1, description="maximum attempts in one decode; default: the task's, mostly 1"
    )
    executions: Odd | None = Field(
        None,
        description="how often the programs of a greedy episode are run, an odd number; the "
        "majority decides its label; default: the task's, mostly 1",
    )


class EvidenceChoice(RecipeSection):
    """Which verified sample of a recovered problem is kept; frozen before training."""

    keep: str | None = Field(
        None, description="response rule: shortest, first, or a plugin's; default: the task's"
    )
    context: Literal["conversation", "problem"] = Field(
        "conversation",
        description="training prompt of an episode's final attempt: the complete conversation "
        "before it, or the problem's prompt alone",
    )


#: Number of example slots of a condition: a number, or a count known after the search.
Slots = Annotated[int, Field(ge=1)] | Literal["recovered", "verified"]


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
        description="additional slots with the same draw of solved problems in every matched "
        "condition of a seed",
    )
    token_tolerance: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="largest difference of supervised tokens between matched conditions of a seed, "
        "as a share of the larger; default: no limit, only reported",
    )
    position_tolerance: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="the same for processed tokens L: prompts and responses of all exposures, "
        "after truncation",
    )
    selection_seed: int | None = Field(
        None,
        ge=0,
        description="seed of the draws of training sets, so that all training seeds share one set; "
        "default: each training seed draws its own",
    )


class ExecutorChoice(RecipeSection):
    """Where jobs run. Not part of a run's identity: it may change between two commands."""

    name: str = Field("local", description="executor: local, ray, or a plugin's")
    workers: int = Field(
        1,
        ge=1,
        description="processes that run jobs in parallel, and jobs into which each search is "
        "divided, which changes no seed; `local` divides the GPUs among them, a cluster runs as "
        "many jobs at once as it can",
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="CPU threads of each process; default: the cores that the command may use, "
        "divided by `workers`, at least 1 and at most OMP_NUM_THREADS; 1 on a cluster",
    )
    address: str | None = Field(
        None,
        description="ray: the cluster, `auto` or host:port; default: a new Ray on this machine",
    )
    gpus: float | None = Field(
        None, ge=0, description="ray: GPUs of each job; default: 1 if there are any"
    )
    memory_gb: float | None = Field(
        None, gt=0, description="ray: memory that each job reserves, in GB; default: none"
    )
    checkpoint_steps: int | None = Field(
        None,
        ge=1,
        description="optimizer steps between two checkpoints of a training; default: none, an "
        "interrupted training starts again",
    )

    @property
    def threads_per_worker(self) -> int:
        """CPU threads of each worker process."""
        if self.threads is not None:
            return self.threads
        return compute_threads_per_process(self.workers) if self.address is None else 1

    def build_settings(self) -> dict[str, Any]:
        """Return the section as executors receive it, with the number of threads."""
        return {**self.model_dump(), "threads": self.threads_per_worker}

    def describe_processes(self) -> str:
        """Describe how many processes and threads compute."""
        threads = (
            f"{self.threads_per_worker} CPU thread{'s' if self.threads_per_worker > 1 else ''}"
        )
        if self.address is not None:
            return f"each job has {threads}"
        workers = f"{self.workers} worker process{'es' if self.workers > 1 else ''}"
        return f"{workers} with {threads} each, on {count_usable_cores():g} cores"


class Statistics(RecipeSection):
    """Intervals: replicates resample seeds and, jointly, audit items (Section 4.1)."""

    replicates: int = Field(2000, ge=1, description="bootstrap replicates")
    items: Literal["crossed", "nested"] = Field(
        "crossed",
        description="audit problems of a replicate: drawn once for all its seeds (crossed), or "
        "again for each drawn seed (nested), which understates the spread of conditions and "
        "contrasts",
    )
    seed: int = Field(0, ge=0, description="seed of the replicates")
