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
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import Named, check_adapter

logger = logging.getLogger(__name__)

#: The folder of the base's logs, reserved for the base.
BASE = "base"
_NAME = re.compile(r"[\w][\w.@+-]*")
#: lm_eval's names of the supported models, each with its argument for an adapter.
_MODELS = {"hf": "peft", "hf-auto": "peft", "huggingface": "peft", "vllm": "lora_local_path"}
#: By that argument: model arguments that conflict with ``--adapters``.
_NOT_BESIDE = {
    "peft": ("peft", "delta", "gptqmodel", "autogptq", "parallelize", "tp_plan"),
    "lora_local_path": ("lora_local_path", "enable_lora", "max_lora_rank", "data_parallel_size"),
}
#: Any text for which two models compute different likelihoods.
_PROBE = "In 1969, 3 + 4 = 7 (x**2): \"the answer is B\"; def f(a): return [a, 'b'] # 12%\n"


class Base(Protocol):
    """A loaded model that one adapter after another is applied to."""

    lm: Any

    def put_on(self, adapter: Named) -> None:
        """Apply the adapter.

        Raises:
            UserError: it does not fit the model.
        """

    def take_off(self) -> None:
        """Remove the adapter."""

    def probed(self, text: str) -> list[float]:
        """Return a few numbers that the model computes for a text."""


def split_adapters(arguments: Sequence[str]) -> tuple[list[Named], list[str]]:
    """Separate ``--adapters A,NAME=B`` from lm_eval's arguments.

    Returns:
        The adapters in order, and the arguments without them.

    Raises:
        UserError: no adapter, a name that is not valid for a folder, or a duplicate name.
    """
    given: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option != "--adapters":
            others.append(argument)
            continue
        given += [one.strip() for one in (value if equals else next(rest, "")).split(",")]
        if not all(given):
            raise UserError("--adapters: expected PEFT folders: --adapters FOLDER,NAME=FOLDER,…")
    adapters = [_named(one) for one in given]
    for number, one in enumerate(adapters):
        for other in adapters[:number]:
            if one.name == other.name:
                raise UserError(
                    f"--adapters: duplicate name {one.name!r} for {other.path} and {one.path}; "
                    f"name one of them: --adapters NAME={one.path}"
                )
    return adapters, others


