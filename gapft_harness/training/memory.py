"""Estimate the memory that a training needs, before any weight is loaded.

The estimate uses the shapes in the base's config: weights and optimizer states are counted; tensors
that a forward pass saves for the backward pass are counted for dense decoders and guessed for
others; the additional heap of a CPU process is a measured share. GPU memory fragmentation, kernel
workspaces and the libraries themselves are not included.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.memory import measure_free_memory
from gapft_harness.recipe.sections import Training
from gapft_harness.training.attention import is_dense
from gapft_harness.training.objective import MAX_FLOAT32_LOGITS, find_max_logits
from gapft_harness.training.passes import Member

_GB = 1e9
_CPU = torch.device("cpu")
_REMEDY = (
    "To reduce it: activations: lower training.micro_batch (with padding_free: "
    "training.max_tokens), or set training.gradient_checkpointing: true; base: training.dtype: "
    "bfloat16, or several GPUs for each worker"
)
#: Allowed overestimate: for small Llamas the error was within a quarter.
_MARGIN = 1.25
#: Additional peak memory of a CPU process, as a share of the tensors that its passes save: heap
#: fragmentation and temporary gradients. Measured with SmolLM2 and a model of 0.5 billion
#: parameters: 0.4 to 0.9.
_HEAP_SHARE = 0.75
#: Bytes of a process that has imported torch, transformers and PEFT; on a GPU, with its context.
_LIBRARY_BYTES = {"cpu": 0.4e9, "cuda": 1e9}
#: Least bytes per weight of a linear layer in quantized files, with the scales of its blocks.
_MIN_BYTES_PER_QUANTIZED_WEIGHT = 0.5 + 4 / 64


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes that a training needs.

    Attributes:
        base: the frozen weights.
        adapters: float32 weights, gradients, and AdamW's two states.
        activations: tensors that the largest forward pass saves for its backward pass.
        logits: logits of the largest forward pass that exist at one time, with their gradient.
        heap: additional memory of a CPU process beyond its passes' tensors; 0 on a GPU.
    """

    base: int
    adapters: int
    activations: int
    logits: int
    heap: int = 0

    @property
    def certain(self) -> int:
        """Bytes that follow from shapes alone, without a forward pass."""
        return self.base + self.adapters

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.base + self.adapters + self.activations + self.logits + self.heap

    def __str__(self) -> str:
        """Format in gigabytes (10⁹ bytes), part by part."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = ", ".join(f"{name} {value / _GB:.3g}" for name, value in values.items() if value)
        return f"about {self.total / _GB:.3g} GB ({parts})"


def estimate_memory(
    model: Any,
    settings: Training,
    passes: Iterable[Sequence[Member]],
    is_head_last: bool = True,
    device: torch.device = _CPU,
) -> MemoryEstimate:
    """Estimate the memory that a training needs.

    Args:
        model: the base on the meta device (``model.build_meta_model``).
        passes: all its forward passes.
        is_head_last: whether logits are the output layer's output
            (``output_layer.is_output_layer_last``), so that they are computed in chunks.
        device: the training device; a CPU saves other tensors than a GPU.
    """
    width = torch.finfo(getattr(torch, settings.dtype)).bits // 8
    layers = _find_layers(model)
    active = _find_active_share(model.config.get_text_config())
    per_layer = [_count_layer_bytes(layer, settings, width, active, device) for layer in layers]
    bytes_per_token, kept_layers = sum(per_layer), len(layers)
    if settings.gradient_checkpointing:  # each layer's input, and one layer during recomputation
        bytes_per_token = len(layers) * _find_hidden_size(model) * width + max(per_layer, default=0)
        kept_layers = 1
    vocabulary = model.get_output_embeddings().weight.shape[0]
    largest_pass = (0, 0)
    for members in passes:
        tokens, supervised = _count_tokens(members, settings)
        count = supervised * vocabulary
        # Logits, their gradient and their float32 rows (if all exist at once, also what an
        # architecture derives from them); the inputs of the output layer, and their gradient.
        logit_count = min(count, find_max_logits(device)) if is_head_last else 2 * count
        float32 = 2 * 4 * min(count, MAX_FLOAT32_LOGITS)
        gathered = supervised * _find_hidden_size(model)
        attention_bytes = (
            kept_layers * _count_attention_weights(model, members, settings, device) * width
        )
        pass_bytes = (
            tokens * bytes_per_token + attention_bytes,
            2 * (logit_count + gathered) * width + float32,
        )
        largest_pass = max(largest_pass, pass_bytes, key=sum)
    activations, logits = largest_pass
    adapters = settings.rank * sum(
        linear.in_features + linear.out_features
        for path, linear in _find_linears(model)
        if path.rpartition(".")[2] in settings.target_modules
    )
    heap = int(_HEAP_SHARE * (activations + logits)) if device.type == "cpu" else 0
    base = _count_weight_bytes(model, width)
    return MemoryEstimate(base, adapters * 4 * 4, activations, logits, heap)


def free_gpu_memory() -> None:
    """Release unused GPU memory to other processes, as this process may go on.

    A model's modules refer to each other, so the garbage collector must run first.
    """
    gc.collect()
    torch.cuda.empty_cache()  # no effect if CUDA is not in use


def count_fitting(
    estimated: MemoryEstimate, free: int, device: torch.device, shared_base: bool
) -> int:
    """Count the trainings that fit into a memory together; 0 if not even one does.

    Args:
        estimated: estimate of the largest training.
        free: bytes.
        device: the device of all trainings.
        shared_base: whether processes map the base's files into memory, so that it counts once.
    """
    shared_bytes = estimated.base if shared_base and device.type == "cpu" else 0
    per_training = estimated.total - shared_bytes + int(_LIBRARY_BYTES[device.type])
    return max(0, free - shared_bytes) // per_training


def check_memory(estimated: MemoryEstimate, free: int, device: torch.device) -> None:
    """Reject a training that cannot fit. One that might fit goes on; see ``explain_out_of_memory``.

    Args:
        estimated: the estimate.
        free: bytes.
        device: for the message.

    Raises:
        UserError: the counted part exceeds the free memory, or the complete estimate exceeds it by
            more than a quarter. The message names both and the settings to change.
    """
    if estimated.certain <= free and estimated.total <= _MARGIN * free:
        return
    raise UserError(
        f"training needs {estimated} (estimated from the base's config), but {device} "
        f"has {free / _GB:.3g} GB free. {_REMEDY}"
    )


def is_larger_than_gpu(model: Any, settings: Training, device: torch.device) -> bool:
    """Return whether a base exceeds its GPU, and this process sees further ones.

    Args:
        model: the base on the meta device.
        device: the training device; one with a number is the only one that is used.
    """
    if str(device) != "cuda" or torch.cuda.device_count() == 1:
        return False
    width = torch.finfo(getattr(torch, settings.dtype)).bits // 8
    return _count_weight_bytes(model, width) > measure_free_memory(device)


@contextlib.contextmanager
def explain_out_of_memory(
    estimated: MemoryEstimate, arm: str, device: torch.device
) -> Iterator[None]:
    """Within the context, convert a device's out-of-memory error to one with the estimate.

    Raises:
        GapftError: the device ran out of memory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise GapftError(
            f"{arm}: {device} ran out of memory; the estimate was {estimated}. {_REMEDY}"
        ) from error


