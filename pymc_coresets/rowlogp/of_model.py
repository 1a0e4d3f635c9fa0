"""The log-likelihoods of a user's model, compared with PyMC before they are used.

The model holds all rows, or prototypes of rows that are read chunk by chunk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import pymc as pm

from pymc_coresets.compat.neighbours import doubt_about
from pymc_coresets.exceptions import (
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    warn_user,
)
from pymc_coresets.numerics import agree, differing
from pymc_coresets.options import flag, names_of
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.likelihood.prototypes import ColumnLike
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.rewrite import POTENTIAL, WEIGHTS, coreset_model
from pymc_coresets.reading.units.nodes import Rule
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.reading.user_model import copy_with_rows, given_model
from pymc_coresets.rowlogp.code_checks import CodeCheck
from pymc_coresets.rowlogp.evaluation import Collapse, LogLikelihood
from pymc_coresets.rowlogp.units import UnitSettings, unit_model
from pymc_coresets.rowlogp.verification import points_around, points_near, reference_of, verify_rows
from pymc_coresets.rows.executors import HasSubmit, engine_of, no_rows_for
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.sources.opening import required_source
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import StreamedRows, unwatched
from pymc_coresets.rows.values import Rows

#: Which free variables are integrated out.
type Integrate = bool | str | Sequence[str]


@dataclass(frozen=True)
class RowSamples:
    """The samples of distinct rows that a construction will need.

    Parameters
    ----------
    key : int
        That of the samples.
    size : callable
        Returns the size of the largest sample, given D.
    """

    key: int
    size: Callable[[int], int]


class Settings(TypedDict):
    """How the observations were found in a model."""

    observed: str | list[str] | None
    dim: str | list[str] | None
    allow_local: bool
    units: UnitSettings | None


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsToRead:
    """The observations of a model to read, their source, and the executor.

    Parameters
    ----------
    observed, dim, allow_local
        See `find_observations`.
    integrate : bool, "auto", str, or sequence of str
        Which free variables of levels are integrated out.
    units : UnitSettings, optional
        How an earlier build integrated them out.
    collapse : bool or "auto"
        Whether to merge equal rows.
    rows : RowSource, optional
        All rows, if the model holds prototypes of them.
    executor : Executor or Client, optional
        Reads and evaluates them, see `engine_of`; by default threads of this process.
    case_weights : ndarray, optional
        How many units each level of the model represents, where others are gone.
    filled : bool
        Whether the model is a copy of the user's that was filled with rows from elsewhere.

    Raises
    ------
    InvalidOptionError
        If an argument is out of range, or conflicts with another.

    Examples
    --------
    >>> RowsToRead(dim="obs").settings
    {'observed': None, 'dim': 'obs', 'allow_local': False, 'units': None}
    >>> RowsToRead(rows=[1.0])
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: rows is a list, but must be what open_rows(...)
    returns. (docs: troubleshooting#arguments)
    """

    observed: str | Sequence[str] | None = None
    dim: str | Sequence[str] | None = None
    allow_local: bool = False
    integrate: Integrate = False
    units: UnitSettings | None = None
    collapse: Collapse = "auto"
    rows: RowSource | None = None
    executor: HasSubmit | None = None
    case_weights: np.ndarray | None = None
    filled: bool = False

    def __post_init__(self) -> None:
        names_of("observed", self.observed)
        names_of("dim", self.dim)
        flag("allow_local", self.allow_local)
        if not isinstance(self.integrate, bool):
            names_of("integrate", self.integrate)
        elif self.integrate:
            raise InvalidOptionError("integrate=True: name the variables, or use 'auto'.")
        if not isinstance(self.collapse, str):
            flag("collapse", self.collapse)
        elif self.collapse != "auto":
            raise InvalidOptionError(f"collapse={self.collapse!r} must be True, False or 'auto'.")
        if self.executor is not None:
            engine_of(self.executor)
            if not self.are_elsewhere:
                raise no_rows_for(self.executor)
        if self.are_elsewhere:
            self._require_rows()

    @property
    def are_elsewhere(self) -> bool:
        """Whether the model holds prototypes of the rows."""
        return self.rows is not None

    @property
    def named(self) -> list[str] | None:
        """The variables that the user wants to have integrated out; None for ``"auto"``."""
        if self.integrate == "auto" or isinstance(self.integrate, bool):
            return None
        names = names_of("integrate", self.integrate)
        return [names] if isinstance(names, str) else names

    def _require_rows(self) -> None:
        required_source(self.rows)
        refused = {
            "collapse": self.collapse is True,
            "allow_local": self.allow_local,
        }
        for name, value in refused.items():
            if value is not False:
                raise InvalidOptionError(
                    f"{name}={value!r}: rows=... are read one by one, and neither merged nor kept "
                    "together. Load the rows into the model (equal ones grouped, with their counts "
                    f"as open_rows(..., weight=...), if they are too many), or leave {name} out."
                )

    @property
    def settings(self) -> Settings:
        """What finds the same observations again."""
        return {
            "observed": names_of("observed", self.observed),
            "dim": names_of("dim", self.dim),
            "allow_local": flag("allow_local", self.allow_local),
            "units": self.units,
        }

    @property
    def of_rows(self) -> dict[str, Any]:
        """Arguments of `find_observations` for the rows alone."""
        return {name: value for name, value in self.settings.items() if name != "units"}

    def found_in(
        self, model: pm.Model, columns: Mapping[str, ColumnLike] | None = None
    ) -> Observations:
        """Find the observations in a model, or among prototypes with such columns."""
        if self.units:
            return units_at(self.units_of(model, self.units["names"]), self.units)
        return find_observations(model, **self.of_rows, columns=columns)

    def units_of(
        self, model: pm.Model, names: Sequence[str], rows: Observations | None = None
    ) -> UnitModel:
        """Return the units of a model whose rows may be known, by the variables of levels."""
        found = unit_model(model, names, self.of_rows, rows)
        return replace(found, case_weights=self.case_weights, filled=self.filled)

    def rows_of(self, model: pm.Model) -> Observations:
        """Find the rows of a model, even if variables have one value per row."""
        return find_observations(model, **(self.of_rows | {"allow_local": True}))


#: The rows of a model, by default.
EVERY_ROW = RowsToRead()


def units_at(units: UnitModel, settings: UnitSettings) -> Observations:
    """Return the log-likelihoods of units with the settings of an earlier build."""
    units = replace(units, n_modes=settings["n_modes"])
    first, x = units.observations_at_zero, np.array(settings["at"])
    loglik = LogLikelihood(first)
    modes, every = loglik.functions.unit_modes, loglik.in_memory.all
    places = modes.places(modes.at(first.space.constrain(x[None]).at(0), every))
    rule, error = Rule(*settings["rule"]), settings["node_error"]
    return units.observations(rule, *places, at=x, node_error=error)


def full_model(model: object) -> pm.Model:
    """Return the model that was passed, or held by what was passed, or that of the context.

    The model of a coreset is refused.

    Raises
    ------
    InvalidOptionError
        If it is not a model, or None outside a model context.
    UnsupportedModelError
        If it is the model of a coreset.

    Warns
    -----
    CoresetWarning
        If its draws do not serve for what holds it, see `doubt_about`.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     full_model(None) is model
    True
    """
    found = given_model(model)
    if doubt := doubt_about(model):
        warn_user(doubt)
    if WEIGHTS in found.named_vars:
        raise UnsupportedModelError("This is the model of a coreset. Pass the full model.")
    return found


def likelihood_of_model(
    model: pm.Model,
    wanted: RowsToRead = EVERY_ROW,
    *,
    rng: np.random.Generator,
    watch: Callable[[int, int], None] = unwatched,
    sampled: RowSamples | None = None,
) -> LogLikelihood:
    """Derive the log-likelihoods of a model, and compare them with PyMC.

    Parameters
    ----------
    model : pm.Model
        With all rows, or prototypes of them.
    wanted : RowsToRead, optional
    rng : numpy.random.Generator
    watch, sampled
        See `likelihood_of_rows`.

    Returns
    -------
    LogLikelihood

    Raises
    ------
    UnsupportedModelError, InvalidDataError
        As `verify_rows`, `find_observations` and `likelihood_of_rows` do.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> likelihood_of_model(model, rng=np.random.default_rng(1)).n_rows
    3
    """
    if wanted.are_elsewhere:
        return likelihood_of_rows(model, wanted, rng=rng, watch=watch, sampled=sampled)
    loglik = LogLikelihood(wanted.found_in(model))
    if not loglik.observations.integrated:
        verify_rows(loglik, rng=rng)
    else:
        verify_rows(LogLikelihood(wanted.rows_of(model)), rng=rng)
    return loglik.collapsed(collapse=wanted.collapse)


def verify_form(loglik: LogLikelihood) -> None:
    """Compare the model of a coreset of one row with the log-likelihood of that row.

    Parameters
    ----------
    loglik : LogLikelihood
        The log-likelihoods, which `verify_rows` has accepted.

    Raises
    ------
    UnsupportedModelError
        If the two differ at the model's initial point, or near it if they are not finite there.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> verify_form(LogLikelihood(find_observations(model)))
    """
    rows, weights = loglik.some_row, np.array([2.0])
    model = coreset_model(loglik.observations, rows, weights)
    space = loglik.observations.space
    potential = model.logp(vars=[model[POTENTIAL]], jacobian=False)
    # Some densities are not defined at the initial point, such as where a shape is exactly zero.
    points, _ = points_around(space, np.random.default_rng(0))
    found = weights @ loglik.matrix(space.constrain(points), rows, finite=False)
    first = int(np.argmax(np.isfinite(found)))
    values = space.point(points[first])
    [value] = values_of([potential], {v: values[v.name] for v in model.value_vars})
    expected = float(found[first])
    if not agree(value, expected, size=weights.sum(), nan=True):
        raise UnsupportedModelError(
            f"The coreset model has the log-likelihood {value} where the weighted rows give "
            f"{expected}: the package does not understand this model. Please report it."
        )


# -- rows that are read chunk by chunk -------------------------------------------------------------


def likelihood_of_rows(
    model: pm.Model,
    wanted: RowsToRead,
    *,
    rng: np.random.Generator,
    watch: Callable[[int, int], None] = unwatched,
    sampled: RowSamples | None = None,
) -> LogLikelihood:
    """Derive the log-likelihoods of rows that lie elsewhere from a model with prototypes of them.

    Reads all rows once.  The model is compared with PyMC on its prototypes and, in a copy, on other
    rows, in another number than the prototypes', alone and among others.

    Parameters
    ----------
    model : pm.Model
        It is not changed.
    wanted : RowsToRead
        With rows.
    rng : numpy.random.Generator
    watch : callable, optional
        Called with the progress of each reading, see `StreamedRows`.
    sampled : RowSamples, optional
        Which rows will be needed: they are kept at the first reading.

    Returns
    -------
    LogLikelihood

    Raises
    ------
    UnsupportedModelError
        If something in the model cannot be computed row by row.
    InvalidDataError
        If the rows hold values that cannot be used, or codes that are out of range.

    Examples
    --------
    >>> from pymc_coresets import open_rows
    >>> rows = open_rows({"y": np.arange(100.0)})
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", rows.head(10)["y"])
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    >>> likelihood_of_rows(model, RowsToRead(rows=rows), rng=np.random.default_rng(1)).n_rows
    100
    """
    rows = required_source(wanted.rows)
    of_prototypes = likelihood_of_prototypes(model, rows.columns, wanted)
    columns = {row.name: row.values.dtype for row in of_prototypes.observations.rows}
    source = StreamedRows(rows, columns, engine=engine_of(wanted.executor), watch=watch)
    key = random_key(rng) if sampled is None else sampled.key
    n_wanted = 0 if sampled is None else sampled.size(of_prototypes.n_dims)
    n_others = of_prototypes.n_rows // 2 + 1  # another number than in the model
    source = CodeCheck(of_prototypes.observations).usable(source, max(n_wanted, n_others), key=key)
    if source.n_rows < 2:
        raise InvalidDataError(f"There is {source.n_rows} row: there is nothing to choose from.")
    loglik = of_prototypes.reading(source)
    verify_rows(of_prototypes, rng=rng)
    others = source.subsample(min(source.n_rows, n_others), key=key, distinct=True).rows
    _verify_others(loglik, wanted, others, rng)
    return loglik


def likelihood_of_prototypes(
    model: pm.Model, columns: Mapping[str, ColumnLike], wanted: RowsToRead = EVERY_ROW
) -> LogLikelihood:
    """Derive the log-likelihoods of a model that holds prototype rows, without reading any.

    Parameters
    ----------
    model : pm.Model
    columns : mapping of str
        Shape and dtype of each column of the rows.
    wanted : RowsToRead, optional
        How the observations are found and evaluated.

    Returns
    -------
    LogLikelihood
        Of the prototypes.

    Raises
    ------
    UnsupportedModelError
        If something in the model cannot be computed row by row.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", np.arange(10.0))
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    >>> likelihood_of_prototypes(model, {"y": np.zeros(())}).n_rows
    10
    """
    if wanted.dim is not None and not isinstance(wanted.dim, str):
        raise InvalidOptionError(
            f"dim={wanted.dim!r}: rows=... has no cells. Pass a table with one row for each cell."
        )
    found = wanted.found_in(model, columns)
    if not found.is_whole:
        raise UnsupportedModelError(
            "Missing values of prototypes would be imputed, but those of other rows are unknown: "
            "leave these rows out."
        )
    return LogLikelihood(found)


# -- comparison with PyMC --------------------------------------------------------------------------


def _verify_others(
    loglik: LogLikelihood, wanted: RowsToRead, others: Rows, rng: np.random.Generator
) -> None:
    obs = loglik.observations
    n_prototypes = obs.prototypes.n_rows
    data = {n: np.resize(v, (len(others), *v.shape[1:])) for n, v in obs.prototypes.values.items()}
    try:
        copy = copy_with_rows(obs.model, data | obs.by_name(others))
        expected = reference_of(wanted.found_in(copy, required_source(wanted.rows).columns))
        near = points_near(obs.space, rng)
        values = expected(near)
    except (ValueError, TypeError, IndexError, UnsupportedModelError) as error:
        raise UnsupportedModelError(
            f"With {len(others)} rows instead of the model's {n_prototypes}, the model cannot be "
            f"evaluated: {error} Let no shape be the number of rows."
        ) from error
    together = loglik.matrix(near, others, finite=False)
    alone = [others.take(slice(i, i + 1)) for i in range(min(3, len(others)))]
    single = np.concatenate([loglik.matrix(near, row, finite=False) for row in alone])
    for found in (together, np.concatenate([single, together[len(single) :]])):
        for n, s in differing(found, values)[:1]:
            raise UnsupportedModelError(
                f"The log-likelihood of {loglik.source.place(int(others.positions[n]))} comes out "
                f"as {found[n, s]}, but PyMC gives {values[n, s]} among {len(others)} rows: "
                "something in the model depends on how many rows it holds, as x.shape[0] does, or "
                "on the other rows. Compute it beforehand, and pass its value to the model."
            )
