"""The arrays of a model that are indexed by the observation."""

from dataclasses import dataclass

import numpy as np
from pytensor.graph import ancestors
from pytensor.tensor import TensorVariable

#: What messages call an array that neither has a name nor is computed from one that has.
UNNAMED = "an unnamed array"


@dataclass(frozen=True, eq=False)
class RowMap:
    """Which position of an inner axis each observation uses.

    Parameters
    ----------
    positions : ndarray of int, optional
        None for the identity.
    own : tuple of int, optional
        First row that the axis belongs to, and the one after the last, where others merely repeat
        some of its positions; None for all rows.
    """

    positions: np.ndarray | None = None
    own: tuple[int, int] | None = None

    def compose(self, inner: np.ndarray) -> "RowMap":
        """Return the map through an index of the axis."""
        return RowMap(inner if self.positions is None else inner[self.positions], self.own)


ALL_ROWS = RowMap()


@dataclass(frozen=True, eq=False)
class RowArray:
    """One array that is indexed by the observation.

    Attributes
    ----------
    placeholder : TensorVariable
        The input of the selected graph that stands for any rows of the array.
    source : TensorVariable
        The variable of the original graph that the rows are taken from.
    values : ndarray
        The array, with all ``n_obs`` rows along `axis`.
    axis : int
        The observation axis.
    own : tuple of int or None
        The first observation that has the array, and the one after the last; ``None`` where all
        have it.  The values of others are repeated ones, and count for nothing.
    """

    placeholder: TensorVariable
    source: TensorVariable
    values: np.ndarray
    axis: int
    own: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The name of the array, or of the nearest named variable that it is computed from."""
        named = (v.name for v in ancestors([self.source]) if v.name)
        return self.source.name or next(named, UNNAMED)

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the rows at the positions `rows` (a view for a slice)."""
        index = (slice(None),) * self.axis + (rows,)
        return self.values[index]
