"""The mutants themselves: what they change, and that every module has tests that answer for it."""

from pathlib import Path

import pytest

from tests.mutants.operators import generated
from tests.mutants.planted import PLANTED, planted
from tests.mutants.table import TESTS, files_for

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    str(path.relative_to(ROOT / "pymc_coresets")) for path in (ROOT / "pymc_coresets").rglob("*.py")
)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a < b", "(a <= b)"),
        ("a + b", "(a - b)"),
        ("a += b", "a -= b"),
        ("f(x, axis=0)", "f(x, axis=1)"),
        ("f(x, axis=0)", "f(x)"),
        ("np.maximum(a, b)", "np.minimum(a, b)"),
        ("x[100]", "x[200]"),
        ("a and b", "(a or b)"),
        ("a and b", "(b)"),
        ("not a", "(a)"),
        ("x if a else y", "(y if a else x)"),
        ("if a:\n    f()", "if (not a):\n    f()"),
        ("if a:\n    f()", "if a:\n    pass"),
        ("x[0] = y", "pass"),
        ("x.T @ y", "(x) @ y"),
        ("def f():\n    return a, b", "def f():\n    return (b, a)"),
    ],
)
def test_mutants_of_a_line(right, wrong):
    assert wrong in {m.apply(right) for m in generated("module.py", right) if m.changes(right)}


@pytest.mark.parametrize(
    "text",
    [
        '"""Docstring of 3 words."""',
        "x: tuple[int, 3]",
        'y = f"{a + b} rows"',
        "_log.info(1)",
        "y = plot(lw=1.5)",
        "y = zip(a, b, strict=True)",
    ],
)
def test_what_decides_no_result_is_left_alone(text):
    assert generated("module.py", text) == []


def test_mutants_say_where_they_are():
    text = "# größer\nα = 1\nif α > 2:\n    f()\n"
    mutant = next(m for m in generated("module.py", text) if ">=" in m.wrong)
    assert mutant.line(text) == 3
    assert mutant.diff(text) == "  - if α > 2:\n  + if (α >= 2):"


def test_every_planted_bug_fits_its_module_once():
    stale: list[str] = []
    for module in {module for module, _, _ in PLANTED}:
        planted(module, (ROOT / "pymc_coresets" / module).read_text(), stale)
    assert stale == []


def test_planted_bugs_that_no_longer_fit_are_named():
    module, right, wrong = PLANTED[0]
    stale = []
    assert planted(module, "", stale) == []
    assert f"{module}: {right!r}" in stale
    [mutant] = planted(module, f"# {right}\n", [])
    assert mutant.apply(f"# {right}\n") == f"# {wrong}\n"


def test_the_table_names_modules_and_tests_that_exist():
    assert all(any(module.startswith(key) for module in MODULES) for key in TESTS)
    assert all((ROOT / path).is_file() for module in MODULES for path in files_for(module))


def test_the_table_names_the_tests_of_modules():
    """All but those that benchmarks have."""
    named = {path for module in MODULES for path in files_for(module)}
    others = [
        path.name
        for path in (ROOT / "tests" / "unit").glob("test_*.py")
        if f"tests/unit/{path.name}" not in named
        and "from pymc_coresets." in (text := path.read_text())
        and not any(f"from {room}" in text for room in ("benchmarks", "tests.mutants"))
    ]
    assert others == []
