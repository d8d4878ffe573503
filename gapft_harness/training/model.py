"""Load the frozen base model and add LoRA adapters."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.pretrained import (
    build_meta_model,
    load_config,
    load_generation_config,
    load_model,
    load_tokenizer,
    to_id_list,
)
from gapft_harness.core.turn_end import check_vocabulary, find_end_token
from gapft_harness.core.weights import find_weights_folder, weights_hash
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training
from gapft_harness.training.attention import SEGMENTS, register_segments


def load_base(
    model_args: Mapping[str, Any], settings: Training, device_map: str | None = None
) -> Any:
    """Load the base model in the recipe's dtype, on the CPU unless it has a device map.

    Raises:
        UserError: the model is missing, or cannot be trained without padding.
    """
    options = {}
    if settings.padding_free:
        register_segments()
        options["attn_implementation"] = SEGMENTS
    model = load_model(model_args, dtype=settings.dtype, device_map=device_map, **options)
    # caches are for generation; off, to avoid a warning in training
    model.config.use_cache = False
    return model


def hash_searched_base(job: TrainingJob) -> str:
    """Hash the weights of a job's base.

    Raises:
        UserError: they differ from those of the search.
    """
    base_hash = weights_hash(find_weights_folder(job.model_args))
    if job.base_sha256 is not None and base_hash != job.base_sha256:
        raise UserError(
            f"{job.arm.name}: model {job.model_args['pretrained']} differs from the searched one: "
            f"its weights' hash is {base_hash[:12]}…, the search's {job.base_sha256[:12]}…. "
            "Restore the weights, or start a new run directory"
        )
    return base_hash


@dataclass(frozen=True, slots=True)
class EndToken:
    """The token that is supervised at the end of a response that was not cut off."""

    id: int
    text: str


def load_end_token(model_args: Mapping[str, Any], chat_template: bool) -> EndToken:
    """Find the token that the model writes at the end of a response (``core/turn_end.py``).

    Args:
        model_args: the recipe's model arguments; ``pretrained`` and ``tokenizer`` name the folders
            to read.
        chat_template: whether prompts are rendered through the tokenizer's chat template.

    Raises:
        UserError: the token cannot be found, the chat template raises, or the tokenizer has ids
            outside the model's vocabulary.
    """
    tokenizer = load_tokenizer(model_args)
    ends = to_id_list(load_generation_config(model_args).eos_token_id)
    id = find_end_token(tokenizer, ends, chat_template, model_args.get("chat_template_args") or {})
    size = load_config(model_args).get_text_config().vocab_size
    check_vocabulary(tokenizer, size, [id])
    return EndToken(id, str(tokenizer.convert_ids_to_tokens(id)))


def check_trainable(
    model_args: Mapping[str, Any], settings: Training, chat_template: bool
) -> EndToken | None:
    """Check, without weights, everything that training needs of a base; return its end token.

    Returns:
        The end token; None if none is supervised.

    Raises:
        ModelNotLoaded: the model or tokenizer is missing or cannot be loaded.
        UserError: target modules are missing or cannot be adapted, or see ``load_end_token``.
    """
    check_targets(build_meta_model(model_args, dtype=settings.dtype), settings)
    return load_end_token(model_args, chat_template) if settings.supervise_eos else None


def check_ids(model: Any, ids: Iterable[int], problem_id: str) -> None:
    """Check that a base has an embedding for every token id of an example.

    Args:
        model: the base; ``build_meta_model`` builds one without loading weights.

    Raises:
        UserError: an id is not below the number of embeddings.
    """
    size = model.get_input_embeddings().weight.shape[0]
    if (largest := max(ids)) >= size:
        raise UserError(
            f"problem {problem_id}: a prompt or response to train on has the token id {largest}, "
            f"but the model's vocabulary has {size} entries; expected ids below that. Use the "
            "same tokenizer in search and training (model.args.tokenizer)"
        )


def build_lora_config(settings: Training) -> Any:
    """Build the adapter's PEFT configuration: the recipe's settings, and PEFT's defaults."""
    from peft import LoraConfig

    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )


