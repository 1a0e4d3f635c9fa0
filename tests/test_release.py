"""What a release states in several places: its version, dependencies, Pythons and papers."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TOML["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
ZENODO = json.loads((ROOT / ".zenodo.json").read_text())
RECIPE = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
PAPER = (ROOT / "paper.md").read_text()
DATE = CITATION["date-released"].isoformat()
BIBTEX = dict(re.findall(r"(\w+) += \{(.*)\}", (ROOT / "docs/citing.md").read_text()))


def bounds(requirement):
    """Return the name of a requirement and what it asks of the version."""
    found = Requirement(requirement)
    return found.name, {str(bound) for bound in found.specifier}


def matrices(workflow):
    """Return the matrices of a workflow's jobs."""
    jobs = yaml.safe_load((ROOT / f".github/workflows/{workflow}.yml").read_text())["jobs"]
    return [job["strategy"]["matrix"] for job in jobs.values() if "strategy" in job]


PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
[LOWEST_PYMC] = re.findall(r"pymc>=([\d.]+)", " ".join(PROJECT["dependencies"]))


# -- one version, one date -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stated",
    [CITATION["version"], ZENODO["version"], RECIPE["context"]["version"], BIBTEX["version"]],
    ids=["CITATION.cff", ".zenodo.json", "recipe", "docs/citing.md"],
)
def test_version_is_the_package_s(stated):
    assert stated == PROJECT["version"]


def test_changelog_has_the_version_and_its_date_below_what_is_unreleased():
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[:2] == ["[Unreleased]", f"[{PROJECT['version']}] - {DATE}"]


def test_citation_and_zenodo_agree():
    assert ZENODO["title"] == CITATION["title"]
    assert ZENODO["license"] == CITATION["license"] == PROJECT["license"]
    assert ZENODO["publication_date"] == DATE
    assert ZENODO["upload_type"] == CITATION["type"] == "software"
    assert ZENODO["creators"] == CITATION["authors"] == PROJECT["authors"]
    assert ZENODO["keywords"] == CITATION["keywords"] == PROJECT["keywords"]
    assert ZENODO["description"] == PROJECT["description"] == RECIPE["about"]["summary"]


def test_citation_and_zenodo_name_the_same_papers():
    assert len(ZENODO["references"]) == len(CITATION["references"])
    for text, paper in zip(ZENODO["references"], CITATION["references"], strict=True):
        for stated in (paper["title"], str(paper["year"]), paper["collection-title"]):
            assert stated in text
        assert all(author["family-names"] in text for author in paper["authors"])


# -- conda -----------------------------------------------------------------------------------------


def test_recipe_has_the_dependencies_of_the_package():
    python, *others = RECIPE["requirements"]["run"]
    assert dict(map(bounds, others)) == dict(map(bounds, PROJECT["dependencies"]))
    assert python == "python >=${{ python_min }}"
    assert PROJECT["requires-python"] == f">={RECIPE['context']['python_min']}"
    assert RECIPE["package"]["name"] == PROJECT["name"]
    assert RECIPE["about"]["license"] == PROJECT["license"]


def test_recipe_builds_with_the_package_s_backend():
    tools = dict(bounds(line) for line in RECIPE["requirements"]["host"] if "$" not in line)
    assert tools == {"pip": set(), **dict(map(bounds, TOML["build-system"]["requires"]))}


def test_recipe_s_files_are_in_the_sdist():
    included = TOML["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    files = [name for test in RECIPE["tests"] for name in test.get("files", {}).get("source", [])]
    assert files
    assert all((ROOT / name).is_file() and f"/{name}" in included for name in files)


# -- Pythons ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workflow", ["ci", "release"])
def test_workflows_run_every_supported_python(workflow):
    assert [matrix["python"] for matrix in matrices(workflow) if "python" in matrix] == [PYTHONS]


def test_both_ends_of_pymc_are_tested():
    [stated] = [matrix["pymc"] for matrix in matrices("ci") if "pymc" in matrix]
    assert stated == [f"pymc=={LOWEST_PYMC}", "pymc"]


@pytest.mark.parametrize("page", ["README.md", "docs/get-started.md"])
def test_documentation_states_the_supported_versions(page):
    text = (ROOT / page).read_text()
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in text
    assert f"PyMC {LOWEST_PYMC} or newer" in text


# -- the paper -------------------------------------------------------------------------------------


def test_paper_cites_what_its_bibliography_has():
    cited = set(re.findall(r"@(\w+)", PAPER))
    assert cited == set(
        re.findall(r"^@\w+\{(\w+),$", (ROOT / "paper.bib").read_text(), re.MULTILINE)
    )


def test_paper_has_the_length_of_a_paper():
    words = PAPER.split("---", 2)[2].split()
    assert 900 <= len(words) <= 1_300


def test_tables_that_the_paper_names_are_there():
    named = re.findall(r"`(docs/[\w/.-]+)`", PAPER)
    assert named
    assert all((ROOT / name).is_file() for name in named)
