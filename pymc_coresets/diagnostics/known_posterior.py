"""Results of a construction about the full posterior: its modes, and draws from near it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import binom

from pymc_coresets.diagnostics.importance import (
    KHAT_RELIABLE,
    Floats,
    SmoothedRatios,
    pareto_smooth,
)
from pymc_coresets.diagnostics.posterior_draws import entry_name
from pymc_coresets.display import as_text

#: The dimension of modes; models of how people travel have a dimension ``mode``.
MODE = "posterior_mode"

#: Share of the mass below which a mode is small: a hundred draws may miss it by chance.
_SMALL = 0.1
_SHOWN = 20  #: Largest number of modes that are printed.

BETWEEN_MODES = (
    "NUTS hardly moves from one to another. sample() begins chains in all, if there are as "
    "many; importance_draws() draws from all. If they are images of each other, a constraint "
    "such as an order of the entries leaves one of them."
)
"""Remedy for posteriors with several modes."""


@dataclass(frozen=True, kw_only=True)
class SeenModes:
    """Modes of a posterior, and which of them the draws visited; by default, none were looked for.

    Parameters
    ----------
    n_starts : int
        From how many points modes were looked for; 0 if the posterior is log-concave.
    mass : sequence of float
        Of each mode, as a share of the posterior's.
    places : sequence of str
        Where each is, in words.
    images : sequence of str
        Of which other mode each is an image; empty for all others.
    shares : sequence of float, optional
        Of the draws, by the mode that they are next to; empty if no draws are known.
    n_draws : int
        How many different draws these are.
    is_complete : bool
        See `Modes`.

    Examples
    --------
    >>> seen = SeenModes(
    ...     n_starts=24, mass=[0.7, 0.3], places=["mu = 1", "mu = -1"], images=["", ""],
    ...     shares=[1.0, 0.0], n_draws=400,
    ... )
    >>> seen.words, seen.unseen
    ('2 from 24 starts, 1 visited', [1])
    """

    n_starts: int = 0
    mass: Sequence[float] = ()
    places: Sequence[str] = ()
    images: Sequence[str] = ()
    shares: Sequence[float] = ()
    n_draws: int = 0
    is_complete: bool = True

    @property
    def n_modes(self) -> int:
        """Number of modes."""
        return len(self.mass)

    @property
    def unseen(self) -> list[int]:
        """Numbers of the modes that are not known to the draws.

        Small ones only if together they hold more mass than independent draws miss by chance: of
        hundreds of modes, four hundred draws do not know all.
        """
        if not self.shares:
            return []
        mass = np.asarray(self.mass)
        missed = np.asarray(self.shares) < 0.1 * mass
        small = mass < _SMALL
        by_chance = binom.cdf(np.ceil(0.1 * mass * self.n_draws) - 1, self.n_draws, mass) * small
        most = float(mass @ by_chance)
        most += 4 * math.sqrt(float(np.square(mass) @ (by_chance * (1 - by_chance))))
        if mass[missed & small].sum() <= most:
            missed &= ~small
        return [int(number) for number in np.flatnonzero(missed)]

    @property
    def words(self) -> str:
        """Numbers of modes, and of those that the draws visited."""
        if not self.n_modes:
            return "not looked for"
        if not self.n_starts:
            return "1, as the posterior is log-concave"
        found = f"{self.n_modes} from {self.n_starts} starts"
        found += "" if self.is_complete else " (perhaps not all)"
        if self.n_modes == 1 or not self.shares:
            return found
        return f"{found}, {self.n_modes - len(self.unseen)} visited"

    @classmethod
    def stored(cls, fields: Mapping[str, Any]) -> Self:
        """Put together again what was written as JSON.

        Raises
        ------
        KeyError, ValueError, TypeError
            If something is missing or malformed.
        """
        shares = fields["shares"] or ()  # None in files of earlier versions
        found = cls(
            n_starts=int(fields["n_starts"]),
            mass=tuple(map(float, fields["mass"])),
            places=tuple(map(str, fields["places"])),
            images=tuple(map(str, fields["images"])),
            shares=tuple(map(float, shares)),
            n_draws=int(fields["n_draws"]),
            is_complete=bool(fields["is_complete"]),
        )
        if {len(found.places), len(found.images), len(shares or found.mass)} != {found.n_modes}:
            raise ValueError("the modes of its certificate do not match")
        return found

    def listed(self, numbers: Sequence[int]) -> str:
        """Describe the positions of some modes, and their shares of the mass."""
        entries = []
        for i in numbers:
            image = f"; {self.images[i]}" if self.images[i] else ""
            entries.append(f"at {self.places[i]} ({self.mass[i]:.2g} of the mass found{image})")
        shown = 4  # in a sentence
        more = len(entries) - shown
        return " and ".join([*entries[:shown], *([f"{more} more"] if more > 0 else [])])


#: Modes were not looked for.
NOT_SOUGHT = SeenModes()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Modes:
    """Modes of the posterior of all rows that hold a noticeable share of its mass.

    Looked for from some tens of points: draws of the prior, modes of the posteriors of a few rows,
    the model's initial point with jitter, and images of a known mode under changes of sign and
    exchanges of entries.  A mode to which none of them leads stays unknown.  Images under
    symmetries of the likelihood are added without a search.

    Parameters
    ----------
    positions : xarray.Dataset
        Of each free variable on its own scale, with the dimension ``posterior_mode`` first; the
        mode of largest mass comes first.
    sds : xarray.Dataset
        Standard deviations around each mode, in the same form.
    mass : ndarray of shape (n_modes,)
        Shares of the mass of all, by Laplace's approximation.  Modes that were left out hold less
        than 0.01 together.
    n_ended : ndarray of int64, of shape (n_modes,)
        How many starts ended there, or at an image of it.
    n_starts : int
        How many starts there were.  Those that are missing in `n_ended` led to modes of negligible
        mass, or to no mode.  None were needed if the posterior is log-concave.
    images : tuple of str
        For each mode, of which other it is an image under a symmetry of the likelihood, and under
        which; empty if it is none.
    is_complete : bool
        Whether nothing speaks for further modes: the search was not cut short, kept all images, and
        more than one start ended at each mode.

    Examples
    --------
    >>> modes = Modes(
    ...     positions=xr.Dataset({"a": ("posterior_mode", [1.0, -1.0])}),
    ...     sds=xr.Dataset({"a": ("posterior_mode", [0.1, 0.1])}), mass=np.array([0.5, 0.5]),
    ...     n_ended=np.array([14, 10]), n_starts=24, images=("", "image of mode 0: sign of a"),
    ... )
    >>> modes
    Modes of a posterior, from 24 starts
      mode 0  at a = 1 (0.5 of the mass found), where 14 starts ended
      mode 1  at a = -1 (0.5 of the mass found; image of mode 0: sign of a), where
              10 starts ended
    >>> modes.nearest({"a": np.array([0.8, -1.1, -0.9])})
    array([0, 1, 1])
    """

    positions: xr.Dataset
    sds: xr.Dataset
    mass: Floats
    n_ended: NDArray[np.int64]
    n_starts: int
    images: tuple[str, ...]
    is_complete: bool = True

    def __len__(self) -> int:
        return len(self.mass)

    def __repr__(self) -> str:
        seen = self.listed
        facts = {
            f"mode {i}": seen.listed([i]) + (f", where {n} starts ended" if n else "")
            for i, n in enumerate(self.n_ended[:_SHOWN])
        }
        if len(self) > _SHOWN:
            rest = f"{len(self) - _SHOWN} of {self.mass[_SHOWN:].sum():.2g} of the mass together"
            facts["others"] = rest
        if not self.n_starts:
            return as_text("Mode of a log-concave posterior", facts)
        return as_text(f"Modes of a posterior, from {self.n_starts} starts", facts)

    def nearest(self, draws: Mapping[str, Floats]) -> NDArray[np.int64]:
        """Return the number of the mode that each draw is next to, in its standard deviations.

        Parameters
        ----------
        draws : mapping of str to ndarray
            Of free variables, ``(n_draws, *shape)`` each.
        """
        centre, sd = self._flat(draws)
        flat = np.hstack([values.reshape(len(values), -1) for values in draws.values()])
        moving = _vary(centre, sd).all(axis=0)
        logp = [
            -0.5 * np.square((flat[:, moving] - c) / s).sum(axis=1) - np.log(s).sum()
            for c, s in zip(centre[:, moving], sd[:, moving], strict=True)
        ]
        nearest: NDArray[np.int64] = np.argmax(logp, axis=0)
        return nearest

    def _flat(self, names: Iterable[str]) -> tuple[Floats, Floats]:
        """Return positions and deviations of some variables, (n_modes, n_entries) each."""
        names, size = list(names), len(self)
        centre, sd = (
            np.hstack([data[name].to_numpy().reshape(size, -1) for name in names])
            for data in (self.positions, self.sds)
        )
        return centre, sd

    @property
    def listed(self) -> SeenModes:
        """The modes, without shares of any draws."""
        return SeenModes(
            n_starts=self.n_starts,
            mass=tuple(self.mass.tolist()),
            places=tuple(self._places()),
            images=self.images,
            is_complete=self.is_complete,
        )

    def seen_by(self, draws: Mapping[str, Floats]) -> SeenModes:
        """Return the modes, with the share of draws near each."""
        which = self.nearest(draws)
        # A draw that a chain repeats is no other one.
        n_draws = len(np.unique(next(iter(draws.values())).reshape(len(which), -1), axis=0))
        shares = tuple((np.bincount(which, minlength=len(self)) / len(which)).tolist())
        return replace(self.listed, shares=shares, n_draws=n_draws)

    def seen_in(self, idata: xr.DataTree) -> SeenModes:
        """Return the modes with the shares of draws of a tree's group ``posterior``."""
        posterior = idata["posterior"].to_dataset()
        draws = {}
        for name in map(str, self.positions.keys() & posterior.keys()):
            values = posterior[name].transpose("chain", "draw", ...).to_numpy()
            draws[name] = values.reshape(-1, *values.shape[2:])
        return self.seen_by(draws)

    def _places(self) -> Iterator[str]:
        """Name the entries by which the modes differ most."""
        names = [str(name) for name in self.positions]
        entries = [(n, i) for n in names for i in np.ndindex(self.positions[n].shape[1:])]
        centre, sd = self._flat(names)
        moving = _vary(centre, sd).all(axis=0)
        spread = np.where(moving, np.ptp(centre, axis=0) / np.where(moving, sd.mean(axis=0), 1), 0)
        shown = sorted(np.argsort(-spread, kind="stable")[:3])
        for mode in centre:
            yield ", ".join(
                f"{entry_name(name, index)} = {mode[k]:.3g}"
                for k, (name, index) in ((k, entries[k]) for k in shown)
            )

    @property
    def attrs(self) -> dict[str, object]:
        """All but positions and deviations, as attributes of a dataset."""
        return {
            "mass": self.mass,
            "n_ended": self.n_ended,
            "n_starts": self.n_starts,
            "images": "\n".join(self.images),
            "is_complete": int(self.is_complete),
        }

    @classmethod
    def stored(cls, positions: xr.Dataset, sds: xr.Dataset) -> Self:
        """Put modes together again from positions that have `attrs`.

        Raises
        ------
        KeyError, ValueError, TypeError
            If something is missing or malformed.
        """
        attrs = positions.attrs
        found = cls(
            positions=positions.drop_attrs(deep=False),
            sds=sds,
            mass=np.atleast_1d(np.asarray(attrs["mass"], dtype=float)),
            n_ended=np.atleast_1d(np.asarray(attrs["n_ended"], dtype=np.int64)),
            n_starts=int(attrs["n_starts"]),
            images=tuple(str(attrs["images"]).split("\n")),
            is_complete=bool(attrs["is_complete"]),
        )
        sizes = {
            len(found.n_ended),
            len(found.images),
            *(d.sizes[MODE] for d in (positions, sds)),
        }
        if sizes != {len(found)} or set(positions) != set(sds):
            raise ValueError("its modes do not match")
        if not math.isclose(found.mass.sum(), 1.0, rel_tol=1e-6):
            raise ValueError("the masses of its modes do not sum to 1")
        return found