def check_targets(model: Any, settings: Training) -> None:
    """Check that PEFT can adapt every module named in ``target_modules``.

    Tied embeddings are rejected: an adapter changes one of them, but merged into the common weight,
    as in search and audit, it would change both.

    Args:
        model: the base; ``build_meta_model`` builds one without loading weights.

    Raises:
        UserError: the model has no module of such a name, or LoRA cannot adapt it.
    """
    from transformers.pytorch_utils import Conv1D

    nn = torch.nn
    # Which module names LoRA can adapt, and which share the weight of tied embeddings
    kinds = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention)
    embeddings = (model.get_input_embeddings(), model.get_output_embeddings())
    tied = (
        embeddings
        if len({id(getattr(layer, "weight", layer)) for layer in embeddings}) == 1
        else ()
    )
    adaptable: dict[str, bool] = {}
    tied_names: set[str] = set()
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        adaptable[name] = adaptable.get(name, True) and isinstance(module, (*kinds, Conv1D))
        if any(module is embedding for embedding in tied):
            tied_names.add(name)
    adaptable_names = sorted(
        name for name, is_adaptable in adaptable.items() if is_adaptable and name not in tied_names
    )
    # Refuse the others
    for target in settings.target_modules:
        if target not in adaptable:
            raise UserError(
                f"training.target_modules: the model has no {target!r}; "
                f"{did_you_mean(target, adaptable_names)}"
            )
        if target in tied_names:
            raise UserError(
                f"training.target_modules: {target!r} shares its weight with the other embedding "
                "of this model (tie_word_embeddings), so an adapter on it gives a different model "
                f"when it is merged into the weight; remove it. Modules that can be adapted: "
                f"{', '.join(adaptable_names)}"
            )
        if not adaptable[target]:
            raise UserError(
                f"training.target_modules: LoRA cannot adapt {target!r}, which is not a linear, "
                "embedding or convolution layer; modules that can be adapted: "
                f"{', '.join(adaptable_names)}"
            )


def add_lora(model: Any, settings: Training, seed: int) -> Any:
    """Freeze the model and add adapters (LoRA, PEFT), initialised from the seed."""
    from peft import get_peft_model

    torch.manual_seed(seed)
    with warnings.catch_warnings():
        # PEFT calls these names, the only ones of transformers 4; transformers 5 deprecates them
        for name in ("is_gradient_checkpointing", "gradient_checkpointing_enable"):
            warnings.filterwarnings("ignore", f"`{name}` is deprecated", FutureWarning)
        adapted = get_peft_model(model, build_lora_config(settings))
        if settings.kernels == "fused" and not fuse_lora_layers(adapted):
            raise UserError(
                "training.kernels: fused: no LoRA layer of this model is on a 16-bit linear layer; "
                "set training.kernels: plain"
            )
        if settings.gradient_checkpointing:
            adapted.enable_input_require_grads()
            adapted.gradient_checkpointing_enable({"use_reentrant": False})
    return adapted


def remove_lora(adapted: Any, settings: Training) -> None:
    """Remove an adapter; the base is unchanged and ready for the next one."""
    if settings.gradient_checkpointing:
        adapted.disable_input_require_grads()
    base = adapted.unload()
    vars(base).pop("peft_config", None)  # some versions keep it, and then warn of a second adapter


def fuse_lora_layers(adapted: Any) -> int:
    """Replace the forward pass of plain LoRA layers on 16-bit linear layers; return their number.

    PEFT keeps the adapter in float32 and casts the layer's complete input to float32, and its
    output back: these copies take longer than the adapter's products, and on a CPU most of the
    memory. This forward pass casts the small factors instead; the factors, their gradients and the
    optimizer's state stay float32. Other layers keep PEFT's forward pass, and removing the adapter
    restores it.

    Args:
        adapted: base and one adapter, from ``get_peft_model``.
    """
    from peft.tuners.lora import Linear

    count = 0
    for module in adapted.modules():
        base = module.base_layer if type(module) is Linear else None
        if type(base) is torch.nn.Linear and base.weight.dtype.itemsize == 2:
            (name,) = module.active_adapters
            module.forward = partial(_fused_forward, module, name)
            count += 1
    return count