def evaluate_in_turn(
    adapters: Sequence[Named], parsed: Namespace, execute: Callable[[Namespace], Any]
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
    out, rank = _checked(adapters, config, arguments)
    config.process_tasks(config.metadata)  # refuses an unknown task before the base is loaded
    named_by = _MODELS[config.model]
    silent = [one for one in adapters if _is_zero(one)]
    in_turn = _InTurn(_loaded(config, arguments, adapters, rank), config.model)
    parsed.log_samples = True
    for one in (None, *adapters):
        parsed.model = in_turn.model(one, zero=one in silent)
        parsed.model_args = arguments | ({} if one is None else {named_by: one.path})
        parsed.output_path = str(out / (BASE if one is None else one.name))
        execute(parsed)
    names = " ".join(str(out / one.name) for one in adapters)
    logger.warning(f"To compare them: gapft compare {out / BASE} {names}")


def _loaded(config: Any, arguments: dict[str, Any], adapters: Sequence[Named], rank: int) -> Base:
    others = {
        "batch_size": config.batch_size,
        "max_batch_size": config.max_batch_size,
        "device": config.device,
    }
    if config.model == "vllm":
        from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process

        prepare_process(threads=None, asked_by="--model vllm")
        from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmBase

        return VllmBase(arguments, others, adapters[0], rank)
    from gapft_harness.lm_eval_bridge.samplers.hf import HfBase

    return HfBase(arguments, others)


class _InTurn:
    """Applies one adapter after another to a base, and checks that each changes its results."""

    def __init__(self, base: Base, kind: str) -> None:
        self._base = base
        self._title, self._kind = BASE, kind
        # lm_eval prints the model above its table, so the object needs a readable text.
        named = type(base.lm)
        base.lm.__class__ = type(
            named.__name__,
            (named,),
            {"__module__": named.__module__, "__str__": lambda _: f"{self._title}: {self._kind}"},
        )
        self._of_base = base.probed(_PROBE)
        if base.probed(_PROBE) != self._of_base:
            raise GapftError(
                "--adapters: the base computes different numbers for the same text in two calls, "
                "so it is impossible to check that an adapter is applied; evaluate each adapter in "
                "a separate command"
            )
        self._bare = True

    def model(self, adapter: Named | None, *, zero: bool) -> Any:
        """Return lm_eval's model with an adapter applied, or the base alone.

        Raises:
            GapftError: the previous adapter was not removed completely, or this nonzero adapter
                does not change the results of the base.
        """
        if not self._bare:
            self._base.take_off()
            if self._base.probed(_PROBE) != self._of_base:
                raise GapftError(
                    "--adapters: the results of the base changed after an adapter was removed; "
                    "evaluate that adapter in a separate command"
                )
        if adapter is not None:
            self._base.put_on(adapter)
            self._bare = False
            changed = self._base.probed(_PROBE) != self._of_base
            if zero:
                logger.warning(f"{adapter.path}: all updates are zero: same responses as the base")
            elif not changed:
                raise GapftError(
                    f"{adapter.path}: not applied: the results of the base are identical with it, "
                    "although its weights are not zero. The base's dtype may round very small "
                    "updates away; try --model_args dtype=float32"
                )
        self._title = BASE if adapter is None else adapter.name
        return self._base.lm


def _named(given: str) -> Named:
    name, equals, path = given.partition("=")
    if not equals or Path(given).exists():
        name, path = Path(given).resolve().name, given
    if name == BASE or not _NAME.fullmatch(name):
        raise UserError(
            f"--adapters: {given}: {name!r} cannot be the name of its log folder"
            f"{', which is reserved for the base' if name == BASE else ''}; "
            f"choose another name: --adapters NAME={path}"
        )
    return Named(name, path)


def _checked(adapters: Sequence[Named], config: Any, arguments: dict[str, Any]) -> tuple[Path, int]:
    """Check everything that can be checked before the model is loaded.

    Returns:
        The folder for logs, and the adapters' highest rank.
    """
    if config.model not in _MODELS:
        raise UserError(
            f"--adapters: unsupported model {config.model!r}; expected --model hf or vllm"
        )
    for key in _NOT_BESIDE[_MODELS[config.model]]:
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
    out = Path(config.output_path)
    for name in (BASE, *(one.name for one in adapters)):
        if any((out / name).rglob("samples_*.jsonl")):
            raise UserError(f"{out / name}: already contains logs; choose another --output_path")
    ranks = []
    for one in adapters:
        ranks.append(check_adapter(one, arguments))
        trained_on = json.loads((Path(one.path) / "adapter_config.json").read_text("utf-8")).get(
            "base_model_name_or_path"
        )
        if trained_on and Path(trained_on).name != Path(arguments["pretrained"]).name:
            logger.warning(
                f"{one.path}: trained on {trained_on!r} according to its adapter_config.json; "
                f"applying it to {arguments['pretrained']!r}, whose layers have the same shapes"
            )
    return out, max(ranks)


def _is_zero(adapter: Named) -> bool:
    """Return whether every update of a LoRA adapter, and all its other weights, are zero."""
    from peft import load_peft_weights

    weights = load_peft_weights(adapter.path, device="cpu")
    zero = {name for name, weight in weights.items() if not weight.any()}
    # besides the update of an embedding, PEFT also saves the embedding itself
    own = {name for name in weights if ".base_layer." in name}
    return all(name in zero or _partner(name) in zero for name in weights.keys() - own)


def _partner(name: str) -> str:
    """Return the name of the other factor of a LoRA update."""
    other = {"A": "B", "B": "A"}
    return re.sub("(lora_(?:embedding_)?)([AB])", lambda found: found[1] + other[found[2]], name)
