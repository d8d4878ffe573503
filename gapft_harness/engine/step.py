"""A step: a pure function, and everything that its output depends on; and parts of outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.engine.outputs import Json, Output, Unknown

#: An output that a step reads, or several.
Input = Output | Unknown | Sequence[Output | Unknown]


@dataclass(frozen=True)
class Step:
    """Makes one file or folder of a run; of equal keys one is made.

    It is called as ``function(output, **inputs, **settings, **operational)`` in another process,
    with paths for ``output`` and ``inputs``, and returns facts (JSON values by name) or None. A
    function with a parameter ``progress`` gets a ``ReportProgress``.

    Attributes:
        name: the path of its output in the run; not in the key.
        function: a function at the top of a module.
        settings: JSON values from recipe and task.
        inputs: outputs that it reads, by argument; their contents are in the key.
        code: hashes of plugins' files, by component.
        machine: libraries, accelerators and numeric environment.
        operational: JSON values that do not affect the output, such as paths and threads.
        cheap: whether it is exact and quick: ``gapft verify`` makes it again and compares.
        together: steps with equal texts are made by one call, ``function(calls, progress)``, where
            each call has the arguments of one step. It yields the number of each finished call,
            from 0, with its facts. Not in the key.
        version: increase it when the output of unchanged inputs changes.
        verb: what it does, for progress; not in the key.
        own_process: whether its process must end with it; not in the key.
    """

    name: str
    function: Callable[..., object]
    settings: Mapping[str, Json] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)
    code: Mapping[str, Json] = field(default_factory=dict)
    machine: Mapping[str, Json] = field(default_factory=dict)
    operational: Mapping[str, Json] = field(default_factory=dict)
    cheap: bool = False
    together: str = ""
    version: int = 1
    verb: str = ""
    own_process: bool = False

    @cached_property
    def made_from(self) -> dict[str, Json]:
        """The content of its key, as it is read again from ``run.json``: a tuple is a list.

        Raises:
            NotKnownYet: an input does not exist yet.
        """
        content = {
            "function": self.function_name if self.is_bundled else self._short_name,
            "version": self.version,
            "settings": dict(self.settings),
            "inputs": {
                argument: [output.content for output in _list_outputs(given)]
                for argument, given in self.inputs.items()
            },
            "code": dict(self.code),
            "machine": dict(self.machine),
        }
        plain: dict[str, Json] = json.loads(json.dumps(content))
        return plain

    @cached_property
    def key(self) -> str:
        """The hash of ``made_from``."""
        return content_hash(self.made_from)

    @cached_property
    def place(self) -> str:
        """The folder of its output in a store, ``FUNCTION/KEY``."""
        return f"{self._short_name}/{self.key}"

    @property
    def call(self) -> str:
        """The name of the call that makes its output: its own, or that of steps made together."""
        return f"{self.function_name} {self.together}" if self.together else self.place

    @property
    def label(self) -> str:
        """Its name in progress reports and messages."""
        last = self.name.rpartition("/")[2]  # names of conditions may contain dots
        return f"{self.kind} {last.removesuffix('.parquet').removesuffix('.json')}"

    @property
    def kind(self) -> str:
        """What it does, as other steps of its kind."""
        return self.verb or self._short_name

    @property
    def function_name(self) -> str:
        """The function as ``module:name``."""
        function: Any = self.function
        return f"{function.__module__}:{function.__qualname__}"

    @property
    def _short_name(self) -> str:
        return self.function_name.rpartition(":")[2]

    def list_paths(self) -> dict[str, Any]:
        """Return the paths of its inputs, by argument.

        Raises:
            NotKnownYet: an input does not exist yet.
        """
        return {
            argument: [str(output.path) for output in given]
            if isinstance(given, Sequence)
            else str(given.path)
            for argument, given in self.inputs.items()
        }

    @property
    def is_bundled(self) -> bool:
        """Whether the function is this package's; a plugin's is known by the hash of its code."""
        return self.function_name.startswith("gapft_harness.")


@dataclass(frozen=True)
class Part:
    """A part of an output, which is stored alone so that other outputs share it.

    Attributes:
        step: what all parts of its kind have in common.
        settings: JSON values that tell which part it is.
    """

    step: Step
    settings: Mapping[str, Json]

    @property
    def made_from(self) -> dict[str, Json]:
        """The content of its key."""
        return {**self.step.made_from, "part": dict(self.settings)}

    @cached_property
    def place(self) -> str:
        """The folder of its output in a store, ``FUNCTION/KEY OF STEP/KEY``."""
        return f"{self.step.place}/{content_hash(self.made_from)}"


def _list_outputs(given: Input) -> Iterator[Output | Unknown]:
    if isinstance(given, Sequence):
        yield from given
    else:
        yield given
