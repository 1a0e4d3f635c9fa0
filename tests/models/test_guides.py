"""The guides' examples run."""

import re
from pathlib import Path

import pytest

from pymc_coresets import Coreset

DOCS = Path(__file__).parents[2] / "docs"
# Bambi uses what its libraries have deprecated.
BAMBI = pytest.param("bambi", marks=pytest.mark.filterwarnings("ignore::DeprecationWarning"))
# A covariate with missing values, which PyMC announces.
HIERARCHICAL = pytest.param(
    "hierarchical", marks=pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
)
GUIDES = ["get-started", "trust", HIERARCHICAL, "pass-glm", "predict", "saving", "series"]
GUIDES += ["reading-results", "update", "many-parameters"]


@pytest.fixture
def figures():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    plt.close("all")  # those of tests before
    yield plt.get_fignums
    plt.close("all")


def verdicts_of(guide, n_rows):
    """Run the examples, with some other number of rows in place of 20,000."""
    text = (DOCS / f"{guide}.md").read_text().replace("20_000", n_rows)
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names = {"__name__": guide}
    exec(compile("\n".join(blocks), f"{guide}.md", "exec"), names)
    values = [value for value in names.values() if not isinstance(value, type)]
    verdicts = [value for value in values if hasattr(value, "reliable")]
    verdicts += [value.certificate for value in values if isinstance(value, Coreset)]
    return [verdict for verdict in verdicts if verdict is not None]


@pytest.mark.parametrize(
    "guide", ["predict", "saving", pytest.param("update", marks=pytest.mark.slow)]
)
def test_examples_run_on_few_rows(guide, figures):
    assert verdicts_of(guide, "2_000")
    assert bool(figures()) == (guide == "predict")


@pytest.mark.slow
@pytest.mark.parametrize("guide", [*GUIDES, BAMBI])
def test_examples_run(guide, figures):
    if guide == "bambi":
        pytest.importorskip("bambi")
    verdicts = verdicts_of(guide, "20_000")
    assert verdicts
    assert all(verdict.reliable for verdict in verdicts)
    assert bool(figures()) == (guide == "predict")
