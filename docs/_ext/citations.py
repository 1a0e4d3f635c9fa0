"""References of docstrings as items of a list, which screen readers announce as such.

Docutils writes a list whose children have the role `doc-biblioentry`; a list may hold `listitem`
alone.
"""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def visit_citation(self: HTML5Translator, node: nodes.citation) -> None:
    """Write the beginning of a reference, with another role."""
    HTML5Translator.visit_citation(self, node)
    self.body[-1] = self.body[-1].replace('role="doc-biblioentry"', 'role="listitem"')


def depart_citation(self: HTML5Translator, node: nodes.citation) -> None:
    """Write its end, as usual."""
    HTML5Translator.depart_citation(self, node)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the writer."""
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
