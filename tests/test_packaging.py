"""What is built from the tree: the files of both packages, the version in one place, and every import declared."""

import ast
import functools
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import glocal

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Where the name of the package differs from the name that is imported.
IMPORTED_AS = {"pillow": "PIL", "scikit-image": "skimage", "pillow-heif": "pillow_heif", "torch-geometric": "torch_geometric",
               "faiss-cpu": "faiss", "pywavelets": "pywt"}  # fmt: skip
NEVER_DECLARED = {"bm3d"}  # its licence is non-commercial; the benchmark uses it if somebody installed it


def declared(requirements):
    names = {re.match(r"[A-Za-z0-9_.-]+", text)[0].lower().replace("_", "-") for text in requirements}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


@functools.cache
def imported():
    """The names that src imports, with the files that import them at the top or inside a function."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module]
            for module in modules:
                found.setdefault(module.partition(".")[0], set()).add(path.relative_to(ROOT).as_posix())
    return {name: files for name, files in found.items() if name not in sys.stdlib_module_names and name != "glocal"}


def test_every_import_is_declared():
    extras = [text for texts in PROJECT["optional-dependencies"].values() for text in texts]
    unknown = set(imported()) - declared([*PROJECT["dependencies"], *extras]) - NEVER_DECLARED
    assert not unknown, unknown


def test_every_dependency_is_imported():
    assert declared(PROJECT["dependencies"]) <= set(imported())


@pytest.mark.parametrize("name", ["numba", "llvmlite"])
def test_the_installed_compiler_is_within_its_bounds(name):
    bounds = next(text for text in PROJECT["dependencies"] if text.startswith(name)).removeprefix(name)
    assert version(name) in SpecifierSet(bounds)


def test_no_heavy_library_comes_back():
    assert not {"sklearn", "ot", "pot", "scipy"} & declared(PROJECT["dependencies"])


def test_the_version_is_the_same_everywhere():
    assert f"version: {glocal.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {glocal.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert PROJECT["dynamic"] == ["version"]


def test_the_workflow_tests_every_python_that_is_promised():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"]
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert versions == named
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert f"python-{versions[0]}%20to%20{versions[-1]}-" in (ROOT / "README.md").read_text()
    assert set(jobs["install"]["strategy"]["matrix"]["package"]) == {"*.whl", "*.tar.gz"}
    for job in jobs.values():
        needs = job.get("needs", [])
        assert {needs} <= set(jobs) if isinstance(needs, str) else set(needs) <= set(jobs)
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


def build(folder):
    """Build the sdist, and the wheel from it, in a copy of the tree, so that nothing is left behind here.

    Large files are empty in the copy: which files are packed does not depend on it, and `make package` packs the real ones.
    """
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    else:  # the tests of an unpacked sdist
        made = {"__pycache__", ".venv", "out", "build", "dist"}
        files = [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*") if not made & set(p.parts)]
    for name in filter(None, files):
        if (ROOT / name).is_file():
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).stat().st_size > 500_000:
                (folder / "tree" / name).touch()
            else:
                (folder / "tree" / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "tree")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,), (sdist,) = (list((folder / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    return wheel, sdist


def test_wheel_and_sdist_are_built_whole(tmp_path):
    wheel, sdist = build(tmp_path)
    checked = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(checked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src" / "glocal").rglob("*.py")} <= names
    data = ("py.typed", "models/index.json", "samples/bridge.jpg", "samples/speech.wav", "paper/runs/image.json")
    assert {f"glocal/{name}" for name in (*data, "paper/page.html.j2")} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]
    assert any(name.endswith("licenses/NOTICE") for name in names)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {"conftest.py", "Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md"}
    assert top | {"tests/test_packaging.py", "docs/architecture.md", "src/glocal/samples/bridge.jpg"} <= names
    assert {"examples/demo.py", "benchmarks/table.py"} <= names
    for folder, pattern in (("tests", "*.py"), ("docs", "*.md"), ("src/glocal/samples", "*.jpg")):
        assert {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(pattern)} <= names
    assert "tests/files/written_by_0_1/grid.graph.safetensors" in names
