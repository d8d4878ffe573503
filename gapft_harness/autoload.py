"""Make the stock ``lm_eval`` find the tasks of installed packages.

``gapft_harness_autoload.pth`` runs this file at every start of Python, before any import, so this
file imports almost nothing and only installs an import hook. When ``lm_eval.tasks`` is imported,
its TaskManager gets the folders of the entry-point group ``lm_eval.tasks``. Support for this group
is under review; if lm-eval reads it itself, this file does nothing. ``GAPFT_NO_AUTOLOAD=1``
disables it, ``pip uninstall`` removes it. The stock command runs code tasks in our sandbox only
with ``GAPFT_CODE_EVAL=1``.
"""

import os
import sys

TYPE_CHECKING = False  # Importing typing (or __future__) would take longer than this whole file.
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

GROUP = "lm_eval.tasks"
_MODULE = "lm_eval.tasks"


class _Hook:
    """An import hook for one module, removed when that module is imported."""

    def __init__(self, name: str, function: "Callable[[ModuleType], object]") -> None:
        self.name = name
        self.function = function

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        """Find the module as Python would, and call the function after its import."""
        if name != self.name:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: "ModuleType") -> None:
                run(module)  # if it fails, the hook stays for the next import
                sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
                self.function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def call_after_import(name: str, function: "Callable[[ModuleType], object]") -> None:
    """Call a function with a module when it has been imported; at once if it is imported already.

    Args:
        name: the module's full name.
        function: called with the module.
    """
    if name in sys.modules:
        function(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Hook(name, function))


def _extend_or_warn(module: "ModuleType") -> None:
    """Extend the TaskManager; warn about a failure, but let lm_eval continue."""
    try:
        extend_task_manager(module)
    except Exception as error:
        _warn(f"the tasks of installed packages are not available by name ({error!r})")
    if os.environ.get("GAPFT_CODE_EVAL") == "1":  # a failure raises: running unsafely is no option
        from importlib import import_module

        import_module("gapft_harness.lm_eval_bridge.code_eval").install_code_eval()


def extend_task_manager(module: "ModuleType") -> None:
    """Make ``module.TaskManager`` include the folders of the entry-point group.

    They come before the user's own ``include_path``, which still overrides them, and are omitted
    if the caller excludes lm-eval's own tasks (``include_defaults=False``).
    """
    import functools
    import inspect

    manager = module.TaskManager
    modules = (module, sys.modules.get(manager.__module__))
    if any(hasattr(place, "discover_plugin_task_paths") for place in modules):
        return
    construct = manager.__init__
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def __init__(*args: "Any", **kwargs: "Any") -> None:
        bound = signature.bind(*args, **kwargs)
        if bound.arguments.get("include_defaults", True):
            include_path = bound.arguments.get("include_path")
            user_paths = [] if include_path is None else include_path
            user_paths = (
                [user_paths] if isinstance(user_paths, (str, os.PathLike)) else list(user_paths)
            )
            real_paths = {os.path.realpath(path) for path in user_paths}
            folders = [path for path in find_task_folders() if path not in real_paths]
            bound.arguments["include_path"] = [*folders, *user_paths]
        construct(*bound.args, **bound.kwargs)

    manager.__init__ = __init__


def find_task_folders() -> list[str]:
    """Find the folders that installed packages offer as lm-eval tasks, symbolic links resolved.

    If a package cannot be found, a warning names it, and the others are used.
    """
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    paths = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            spec = find_spec(point.value)
            folders = list(spec.submodule_search_locations or ()) if spec else []
            if not folders:
                raise ModuleNotFoundError(f"no package named {point.value!r}")
        except Exception as error:
            package = point.dist.name if point.dist else point.name
            _warn(f"the tasks of the package {package} are not available ({error!r})")
        else:
            paths += [os.path.realpath(folder) for folder in folders]
    return list(dict.fromkeys(paths))


def _warn(message: str) -> None:
    import warnings

    warnings.warn(f"gapft-harness: {message}", RuntimeWarning, stacklevel=2)


def install() -> None:
    """Install the import hook for ``lm_eval.tasks``, unless ``GAPFT_NO_AUTOLOAD=1``."""
    if os.environ.get("GAPFT_NO_AUTOLOAD") != "1":
        sys.meta_path.insert(0, _Hook(_MODULE, _extend_or_warn))
