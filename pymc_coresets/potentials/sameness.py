"""Whether two models are the same for some rows, by their values at random points."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.from_rows import named_arrays
from pymc_coresets.potentials.verification import points_around
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.values import Rows


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
    >>> from pymc_coresets.potentials.from_rows import template_of_rows
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", np.arange(10.0))
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    >>> template = template_of_rows(model, {"y": np.zeros(())})
    >>> arranged(template, template, template.some_row).arrays
    (array([0.]),)
    """
    arrays = named_arrays(first.observations, rows)
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
    same = _close(one, other, slack=first.slack + second.slack).all(axis=1)
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


def _close(one: np.ndarray, other: np.ndarray, *, slack: float = 0.0) -> np.ndarray:
    rtol, atol = 1e-6 + slack, 1e-8 + slack
    close: np.ndarray = np.isclose(one, other, rtol=rtol, atol=atol, equal_nan=True)
    return close
