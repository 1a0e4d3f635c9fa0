"""In the description of a class, a name leads to the class's own member of that name.

Sphinx prefers a function of the package, as ``sample`` beside ``Coreset.sample``.
"""

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class OwnMembers(SphinxPostTransform):
    """Complete the names of references, before these are resolved."""

    default_priority = 4  # before `OutsideNames`, whose names are no members
    formats = ("html",)

    def run(self, **_kwargs: object) -> None:
        """Name the class in references to what it has."""
        known = self.env.get_domain("py").data["objects"]
        for reference in self.document.findall(pending_xref):
            place = [reference.get(part) for part in ("py:module", "py:class", "reftarget")]
            if all(place) and (name := ".".join(place)) in known:
                reference["reftarget"] = name


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(OwnMembers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
