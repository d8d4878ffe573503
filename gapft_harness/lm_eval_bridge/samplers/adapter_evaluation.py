"""``gapft eval --adapters``: evaluate several adapters with lm_eval on a base that is loaded once.

lm_eval's own command runs once for the base and once for each adapter, with the loaded model. Each
adapter is applied unmerged, as lm_eval's own argument does, and removed afterwards.
"""

from __future__ import annotations

import json
import logging
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import NamedAdapter, check_adapter

logger = logging.getLogger(__name__)

#: The folder of the base's logs, reserved for the base.
BASE_NAME = "base"
_NAME = re.compile(r"[\w][\w.@+-]*")
#: lm_eval's names of the supported models, each with its argument for an adapter.
_ADAPTER_ARGUMENTS = {
    "hf": "peft",
    "hf-auto": "peft",
    "huggingface": "peft",
    "vllm": "lora_local_path",
}
#: By that argument: model arguments that conflict with ``--adapters``.
_EXCLUDED_ARGUMENTS = {
    "peft": ("peft", "delta", "gptqmodel", "autogptq", "parallelize", "tp_plan"),
    "lora_local_path": ("lora_local_path", "enable_lora", "max_lora_rank", "data_parallel_size"),
}
#: Any text for which two models compute different likelihoods.
_PROBE = "In 1969, 3 + 4 = 7 (x**2): \"the answer is B\"; def f(a): return [a, 'b'] # 12%\n"


class AdapterBase(Protocol):
    """A loaded model that one adapter after another is applied to."""

    lm: Any

    def apply_adapter(self, adapter: NamedAdapter) -> None:
        """Apply the adapter.

        Raises:
            UserError: it does not fit the model.
        """

    def remove_adapter(self) -> None:
        """Remove the adapter."""

    def probe(self, text: str) -> list[float]:
        """Return a few numbers that the model computes for a text."""


def split_adapters(arguments: Sequence[str]) -> tuple[list[NamedAdapter], list[str]]:
    """Separate ``--adapters A,NAME=B`` from lm_eval's arguments.

    Returns:
        The adapters in order, and the arguments without them.

    Raises:
        UserError: no adapter, a name that is not valid for a folder, or a duplicate name.
    """
    values: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option != "--adapters":
            others.append(argument)
            continue
        values += [adapter.strip() for adapter in (value if equals else next(rest, "")).split(",")]
        if not all(values):
            raise UserError("--adapters: expected PEFT folders: --adapters FOLDER,NAME=FOLDER,…")
    adapters = [_parse_adapter(adapter) for adapter in values]
    for number, adapter in enumerate(adapters):
        for other in adapters[:number]:
            if adapter.name == other.name:
                raise UserError(
                    f"--adapters: duplicate name {adapter.name!r} for {other.path} and "
                    f"{adapter.path}; name one of them: --adapters NAME={adapter.path}"
                )
    return adapters, others


def evaluate_in_turn(
    adapters: Sequence[NamedAdapter], parsed: Namespace, execute: Callable[[Namespace], Any]
) -> None:
    """Evaluate the base and every adapter, each with its own log folder in ``--output_path``.

    Args:
        adapters: the adapters.
        parsed: lm_eval's parsed arguments.
        execute: lm_eval's command.

    Raises:
        UserError: an option that conflicts with ``--adapters``, a folder that already has logs, a
            folder without an adapter, or an adapter of a different base.
        ValueError: unknown task (raised by lm-eval).
        GapftError: a nonzero adapter was not applied.
    """
    from lm_eval.config.evaluate_config import EvaluatorConfig

    config = EvaluatorConfig.from_cli(parsed)
    arguments = dict(config.model_args or {})
    log_folder, rank = _check_options(adapters, config, arguments)
    config.process_tasks(config.metadata)  # refuses an unknown task before the base is loaded
    named_by = _ADAPTER_ARGUMENTS[config.model]
    zero_adapters = [adapter for adapter in adapters if _is_zero(adapter)]
    in_turn = _AdapterSwitch(_load_base(config, arguments, adapters, rank), config.model)
    parsed.log_samples = True
    for adapter in (None, *adapters):
        parsed.model = in_turn.select_model(adapter, is_zero=adapter in zero_adapters)
        parsed.model_args = arguments | ({} if adapter is None else {named_by: adapter.path})
        parsed.output_path = str(log_folder / (BASE_NAME if adapter is None else adapter.name))
        execute(parsed)
    names = " ".join(str(log_folder / adapter.name) for adapter in adapters)
    logger.warning(f"To compare them: gapft compare {log_folder / BASE_NAME} {names}")


def _load_base(
    config: Any, arguments: dict[str, Any], adapters: Sequence[NamedAdapter], rank: int
) -> AdapterBase:
    options = {
        "batch_size": config.batch_size,
        "max_batch_size": config.max_batch_size,
        "device": config.device,
    }
    if config.model == "vllm":
        from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process

        prepare_process(threads=None, asked_by="--model vllm")
        from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmAdapterBase

        return VllmAdapterBase(arguments, options, adapters[0], rank)
    from gapft_harness.lm_eval_bridge.samplers.hf import HfAdapterBase

    return HfAdapterBase(arguments, options)