def _vary(centre: Floats, sd: Floats) -> NDArray[np.bool_]:
    """Return which entries vary: not those above a Cholesky factor's diagonal, which are zero."""
    vary: NDArray[np.bool_] = sd > 1e-12 * np.abs(centre)
    return vary


def possible(log_ratios: Floats) -> NDArray[np.int64] | None:
    """Return the numbers of the draws whose importance ratio is finite.

    Far out, where a density is zero or overflows, a draw has no weight.

    Parameters
    ----------
    log_ratios : ndarray of shape (n_draws,)
        Log of a density over that which the draws are from, in nats.

    Returns
    -------
    ndarray of int64, or None
        None where more than a tenth of the ratios are not finite.

    Examples
    --------
    >>> possible(np.append(np.zeros(9), -np.inf))
    array([0, 1, 2, 3, 4, 5, 6, 7, 8])
    """
    kept = np.flatnonzero(np.isfinite(log_ratios))
    return None if len(kept) < 0.9 * len(log_ratios) else kept


def has_several(modes: Modes | None) -> bool:
    """Whether a search has found several modes of a posterior."""
    return modes is not None and len(modes) > 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal[D]:
    """Draws of a known distribution near the full posterior.

    Parameters
    ----------
    draws : object
        Draws of it; ``take`` returns some of them.
    log_ratios : ndarray of shape (n_draws,)
        Log of the prior over its own density there, in nats, up to a constant.  Together with the
        log-likelihood of all rows they are the importance ratios of the full posterior.
    around : object, optional
        That distribution; not of draws of a coreset's posterior from rounds.
    modes : Modes, optional
        Around which it is, where others were looked for.

    Examples
    --------
    >>> import numpy as np
    >>> len(Proposal(draws=np.arange(3.0), log_ratios=np.zeros(3)).log_ratios)
    3
    """

    draws: D
    log_ratios: Floats
    around: Any = None
    modes: Modes | None = None

    @cached_property
    def smoothed(self) -> SmoothedRatios:
        """The importance weights of the full posterior, by the ratios."""
        return pareto_smooth(self.log_ratios[None])

    @property
    def is_reliable(self) -> bool:
        """Whether these weights are reliable by Pareto k-hat."""
        return self.smoothed.pareto_khat < KHAT_RELIABLE

    def weighed(self, loglik: Floats) -> "Proposal[D] | None":
        """Add the log-likelihood of all rows; draws at which it is not finite are left out.

        None if these are more than a tenth.
        """
        log_ratios = self.log_ratios + loglik
        kept = possible(log_ratios)
        if kept is None:
            return None
        if len(kept) == len(log_ratios):
            return replace(self, log_ratios=log_ratios)
        draws: Any = self.draws
        return replace(self, draws=draws.take(kept), log_ratios=log_ratios[kept])
