"""Cards of datasets and models: their common parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering import markdown
from gapft_harness.report.rendering.blocks import Block, Section, Table, Text
from gapft_harness.report.sections.provenance import SETTINGS, flatten
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import list_plugin_files

if TYPE_CHECKING:
    from huggingface_hub import CardData

#: Facts on the source model and the task in a card; none of them is a path.
_SOURCE = ("revision", "weights_sha256", "dtype")
_TASK = ("name", "version", "fingerprint", "verifier", "verifier_params", "decoding")


def build_card(data: CardData, title: str, sections: Sequence[Section]) -> str:
    """Build a card's README.md: metadata for the hub, then text for people."""
    return f"---\n{data.to_yaml()}\n---\n\n{markdown.render_markdown(title, '', sections)}"


def find_model_name(recipe: Recipe) -> str:
    """Return the source model's name in the recipe; for a folder only the last part of its path."""
    args = recipe.model.args
    name = str(args.get("pretrained") or args.get("model") or recipe.model.backend)
    return Path(name).name if Path(name).is_absolute() else name


def find_hub_name(recipe: Recipe) -> str | None:
    """Return the source model's name on the hub; None for a folder or an invalid name."""
    name = str(recipe.model.args.get("pretrained", ""))
    return name if is_hub_id(name) else None


def is_hub_id(name: str) -> bool:
    """Return whether this is a valid name for a repository on the hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def describe_search(run: RunDirectory) -> list[Block]:
    """Describe model, search, task and verifier, with the warnings of the run's stages."""
    manifest = run.manifest()
    facts: dict[str, Any] = {
        "gapft_harness": manifest["gapft_harness"],
        "model": {"name": find_model_name(run.recipe), **_select_keys(manifest["source"], _SOURCE)},
        "search": run.recipe.search.model_dump(mode="json"),
        "task": _select_keys(manifest["task"], _TASK),
    }
    table = Frame(SETTINGS, [*flatten(facts)]).table(words=2)
    plugin_notes = [
        Text(
            f"The run used the plugin file {Path(file).name} (sha256 {digest}); gapft run and "
            f"gapft verify need it: --plugin {Path(file).name}."
        )
        for file, digest in list_plugin_files(manifest).items()
    ]
    return [
        table,
        *plugin_notes,
        *(Text(warning, "warning") for warning in manifest["warnings"]),
    ]


def _select_keys(values: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def build_hash_table(run: RunDirectory, places: Iterable[str]) -> Table:
    """Build the table of the hashes of sealed files and folders in the run's manifest."""
    files = run.manifest()["files"]
    return Frame(SEALS, [(place, files[place]) for place in places]).table(words=2)


_SEALED = "sealed files"
SEALS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _SEALED, lambda row: row[0], "file"),
    Column("", _SEALED, lambda row: row[1], "sha256"),
)
