"""Find a model's observations: its likelihood terms, their axis, and a pointwise log-likelihood."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import AdvancedSubtensor, op_of
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.graphs import PlainModel, plain_model
from pymc_coresets.reading.known import without_views
from pymc_coresets.reading.likelihood.joined_columns import join_columns
from pymc_coresets.reading.likelihood.layouts import (
    Layout,
    RowSet,
    axes_of,
    layout_of,
    refuse_several,
)
from pymc_coresets.reading.likelihood.prototypes import ColumnLike, Prototypes
from pymc_coresets.reading.likelihood.refusals import (
    refuse_complex,
    refuse_constant,
    refuse_entangled,
    refuse_joint,
    refuse_local,
    refuse_recursion,
    refuse_single,
)
from pymc_coresets.reading.likelihood.row_terms import Term, sum_over_events
from pymc_coresets.reading.likelihood.terms import (
    as_names,
    by_default,
    dims_of_cells_left,
    imputed_names,
    other_potentials,
    term_names,
)
from pymc_coresets.reading.pushdown import Pushdown, RowArray
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.user_model import ModelSnapshot, given_model
from pymc_coresets.rows.values import NO_UNIT_ROWS, Rows, UnitRows

#: Name of the row array that says to which of several sets of terms a row belongs.
TERM_OF_ROW = "likelihood term"


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of a model, and all that is needed to evaluate their log-likelihoods.

    Attributes
    ----------
    snapshot : ModelSnapshot
        The user's model, never changed, with the data that it holds.
    terms : tuple of Term
        The likelihood terms to summarise.
    dims : tuple of str
        Name of the observation dimension, if it has one; names, if each cell of a matrix is an
        observation.
    n_obs : int
        Number of observations N.
    parameters : mapping of str to TensorVariable
        Inputs that stand for the free variables, on their own (constrained) scale.
    loglik : TensorVariable
        The log-likelihoods (n_rows,) as a function of `parameters`, the placeholders of `rows`, and
        `n_rows`.
    n_rows : TensorVariable
        How many rows the placeholders hold.
    rows : tuple of RowArray
        The arrays that are indexed by the observation.
    positions : ndarray of int
        Position of each observation in the user's data.
    n_data : int
        Number of rows, or cells, of these data: missing values leave some of them out.
    unselected : tuple of str
        Parts of the model whose cost grows with N for any number of rows, by name.
    local : tuple of str
        Free variables that have the observation axis themselves, or stand for some of its entries.
    reference : TensorVariable
        The log-likelihoods (n_obs,) as PyMC derives them, to check the others against.
    unweighted : tuple of TensorVariable
        Terms of scalar log-densities that belong to no row; they stay in the coreset's model with
        weight one.
    log_densities : tuple of TensorVariable
        The log-densities of all terms as PyMC derives them, if one of them is a scalar.
    prototypes : Prototypes
        The containers that hold prototype rows, if the model does not hold all rows; N is
        the number of its rows then, and `reference` is a function of its inputs too.
    sets : tuple of RowSet
        Sets of terms with the same rows, if terms have different rows.
    left_out : tuple of str
        Deterministics that have the observation axis.
    whole : tuple of str
        Terms with many data that stay in the coreset's model as they are, in words.
    """

    snapshot: ModelSnapshot
    terms: tuple[Term, ...]
    dims: tuple[str, ...]
    n_obs: int
    parameters: Mapping[str, TensorVariable]
    loglik: TensorVariable
    n_rows: TensorVariable
    rows: tuple[RowArray, ...]
    positions: np.ndarray
    n_data: int
    unselected: tuple[str, ...]
    local: tuple[str, ...]
    reference: TensorVariable
    unweighted: tuple[TensorVariable, ...] = ()
    log_densities: tuple[TensorVariable, ...] = ()
    prototypes: Prototypes = field(default_factory=Prototypes)
    sets: tuple[RowSet, ...] = ()
    left_out: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    #: The space of the model, once it is known.
    _spaces: list[Unconstrained] = field(default_factory=list, init=False, repr=False)

    @property
    def inputs(self) -> tuple[RowArray, ...]:
        """All arrays that the log-likelihoods are computed from: see `Rows.inputs`."""
        return self.rows

    @property
    def unit_rows(self) -> UnitRows:
        """The rows of observations that have several; none where each is a row itself."""
        return NO_UNIT_ROWS

    @property
    def case_weights(self) -> np.ndarray:
        """How many observations of the data each represents."""
        return np.ones(self.n_obs)

    @property
    def mean_size(self) -> float:
        """How many rows an observation has on average."""
        return float(self.unit_rows.sizes.mean()) if self.unit_rows else 1.0

    @property
    def n_nodes(self) -> int:
        """How often each row is evaluated for a log-likelihood."""
        return 1

    @property
    def integrated(self) -> tuple[str, ...]:
        """Free variables that are integrated out of the log-likelihoods."""
        return ()

    @property
    def model(self) -> pm.Model:
        """The user's model; a copy where it holds other data now, or outcomes are missing."""
        return self.snapshot.model

    def place(self, position: int) -> str:
        """Return the location of an observation in the user's data.

        Where terms have different rows, these are numbered one term after the other.
        """
        for rows in self.sets:
            if rows.start <= position < rows.stop:
                return f"row {rows.position(position)} of {rows.names}"
        return f"observation {position}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each free variable."""
        return {name: v.type.shape for name, v in self.parameters.items()}

    @property
    def containers(self) -> dict[str, int]:
        """The number of the row array that each data container is, where it is just one.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     x = pm.Data("x", np.arange(5.0))
        ...     y = pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(5))
        >>> list(find_observations(model).containers)
        ['x']
        """
        found: dict[str | None, list[int]] = {v.name: [] for v in self.model.data_vars}
        for number, row in enumerate(self.rows):
            source = _container(row.source, n_axes=len(self.dims))
            if op_of(source) is None and source.name in found:
                found[source.name].append(number)
        return {str(name): numbers[0] for name, numbers in found.items() if len(numbers) == 1}

    @property
    def is_whole(self) -> bool:
        """Whether no row of the data is left out: numbers are positions then, of any rows."""
        return self.n_obs == self.n_data

    def positions_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the positions in the user's data of observations, by their numbers."""
        return numbers if self.is_whole else self.positions[numbers]

    def numbers_of(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers of observations by their positions in the user's data, all included.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(5.0))
        >>> find_observations(model).numbers_of(np.array([3, 4]))
        array([3, 4])
        """
        return positions if self.is_whole else np.searchsorted(self.positions, positions)

    def by_name(self, rows: Rows) -> dict[str, np.ndarray]:
        """Return the data of rows by the names of their arrays."""
        return {r.name: array for r, array in zip(self.rows, rows.arrays, strict=True)}

    def __getstate__(self) -> dict[str, object]:
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"_spaces": []}

    @property
    def space(self) -> Unconstrained:
        """The unconstrained space of `model`; the same one while its data stay."""
        model = self.model
        if not self._spaces or self._spaces[0].model is not model:
            self._spaces[:] = [Unconstrained(model)]
        return self._spaces[0]

    def keep_space(self, space: Unconstrained) -> None:
        """Use a space of the same model that is known already, with what it has compiled."""
        self._spaces[:] = [space]

    @cached_property
    def n_dims(self) -> int:
        """Number of free dimensions D of the posterior that the rows determine.

        A variable that sums to zero has one less.
        """
        return self.space.n_dims


def _container(source: Variable, *, n_axes: int) -> Variable:
    """Return the matrix of which a row array has the cells, if that is all that it is."""
    if not isinstance(op_of(source), AdvancedSubtensor) or n_axes < 2:
        return source
    x, *index = source.owner.inputs
    return without_views(x) if len(index) == n_axes else source


def find_observations(
    model: pm.Model | None = None,
    *,
    observed: str | Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    allow_local: bool = False,
    columns: Mapping[str, ColumnLike] | None = None,
    unconstrained: Collection[str] = (),
) -> Observations:
    """Derive the pointwise log-likelihood of a model for any of its rows.

    Parameters
    ----------
    model : pm.Model, optional
        By default the model of the enclosing ``with`` block.
    observed : str or sequence of str, optional
        The observed variables and potentials to summarise.  By default the longest observed ones,
        and all others of 500 rows or more that can be taken apart; a potential only where its
        rows hold data, and not lookups alone.  Terms of different lengths have rows of their own.
    dim : str or sequence of str, optional
        Name of the observation dimension.  By default the leading axis of the observed variables.
        Several names make each cell of an observed matrix an observation, numbered in C order.
    allow_local : bool, default False
        Accept free variables that have the observation axis themselves.  They stay in the coreset
        model in full, so that its cost still grows with N.
    columns : mapping of str to ColumnLike, optional
        Columns of rows that lie elsewhere.  The model's data containers of these names hold a few
        of the rows, and nothing else in the likelihood may be indexed by the observation.
    unconstrained : collection of str
        Free variables whose `parameters` are on their unconstrained scale.

    Returns
    -------
    Observations

    Raises
    ------
    UnsupportedModelError
        If the model has no observed variable, a log-likelihood that is one number and no sum of
        rows, one that depends on no free variable, local latent variables, minibatches, or is part
        of another model; with `columns`, if anything is computed from several rows, or terms have
        rows of their own.
    InvalidDataError
        If the containers and the columns do not fit together.
    InvalidOptionError
        If `model` is not a model, or is left out where there is no enclosing ``with`` block.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1.0, observed=np.arange(5.0))
    >>> find_observations(model).n_obs
    5
    """
    model = given_model(model)
    if model.parent is not None:
        raise UnsupportedModelError(
            f"The model {model.name!r} is part of another model. Build the coreset of the parent "
            "model, which holds its variables too."
        )
    dims = as_names(dim)
    names = term_names(model, observed, dims)
    prototypes = Prototypes() if columns is None else Prototypes.of(model, columns)
    free_choice = observed is None and not dims and not prototypes
    others = other_potentials(model, names) if free_choice else []
    plain = plain_model(model, [*names, *others], prototypes.inputs, unconstrained)
    refuse_constant(plain, names)
    refuse_complex(plain.graphs)
    whole: tuple[str, ...] = ()
    if free_choice:
        names, whole = by_default(plain, names, with_local=allow_local)
    if not dims and not prototypes:
        dims = dims_of_cells_left(model, names)
    if prototypes:
        _refuse_numbers(plain, names, dims)
    layout = layout_of(plain, names, dims)
    refuse_single(layout.sets[0].terms, layout.n_obs)
    if prototypes:
        refuse_several(layout.sets)
    found = _select(plain, layout, prototypes, allow_local=allow_local)
    if prototypes:
        prototypes.refuse_other_uses(model, {*names, *found.left_out})
    return replace(found, whole=whole)


# -- selection -------------------------------------------------------------------------------------


def _select(
    plain: PlainModel, layout: Layout, prototypes: Prototypes, *, allow_local: bool
) -> Observations:
    pushdown = Pushdown(plain.parameters.values(), layout.n_obs, prototypes.given)
    several = len(layout.sets) > 1
    terms = tuple(term for s in layout.sets for term in s.terms)
    loglik = (
        _stacked(layout, pushdown)
        if several
        else _of_terms(layout.sets[0].terms, layout, pushdown, pushdown.select)
    )
    entered = set[Variable]().union(*pushdown.written.values()) if allow_local else set()
    local = tuple(sorted(str(v.name) for v in {*pushdown.local, *layout.local, *entered}))
    if not allow_local:
        names = " and ".join(repr(term.name) for term in terms)
        for length in {term.length for term in terms}:
            refuse_recursion(names, pushdown.stops, length, pushdown)
        if local:
            refuse_local(plain.model, terms, local)
    unselected = [*layout.unselected, *pushdown.unselected, *pushdown.taken_whole(loglik)]
    unselected += [] if allow_local else list(pushdown.written)
    rows, imputed = pushdown.row_arrays(), imputed_names(plain.model)
    if not prototypes:
        [loglik], rows = join_columns([loglik], rows)
    return Observations(
        snapshot=ModelSnapshot.of(plain.model, prototypes.values, imputed),
        terms=terms,
        dims=() if several else layout.sets[0].dims,
        n_obs=layout.n_obs,
        parameters={n: v for n, v in plain.parameters.items() if n not in imputed},
        loglik=loglik,
        n_rows=pushdown.n_rows,
        rows=tuple(rows),
        positions=np.arange(layout.n_obs) if several else layout.sets[0].positions,
        n_data=layout.n_obs if several else layout.sets[0].n_data,
        unselected=tuple(dict.fromkeys(unselected)),
        local=local,
        reference=layout.reference,
        unweighted=tuple(part for split in layout.terms.values() for part in split.rest),
        log_densities=layout.log_densities,
        prototypes=prototypes,
        sets=layout.sets if several else (),
        left_out=layout.left_out,
    )


def _refuse_numbers(plain: PlainModel, names: Sequence[str], dims: tuple[str, ...]) -> None:
    """Raise for scalar terms if the rows are outside the model."""
    axes = {name: axes_of(plain.model, name, dims)[0] for name in names}
    numbers = [name for name, axis in axes.items() if axis >= plain.graphs[name].type.ndim]
    if numbers:
        refuse_joint(
            f"{numbers!r}",
            "is one number for all rows of the model, and rows=... needs one value per row",
            "Name the lagged values as columns of their own, and write a likelihood with one value "
            "per row (a pm.Potential without .sum(), or pm.Normal around the prediction from the "
            "lags); or keep the data in memory.",
        )


def _stacked(layout: Layout, pushdown: Pushdown) -> TensorVariable:
    """Select the rows of several sets, each of which has terms, and data, of its own.

    A row is evaluated by the terms of all sets, of which one counts: the others see their first
    row in its place.
    """
    numbers = np.repeat(np.arange(len(layout.sets)), [s.stop - s.start for s in layout.sets])
    which = pushdown.select(pt.constant(numbers, name=TERM_OF_ROW), 0)
    entries = [s.entries(layout.n_obs) for s in layout.sets]
    selects = [partial(pushdown.select_entries, entries=own) for own in entries]
    first, *others = (
        _of_terms(s.terms, layout, pushdown, select)
        for s, select in zip(layout.sets, selects, strict=True)
    )
    loglik = first
    for number, other in enumerate(others, start=1):
        loglik = pt.switch(pt.eq(which, number), other, loglik)
    return loglik


def _of_terms(
    terms: Sequence[Term],
    layout: Layout,
    pushdown: Pushdown,
    select: Callable[[TensorVariable, int], TensorVariable],
) -> TensorVariable:
    selected = []
    for term in terms:
        n_before = len(pushdown.unselected)
        graph = select(layout.terms[term.name].rows, term.axis)
        refuse_entangled(layout.terms[term.name], pushdown.unselected[n_before:])
        selected.append((graph, term.axis))
    return sum_over_events(selected)
