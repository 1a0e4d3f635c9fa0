"""Formulas as MathML, which every current browser draws by itself: no script, and no network.

The font STIX Two Math, whose metrics MathML needs, comes with the package ziamath.
"""

from importlib.resources import files

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

_log = logging.getLogger(__name__)


def mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """Return the MathML of a formula, and warn where a command was not understood."""
    formula = convert(node.astext(), display=display)
    if "\\" in formula:
        _log.warning("MathML has no such command: %s", node.astext(), location=node)
    # Bars of norms are as high as a line, unless \\left and \\right say otherwise.
    return formula.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(mathml(node, "inline") + "&#8288;")  # a comma after it stays on its line
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, which scrolls where the page is narrower."""
    formula = mathml(node, "block")
    self.body.append(
        f'<div class="formula" tabindex="0" role="group" aria-label="Formula">{formula}</div>\n'
    )
    raise nodes.SkipNode


def add_font(_app: Sphinx, config: Config) -> None:
    """Copy the font beside the site's own files."""
    config.html_static_path.append(str(files("ziamath") / "fonts"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the writer, which ``html_math_renderer`` names."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("config-inited", add_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
