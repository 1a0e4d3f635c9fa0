"""The directive ``picture``: one picture for light and dark, wide and narrow pages.

``figures/NAME_light.png`` and ``figures/NAME_dark.png`` are what a wide page shows, and a
narrow one ``figures/NAME_light_narrow.png`` and ``figures/NAME_dark_narrow.png``.
"""

from itertools import product
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Picture(SphinxDirective):
    """Show the picture that fits the page's colours and width."""

    required_arguments = 1
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Return all of its images; the style sheet hides those that do not fit."""
        images = [
            nodes.image(
                uri=f"figures/{self.arguments[0]}_{theme}{'_narrow' * (width == 'narrow')}.png",
                alt=self.options["alt"],
                classes=["picture", f"only-{theme}", f"only-{width}"],
                loading="lazy",
            )
            for theme, width in product(("light", "dark"), ("wide", "narrow"))
        ]
        for image in images:
            self.set_source_info(image)
        return images


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
