"""A finished run whose responses two rules judge otherwise, made by the real stages in seconds."""

from __future__ import annotations

from pathlib import Path

from tests.command import succeed
from tests.test_source_samples import prepare

#: How a response may say an option: the rule ``whole_response`` takes the first two alone.
FORMS = ("{}", "({})", "The answer is ({})", "It is ({}), not ({other})")

SAYS = '''

class Stated(Options):
    """Says options in several forms; what it says hangs on who, problem and number alone."""

    def _say(self, request, index):
        said = super()._say(request, index).text
        text = f"form {self._who} {index // 2} {request.problem_id}"
        form = FORMS[hashlib.sha256(text.encode()).digest()[0] % len(FORMS)]
        text = form.format(said, other="A") if said in "ABCD" else said
        return Generation(text, tuple(text.encode()), "stop")


@hookimpl
def register_samplers(register):
    register("options", Options)
    register("stated", Stated)
'''

RECIPE = """
name: stated
data: {{task: options}}
model: {{backend: stated, args: {{pretrained: none}}}}
search: {{k: 4, chunk: 20, stop: {stop}}}
evidence: {{keep: {keep}}}
verifier: {{name: option_letter, params: {{rule: {rule}}}}}
conditions: [gapft, uniform, all_verified]
seeds: [13, 21]
training: {{trainer: none, repetitions: 1}}
statistics: {{replicates: 50}}
"""


def finished(folder: Path, rule: str, stop: str = "never", keep: str = "shortest") -> Path:
    """The run directory of a run that ``option_letter`` judges by a rule."""
    prepare(folder)
    plugin = folder / "plugin.py"
    plugin.write_text(f"{plugin.read_text()}\nFORMS = {FORMS}\n{SAYS}")
    (folder / "recipe.yaml").write_text(RECIPE.format(rule=rule, stop=stop, keep=keep))
    given = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", "run")
    succeed("run", "recipe.yaml", *given, cwd=folder)
    return folder / "run"
