"""Modes that were found, and their table on the variables' own scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.known_posterior import MODE, Modes
from pymc_coresets.reading.draws import dims_of
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.normal import Mixture
from pymc_coresets.sampling.symmetry.local_modes import LocalMode
from pymc_coresets.sampling.symmetry.symmetries import ALONE, Images


@dataclass(frozen=True, eq=False)
class FoundModes:
    """Modes found by a search.

    Parameters
    ----------
    modes : sequence of LocalMode
        Modes of noticeable mass, the largest first.
    n_starts : int
        Number of starts; 0 if only the first mode was searched for, or the density is log-concave.
    images : sequence of str
        For each mode, which other it is an image of, if any.
    n_gradients : int
        Of all rows.
    is_complete : bool
        Whether nothing speaks for further modes of noticeable mass.
    orbits : Orbits or Alone
        Which makes the images.
    """

    modes: Sequence[LocalMode]
    n_starts: int
    images: Sequence[str] = ("",)
    n_gradients: int = 0
    is_complete: bool = True
    orbits: Images = ALONE

    @cached_property
    def mixture(self) -> Mixture:
        """Mixture around the modes, by their masses."""
        return Mixture.of([mode.around for mode in self.modes], [m.height for m in self.modes])

    def table(self, space: Unconstrained) -> Modes | None:
        """Return the modes on the variables' own scale; None if there may be unknown ones."""
        if not (self.n_starts or self.is_complete):
            return None
        parts, rng = self.mixture.parts, np.random.default_rng(0)
        return table_of(
            space,
            np.stack([part.location for part in parts]),
            [part.draw(100, rng=rng)[0] for part in parts],
            self.mixture.masses,
            n_starts=self.n_starts,
            n_ended=[mode.n_ended for mode in self.modes],
            images=self.images,
            is_complete=self.is_complete,
        )


def table_of(
    space: Unconstrained,
    at: np.ndarray,
    draws: Sequence[np.ndarray],
    masses: np.ndarray,
    *,
    n_starts: int,
    n_ended: Sequence[int] = (),
    images: Sequence[str] = (),
    is_complete: bool = True,
) -> Modes:
    """Describe modes on the variables' own scale.

    Parameters
    ----------
    space : Unconstrained
    at : ndarray of shape (n_modes, n_dims)
    draws : sequence of ndarray, of shape (n_draws, n_dims)
        From around each of them.
    masses : ndarray of shape (n_modes,)
    n_starts, n_ended, images, is_complete
        See `Modes`; by default one start ended at each, and none is an image of another.
    """
    dims = space.model.named_vars_to_dims

    def labelled(values: Mapping[str, np.ndarray]) -> xr.Dataset:
        return xr.Dataset(
            {
                name: ((MODE, *dims_of(name, value.ndim - 1, dims)), value)
                for name, value in values.items()
            }
        )

    each = [space.constrain(points).values for points in draws]
    return Modes(
        positions=labelled(space.constrain(at).values),
        sds=labelled({n: np.stack([own[n].std(axis=0) for own in each]) for n in each[0]}),
        mass=masses,
        n_ended=np.array(n_ended or [1] * len(at), dtype=np.int64),
        n_starts=n_starts,
        images=tuple(images) or ("",) * len(at),
        is_complete=is_complete,
    )
