"""The guides' examples run."""

import re
from pathlib import Path

import pytest

from pymc_coresets import Coreset

DOCS = Path(__file__).parents[2] / "docs"
# Bambi uses what its libraries have deprecated.
BAMBI = pytest.param("bambi", marks=pytest.mark.filterwarnings("ignore::DeprecationWarning"))
GUIDES = ["get-started", "trust", "hierarchical", "pass-glm", "compare", "predict"]
GUIDES += ["reading-results", "sensitivity", "update"]


@pytest.mark.slow
@pytest.mark.parametrize("guide", [*GUIDES, BAMBI])
def test_examples_run(guide):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    if guide == "bambi":
        pytest.importorskip("bambi")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{guide}.md").read_text(), flags=re.DOTALL)
    names = {"__name__": guide}
    exec(compile("\n".join(blocks), f"{guide}.md", "exec"), names)
    values = [value for value in names.values() if not isinstance(value, type)]
    verdicts = [value for value in values if hasattr(value, "reliable")]
    verdicts += [value.certificate for value in values if isinstance(value, Coreset)]
    verdicts = [verdict for verdict in verdicts if verdict is not None]
    assert verdicts
    assert all(verdict.reliable for verdict in verdicts)
    assert bool(plt.get_fignums()) == (guide in {"predict", "reading-results"})
    plt.close("all")
