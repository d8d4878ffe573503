"""The section ``training`` of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from gapft_harness.recipe.section import RecipeSection

Normalization = Literal["token_mean", "sequence_mean", "token_sum"]


class Training(RecipeSection):
    """LoRA fine-tuning; the defaults are the paper's logic settings (Table 4)."""

    trainer: str = Field("lora", description="trainer: lora, or a plugin's")
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
    max_tokens: int = Field(
        16384, ge=2, description="maximum of tokens in one forward pass without padding"
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

    @model_validator(mode="after")
    def _one_fits(self) -> Training:
        if self.padding_free and self.max_tokens < self.max_length:
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
