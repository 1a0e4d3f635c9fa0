"""The guides' examples run."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# Bambi uses what its libraries have deprecated.
BAMBI = pytest.param("bambi", marks=pytest.mark.filterwarnings("ignore::DeprecationWarning"))
GUIDES = ["get-started", "trust", "hierarchical", "pass-glm", "compare", "predict"]
GUIDES += ["reading-results", "sensitivity", "update"]


@pytest.mark.slow
@pytest.mark.parametrize("guide", [*GUIDES, BAMBI])
def test_examples_run(guide):
    pytest.importorskip("matplotlib").use("Agg")
    if guide == "bambi":
        pytest.importorskip("bambi")
    code = re.findall(r"```python\n(.*?)```", (DOCS / f"{guide}.md").read_text(), flags=re.DOTALL)
    exec(compile("\n".join(code), f"{guide}.md", "exec"), {"__name__": guide})
