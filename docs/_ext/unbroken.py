"""Numbers are not broken at the end of a line: `4.8e-4`, `0.2–0.7`.

What is copied from a page stays as it was written: the numbers are marked, and the style sheet does
the rest. Code is left alone.
"""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

_UNBROKEN = re.compile(r"[\d.]+e-\d+|[\d.]+–[\d.]+|k-hat", re.ASCII)
_AS_THEY_ARE = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)


class UnbrokenNumbers(SphinxPostTransform):
    """Mark the numbers of a page that could be broken."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_kwargs: object) -> None:
        """Replace each text that has such numbers by its parts."""
        for text in list(self.document.findall(nodes.Text)):
            if _UNBROKEN.search(text) and not _within(text, _AS_THEY_ARE):
                text.parent.replace(text, list(_parts(str(text))))


def _parts(text: str) -> Iterator[nodes.Node]:
    """Return what lies between the numbers as text, and each number in a span."""
    end = 0
    for number in _UNBROKEN.finditer(text):
        if number.start() > end:
            yield nodes.Text(text[end : number.start()])
        yield nodes.inline(number[0], number[0], classes=["unbroken"])
        end = number.end()
    if end < len(text):
        yield nodes.Text(text[end:])


def _within(node: nodes.Node, kinds: tuple[type[nodes.Node], ...]) -> bool:
    while node is not None:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(UnbrokenNumbers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