class _AdapterSwitch:
    """Applies one adapter after another to a base, and checks that each changes its results."""

    def __init__(self, base: AdapterBase, kind: str) -> None:
        self._base = base
        self._title, self._kind = BASE_NAME, kind
        # lm_eval prints the model above its table, so the object needs a readable text.
        model_class = type(base.lm)
        base.lm.__class__ = type(
            model_class.__name__,
            (model_class,),
            {
                "__module__": model_class.__module__,
                "__str__": lambda _: f"{self._title}: {self._kind}",
            },
        )
        self._base_probe = base.probe(_PROBE)
        if base.probe(_PROBE) != self._base_probe:
            raise GapftError(
                "--adapters: the base computes different numbers for the same text in two calls, "
                "so it is impossible to check that an adapter is applied; evaluate each adapter in "
                "a separate command"
            )
        self._is_bare = True

    def select_model(self, adapter: NamedAdapter | None, *, is_zero: bool) -> Any:
        """Return lm_eval's model with an adapter applied, or the base alone.

        Raises:
            GapftError: the previous adapter was not removed completely, or this nonzero adapter
                does not change the results of the base.
        """
        if not self._is_bare:
            self._base.remove_adapter()
            if self._base.probe(_PROBE) != self._base_probe:
                raise GapftError(
                    "--adapters: the results of the base changed after an adapter was removed; "
                    "evaluate that adapter in a separate command"
                )
        if adapter is not None:
            self._base.apply_adapter(adapter)
            self._is_bare = False
            is_changed = self._base.probe(_PROBE) != self._base_probe
            if is_zero:
                logger.warning(f"{adapter.path}: all updates are zero: same responses as the base")
            elif not is_changed:
                raise GapftError(
                    f"{adapter.path}: not applied: the results of the base are identical with it, "
                    "although its weights are not zero. The base's dtype may round very small "
                    "updates away; try --model_args dtype=float32"
                )
        self._title = BASE_NAME if adapter is None else adapter.name
        return self._base.lm


def _parse_adapter(value: str) -> NamedAdapter:
    name, equals, path = value.partition("=")
    if not equals or Path(value).exists():
        name, path = Path(value).resolve().name, value
    if name == BASE_NAME or not _NAME.fullmatch(name):
        raise UserError(
            f"--adapters: {value}: {name!r} cannot be the name of its log folder"
            f"{', which is reserved for the base' if name == BASE_NAME else ''}; "
            f"choose another name: --adapters NAME={path}"
        )
    return NamedAdapter(name, path)


def _check_options(
    adapters: Sequence[NamedAdapter], config: Any, arguments: dict[str, Any]
) -> tuple[Path, int]:
    """Check everything that can be checked before the model is loaded.

    Returns:
        The folder for logs, and the adapters' highest rank.
    """
    if config.model not in _ADAPTER_ARGUMENTS:
        raise UserError(
            f"--adapters: unsupported model {config.model!r}; expected --model hf or vllm"
        )
    for key in _EXCLUDED_ARGUMENTS[_ADAPTER_ARGUMENTS[config.model]]:
        if arguments.get(key):
            raise UserError(f"--model_args {key}=…: conflicts with --adapters; remove it")
    if config.use_cache:
        raise UserError(
            "--use_cache: conflicts with --adapters: the cache would return the base's responses "
            "for every adapter; remove it"
        )
    if not arguments.get("pretrained"):
        raise UserError("--adapters: expected the base: --model_args pretrained=MODEL")
    if not config.output_path:
        raise UserError("--adapters: expected a folder for the logs: --output_path FOLDER")
    log_folder = Path(config.output_path)
    for name in (BASE_NAME, *(adapter.name for adapter in adapters)):
        if any((log_folder / name).rglob("samples_*.jsonl")):
            raise UserError(
                f"{log_folder / name}: already contains logs; choose another --output_path"
            )
    ranks = []
    for adapter in adapters:
        ranks.append(check_adapter(adapter, arguments))
        trained_on = json.loads(
            (Path(adapter.path) / "adapter_config.json").read_text("utf-8")
        ).get("base_model_name_or_path")
        if trained_on and Path(trained_on).name != Path(arguments["pretrained"]).name:
            logger.warning(
                f"{adapter.path}: trained on {trained_on!r} according to its adapter_config.json; "
                f"applying it to {arguments['pretrained']!r}, whose layers have the same shapes"
            )
    return log_folder, max(ranks)


def _is_zero(adapter: NamedAdapter) -> bool:
    """Return whether every update of a LoRA adapter, and all its other weights, are zero."""
    from peft import load_peft_weights

    weights = load_peft_weights(adapter.path, device="cpu")
    zero = {name for name, weight in weights.items() if not weight.any()}
    # besides the update of an embedding, PEFT also saves the embedding itself
    own = {name for name in weights if ".base_layer." in name}
    return all(name in zero or _find_partner(name) in zero for name in weights.keys() - own)


def _find_partner(name: str) -> str:
    """Return the name of the other factor of a LoRA update."""
    other = {"A": "B", "B": "A"}
    return re.sub("(lora_(?:embedding_)?)([AB])", lambda match: match[1] + other[match[2]], name)
