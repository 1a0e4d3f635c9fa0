"""The guides' examples run."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize(
    "guide",
    [
        "get-started",
        "trust",
        "hierarchical",
        "pass-glm",
        "bambi",
        "compare",
        "predict",
        "reading-results",
        "sensitivity",
        "update",
    ],
)
def test_examples_run(guide):
    pytest.importorskip("matplotlib").use("Agg")
    if guide == "bambi":
        pytest.importorskip("bambi")
    code = re.findall(r"```python\n(.*?)```", (DOCS / f"{guide}.md").read_text(), flags=re.DOTALL)
    exec(compile("\n".join(code), f"{guide}.md", "exec"), {"__name__": guide})
