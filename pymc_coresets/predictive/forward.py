"""Predictions for many rows at many draws: block by block, a few draws in each thread."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph import (
    Apply,
    FunctionGraph,
    Variable,
    ancestors,
    node_rewriter,
    vectorize_graph,
)
from pytensor.tensor import TensorConstant

from pymc_coresets.compat import pymc_api
from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import NoneTypeT, RandomType, SharedVariable, dfs_rewriter
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, Chains
from pymc_coresets.exceptions import (
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
)
from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.predictive.approximate_posterior import ApproximatePosterior
from pymc_coresets.predictive.model_data import (
    BLOCK_ROWS,
    FilledModel,
    HeldRows,
    Known,
    data_groups,
    labelled,
)
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.draws import Draws, dims_of
from pymc_coresets.reading.folding import NUMPY_MODE
from pymc_coresets.reading.graphs import parameter_inputs, shapes_of
from pymc_coresets.rows.first_reading import spaced
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import in_threads, n_cores

#: Values of some variables, by name.
type Values = dict[str, np.ndarray]
#: Its rows, its draws of each chain, and its values.
type Block = tuple[slice, slice, Values]

_MOST_BYTES = 2**33  # of a result in memory: 8 GiB
_ENTRIES = 2**25  # float64 numbers in a block of random values: 256 MB
_LARGE_CONSTANT = 1_000  # numbers
_STRIPS = 32  # into which the draws of a block are divided for the threads
_WORTH_A_THREAD = 2**15  # values of a variable at a draw: Python runs in one thread at a time
_WORTH_COMPILING = 10**8  # means: NumPy takes a second for them, as long as a loop to compile


# -- variables as functions of the free ones -------------------------------------------------------


@node_rewriter([ops.BernoulliRV])
def _compare_uniform_numbers(_: FunctionGraph, node: Apply) -> list[Variable]:
    """Draw Bernoulli variables from uniform ones: SciPy takes ten times as long."""
    rng, size = node.inputs[:2]
    p = pt.as_tensor(node.inputs[2])
    valid = pt.all((p >= 0) & (p <= 1))
    checked = ops.CheckAndRaise(ValueError, "A Bernoulli probability is not between 0 and 1.")(
        p, valid
    )
    shape = pt.shape(p) if isinstance(size.type, NoneTypeT) else size
    next_rng, uniform = pt.random.uniform(size=shape, rng=rng, return_next_rng=True)
    return [next_rng, pt.cast(pt.lt(uniform, checked), node.op.dtype)]


_WITH_NUMPY = NUMPY_MODE.register((dfs_rewriter(_compare_uniform_numbers), 0.5))


@dataclass(frozen=True, eq=False)
class Forward:
    """Some variables of a model as a function of its free variables.

    It computes them for the rows that the model's data containers hold when it is called.

    Parameters
    ----------
    names : tuple of str
        Of the variables that it returns.
    inputs : tuple of str
        Of the free variables.
    function : callable
        From PyTensor.
    rngs : tuple of SharedVariable
        Random number generators of the function.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1e-9, observed=np.zeros(2))
    >>> forward = Forward.of(model, forward_graphs(model, ["y"], means=False))
    >>> forward({"mu": np.array(3.0)}, 1)["y"].round(3)
    array([3., 3.])
    """

    names: tuple[str, ...]
    inputs: tuple[str, ...]
    function: Any
    rngs: tuple[SharedVariable, ...] = ()

    @classmethod
    def of(
        cls,
        model: pm.Model,
        graphs: Mapping[str, Variable],
        drawn: Collection[str] = (),
        *,
        compiled: bool = False,
    ) -> "Forward":
        """Make the function of graphs from `forward_graphs`; free variables may be drawn, too.

        NumPy evaluates it, which is nearly as fast for random values as a compiled function; other
        values of many rows take a third of the time in compiled loops.  Both let other threads work
        at the same time.
        """
        free = [rv for rv in model.free_RVs if rv.name not in drawn]
        mode = loop_mode() if compiled else _WITH_NUMPY
        function: Any = pymc_api.compile_random(free, list(graphs.values()), mode=mode)
        rngs = tuple(v for v in function.get_shared() if isinstance(v.type, RandomType))
        return cls(tuple(graphs), tuple(rv.name for rv in free), function, rngs)

    @classmethod
    def summed(cls, model: pm.Model, graphs: Mapping[str, Variable]) -> "Forward":
        """Make the function of several draws, (n_draws, ...) each, that adds up values at them.

        Compiled, of variables without random numbers.  Data in a product with coefficients are
        read once for all draws.

        Raises
        ------
        NotImplementedError, TypeError, ValueError
            If an operation cannot be vectorised.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     slope = pm.Normal("slope")
        ...     line = pm.Deterministic("line", slope * np.array([1.0, 2.0]))
        >>> Forward.summed(model, {"line": line})({"slope": np.array([3.0, 4.0])})
        {'line': array([ 7., 14.])}
        """
        free, each = model.free_RVs, ops.checked_tensors(list(graphs.values()))
        several = [rv.type.clone(shape=(None, *rv.type.shape))(rv.name) for rv in free]
        replaced: dict[Variable, Variable] = dict(zip(free, several, strict=True))
        for data in ancestors(each):  # each thread's function would have a copy of constants
            if isinstance(data, TensorConstant) and data.data.size > _LARGE_CONSTANT:
                replaced[data] = pytensor.shared(data.data, borrow=True, shape=data.type.shape)
        of_all = ops.checked_tensors(vectorize_graph(each, replaced))
        n_draws = several[0].shape[0]
        sums = [
            those.sum(axis=0) if those.ndim > one.ndim else n_draws * those
            for one, those in zip(each, of_all, strict=True)
        ]
        function: Any = pymc_api.compile_random(several, sums, mode=loop_mode())
        return cls(tuple(graphs), tuple(rv.name for rv in free), function)

    def separate(self) -> "Forward":
        """Return the same function for another thread: with memory and random numbers of its own.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
        >>> one = Forward.of(model, forward_graphs(model, ["y"], means=False))
        >>> at = {"mu": np.array(3.0)}
        >>> bool((one(at, 7)["y"] == one.separate()(at, 7)["y"]).all())
        True
        """
        others = {v: pytensor.shared(v.get_value(), name=v.name) for v in self.rngs}
        function = self.function.copy(swap=others)
        return replace(self, function=function, rngs=tuple(others.values()))

    def __call__(self, point: Mapping[str, np.ndarray], *key: int) -> Values:
        """Return the variables at one draw of all free variables.

        Their random numbers are those that belong to a key of whole numbers.
        """
        pymc_api.reseed_rngs(self.rngs, key)
        values: Sequence[np.ndarray] = self.function(*(point[name] for name in self.inputs))
        return dict(zip(self.names, values, strict=True))


def predicted_names(model: pm.Model) -> list[str]:
    """Return what PyMC predicts by default: what was observed, and what is computed from it.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
    >>> predicted_names(model)
    ['y']
    """
    found = [*model.observed_RVs, *pymc_api.observed_dependent_deterministics(model)]
    return [variable.name for variable in found]


def forward_graphs(model: pm.Model, names: Sequence[str], *, means: bool) -> dict[str, Variable]:
    """Return the graphs of some variables, or of their means, given the free variables.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        Observed variables, deterministics, or free variables.
    means : bool
        Replace observed variables by their means, where PyMC knows these.

    Raises
    ------
    InvalidOptionError
        If there are no names, a name is not a random variable or deterministic of the model, or the
        variable has no mean.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", p=pm.Beta("p", 1, 1), observed=np.zeros(2))
    >>> Forward.of(model, forward_graphs(model, ["y"], means=True))({"p": np.array(0.25)}, 1)
    {'y': array([0.25, 0.25])}
    """
    if not names:
        raise InvalidOptionError(
            "The model has no observed variables to predict: name deterministics with var_names."
        )
    known = {v.name for v in [*model.basic_RVs, *model.deterministics]}
    for name in names:
        if name not in known:
            raise InvalidOptionError(
                f"var_names: the model has no random variable or deterministic {name!r}; it has "
                f"{sorted(known)!r}."
            )
    observed = {rv.name for rv in model.observed_RVs}
    return {
        name: pt.as_tensor(
            _mean(model[name]) if means and name in observed else model[name],
            allow_xtensor_conversion=True,
        )
        for name in names
    }


def is_random(model: pm.Model, graph: Variable) -> bool:
    """Whether a graph has other values each time, at the same values of the free variables.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
    >>> [is_random(model, model[name]) for name in ("mu", "y")]
    [False, True]
    """
    blockers = set(model.free_RVs)
    found = ancestors([graph], blockers=blockers)
    return graph not in blockers and any(isinstance(v.type, RandomType) for v in found)


def _mean(variable: Variable) -> Variable:
    try:
        mean: Variable = pymc_api.mean_of(variable)
    except NotImplementedError:
        return variable  # the draws are averaged, which the result says
    except pymc_api.UndefinedMomentException as error:
        raise InvalidOptionError(
            f"{variable.name!r} has no mean ({error}): use kind='draws', or give the names of "
            "deterministics as var_names."
        ) from error
    return mean


# -- blocks of rows and draws ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """A prediction task: variables, rows and draws.

    Parameters
    ----------
    model : pm.Model
        A copy of the user's.
    graphs : mapping of str to Variable
        From `forward_graphs`.
    chains : Chains
        The draws.
    key : int
        Of the random numbers.
    means : bool, default False
        Average over the draws.
    rows : HeldRows or FilledModel
        The model's own rows, or the same model with rows from another source.
    drawn : collection of str
        Free variables that are predicted, and of which there are no draws.

    Notes
    -----
    If the model holds the rows, a block has all rows, and some draws of each chain or the means
    of all.  Rows from elsewhere come in blocks of at most 65,536, at all draws.  Random numbers
    depend on the key, the number of the block of rows, and that of the draw: not on threads, nor on
    the chunks that rows are read in.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     line = pm.Deterministic("line", pm.Normal("slope") * np.arange(3.0))
    >>> draws = xr.Dataset({"slope": (("chain", "draw"), [[1.0, 3.0]])})
    >>> wanted = Predictions(
    ...     model=model, graphs={"line": line}, chains=Chains(draws), key=1, means=True
    ... )
    >>> found, _ = wanted.in_memory(progressbar=False)
    >>> found["line"].values
    array([0., 2., 4.])
    """

    model: pm.Model
    graphs: Mapping[str, Variable]
    chains: Chains
    key: int
    means: bool = False
    rows: HeldRows | FilledModel = field(default_factory=HeldRows)
    drawn: Collection[str] = ()

    def in_memory(
        self, *, progressbar: bool, observed: bool = False
    ) -> tuple[xr.Dataset, xr.Dataset]:
        """Return all of them and, if wanted, what was observed of the same variables."""
        rows, draws = slice(0, self.rows.n_rows), slice(0, self.chains.n_draws)
        n_bytes = 8 * self._n_values * (1 if self.means else self._n_draws)
        if n_bytes > _MOST_BYTES:
            raise InvalidOptionError(
                f"The predictions would take {spaced(n_bytes // 10**6)} MB of memory: ask for "
                "fewer with draws=..., for their mean with kind='mean', or take them block by "
                "block with to=..., a function that stores each."
            )
        whole = self._zeros(rows, draws)
        seen = [rv.name for rv in self.model.observed_RVs if observed and rv.name in self.graphs]
        parts: dict[str, list[np.ndarray]] = {name: [] for name in seen}
        for of_rows, of_draws, values in self._blocks(progressbar=progressbar):
            before = () if self.means else (slice(None), of_draws)
            for name, value in values.items():
                along = [(*[slice(None)] * axis, of_rows) for axis in self._known[name][1]]
                whole[name][sum(along, before)] = value
            group = data_groups(self.model)["observed_data"] if seen else {}
            for name in seen if of_draws.stop == draws.stop else ():
                parts[name].append(group[name].to_numpy())
        axes = {name: self._known[name][1] for name in seen}
        data = {
            n: np.concatenate(p, max(axes[n], default=0)) if p[1:] else p[0]
            for n, p in parts.items()
        }
        return self._labelled((rows, draws, whole)), self._labelled((rows, draws, data), ())

    def blocks(self, *, progressbar: bool) -> Iterator[xr.Dataset]:
        """Yield one block after the other."""
        return map(self._labelled, self._blocks(progressbar=progressbar))

    # -- blocks ------------------------------------------------------------------------------------

    def _blocks(self, *, progressbar: bool) -> Iterator[Block]:
        """Divide rows from elsewhere, or the draws of each chain if the model holds all rows."""
        chains, at_draw, n_rows = self.chains, max(self._n_values, 1), self.rows.n_rows
        n_kept = 1 if self.means else self._n_draws
        of_row = max(at_draw // n_rows * n_kept, 1)
        of_rows = self.rows.blocks(max(1, min(_ENTRIES // of_row, BLOCK_ROWS)))
        most = chains.n_draws if self.means else _ENTRIES // (chains.n_chains * at_draw)
        each = self.rows.draws_of_block(chains.n_draws, max(1, most))
        n_predictions = n_rows * self._n_draws
        with (
            Reporter(show=progressbar) as report,
            report.passes("predicting", n_predictions, unit="predictions") as show,
        ):
            for number, rows in enumerate(of_rows):
                for start in range(0, chains.n_draws, each):
                    draws = slice(start, min(start + each, chains.n_draws))
                    yield rows, draws, self._computed(number, rows, draws, show)

    def _computed(
        self, number: int, rows: slice, draws: slice, show: Callable[[int], None]
    ) -> Values:
        """Compute values at a few draws after the others, or their means, in threads.

        The strips of draws do not depend on the number of threads, so that sums do not.
        """
        values, n_draws = self._zeros(rows, draws), self._n_draws

        def compute(task: tuple[Forward, np.ndarray]) -> Values:
            forward, strip = task
            _, n_together, values_at = self._by_several
            into = {n: np.zeros_like(v) for n, v in values.items()} if self.means else values
            for which in np.array_split(strip, -(-len(strip) // n_together)):
                i = int(which[0])
                chain, draw = divmod(i, self.chains.n_draws)
                at = () if self.means else (chain, draw - draws.start)
                where = f" at draw {draw} of chain {chain}{self.rows.place(number)}"
                with self._explained(where):
                    found = forward(values_at(which), self.key, number, i)
                for name, value in found.items():
                    into[name][at] += value
            return into

        by_chain = np.arange(n_draws).reshape(self.chains.n_chains, -1)[:, draws]
        strips = np.array_split(by_chain.ravel(), min(_STRIPS, by_chain.size))
        n_before = 0 if self.means else 2
        largest = max(math.prod(value.shape[n_before:]) for value in values.values())
        run = map if largest < _WORTH_A_THREAD else in_threads
        parts = run(compute, zip(self._forwards, strips, strict=False))
        for strip, part in zip(strips, parts, strict=True):
            for name in values if self.means else ():
                values[name] += part[name] / n_draws
            show(len(strip) * (rows.stop - rows.start))
        return values

    def _labelled(self, block: Block, before: Sequence[str] = SAMPLE_DIMS) -> xr.Dataset:
        """Name a block as PyMC does, and record which variables were averaged."""
        rows, draws, values = block
        before, named = () if self.means else before, self.model.named_vars_to_dims
        each = {"chain": slice(None), "draw": draws}
        labels = {dim: self.chains.posterior[dim].to_numpy()[each[dim]] for dim in before}
        for name in values:
            value, axes = self._known[name]
            for axis in axes:
                labels[dims_of(name, value.ndim, named)[axis]] = np.arange(rows.start, rows.stop)
        found = labelled(self.model, values, before=before, labels=labels)
        for name in values if self.means else ():
            random = is_random(self.model, self.graphs[name])
            found[name].attrs["averaged"] = "predictive draws" if random else "means"
        return found

    # -- what does not change from block to block --------------------------------------------------

    @cached_property
    def _draws(self) -> Draws:
        """The draws of all free variables, the chains one after the other."""
        shapes = {name: v.type.shape for name, v in parameter_inputs(self.model).items()}
        wanted = {name: shape for name, shape in shapes.items() if name not in self.drawn}
        return Draws.of(self.chains.posterior, wanted)

    @property
    def _n_draws(self) -> int:
        return self.chains.n_chains * self.chains.n_draws

    @cached_property
    def _by_numpy(self) -> Forward:
        return Forward.of(self.model, self.graphs, self.drawn)

    @cached_property
    def _forwards(self) -> list[Forward]:
        """A function for each strip of draws."""
        forward, *_ = self._by_several
        return [forward.separate() for _ in range(_STRIPS)]

    @cached_property
    def _is_compiled(self) -> bool:
        random = any(is_random(self.model, graph) for graph in self.graphs.values())
        return not random and self._n_values * self._n_draws >= _WORTH_COMPILING

    @cached_property
    def _by_several(self) -> tuple[Forward, int, Callable[[np.ndarray], Mapping[str, np.ndarray]]]:
        """A function of draws, how many it takes in a call, and their values.

        It is of several draws for compiled means of what can be vectorised: those of all threads
        take 256 MB at most. Otherwise it is of one, by NumPy, or a compiled loop if that pays.
        """
        if self.means and self._is_compiled and not self.drawn and self.model.free_RVs:
            n_values = max(sum(value.size for value, _ in self._known.values()), 1)
            n_together = int(np.clip(_ENTRIES // (n_cores() * n_values), 1, 16))
            with suppress(NotImplementedError, TypeError, ValueError):
                summed = Forward.summed(self.model, self.graphs)
                return summed, n_together, lambda which: self._draws.take(which).values
        forward = self._by_numpy
        if self._is_compiled:
            forward = Forward.of(self.model, self.graphs, self.drawn, compiled=True)
        return forward, 1, lambda which: self._draws.at(int(which[0]))

    @cached_property
    def _n_values(self) -> int:
        """Number of values at a draw, for all rows."""
        return sum(
            value.size // math.prod(value.shape[axis] for axis in axes) * self.rows.n_rows
            for value, axes in self._known.values()
        )

    def _zeros(self, rows: slice, draws: slice) -> Values:
        """Return room for the predictions for some rows and draws of each chain."""
        before = () if self.means else (self.chains.n_chains, draws.stop - draws.start)
        found = {}
        for name, (value, axes) in self._known.items():
            shape = list(value.shape)
            for axis in axes:
                shape[axis] = rows.stop - rows.start
            found[name] = np.zeros((*before, *shape), np.float64 if self.means else value.dtype)
        return found

    @cached_property
    def _known(self) -> Known:
        """Values of each variable at the first draw, and their axes along the rows."""
        return self.rows.known(self._at_first)

    def _at_first(self, where: str) -> Values:
        with self._explained(where):
            return self._by_numpy(self._draws.at(0), self.key)

    @contextmanager
    def _explained(self, where: str) -> Iterator[None]:
        """Name the variables that cannot be computed, and what to do."""
        names = list(self.graphs)
        try:
            yield
        except CoresetError:  # which says that already
            raise
        except NotImplementedError as error:
            raise UnsupportedModelError(f"{names!r} cannot be drawn: {error}") from error
        except (ValueError, TypeError, IndexError) as error:
            raise InvalidDataError(
                f"{names!r} cannot be computed{where}: {error}. Leave out rows or draws at which a "
                "distribution has no such parameters; put all data of the rows into pm.Data"
                f"{_fixed_arrays(self.graphs, str(error))}, and let no shape be the number of rows "
                "of the model."
            ) from error


def _fixed_arrays(graphs: Mapping[str, Variable], error: str) -> str:
    """Return the arrays, for a message, whose lengths an error names, and that are no containers.

    Examples
    --------
    >>> share = pt.vector("x") / np.array([0.5, 1.5, 2.0])
    >>> _fixed_arrays({"share": share}, "shapes (2,) (3,)")
    ', such as the array 0.5, 1.5, ... of length 3'
    """
    lengths = set(re.findall(r"\d+", error))
    for variable in ancestors(graphs.values()):
        if isinstance(variable, TensorConstant) and variable.data.ndim:
            data = variable.data
            if len(data) > 2 and str(len(data)) in lengths:
                first, second = data.reshape(len(data), -1)[:2, 0]
                return f", such as the array {first:.4g}, {second:.4g}, ... of length {len(data):,}"
    return ""


def with_missing(
    idata: xr.DataTree,
    own: ApproximatePosterior,
    *,
    rng: np.random.Generator,
    most: float = math.inf,
) -> xr.DataTree:
    """Add draws of missing outcomes under the user's names, where draws lack them.

    Their posterior given all other variables is their distribution in the model: no row depends on
    them.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    own : ApproximatePosterior
        Replacement of all rows.
    rng : numpy.random.Generator
    most : float, default inf
        Leave out variables of more entries.

    Returns
    -------
    xarray.DataTree
        Unchanged if no outcome is missing, or if the draws lack integrated-out variables that
        missing outcomes may depend on.
    """
    snapshot = own.parts[0].observations.snapshot
    if not snapshot.imputed:
        return idata
    chains, model = Chains(idata), snapshot.whole
    posterior = chains.posterior
    missing = snapshot.imputed.difference(posterior.data_vars)
    if not snapshot.integrated.issubset(posterior.data_vars):
        return idata
    shapes = zip(missing, shapes_of([model[name] for name in missing]), strict=True)
    names = sorted(name for name, shape in shapes if math.prod(shape) <= most)
    if not names:
        return idata
    predictions = Predictions(
        model=model,
        graphs=forward_graphs(model, names, means=False),
        chains=chains,
        key=random_key(rng),
        drawn=missing,
    )
    added, _ = predictions.in_memory(progressbar=False)
    return idata.assign(posterior=xr.DataTree(posterior.merge(added)))