def _find_layers(model: Any) -> list[torch.nn.Module]:
    """Find the decoder's layers, by the class names that transformers declares for placement."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def _find_linears(module: Any) -> list[tuple[str, torch.nn.Linear]]:
    return [
        (name, part) for name, part in module.named_modules() if isinstance(part, torch.nn.Linear)
    ]


def _find_hidden_size(model: Any) -> int:
    size: int = model.get_input_embeddings().weight.shape[1]
    return size


def _count_weight_bytes(model: Any, width: int) -> int:
    """Count the bytes of the base's weights; tied weights once, the output layer never quantized.

    For a base whose files are already quantized, the minimum is counted, so that it is never
    rejected wrongly.
    """
    is_quantized = getattr(model.config, "quantization_config", None) is not None
    head = model.get_output_embeddings().weight
    quantized_ids = {
        id(linear.weight)
        for _, linear in _find_linears(model)
        if is_quantized and linear.weight is not head
    }
    return sum(
        int(p.numel() * (_MIN_BYTES_PER_QUANTIZED_WEIGHT if id(p) in quantized_ids else width))
        for p in model.parameters()
    )


def _count_layer_bytes(
    layer: torch.nn.Module, settings: Training, width: int, active: float, device: torch.device
) -> int:
    """Count the bytes per token that a layer saves for the backward pass.

    A linear layer saves its output. The last one of a block (attention, feed-forward), whose output
    is added to the residual stream and not saved, counts twice its input: the input and the tensor
    it was computed from. For an adapter see ``_count_adapter_bytes``. A norm saves its input in
    float32 and its output. Experts that are separate linear layers count with the share ``active``.
    """
    kept_bytes = 0.0
    linears = _find_linears(layer)
    last_linears = {path.rpartition(".")[0]: path for path, _ in linears}.values()
    for path, linear in linears:
        name = path.rpartition(".")[2]
        linear_bytes = (
            2 * linear.in_features if path in last_linears else linear.out_features
        ) * width
        if name in settings.target_modules:
            linear_bytes += linear.in_features * _count_adapter_bytes(settings, width, device)
            linear_bytes += settings.rank * 4
        kept_bytes += linear_bytes * (active if "experts" in path.split(".") else 1)
    for part in layer.modules():
        if "Norm" in type(part).__name__:
            kept_bytes += sum(p.numel() for p in part.parameters()) * (4 + width)
    return int(kept_bytes)


def _count_adapter_bytes(settings: Training, width: int, device: torch.device) -> int:
    """Count the bytes per input entry that an adapter saves: a float32 copy, and dropout's mask.

    Layers that cast the adapter's factors (``model.fuse_lora_layers``) save the input itself,
    without a copy.
    """
    on_cpu = device.type == "cpu"
    if width == 2 and (on_cpu or settings.kernels == "fused"):
        return (2 if on_cpu else 1) if settings.dropout else 0
    if settings.dropout:
        return 4 + (4 if on_cpu else 1)
    return 4 if width != 4 else 0


def _count_attention_weights(
    model: Any, members: Sequence[Member], settings: Training, device: torch.device
) -> int:
    """Count the attention weights that one layer saves if they are computed by plain products."""
    heads = getattr(model.config.get_text_config(), "num_attention_heads", 0)
    dtype = getattr(torch, settings.dtype)
    lengths = [member.sequence.tokens for member in members] if settings.padding_free else []
    return sum(heads * length**2 for length in lengths if is_dense(length, dtype, device))


def _find_active_share(config: Any) -> float:
    """Return the share of a layer's experts that a token uses, if the config declares it."""
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    active_count = getattr(config, "num_experts_per_tok", None)
    return active_count / experts if experts and active_count else 1.0


def _count_tokens(members: Sequence[Member], settings: Training) -> tuple[int, int]:
    """Count the tokens, with padding, and the supervised tokens of a forward pass."""
    lengths = [member.sequence.tokens for member in members]
    tokens = sum(lengths) if settings.padding_free else len(lengths) * max(lengths)
    return tokens, sum(member.sequence.supervised for member in members)
