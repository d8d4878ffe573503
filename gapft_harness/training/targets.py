"""The modules of a base that an adapter changes, counted by name and layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: The first number in a module's path is that of its layer.
_LAYER = re.compile(r"\.(\d+)\.")


@dataclass(frozen=True)
class AdaptedModules:
    """The modules that match ``training.target_modules``.

    Attributes:
        counts: by name, the number of modules in each layer; those outside layers are in layer -1.
        layers: the layers of the base.
        frozen_experts: the layers with experts none of which has an adapted module.
    """

    counts: dict[str, Counter[int]]
    layers: frozenset[int]
    frozen_experts: tuple[int, ...]

    def __str__(self) -> str:
        """Describe the modules; names with the same numbers share a part."""
        names_by_text: dict[str, list[str]] = {}
        for name, counts in self.counts.items():
            names_by_text.setdefault(self._describe_layers(counts), []).append(name)
        return "; ".join(f"{', '.join(names)}: {text}" for text, names in names_by_text.items())

    def list_warnings(self) -> Iterator[str]:
        """Yield a sentence for a name whose numbers differ between layers, and for experts."""
        for name, counts in self.counts.items():
            in_layers = {layer: number for layer, number in counts.items() if layer >= 0}
            if in_layers and (in_layers.keys() != self.layers or len({*in_layers.values()}) > 1):
                yield (
                    f"training.target_modules: {name} is not the same in all {len(self.layers)} "
                    f"layers: {self._describe_layers(counts)}"
                )
        if self.frozen_experts:
            yield (
                "training.target_modules: the experts of the mixture stay frozen in "
                f"{len(self.frozen_experts)} of {len(self.layers)} layers: no adapted module is "
                "among them"
            )

    def _describe_layers(self, counts: Counter[int]) -> str:
        layers_by_count: dict[int, list[int]] = {}
        for layer, count in sorted(counts.items()):
            if layer >= 0:
                layers_by_count.setdefault(count, []).append(layer)
        parts = [
            f"{count} in each of {len(layers)} layers"
            if {*layers} == self.layers
            else f"{count} in layers {_format_ranges(layers)}"
            for count, layers in layers_by_count.items()
        ]
        return ", ".join([*parts, *([f"{counts[-1]} outside layers"] if counts[-1] else [])])


def find_adapted_modules(model: Any, names: Iterable[str]) -> AdaptedModules:
    """Find the modules that an adapter changes.

    Args:
        model: the base, which may be on the meta device (``build_meta_model``).
        names: ``training.target_modules``.
    """
    counts = {name: Counter[int]() for name in names}
    layers = set[int]()
    adapted_experts = set[int]()
    experts = set[int]()
    for path, module in model.named_modules():
        match = _LAYER.search(f"{path}.")
        layer = int(match[1]) if match else -1
        *parents, name = path.split(".")
        if layer >= 0:
            layers.add(layer)
        if name == "experts" and any(True for _ in module.parameters()):
            experts.add(layer)
        if name in counts:
            counts[name][layer] += 1
            if "experts" in parents:
                adapted_experts.add(layer)
    return AdaptedModules(counts, frozenset(layers), tuple(sorted(experts - adapted_experts)))


def _format_ranges(layers: Sequence[int]) -> str:
    """Format increasing numbers: ``0–3, 6``."""
    ranges: list[list[int]] = []
    for layer in layers:
        if ranges and layer == ranges[-1][-1] + 1:
            ranges[-1].append(layer)
        else:
            ranges.append([layer])
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges)
