"""What all plots have in common: colours, axes, and the check of what is passed."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from pymc_coresets.exceptions import InvalidOptionError

__all__ = [
    "BLUE",
    "DARK_GREY",
    "GREY",
    "ORANGE",
    "new_axes",
    "require_attributes",
    "require_axes",
    "tidied",
]

GREY, DARK_GREY, BLUE, ORANGE = "#8a8f98", "#5c6169", "#0b6e99", "#d1602f"


def require_attributes(coreset: object, *attributes: str) -> None:
    """Refuse what is no coreset.

    Raises
    ------
    InvalidOptionError
        If it lacks an attribute.

    Examples
    --------
    >>> require_attributes(3, "weights")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: coreset is a int, and has no weights: pass what
    build_coreset returned. (docs: troubleshooting#arguments)
    """
    if isinstance(coreset, type) or not all(hasattr(coreset, name) for name in attributes):
        found = coreset.__name__ if isinstance(coreset, type) else type(coreset).__name__
        raise InvalidOptionError(
            f"coreset is a {found}, and has no {' or '.join(attributes)}: pass what "
            "build_coreset returned."
        )


def require_axes(ax: object) -> None:
    """Refuse what is no axes, before anything is drawn.

    Raises
    ------
    InvalidOptionError
        If it is neither that nor None.

    Examples
    --------
    >>> require_axes(3)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: ax is a int, but must be Matplotlib's Axes.
    (docs: troubleshooting#arguments)
    """
    if ax is not None and not isinstance(ax, Axes):
        raise InvalidOptionError(f"ax is a {type(ax).__name__}, but must be Matplotlib's Axes.")


def new_axes(ax: Axes | None) -> Axes:
    """Return the axes that the user passed, or those of a new figure.

    Examples
    --------
    >>> given = plt.figure().add_subplot()
    >>> new_axes(given) is given
    True
    """
    return plt.subplots(figsize=(7.2, 4.2), layout="constrained")[1] if ax is None else ax


def tidied(ax: Axes, *, grid: str | None = "y") -> Axes:
    """Take away what distracts, and add a light grid along an axis.

    Examples
    --------
    >>> tidied(plt.figure().add_subplot()).spines["top"].get_visible()
    False
    """
    ax.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        ax.grid(axis=grid, color=GREY, alpha=0.25, lw=0.6)  # type: ignore[arg-type]
    ax.set_axisbelow(True)
    return ax
