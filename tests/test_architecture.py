"""The arrows of the architecture page, as a test: every module imports only what lies below it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pymc_coresets

PACKAGE = Path(__file__).parents[1] / "pymc_coresets"
LAYERS = [
    "exceptions",
    "options",
    "display",
    "rows",
    "reading",
    "potentials",
    "diagnostics",
    "sampling",
    "solving",
    "methods",
    "glm",
    "progress",
    "advice",
    "construction",
    "storage",
    "coreset",
    "build",
    "pass_glm",
]
OUTSIDE = {"pymc", "pytensor", "arviz", "arviz_base", "arviz_stats", "arviz_plots", "xarray"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(name):
    parts = name.split(".")
    return LAYERS.index(parts[1]) if len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_downward(path):
    own = layer(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    if own is None:  # the package's face
        return
    above = [n for n in imported(path) if n.startswith("pymc_coresets.") and layer(n) > own]
    assert above == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "solving").glob("*.py")), ids=lambda p: p.stem)
def test_algorithms_need_numpy_and_scipy_only(path):
    assert OUTSIDE.isdisjoint(name.split(".")[0] for name in imported(path))


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "diagnostics").glob("*.py")), ids=lambda p: p.stem
)
def test_diagnostics_know_no_models(path):
    assert {"pymc", "pytensor"}.isdisjoint(name.split(".")[0] for name in imported(path))


def test_importing_the_package_does_not_load_pyplot():
    code = "import sys, pymc_coresets; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_exported_name_exists():
    assert len(pymc_coresets.__all__) <= 20
    assert all(getattr(pymc_coresets, name).__doc__ for name in pymc_coresets.__all__)
