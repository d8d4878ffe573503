"""What a user has after `pip install`: tried in a separate environment outside the source tree.

The environment uses this one's packages through a path file, so nothing is downloaded. That path's
own .pth files are not run, so an editable install of this tree has no effect.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.end_to_end.readme import read_blocks

ROOT = Path(__file__).parents[2]
HELLO = ("--model", "dummy", "--limit", "2")
SMALL = {"PYTHONPATH": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def run_outside(command, cwd, **environment):
    """Run a command outside the source tree; return its result with output as text."""
    variables = {**os.environ, **SMALL, **environment}
    variables.pop("GAPFT_DATA_DIR", None)
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def read_output(result) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def workdir(tmp_path_factory) -> Path:
    """Create a working directory outside the source tree."""
    return tmp_path_factory.mktemp("workdir")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, workdir) -> Path:
    """Build the wheel from the sdist, as for a release."""
    out = tmp_path_factory.mktemp("dist")
    hatch = [sys.executable, "-m", "hatchling", "build"]
    read_output(run_outside([*hatch, "-t", "sdist", "-d", out], ROOT))
    (archive,) = out.glob("*.tar.gz")
    (out / "source").mkdir()
    read_output(
        run_outside(["tar", "-xzf", archive, "-C", out / "source"], ROOT)
    )  # 3.11.2 has no safe unpacking
    (source,) = (out / "source").iterdir()
    read_output(run_outside([*hatch, "-t", "wheel", "-d", out], source))
    (built,) = out.glob("*.whl")
    return built


def list_files(package: Path) -> set[str]:
    """List a package's files by their names in a wheel; follow links and skip caches."""
    files: set[str] = set()
    for folder, _, names in os.walk(package, followlinks=True):
        if Path(folder).name != "__pycache__":
            files |= {str((Path(folder) / name).relative_to(package.parent)) for name in names}
    return files


