"""Names of PyMC and ArviZ lead to their documentation, on pages as in docstrings.

``pm.sample`` is looked for as `pymc.sample` in PyMC's inventory, and ``az.loo`` in that of the
package of ArviZ which defines it. Without network, or where a name is not found, the name stays as
it is: the site is built without a warning, and without these links.
"""

import logging
import re
from importlib import import_module

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.logging import getLogger

_log = getLogger(__name__)
_NAME = re.compile(r"(?P<package>pm|pymc|az|arviz)\.(?P<name>[A-Za-z_][\w.]*)(?:\(\))?")


def full_name(text: str) -> str | None:
    """Return the name under which an inventory lists a name, or nothing if it is not theirs."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    if found["package"] in ("pm", "pymc"):
        return f"pymc.{found['name']}"
    defined = getattr(import_module("arviz"), found["name"].partition(".")[0], None)
    package = getattr(defined, "__module__", "arviz").partition(".")[0]
    return f"{package}.{found['name']}"


class OutsideNames(SphinxPostTransform):
    """Make references of code that is such a name, before references are resolved."""

    default_priority = 5
    formats = ("html",)

    def run(self, **_kwargs: object) -> None:
        """Complete the names of references, and wrap code in new ones."""
        for reference in self.document.findall(pending_xref):
            if name := full_name(reference.get("reftarget", "")):
                reference["reftarget"] = name
        for literal in list(self.document.findall(nodes.literal)):
            within = (nodes.title, nodes.reference, pending_xref)
            parents = (literal.parent, literal.parent.parent)
            name = full_name(literal.astext())
            if name and not any(isinstance(parent, within) for parent in parents):
                target = {"refdomain": "py", "reftype": "obj", "reftarget": name}
                place = {"refdoc": self.env.docname, "refwarn": False}
                literal.replace_self(pending_xref("", literal.deepcopy(), **target, **place))


def unless_unreachable(record: logging.LogRecord) -> bool:
    """Return whether a warning is about anything but an inventory that cannot be read."""
    if not str(record.msg).startswith("failed to reach any of the inventories"):
        return True
    _log.info("an inventory was not reached: its names have no links")
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform, and do without inventories that cannot be reached."""
    app.setup_extension("sphinx.ext.intersphinx")
    app.add_post_transform(OutsideNames)
    logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(unless_unreachable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
