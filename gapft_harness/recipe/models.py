"""Model names: a folder, a hub name, or ``bundled:demo`` for a policy that ships."""

from __future__ import annotations

from typing import Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.recipe.recipe import Recipe

_PREFIX = "bundled:"


def resolve_model(name: str) -> str:
    """Gives the folder of a bundled model; any other name comes back as it is.

    Raises:
        UserError: no such model is bundled.
    """
    if not name.startswith(_PREFIX):
        return name
    from gapft_harness.demo import code_policy_path, policy_path

    folders = {"demo": policy_path, "demo-code": code_policy_path}
    bundled = name.removeprefix(_PREFIX)
    if bundled not in folders:
        raise UserError(f"unknown bundled model {bundled!r}; {did_you_mean(bundled, folders)}")
    return str(folders[bundled]())


def model_args(recipe: Recipe) -> dict[str, Any]:
    """The recipe's model arguments with ``pretrained`` resolved."""
    return {**recipe.model.args, "pretrained": resolve_model(recipe.model.args["pretrained"])}


def sampler_settings(recipe: Recipe) -> SamplerSettings:
    """What the recipe says of generation, for the sampler."""
    return SamplerSettings(
        backend=recipe.model.backend,
        model_args=model_args(recipe),
        chat_template=recipe.model.chat_template,
        system_instruction=recipe.model.system_instruction,
        threads=recipe.executor.threads,
        start_tokens=recipe.model.start_tokens,
    )