def test_wheel_and_sdist_are_complete(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    pth = "gapft_harness_autoload.pth"
    assert files == list_files(ROOT / "gapft_harness") - {f"gapft_harness/{pth}"} | {pth}
    assert {
        "gapft_harness/demo/policy/model.safetensors",
        "gapft_harness/demo/code_policy/model.safetensors",
        "gapft_harness/plugins/selectors/evidence_states.py",
        "gapft_harness/recipes/demo.yaml",
        "gapft_harness/presentation/templates/page.html.j2",
        "gapft_harness/tasks/demo/pool.jsonl",
    } <= files
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    generators = list_files(ROOT / "demo_policies")
    assert generators
    assert generators <= names


class Environment:
    """A clean environment with access to this one's packages."""

    def __init__(self, folder: Path, workdir: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        self.workdir = workdir
        (self.site,) = folder.glob("lib/python*/site-packages")
        borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (self.site / "borrowed.pth").write_text("\n".join(sorted(borrowed)), encoding="utf-8")
        self.before = self.files()

    def files(self) -> set[str]:
        paths = (path.relative_to(self.site) for path in self.site.rglob("*"))
        return {str(path) for path in paths if "__pycache__" not in path.parts}

    def run(self, *arguments, **environment) -> str:
        """Run the environment's Python outside the source tree; return its output."""
        return read_output(run_outside([self.python, *arguments], self.workdir, **environment))

    def pip(self, *arguments) -> None:
        command = [sys.executable, "-m", "pip", "--quiet", "--python", self.python, *arguments]
        read_output(run_outside(command, self.workdir))

    def lm_eval(self, *arguments, **environment) -> str:
        return self.run("-m", "lm_eval", *arguments, **environment)


def install(wheel: Path, folder: Path, workdir: Path) -> Environment:
    """Create an environment with the wheel installed."""
    environment = Environment(folder, workdir)
    environment.pip("install", "--no-deps", "--no-index", wheel)
    return environment


@pytest.fixture(scope="module")
def installation(tmp_path_factory, workdir, wheel) -> Environment:
    """The installed wheel; no test changes it."""
    return install(wheel, tmp_path_factory.mktemp("wheel-env") / "env", workdir)


def test_stock_command_finds_tasks(installation):
    table = installation.lm_eval(*HELLO, "--tasks", "gapft_demo,gapft_demo_passk")
    assert "gapft_demo_passk" in table
    assert "pass@8" in table


def test_demo_runs_from_wheel(installation):
    small = ("data.pool_limit=60", "data.audit_limit=40", "search.k=4", "training.repetitions=1")
    settings = [part for setting in small for part in ("--set", setting)]
    command = ("-m", "gapft_harness.cli.main", "run", "demo", "--condition", "gapft")
    text = installation.run(*command, "--seed", "13", *settings)
    assert "report: runs/demo/report/index.html" in text
    assert (installation.workdir / "runs/demo/report/index.html").is_file()


def test_hook_can_be_disabled(installation):
    module = "gapft_harness.lm_eval_bridge.task_file.code_files"
    code = f"from {module} import tasks_path; print(tasks_path())"
    folder = Path(installation.run("-c", code).strip())
    assert installation.site in folder.parents
    flags = (*HELLO, "--tasks", "gapft_demo", "--include_path", folder)
    assert "pass@1" in installation.lm_eval(*flags, GAPFT_NO_AUTOLOAD="1")
    code = "import lm_eval.tasks as t; print(hasattr(t.TaskManager.__init__, '__wrapped__'))"
    for switch, extended in (("1", "False"), ("", "True")):
        assert installation.run("-c", code, GAPFT_NO_AUTOLOAD=switch).strip() == extended


def test_startup_imports_no_module(installation):
    code = "import sys; print([m for m in sys.modules if 'gapft' in m or m == 'pluggy'])"
    assert installation.run("-c", code).strip() == "[]"


@pytest.mark.thorough
def test_editable_install_and_uninstall(wheel, tmp_path, workdir):
    installation = install(wheel, tmp_path / "env", workdir)
    installation.pip("uninstall", "--yes", "gapft-harness")
    assert installation.files() == installation.before
    installation.pip(
        *("install", "--no-deps", "--no-index", "--no-build-isolation", "--editable", ROOT)
    )
    assert "pass@1" in installation.lm_eval(*HELLO, "--tasks", "gapft_demo")
    installation.pip("uninstall", "--yes", "gapft-harness")
    assert installation.files() == installation.before
    start = run_outside([installation.python, "-c", "print('fine')"], installation.workdir)
    assert (read_output(start).strip(), start.stderr) == ("fine", "")


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """Copy the source tree without generated files."""
    ignored = re.findall(r"^(\S+?)/?$", (ROOT / ".gitignore").read_text(), re.M)
    folder = tmp_path_factory.mktemp("clone") / "gapft-harness"
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(".git", *ignored))
    return folder


def test_documented_installation_works(clone, tmp_path):
    """Run README's commands in a clone and those of docs/machines.md with a wheel, offline.

    The new environment finds this one's packages through PYTHONPATH, and variables make pip use no
    index, neither for our package nor for its build tools.
    """
    (by_hand,) = (b.text for b in read_blocks(ROOT / "README.md") if "-m venv" in b.text)
    (from_a_wheel,) = (b.text for b in read_blocks(ROOT / "docs/machines.md") if ".whl" in b.text)
    print_paths = (
        "(cd / && python -c 'import gapft_harness as g; print(g.__file__)')\ncommand -v gapft\n"
    )
    (tmp_path / "python3").symlink_to(sys.executable)
    wheel = from_a_wheel.replace("-m build", "-m build --no-isolation")
    script = f"{by_hand}{print_paths}pip uninstall --yes gapft-harness\n{wheel}{print_paths}"
    output = read_output(
        run_outside(
            ["bash", "-euo", "pipefail", "-c", f"{script}gapft --version"],
            clone,
            PYTHONPATH=sysconfig.get_path("purelib"),
            # only pip of the new environment: a README without the activation must not install
            # into the environment that runs the tests
            PATH=f"{tmp_path}{os.pathsep}{os.defpath}",
            PIP_REQUIRE_VIRTUALENV="1",
            PIP_NO_INDEX="1",
            PIP_NO_BUILD_ISOLATION="0",  # pip reads 0 as no isolation
            PIP_NO_DEPS="1",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
        )
    )
    environment = (clone / ".venv").resolve()
    assert output.count(f"\n{environment}/bin/gapft\n") == 2, output
    imported = re.findall(r"^/.*/gapft_harness/__init__.py$", output, re.M)
    assert [Path(path).is_relative_to(environment) for path in imported] == [True, True]
    (version,) = re.findall(r"^gapft-harness (\S+)$", output, re.M)
    assert [path.name.split("-")[1] for path in (clone / "dist").glob("*.whl")] == [version]


def test_readme_activates_environment_of_make_demo(clone):
    """``make demo`` installs the command in ``.venv``, and README then activates it."""
    (first,) = [b.text for b in read_blocks(ROOT / "README.md") if b.text.startswith("make demo\n")]
    assert first.splitlines()[1:] == [". .venv/bin/activate"]
    makefile = (ROOT / "Makefile").read_text()
    assert "VENV ?= .venv\n" in makefile
    assert "demo: $(VENV)/installed\n\t$(BIN)/gapft run demo\n" in makefile
