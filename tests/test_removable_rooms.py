"""The package without the rooms on top: it builds, samples and checks, and says what is missing."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pymc_coresets
from pymc_coresets.optional import has_room
from tests.test_architecture import MODULES, imported, room_of

ROOT = Path(__file__).parents[1]
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
