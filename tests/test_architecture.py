"""What the rooms of the package may import, and what is left without some of them."""

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pymc_coresets
from pymc_coresets import exceptions
from pymc_coresets.optional import has_room
from pymc_coresets.request import known_methods
from pymc_coresets.sampling.weighting import WEIGHTINGS

# -- The table of rooms in the architecture page, as a test: what each room imports, and reaches. --

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


# -- The package without the rooms on top: it builds, samples and checks, and says what is missing.

OPTIONAL = {"papers", "growth", "after"}

#: No loops are compiled: that takes longer than all of the program.
BY_NUMPY = """
from pymc_coresets.loops import fused_loops
mode = fused_loops.loop_mode
fused_loops.loop_mode = lambda n_given=0, **_: mode(n_given, compiled=False)
"""

README = """
n_observations = len(clicked)
coreset = pmc.build_coreset(model, random_seed=1, progressbar=False)
idata = coreset.sample(random_seed=2, progressbar=False)
check = coreset.check(idata)
assert coreset.n_observations == n_observations and coreset.size < n_observations / 10
assert check.reliable and abs(idata.posterior["slopes"].mean(("chain", "draw"))[0] - 1) < 0.15
print("README", repr(coreset), coreset.report())
"""

HIERARCHY = """
user = np.repeat(np.arange(200), 3)
effects = rng.normal(size=200)
x = rng.normal(size=len(user))
y = rng.normal(0.5 * x + effects[user], 1.0)
with pm.Model(coords={"user": np.arange(200)}) as model:
    sd = pm.HalfNormal("sd", 1)
    slope = pm.Normal("slope", 0, 1)
    effect = pm.Normal("effect", 0, sd, dims="user")
    pm.Normal("y", slope * x + effect[user], 1.0, observed=y)
    coreset = pmc.build_coreset(integrate="effect", random_seed=1, progressbar=False)
idata = coreset.sample(random_seed=2, progressbar=False)
assert coreset.n_observations == 200 and coreset.size < 200
assert coreset.check(idata).reliable and abs(idata.posterior["sd"].mean() - 1) < 0.25
assert coreset.recover(idata, random_seed=1, progressbar=False)["effect"].sizes["user"] == 200
print("hierarchy", coreset.size)
"""

PARQUET = """
import pyarrow as pa, pyarrow.parquet as pq
z = rng.normal(1.0, size=6_000)
pq.write_table(pa.table({"z": z}), "rows.parquet", row_group_size=1_500)
with pm.Model() as model:
    data = pm.Data("z", z[:100])
    pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=data)
    coreset = pmc.build_coreset(
        rows=pmc.open_rows("rows.parquet"), random_seed=1, progressbar=False
    )
idata = coreset.sample(random_seed=2, progressbar=False)
assert coreset.n_observations == 6_000 and coreset.size < 200
assert coreset.check(idata).reliable
assert abs(idata.posterior["mu"].mean() - z.mean()) < 0.2 / len(z) ** 0.5
coreset.to_netcdf("coreset.nc")
assert pmc.Coreset.from_netcdf("coreset.nc", model).size == coreset.size
print("Parquet", coreset.size)
"""

MISSING = """
def said(call):
    try:
        call()
    except Exception as error:
        print(type(error).__name__ + ":", error)
    else:
        raise AssertionError("it worked")

said(lambda: coreset.loo(idata))
said(lambda: coreset.predict(idata))
said(lambda: coreset.summary())
said(lambda: coreset.extend(model))
said(lambda: coreset.with_model(model))
said(lambda: pmc.build_coreset(model, method="giga"))
said(lambda: pmc.GIGA)
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> str:
    """What a program prints that uses a copy of the package without these rooms."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(
        ROOT / "pymc_coresets",
        folder / "pymc_coresets",
        ignore=lambda path, names: OPTIONAL if Path(path).name == "pymc_coresets" else set(),
    )
    readme = re.search(r"```python\n(.*?)with model:", (ROOT / "README.md").read_text(), re.DOTALL)
    example = readme[1].replace("200_000", "6_000")  # few enough to compile no loops
    assert example != readme[1]
    program = folder / "program.py"
    program.write_text("\n".join([BY_NUMPY, example, README, HIERARCHY, PARQUET, MISSING]))
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("part", ["README", "hierarchy", "Parquet"])
def test_the_rest_builds_samples_and_checks(output, part):
    assert re.search(rf"^{part}\b", output, re.MULTILINE)


@pytest.mark.parametrize(
    ("user", "room"),
    [
        ("loo()", "after"),
        ("predict()", "after"),
        ("summary()", "after"),
        ("extend()", "growth"),
        ("with_model()", "growth"),
    ],
)
def test_one_sentence_says_what_is_missing(output, user, room):
    sentence = f"{user} needs pymc_coresets.{room}, which is missing from this installation"
    assert f"CoresetError: {sentence}: install all of pymc-coresets." in output


def test_methods_of_papers_are_unknown_without_them(output):
    assert "InvalidOptionError: method='giga' is unknown: use one of ['auto'," in output
    assert "ModuleNotFoundError: No module named 'pymc_coresets.papers'" in output


def test_the_empty_folder_of_a_room_is_none(tmp_path, monkeypatch):
    (tmp_path / "attic" / "__pycache__").mkdir(parents=True)  # as after another version
    monkeypatch.setattr(pymc_coresets, "__path__", [*pymc_coresets.__path__, str(tmp_path)])
    assert not has_room("attic")
    (tmp_path / "attic" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert has_room("attic")


@pytest.mark.parametrize("name", [n for n in MODULES if room_of(n) not in OPTIONAL])
def test_nothing_below_imports_these_rooms(name):
    assert not {room_of(n) for n in imported(name) if n.startswith("pymc_coresets.")} & OPTIONAL


@pytest.mark.parametrize("room", sorted(OPTIONAL))
def test_none_of_these_rooms_imports_another(room):
    used = {
        room_of(other)
        for name in MODULES
        if room_of(name) == room
        for other in imported(name)
        if other.startswith("pymc_coresets.")
    }
    assert used & OPTIONAL == {room}


def test_every_name_that_is_looked_up_in_these_rooms_is_there():
    """In the modules below: the path of a module, and the attribute that is used of it."""
    found = set()
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "module_of":
                [place] = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                found.add(place)
    assert {place.split(".")[0] for place in found} == OPTIONAL
    assert {f"pymc_coresets.{place}" for place in found} <= MODULES.keys()