def _fused_forward(layer: Any, name: str, x: torch.Tensor) -> torch.Tensor:
    base = layer.base_layer
    dropout = layer.lora_dropout[name]
    return LoraLinear.apply(  # type: ignore[no-any-return, no-untyped-call]
        x,
        base.weight,
        base.bias,
        layer.lora_A[name].weight,
        layer.lora_B[name].weight,
        layer.scaling[name],
        dropout.p if isinstance(dropout, torch.nn.Dropout) and dropout.training else 0.0,
    )


class LoraLinear(torch.autograd.Function):
    """``x W' + bias + scaling · dropout(x) A' B'``; the base's weight has no gradient.

    Of the inputs, only ``x``, which other layers may share, and the dropout mask are saved for the
    backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        a: torch.Tensor,
        b: torch.Tensor,
        scaling: float,
        dropout: float,
    ) -> torch.Tensor:
        """Compute the output. ``x``: (..., in); ``a``: (rank, in), ``b``: (out, rank), float32."""
        rows = x.reshape(-1, x.shape[-1])
        dropped, mask = _apply_dropout(rows, dropout) if dropout else (rows, None)
        low = dropped @ a.to(x.dtype).T
        out = torch.nn.functional.linear(rows, weight, bias)
        out.addmm_(low, (b * scaling).to(x.dtype).T)
        ctx.save_for_backward(rows, mask, low, weight, a, b)
        ctx.scaling = scaling
        ctx.dropout = dropout
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Compute the gradients of ``x``, ``a`` and ``b``, the latter two in float32."""
        rows, mask, low, weight, a, b = ctx.saved_tensors
        shape, grad = grad.shape, grad.reshape(-1, grad.shape[-1])
        dropped = rows if mask is None else _apply_dropout_mask(rows, mask, ctx.dropout)
        grad_low = grad @ (b * ctx.scaling).to(grad.dtype)
        grad_a = _multiply_in_float32(grad_low.T, dropped)
        grad_b = _multiply_in_float32(grad.T, low) * ctx.scaling
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ weight
            a_low = a.to(grad.dtype)
            if mask is None:
                grad_x.addmm_(grad_low, a_low)
            elif mask.dtype == torch.bool:
                grad_x.addcmul_(grad_low @ a_low, mask, value=1 / (1 - ctx.dropout))
            else:
                grad_x += _apply_dropout_mask(grad_low @ a_low, mask, ctx.dropout)
            grad_x = grad_x.view(*shape[:-1], -1)
        return grad_x, None, None, grad_a, grad_b, None, None


def _apply_dropout(x: torch.Tensor, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Set a random share of a matrix's entries to zero and scale the others.

    On a CPU, torch draws one 64-bit number per entry, which takes as long as the layer's own matrix
    product; this function uses 16 random bits per 16-bit entry.

    Returns:
        The new matrix, and a mask for ``_apply_dropout_mask``: bool, or all 16 bits of an entry.
    """
    if x.is_cuda or x.dtype.itemsize != 2:
        dropped, mask = torch.ops.aten.native_dropout(x, share, True)
        return dropped, mask
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    mask = bits.lt_(int(share * 2**16) - 2**15).sub_(1)  # -1 (all bits) if an entry is kept
    return _apply_dropout_mask(x, mask, share), mask


def _apply_dropout_mask(x: torch.Tensor, mask: torch.Tensor, share: float) -> torch.Tensor:
    """Apply the mask and scale of ``_apply_dropout`` to another matrix."""
    if mask.dtype == torch.bool:
        dropped: torch.Tensor = torch.ops.aten.native_dropout_backward(x, mask, 1 / (1 - share))
        return dropped
    return x.view(torch.int16).bitwise_and(mask).view(x.dtype).mul_(1 / (1 - share))


def _multiply_in_float32(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply two 16-bit matrices in float32."""
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()
