"""Whether two models are the same: by values at random points, and by digests of their data."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from pytensor.graph import graph_inputs

from pymc_coresets.exceptions import InvalidDataError, warn_user
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.verification import points_around
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.rows.values import Rows

_BLOCK_ENTRIES = 2**20
_N_POINTS, _N_ROWS = 4, 20  # at which densities are compared


def points_of(loglik: LogLikelihood, rng: np.random.Generator) -> Draws:
    """Return four points near a model's initial one.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> points_of(LogLikelihood(find_observations(model)), np.random.default_rng(1)).n_draws
    4
    """
    space = loglik.observations.space
    return space.constrain(points_around(space, rng)[0])


def arranged(first: LogLikelihood, second: LogLikelihood, rows: Rows) -> Rows:
    """Return rows of one model with their arrays in the order of another, by their names.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.potentials.of_model import template_of_rows
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", np.arange(10.0))
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    >>> template = template_of_rows(model, {"y": np.zeros(())})
    >>> arranged(template, template, template.some_row).arrays
    (array([0.]),)
    """
    arrays = first.observations.by_name(rows)
    order = (row.name for row in second.observations.rows)
    return replace(rows, arrays=tuple(arrays[name] for name in order))


def differing_row(
    first: LogLikelihood, second: LogLikelihood, draws: Draws, rows: Rows, others: Rows
) -> int | None:
    """Return the number of the first row whose log-likelihood differs, None if there is none.

    Parameters
    ----------
    first, second : LogLikelihood
    draws : Draws
        Of the variables that both depend on.
    rows, others : Rows
        The same rows, with the arrays of the first model and of the second.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> def likelihood(sd):
    ...     with pm.Model() as model:
    ...         pm.Normal("y", pm.Normal("mu"), sd, observed=np.arange(3.0))
    ...     return LogLikelihood(find_observations(model))
    >>> one, other = likelihood(1.0), likelihood(np.array([1.0, 1.0, 2.0]))
    >>> draws = points_of(one, np.random.default_rng(1))
    >>> differing_row(one, other, draws, one.all_rows, other.all_rows)
    2
    """
    one, other = (
        each.matrix(draws, some, finite=False) for each, some in ((first, rows), (second, others))
    )
    same = _close(one, other).all(axis=1)
    return None if same.all() else int(np.argmin(same))


def same_priors(first: LogLikelihood, second: LogLikelihood, rng: np.random.Generator) -> bool:
    """Say whether all but the likelihoods of two models is the same at random points.

    Both have the same free variables.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> def likelihood(sd):
    ...     with pm.Model() as model:
    ...         pm.Normal("y", pm.Normal("mu", 0, sd), 1.0, observed=np.arange(3.0))
    ...     return LogLikelihood(find_observations(model))
    >>> same_priors(likelihood(1.0), likelihood(2.0), np.random.default_rng(1))
    False
    """
    spaces = [each.observations.space for each in (first, second)]
    points = points_around(spaces[0], rng)[0]
    own, other = (space.columns for space in spaces)
    if {n: c.shape for n, c in own.items()} != {n: c.shape for n, c in other.items()}:
        return False
    order = np.empty(spaces[0].n_dims, dtype=np.int64)
    for name, columns in other.items():
        order[columns.ravel()] = own[name].ravel()
    one_prior, other_prior = (
        each.remainder.values(at) for each, at in ((first, points), (second, points[:, order]))
    )
    return bool(_close(one_prior, other_prior).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """Some log-densities of a model, in nats: enough to tell it later from another one.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_draws)
        Potentials of some rows at some draws.
    prior : ndarray of shape (n_draws,)
        The log-density of all else there.

    Examples
    --------
    >>> one = Probe(rows=np.zeros((1, 2)), prior=np.zeros(2))
    >>> one.same(Probe(rows=np.zeros((1, 2)), prior=np.ones(2)))
    (True, False)
    """

    rows: np.ndarray
    prior: np.ndarray

    @classmethod
    def of(
        cls, loglik: LogLikelihood, rows: Rows, draws: Draws, prior: Callable[[Draws], np.ndarray]
    ) -> Self:
        """Evaluate a model; its draws may be impossible."""
        with np.errstate(all="ignore"):
            return cls(rows=loglik.matrix(draws, rows, finite=False), prior=prior(draws))

    def same(self, other: "Probe") -> tuple[bool, bool]:
        """Say whether the rows' potentials are the same, and whether all else is.

        Kinds of processors, versions of libraries, and float32 differ.
        """
        rows, prior = (
            one.shape == two.shape
            and bool(np.allclose(one, two, rtol=1e-5, atol=1e-6, equal_nan=True))
            for one, two in ((self.rows, other.rows), (self.prior, other.prior))
        )
        return rows, prior


def _close(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    close: np.ndarray = np.isclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True)
    return close


@dataclass(frozen=True, kw_only=True)
class Fingerprints:
    """Digests that tell whether a model is the one that a coreset was built from.

    Parameters
    ----------
    selected : str
        Of the free variables and of the data in the coreset's rows.
    every : str
        Of the data in all rows.
    densities : str
        Potentials of some rows, and the log-density of all else, at points that do not depend on
        the model but for the sizes of its variables: as JSON.
    """

    selected: str
    every: str
    densities: str


def fingerprints(loglik: LogLikelihood, rows: Rows, *, of_data: bool) -> Fingerprints:
    """Compute the digests of a model's free variables and data, and some log-densities.

    Digests depend on the names and contents of the arrays, not on the order in which the model's
    graph has them.  One pass over the data, at about a gigabyte per second.

    Parameters
    ----------
    loglik : LogLikelihood
        Of all rows.
    rows : Rows
        Those of the coreset.
    of_data : bool
        Whether the model holds all rows.

    Returns
    -------
    Fingerprints

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> def prints(y):
    ...     with pm.Model() as model:
    ...         pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array(y))
    ...     loglik = LogLikelihood(find_observations(model))
    ...     return fingerprints(loglik, loglik.source.at(np.array([0, 1])), of_data=True)
    >>> one, other = prints([1.0, 2.0, 3.0]), prints([1.0, 2.0, 4.0])
    >>> one.selected == other.selected, one.every == other.every
    (True, False)
    """
    densities, observations = _densities(loglik, rows), loglik.observations
    if not of_data:
        return Fingerprints(selected="", every="", densities=densities)
    kept, used = observations.positions, set(graph_inputs([observations.loglik]))
    chosen = rows.positions if kept is None else np.searchsorted(kept, rows.positions)
    arrays = [row for row in observations.rows if row.placeholder in used]
    variables = (f"{name} {shape}".encode() for name, shape in observations.shapes.items())
    return Fingerprints(
        selected=_together([*variables, *(_digest(array, chosen) for array in arrays)]),
        every=_together(_digest(array, None) for array in arrays),
        densities=densities,
    )


def compare_fingerprints(stored: Fingerprints, found: Fingerprints) -> dict[str, Any]:
    """Refuse a model that a coreset was not built from; warn of what has changed beside its rows.

    Parameters
    ----------
    stored : Fingerprints
        Of the model that it was built from.
    found : Fingerprints
        Of the model that was given.

    Returns
    -------
    dict of str to object
        What does not hold for this model, with the values that it has instead.

    Raises
    ------
    InvalidDataError
        If the free variables, the data in the coreset's rows, or their likelihood differ.
    """
    if found.selected != stored.selected:
        raise InvalidDataError(
            "The model has other free variables, or other data in the coreset's rows, than "
            "the one that the coreset was built from: give that one."
        )
    same_rows, same_prior = _read(stored.densities).same(_read(found.densities))
    if not same_rows:
        raise InvalidDataError(
            "The model has another likelihood than the one that the coreset was built from, or its "
            "variables have other bounds: give that one, or build a coreset of this."
        )
    gone: dict[str, Any] = {}
    if found.every != stored.every:
        warn_user(
            "The model's data have changed in other rows than the coreset's: it was chosen for the "
            "old data, while check() and reweight() go by the new. The draws of its build are "
            "dropped, so that sample() runs NUTS. Build it again if check() finds it wanting."
        )
        gone = {"proposal": None}
    if same_prior:
        return gone
    warn_user(
        "The model has other priors than the one that the coreset was built from: what was "
        "measured of it says nothing of this posterior, and the draws of its build are dropped, so "
        "that sample() runs NUTS. check() tells whether it is good enough."
    )
    gone = dict.fromkeys(("certificate", "modes", "proposal", "built_from"))
    return gone | {"objective": math.nan}


def _together(parts: Iterable[bytes]) -> str:
    return blake2b(b"\0".join(sorted(parts)), digest_size=32).hexdigest()


def _digest(array: RowArray, rows: np.ndarray | None) -> bytes:
    """Digest of an array's name, type and rows, whatever their layout in memory."""
    values = np.moveaxis(array.values, array.axis, 0)
    values = values if rows is None else values[rows]
    digest = blake2b(f"{array.name} {values.dtype.str} {values.shape}".encode())
    step = max(1, _BLOCK_ENTRIES // max(1, values[:1].size))
    for start in range(0, len(values), step):
        digest.update(np.ascontiguousarray(values[start : start + step]))
    return digest.hexdigest().encode()


def _densities(loglik: LogLikelihood, rows: Rows) -> str:
    """Return log-densities at normal numbers on the unconstrained scale."""
    space, rng = loglik.observations.space, np.random.default_rng(0)
    points = np.zeros((_N_POINTS, space.n_dims))
    for _, columns in sorted(space.columns.items()):
        points[:, columns.ravel()] = 0.5 * rng.standard_normal((_N_POINTS, columns.size))
    density = loglik.remainder.values
    some, draws = rows.take(slice(0, _N_ROWS)), space.constrain(points)
    found = Probe.of(loglik, some, draws, lambda _: density(points))
    return json.dumps({"rows": found.rows.tolist(), "prior": found.prior.tolist()})


def _read(densities: str) -> Probe:
    try:
        found = json.loads(densities)
        return Probe(**{name: np.array(found[name], dtype=float) for name in ("rows", "prior")})
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidDataError(
            f"This is no file of a coreset: its densities are {error}."
        ) from error
