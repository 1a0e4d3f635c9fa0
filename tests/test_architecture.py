"""The table of rooms in the architecture page, as a test: what each room imports, and reaches."""

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pymc_coresets
from pymc_coresets import exceptions
from pymc_coresets.request import known_methods
from pymc_coresets.sampling.weighting import WEIGHTINGS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pymc_coresets"
MOST_MODULES = 14
TABLE = re.findall(
    r"^\| `(\w+)` \| .* \| (.*?) ?\|$",
    (ROOT / "docs/architecture.md").read_text(),
    flags=re.MULTILINE,
)
ROOMS = [room for room, _ in TABLE]  # from the top down
REACHABLE = {
    room: None if names == "any" else set(filter(None, names.split(", "))) for room, names in TABLE
}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
del MODULES["pymc_coresets"]  # the package's face


@cache
def imported(name):
    """Names of modules that a module imports anywhere in it, and of their packages."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    packages = {".".join(n.split(".")[:i]) for n in found for i in range(2, n.count(".") + 1)}
    return {n for n in found | packages if not n.startswith("pymc_coresets") or n in MODULES}


def room_of(name):
    return name.split(".")[1]


@cache
def reached(name):
    """Packages that are loaded by a module, by the modules that it imports, and so on."""
    seen, stack, packages = set(), [name], set()
    while stack:
        if (module := stack.pop()) in seen:
            continue
        seen.add(module)
        for other in imported(module):
            if other.startswith("pymc_coresets."):
                stack.append(other)
            else:
                packages.add(other.split(".")[0])
    return packages - set(sys.stdlib_module_names) - {"pymc_coresets"}


def test_every_room_is_in_the_table():
    assert {room_of(name) for name in MODULES} == set(ROOMS)


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_downward(name):
    own = ROOMS.index(room_of(name))
    above = [
        other
        for other in imported(name)
        if other.startswith("pymc_coresets.") and ROOMS.index(room_of(other)) < own
    ]
    assert above == []


def test_no_modules_import_one_another_in_a_circle():
    named = {
        name: [n for n in imported(name) & MODULES.keys() if not name.startswith(n)]
        for name in MODULES
    }
    assert sum(map(len, named.values())) > len(MODULES)
    assert {*TopologicalSorter(named).static_order()} == MODULES.keys()


@pytest.mark.parametrize("name", [n for n in MODULES if REACHABLE[room_of(n)] is not None])
def test_only_the_packages_of_the_table_are_reached(name):
    assert reached(name) <= REACHABLE[room_of(name)]


def test_loops_know_nothing_of_coresets():
    used = {
        room_of(n)
        for name in MODULES
        if room_of(name) == "loops"
        for n in imported(name) & MODULES.keys()
    }
    assert used == {"loops", "compat"}


@pytest.mark.parametrize("name", [n for n in MODULES if not n.endswith("_api")])
def test_private_interfaces_are_used_in_one_place(name):
    public = {
        "pymc",
        "numba",
        *(f"pytensor{part}" for part in ("", ".graph", ".scalar", ".tensor")),
    }
    libraries = {"pymc", "pytensor", "nutpie", "numba", "llvmlite"}
    nodes = list(ast.walk(ast.parse(MODULES[name].read_text())))
    whole = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    used = whole | {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {module for module in used if module.split(".")[0] in libraries} <= public
    assert not any(n.startswith(("arviz_stats.base", "arviz_base")) for n in imported(name))


@pytest.mark.parametrize("name", MODULES)
def test_names_with_an_underscore_stay_in_their_module(name):
    """So a name says by itself whether others use it, and no module lists its own."""
    tree = ast.parse(MODULES[name].read_text())
    taken = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pymc_coresets")
        for alias in node.names
    }
    assert {private for private in taken if private.startswith("_")} == set()


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_where_the_package_is_installed(name):
    """What is beside it in the repository is not installed."""
    beside = r"(?:from|import) (?:benchmarks|tests|docs|examples)\b"
    assert not re.findall(beside, MODULES[name].read_text())


def test_rooms_are_small_and_say_what_belongs_in_them():
    for folder in (path for path in PACKAGE.rglob("*") if (path / "__init__.py").is_file()):
        assert len(list(folder.glob("*.py"))) - 1 <= MOST_MODULES
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
        assert "may import" in " ".join(docstring.split()).lower()


def test_no_module_has_the_name_of_a_function_beside_it():
    for folder in {path.parent for path in MODULES.values()}:
        functions = {
            node.name
            for path in folder.glob("*.py")
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        assert functions & {path.stem for path in folder.glob("*.py")} == set()


def test_classes_have_parents_but_no_grandparents():
    """Of ours: what is common to several classes is a function, or a value that they have."""
    parents = {
        node.name: {getattr(getattr(b, "value", b), "id", "") for b in node.bases}
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and path.stem != "exceptions"
    }
    children = {name for name, bases in parents.items() if bases & parents.keys()}
    assert children
    assert {name for name, bases in parents.items() if bases & children} == set()


def test_importing_the_package_loads_what_pymc_loads_and_only_plots_load_pyplot():
    code = (
        "import sys, pymc\n"
        "before = set(sys.modules)\n"
        "import pymc_coresets\n"
        "print({n for n in set(sys.modules) - before if not n.startswith('pymc_coresets')})\n"
        "names = [n for n in pymc_coresets.__all__ if not n.startswith('plot_')]\n"
        "assert all(getattr(pymc_coresets, name) for name in names)\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # ArviZ loads the first for its own names.
    assert done.stdout.split("\n")[:2] == ["{'lazy_loader'}", "False"]


def test_names_are_loaded_when_they_are_used():
    assert set(pymc_coresets.__all__) <= set(dir(pymc_coresets))
    with pytest.raises(AttributeError, match="build_corset"):
        _ = pymc_coresets.build_corset


def test_every_exported_name_exists_and_is_documented_with_an_example():
    for name in pymc_coresets.__all__:
        exported = getattr(pymc_coresets, name)
        assert ">>> " in inspect.getdoc(exported), name


def test_every_error_and_every_option_object_is_exported():
    errors = {
        n
        for n, c in vars(exceptions).items()
        if getattr(c, "__module__", "") == exceptions.__name__ and inspect.isclass(c)
    }
    methods = {method.__name__ for method in known_methods().values()}
    weightings = {weighting.__name__ for weighting in WEIGHTINGS.values()}
    assert errors | methods | weightings <= set(pymc_coresets.__all__)
