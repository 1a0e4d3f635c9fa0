"""Measured figures and tables, by name: two roles and a directive.

``{measured}`name` `` writes a figure of `docs/tables/figures.json` with its unit, and
``{measured}`~name` `` its value alone; ``{constant}`name` `` does the same for a setting of the
code. The directive ``measured-table`` shows a table of `docs/tables` with at most six columns,
folds the others, and says below it which command printed it, when, and at which commit.
"""

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.parsers.rst.states import Inliner
from docutils.statemachine import StringList
from figures import FILE, TABLES, Constant, Figure, Table, blocks, load
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

WIDEST = 6  # columns that fit into a page


class Quoted(SphinxRole):
    """Write a figure, or say which one is missing."""

    def __init__(self, part: int) -> None:
        super().__init__()
        self.part = part

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return its value and unit, with its source for those who hover over it."""
        self.env.note_dependency(str(FILE))
        name = self.text.lstrip("~")
        found: Figure | Constant | None = load()[self.part].get(name)
        if found is None:
            assert isinstance(self.inliner, Inliner) or self.inliner is not None
            message = self.inliner.reporter.error(f"no figure {name!r} in {FILE.name}")
            return [nodes.problematic(self.rawtext, self.rawtext)], [message]
        text = found.value if self.text.startswith("~") else str(found)
        node = nodes.inline(self.rawtext, text, classes=["unbroken"])
        return [node], []


class MeasuredTable(SphinxDirective):
    """A table of `docs/tables`."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar = {
        "columns": directives.unchanged_required,
        "folded": directives.flag,
        "keys": directives.positive_int,
        "title": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Return the table, and what is folded below it."""
        name = self.arguments[0]
        self.env.note_dependency(str(TABLES / f"{name}.md"))
        self.env.note_dependency(str(FILE))
        lines: list[str] = []
        for block in blocks(name):
            lines += [*self.shown(block).split("\n"), ""]
        lines += [f"*{load()[0][name]}*"]
        if "folded" in self.options:
            lines = self.fold(self.options.get("title", "The table"), lines)
        container = nodes.container(classes=["measured-table"])
        self.state.nested_parse(
            StringList(lines, self.arguments[0]), self.content_offset, container
        )
        return list(container.children)

    def shown(self, block: str | Table) -> str:
        """Return what a page shows of a part of the file."""
        if isinstance(block, str):
            return block
        table, keys = block, self.options.get("keys", 1)
        if "columns" in self.options:
            kept = [table.header.index(c.strip()) for c in self.options["columns"].split(";")]
            rest = [i for i in range(len(table.header)) if i not in kept]
            first = table.columns(kept).markdown()
            if not rest:
                return first
            parts = table.columns([kept[0], *rest]).parts(WIDEST)
            more = "\n\n".join(part.markdown() for part in parts).split("\n")
            return "\n".join([first, "", *self.fold("Other columns", more)])
        return "\n\n".join(part.markdown() for part in table.parts(WIDEST, keys))

    @staticmethod
    def fold(title: str, lines: list[str]) -> list[str]:
        """Return lines that are shown when their title is clicked."""
        fence = ":" * (4 + any(line.startswith("::::") for line in lines))
        return [f"{fence}{{dropdown}} {title}", *lines, fence]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the roles and the directive."""
    app.add_role("measured", Quoted(1))
    app.add_role("constant", Quoted(2))
    app.add_directive("measured-table", MeasuredTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
