"""Jobs: what stages give an executor to do. A function, its arguments, and a label for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, Protocol

from gapft_harness.core.errors import PluginError

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work. Made with ``Job.of``, so that types see the function's arguments.

    Attributes:
        label: what people see.
        function: ``module:name``, by which a worker's process finds it.
        arguments: what it is called with, JSON values.
        own_process: no process that did this job is there any more when ``Executor.run`` returns.
    """

    label: str
    function: str
    arguments: Mapping[str, Any]
    own_process: bool = False

    @classmethod
    def of(
        cls,
        label: str,
        function: Callable[P, dict[str, Any]],
        /,
        *positional: P.args,
        **arguments: P.kwargs,
    ) -> Job:
        """A call of a function that stands at the top of a module, its arguments by name.

        The function may be a ``partial`` with some of them. The worker adds ``progress`` (a
        ``ReportProgress``). A module given by ``--plugin`` is found where ``plugin_files`` is among
        the arguments.

        Raises:
            PluginError: another process cannot find the function by its name.
            TypeError: an argument is given without its name.
        """
        if positional:
            raise TypeError(f"job {label!r}: expected all arguments by name, found {positional}")
        called: Any = function
        given: Mapping[str, Any] = arguments
        if isinstance(function, partial):
            called, given = function.func, {**function.keywords, **arguments}
        module, name = called.__module__, called.__qualname__
        if module == "__main__" or not name.isidentifier():
            raise PluginError(
                f"job {label!r}: no other process finds the function {module}.{name}; expected one "
                "at the top of a module that can be imported"
            )
        return cls(label, f"{module}:{name}", given)


#: Called with a job's label, how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]

#: A job's own: called with (done, total).
ReportProgress = Callable[[int, int], None]


class Executor(Protocol):
    """Runs jobs, each in a process of its own kind, and returns their results in order."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Runs all jobs. The first failure stops the rest and is raised."""
        ...

    def close(self) -> None:
        """Stops the workers."""
        ...
