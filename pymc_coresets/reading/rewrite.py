"""Build the model in which a weighted potential over a few rows represents all observations."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph import FunctionGraph, Variable, ancestors, clone, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pymc_api
from pymc_coresets.compat.pytensor_api import SharedVariable, XTensorVariable, is_input
from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError, warn_user
from pymc_coresets.reading.graphs import with_plain_ways
from pymc_coresets.reading.likelihood.row_terms import total_of
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.reading.units.placement import with_loops
from pymc_coresets.reading.user_model import converted_back, convertible, data_of
from pymc_coresets.rows.values import Rows

#: Names of the variables that the coreset model has in place of the observed ones.
POTENTIAL, WEIGHTS = "coreset_loglik", "coreset_weights"
#: Name of the potential with what the rows of a log-density that is one number lack.
UNWEIGHTED = "coreset_unweighted"
#: Name of the potential with the quadratic that stands for all rows but the weighted ones.
QUADRATIC = "coreset_quadratic"
_ROW = "coreset_row_"  # and a number: shared variables with the selected rows


def coreset_model(
    observations: Observations,
    rows: Rows,
    weights: np.ndarray,
    *,
    quadratic: Quadratic | None = None,
) -> pm.Model:
    """Replace the likelihood of all rows by the weighted likelihood of a few.

    The new model has the free variables of the old one (names, dims, coords, priors, transforms,
    initial values), the selected rows of the data, and one potential,
    ``sum(weights * f_n(theta))``; if a log-density that is one number was taken apart, a second
    one holds what is not in its rows.  Its cost does not depend on the number of observations N.
    Deterministics along the observations are left out: predictions compute them for all rows.

    Parameters
    ----------
    observations : Observations
        What `find_observations` derived from the user's model, which stays unchanged.
    rows : Rows
        The selected rows, with their data in the order of ``observations.rows``.
    weights : ndarray of shape (size,)
        What each row's log-likelihood is multiplied by.
    quadratic : Quadratic, optional
        What is added to the weighted rows, as a potential of its own.

    Returns
    -------
    pm.Model

    Raises
    ------
    InvalidOptionError
        If there is not one weight for each row.
    UnsupportedModelError
        If the model has symbolic initial values.

    Notes
    -----
    The rows and weights are shared variables.  Two coreset models of the same observations have
    the same graph, so that PyTensor compiles it once.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> from pymc_coresets.rows.values import Rows
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1.0, observed=np.arange(5.0))
    >>> rows = Rows(np.array([0, 4]), np.ones(2), (np.array([0.0, 4.0]),))
    >>> small = coreset_model(find_observations(model), rows, np.array([2.5, 2.5]))
    >>> small.potentials
    [coreset_loglik]
    """
    weights = np.asarray(weights, dtype=float)
    if weights.shape != (len(rows),):
        raise InvalidOptionError(
            f"There must be one weight for each of the {len(rows)} rows; the weights have shape "
            f"{weights.shape}."
        )
    others = {} if quadratic is None else {QUADRATIC: quadratic.potential()}
    return _Rewrite(observations, rows, weights, others).model()


def replace_terms(observations: Observations, potential: TensorVariable, name: str) -> pm.Model:
    """Replace the likelihood of all rows by another function of the parameters.

    The new model has the free variables of the old one, its other terms and data, and the
    potential.  Data and deterministics along the observations are left out.

    Parameters
    ----------
    observations : Observations
        What `find_observations` derived from the user's model, which stays unchanged.
    potential : TensorVariable
        A scalar graph of ``observations.parameters``, in nats.
    name : str
        The potential's name in the new model.

    Returns
    -------
    pm.Model

    Raises
    ------
    UnsupportedModelError
        If the model has symbolic initial values, or the name is taken.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(5.0))
    >>> found = find_observations(model)
    >>> replace_terms(found, -2.5 * (found.parameters["mu"] - 2.0) ** 2, "summary").potentials
    [summary]
    """
    if name in observations.model.named_vars:
        raise UnsupportedModelError(
            f"The model has a variable {name!r} already: rename it, or summarise the model of all "
            "rows."
        )
    nothing = Rows(np.empty(0, dtype=np.int64), np.empty(0), ())
    return _Rewrite(observations, nothing, np.empty(0)).replaced(potential, name)


class CoresetModel(pm.Model):  # type: ignore[misc]
    """A model in which a potential stands for the observed variables of another.

    Looking up these variables, as PyMC does before posterior prediction, gives a warning: the
    prediction would be empty.
    """

    replaced: Collection[str] = ()

    def __contains__(self, key: object) -> bool:
        """Whether there is a variable of this name."""
        if key in self.replaced:
            warn_user(
                f"{key!r} is not in a coreset's model, where a potential stands for all its rows: "
                "predict them by coreset.predict(idata), or by PyMC with your own model."
            )
        return bool(super().__contains__(key))


class _Rewrite:
    """The fgraph of the user's model, and the models that it can be turned into."""

    def __init__(
        self,
        obs: Observations,
        rows: Rows,
        weights: np.ndarray,
        others: Mapping[str, TensorVariable] = MappingProxyType({}),
    ) -> None:
        self.obs, self.rows, self.others = obs, rows, others
        self.dims = {n: tuple(d) for n, d in obs.model.named_vars_to_dims.items() if d}
        self.fgraph, memo = pymc_api.fgraph_from_model(convertible(obs.model))
        self.by_name = {v.name: memo[v] for v in obs.model.named_vars.values() if v in memo}
        self.weights = pytensor.shared(weights, name=WEIGHTS)
        self.along: tuple[str, ...] = ()  # dimension of the coreset, if it has one
        self.containers = obs.containers

    def model(self) -> pm.Model:
        kept = self._kept_outputs()
        self.along = self._along(kept)
        selected_data = self._selected_data(kept)
        outputs = [
            *kept,
            *(self._named(name, shared) for name, shared in selected_data.items()),
            pymc_api.model_named(self.weights, WEIGHTS, *self.along),
            *self._potentials(self._weighted()),
        ]
        model = self._converted(outputs, selected_data)
        model.__class__, model.replaced = CoresetModel, [term.name for term in self.obs.terms]
        return model

    def replaced(self, potential: TensorVariable, name: str) -> pm.Model:
        return self._converted([*self._kept_outputs(), *self._potentials({name: potential})])

    def _weighted(self) -> dict[str, TensorVariable]:
        """Return what stands for all rows."""
        loglik = self.obs.loglik
        if isinstance(self.obs, UnitObservations):
            loglik = with_loops(loglik)
        return {POTENTIAL: (self.weights * loglik).sum(), **self.others}

    def _potentials(self, graphs: Mapping[str, TensorVariable]) -> list[Variable]:
        unweighted = self.obs.unweighted
        named = {**graphs, **({UNWEIGHTED: total_of(unweighted)} if unweighted else {})}
        copies = _copies(named.values())
        return [
            pymc_api.model_potential(graph, name) for name, graph in zip(named, copies, strict=True)
        ]

    def _converted(
        self,
        outputs: list[Variable],
        selected_data: Mapping[str, SharedVariable] = MappingProxyType({}),
    ) -> pm.Model:
        fgraph = FunctionGraph(outputs=outputs, clone=False)
        new = self._replacements(fgraph.variables, selected_data)
        fgraph.replace_all(list(new.items()), import_missing=True)
        pymc_api.set_coords(fgraph, *self._coords())
        model = converted_back(self.obs.model, fgraph, self._renamed)
        for rv, transform in list(model.rvs_to_transforms.items()):
            if transform is not None and isinstance(rv, XTensorVariable):
                model.rvs_to_transforms[rv] = with_plain_ways(transform, rv.type.dims)
        return model

    def _kept_outputs(self) -> list[Variable]:
        """All that stays unchanged: neither the terms nor the deterministics along the rows."""
        terms, along_rows = {t.name for t in self.obs.terms}, set(self.obs.left_out)
        removed = {v for v in self.fgraph.outputs if v.owner.op.name in terms}
        kept = [
            v
            for v in self.fgraph.outputs
            if v.owner.op.name not in along_rows and not self._uses(v, removed)
        ]
        others = [v for v in kept if not isinstance(v.owner.op, pymc_api.ModelNamed)]
        needed = set(ancestors(others))
        if isinstance(self.obs, UnitObservations):  # other data are those of rows in units
            return [v for v in kept if v in needed]
        return [v for v in kept if v in needed or not self._is_row_data(v)]

    def _uses(self, variable: Variable, removed: set[Variable]) -> bool:
        """Whether a deterministic goes with the terms; nothing else may depend on them."""
        if removed.isdisjoint(ancestors([variable])):
            return False
        if variable in removed or isinstance(variable.owner.op, pymc_api.ModelDeterministic):
            return True
        raise UnsupportedModelError(
            f"{variable.owner.op.name!r} depends on the observed variables to summarise, "
            f"{[t.name for t in self.obs.terms]!r}: leave them out of observed=[...]."
        )

    def _is_row_data(self, variable: Variable) -> bool:
        op = variable.owner.op
        if not isinstance(op, pymc_api.ModelNamed):
            return False
        if self.obs.sets:
            return any(is_input(row.source) and row.name == op.name for row in self.obs.rows)
        dims = self.dims.get(op.name, ())
        if self._has_rows(dims):
            return True
        return op.name in self.containers and not any(dims)

    def _has_rows(self, dims: Sequence[str | None]) -> bool:
        return bool(self.obs.dims) and set(self.obs.dims) <= set(dims)

    def _along(self, kept: Iterable[Variable]) -> tuple[str, ...]:
        """Return the coreset's dimension: the old one, unless all its rows are still in use."""
        if not self.obs.dims:
            return ()
        in_use = any(self._has_rows(self.dims.get(v.owner.op.name, ())) for v in kept)
        name = "_".join(self.obs.dims)
        # As long as the coreset, and not as the data.
        return (f"{name}_coreset" if in_use or len(self.obs.dims) > 1 else name,)

    def _selected_data(self, kept: Iterable[Variable]) -> dict[str, SharedVariable]:
        kept_names, selected = {v.owner.op.name for v in kept}, dict[str, SharedVariable]()
        for variable in self.obs.model.data_vars:
            name = variable.name
            if name in kept_names or not self._is_row_data(self.by_name[name]) or self.obs.sets:
                continue  # the rows of several sets have no container in common
            if name in self.containers:
                number = self.containers[name]
                row = self.obs.rows[number]
                axis, rows, shape = row.axis, self._data(number), row.values.shape
            else:
                axes = [self.dims[name].index(d) for d in self.obs.dims]
                axis, rows = _chosen(data_of(variable), axes, self.rows.positions)
                shape = rows.shape
            known = [None if i == axis else n for i, n in enumerate(shape)]
            selected[name] = _shared_rows(rows, known, name)
        return selected

    def _data(self, number: int) -> np.ndarray:
        """Return the selected rows of a row array, along the axis that the graph expects."""
        return np.moveaxis(self.rows.inputs[number], 0, self.obs.inputs[number].axis)

    def _replacements(
        self, used: Collection[Variable], selected_data: Mapping[str, SharedVariable]
    ) -> dict[Variable, Variable]:
        """Map the parameters and rows of the pointwise graph to variables of the new model."""
        new: dict[Variable, Variable] = {self.obs.n_rows: self.weights.shape[0]}
        for name, variable in self.obs.parameters.items():
            free = self.by_name[name]
            tensor = free.values if isinstance(free, XTensorVariable) else free
            new[variable] = tensor.astype(variable.type.dtype)
        numbers = {name: self.containers[name] for name in selected_data if name in self.containers}
        linked = {number: selected_data[name] for name, number in numbers.items()}
        for i, row in enumerate(self.obs.inputs):
            if row.placeholder in used:
                if i not in linked:
                    shape = row.placeholder.type.shape
                    linked[i] = _shared_rows(self._data(i), shape, f"{_ROW}{i}")
                new[row.placeholder] = linked[i]
        return {old: variable for old, variable in new.items() if old in used}

    def _named(self, name: str, variable: Variable) -> Variable:
        dims = self._renamed(self.dims.get(name, ()))
        named: Variable = pymc_api.model_named(variable, name, *(() if None in dims else dims))
        return named

    def _renamed(self, dims: Sequence[str | None]) -> tuple[str | None, ...]:
        if not self.along or not self._has_rows(dims):
            return tuple(dims)
        if len(self.obs.dims) == 1:
            return tuple(self.along[0] if d in self.obs.dims else d for d in dims)
        return (*self.along, *(d for d in dims if d not in self.obs.dims))

    def _coords(self) -> tuple[pymc_api.Coords, dict[str, Variable]]:
        coords, lengths = pymc_api.coords_of(self.fgraph)
        for dim in self.along:
            coords[dim] = self._labels(coords)
            lengths[dim] = pytensor.shared(np.array(len(self.rows)), name=dim)
        return coords, lengths

    def _labels(self, coords: Mapping[str, object]) -> tuple[object, ...] | None:
        """Return the labels of the rows; those of cells are their positions."""
        if len(self.obs.dims) > 1:
            return tuple(self.rows.positions.tolist())
        labels = coords.get(self.obs.dims[0])
        return None if labels is None else tuple(np.asarray(labels)[self.rows.positions])


def _copies(graphs: Iterable[Variable]) -> list[Variable]:
    """Copy graphs but not their inputs, which are about to be replaced in the copies."""
    originals = list(graphs)
    _, copies = clone(list(graph_inputs(originals)), originals, copy_inputs=False)
    return copies


def _shared_rows(values: np.ndarray, shape: Sequence[int | None], name: str) -> SharedVariable:
    rows: SharedVariable = pytensor.shared(
        np.ascontiguousarray(values), name=name, shape=tuple(shape)
    )
    return rows


def _chosen(
    values: np.ndarray, axes: Sequence[int], positions: np.ndarray
) -> tuple[int, np.ndarray]:
    """Take rows along an axis or, along several, cells in C order; the rows then come first."""
    if len(axes) == 1:
        return axes[0], np.take(values, positions, axis=axes[0])
    cells = np.moveaxis(values, axes, range(len(axes)))
    return 0, cells[np.unravel_index(positions, cells.shape[: len(axes)])]
