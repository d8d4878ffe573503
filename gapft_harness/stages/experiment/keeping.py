"""What an experiment made is of one code and one recipe: other settings make it anew."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.recording import recorder
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.protocol import Experiment

#: The section of the manifest: by name the settings and the code that an experiment was run with.
SECTION: Final = "experiments"


def keep(context: Context, experiment: Experiment) -> None:
    """Sees to it, before an experiment makes anything, that what it made before belongs with that.

    What other settings made is taken away and made anew. Another code stops the run, unless what
    it made is gone. The code is that of the experiment's methods and jobs; what only looks at what
    they made (``hooks.code.LOOKS``) may change.

    Raises:
        UserError: its code was changed, and what it made before is there.
    """
    run, name = context.run, experiment.name
    if experiment.renews:
        return
    settings: BaseModel = experiment.settings(run.recipe)
    code = context.plugins.code("experiment", name) or ""
    now = {"settings": settings.model_dump(mode="json"), "code": code}
    manifest = run.manifest()
    before = manifest.get(SECTION, {}).get(name, now)
    if before != now:
        made = _made(context, experiment)
        there = [file for file in made if (run.path / file).exists()]
        if there and before["settings"] == now["settings"]:
            raise UserError(
                f"{run.path}: the experiment {name!r} was changed since it made {there[0]}"
                + (f" and {len(there) - 1} more" if there[1:] else "")
                + f" (code {code[:12]} now, {before['code'][:12]} then); restore it, and the same "
                "command goes on; or remove these files, and it makes them anew"
            )
        if there:
            context.say(f"{name}: made anew, for its settings are others than they were")
        run.unseal(made)
    run.update_manifest(recorder(SECTION, name, now))


def _made(context: Context, experiment: Experiment) -> list[str]:
    """What it sealed, or was about to seal, for any arm that is trained or wanted."""
    run = context.run
    arms = dict.fromkeys([*run.trained_arms(), *context.arms()])
    files = [table.file for arm in arms for table in experiment.answered(run, arm)]
    if experiment.folder:
        files += [experiment.file(arm) for arm in arms]
    sealed = run.manifest()["files"]
    return [file for file in files if file in sealed or (run.path / file).exists()]
