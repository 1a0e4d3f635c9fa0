"""Predictions for many rows at many draws: block by block, a few draws in each thread."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import Variable

from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_coresets.exceptions import (
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
)
from pymc_coresets.predictive.forward import Forward, Values, forward_graphs, is_random
from pymc_coresets.predictive.model_data import BLOCK_ROWS, FilledModel, data_groups, labelled
from pymc_coresets.predictive.stand_ins import StandIn
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.draws import Draws, dims_of
from pymc_coresets.reading.graphs import parameter_inputs
from pymc_coresets.rows.fingerprints import spaced
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import in_threads

_MOST_BYTES = 2**33  # of a result in memory: 8 GiB
_ENTRIES = 2**25  # float64 numbers in a block of random values: 256 MB
_STRIPS = 32  # into which the draws of a block are divided for the threads
_WORTH_A_THREAD = 2**15  # values of a variable at a draw: Python runs in one thread at a time
_WORTH_COMPILING = 10**8  # means: NumPy takes a second for them, as long as a loop to compile
_MALFORMED = (ValueError, TypeError, IndexError)

#: Its rows, its draws of each chain, and its values.
type Block = tuple[slice, slice, Values]


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What is to be predicted: some variables, for some rows, at some draws.

    Parameters
    ----------
    model : pm.Model
        A copy of the user's.
    graphs : mapping of str to Variable
        From `forward_graphs`.
    posterior : xarray.Dataset
        The draws.
    key : int
        Of the random numbers.
    means : bool, default False
        Average over the draws.
    filled : FilledModel, optional
        The same model with rows from elsewhere; None for those that it holds.
    drawn : collection of str
        Free variables that are predicted, and of which there are no draws.

    Notes
    -----
    Where the model holds the rows, a block has all rows, and some draws of each chain or the means
    of all.  Rows from elsewhere come in blocks of at most 65 536, at all draws.  Random numbers
    depend on the key, the number of the block of rows, and that of the draw: not on threads, nor on
    the chunks that rows are read in.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     line = pm.Deterministic("line", pm.Normal("slope") * np.arange(3.0))
    >>> draws = xr.Dataset({"slope": (("chain", "draw"), [[1.0, 3.0]])})
    >>> wanted = Predictions(
    ...     model=model, graphs={"line": line}, posterior=draws, key=1, means=True
    ... )
    >>> found, _ = wanted.in_memory(progressbar=False)
    >>> found["line"].values
    array([0., 2., 4.])
    """

    model: pm.Model
    graphs: Mapping[str, Variable]
    posterior: xr.Dataset
    key: int
    means: bool = False
    filled: FilledModel | None = None
    drawn: Collection[str] = ()

    def in_memory(
        self, *, progressbar: bool, observed: bool = False
    ) -> tuple[xr.Dataset, xr.Dataset]:
        """Return all of them and, if wanted, what was observed of the same variables."""
        rows, draws = slice(0, self._n_rows), slice(0, self._n_each)
        layout = self._layout(rows, draws)
        n_bytes = sum(prod(shape) * dtype.itemsize for shape, dtype in layout.values())
        if n_bytes > _MOST_BYTES:
            raise InvalidOptionError(
                f"The predictions would take {spaced(n_bytes // 10**6)} MB of memory: ask for "
                "fewer with draws=..., for their mean with kind='mean', or take them block by "
                "block with to=..., a function that stores each."
            )
        whole = {name: np.zeros(*of_name) for name, of_name in layout.items()}
        seen = [rv.name for rv in self.model.observed_RVs if observed and rv.name in self.graphs]
        parts: dict[str, list[np.ndarray]] = {name: [] for name in seen}
        for of_rows, of_draws, values in self._blocks(progressbar=progressbar):
            before = () if self.means else (slice(None), of_draws)
            for name, value in values.items():
                axis = self._known[name][1]
                along = () if axis is None else (*[slice(None)] * axis, of_rows)
                whole[name][(*before, *along)] = value
            group = data_groups(self.model)["observed_data"] if seen else {}
            for name in seen if of_draws.stop == draws.stop else ():
                parts[name].append(group[name].to_numpy())
        axes = {name: self._known[name][1] for name in seen}
        data = {n: np.concatenate(p, axes[n]) if p[1:] else p[0] for n, p in parts.items()}
        return self._labelled((rows, draws, whole)), self._labelled((rows, draws, data), ())

    def blocks(self, *, progressbar: bool) -> Iterator[xr.Dataset]:
        """Yield one block after the other."""
        return map(self._labelled, self._blocks(progressbar=progressbar))

    # -- blocks ------------------------------------------------------------------------------------

    def _blocks(self, *, progressbar: bool) -> Iterator[Block]:
        n_predictions = self._n_rows * self._draws.n_draws
        with (
            Reporter(show=progressbar) as report,
            report.passes("predicting", n_predictions, unit="predictions") as show,
        ):
            for number, rows in enumerate(self._blocks_of_rows()):
                for draws in self._blocks_of_draws():
                    yield rows, draws, self._computed(number, rows, draws, show)

    def _blocks_of_rows(self) -> Iterator[slice]:
        """Fill the model with one block of rows after the other."""
        if self.filled is None:
            return iter([slice(0, 1)])
        of_row = self._n_values // self._n_rows * (1 if self.means else self._draws.n_draws)
        return self.filled.blocks(max(1, min(_ENTRIES // max(of_row, 1), BLOCK_ROWS)))

    def _blocks_of_draws(self) -> Iterator[slice]:
        """Divide the draws of each chain, where the model holds all rows."""
        size = self._n_each
        if not self.means and self.filled is None:
            size = max(1, _ENTRIES // max(self._n_chains * self._n_values, 1))
        starts = range(0, self._n_each, size)
        return (slice(start, min(start + size, self._n_each)) for start in starts)

    def _computed(
        self, number: int, rows: slice, draws: slice, show: Callable[[int], None]
    ) -> Values:
        """Compute values at a few draws after the others, or their means, in threads.

        The strips of draws do not depend on the number of threads, so that sums do not.
        """
        layout, n_draws = self._layout(rows, draws), self._draws.n_draws
        values = {name: np.zeros(*of_name) for name, of_name in layout.items()}

        def compute(task: tuple[Forward, np.ndarray]) -> Values:
            forward, strip = task
            into = {n: np.zeros_like(v) for n, v in values.items()} if self.means else values
            for i in strip.tolist():
                chain, draw = divmod(i, self._n_each)
                at = () if self.means else (chain, draw - draws.start)
                for name, value in self._at_draw(forward, number, chain, draw).items():
                    into[name][at] += value
            return into

        by_chain = np.arange(n_draws).reshape(self._n_chains, -1)[:, draws]
        strips = np.array_split(by_chain.ravel(), min(_STRIPS, by_chain.size))
        largest = max(prod(shape[0 if self.means else 2 :]) for shape, _ in layout.values())
        run = map if largest < _WORTH_A_THREAD else in_threads
        parts = run(compute, zip(self._forwards, strips, strict=False))
        for strip, part in zip(strips, parts, strict=True):
            for name in values if self.means else ():
                values[name] += part[name] / n_draws
            show(len(strip) * (rows.stop - rows.start))
        return values

    def _at_draw(self, forward: Forward, number: int, chain: int, draw: int) -> Values:
        i = chain * self._n_each + draw
        rows = "" if self.filled is None else f" in block {number} of the rows"
        remedy = (
            ". Leave out the rows, or the draws, at which the distribution has no such parameters."
        )
        with self._explained(f" at draw {draw} of chain {chain}{rows}", remedy):
            return forward(self._draws.at(i), self.key, number, i)

    def _labelled(self, block: Block, before: Sequence[str] = SAMPLE_DIMS) -> xr.Dataset:
        """Give a block the names that PyMC gives it, and say what was averaged."""
        rows, draws, values = block
        before, named = () if self.means else before, self.model.named_vars_to_dims
        each = {"chain": slice(None), "draw": draws}
        labels = {dim: self.posterior[dim].to_numpy()[each[dim]] for dim in before}
        for name in values:
            value, axis = self._known[name]
            if axis is not None:
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
        return Draws.of(self.posterior, {n: s for n, s in shapes.items() if n not in self.drawn})

    @property
    def _n_chains(self) -> int:
        return int(self.posterior.sizes["chain"])

    @property
    def _n_each(self) -> int:
        """Number of draws of each chain."""
        return int(self.posterior.sizes["draw"])

    @property
    def _n_rows(self) -> int:
        return 1 if self.filled is None else self.filled.source.n_rows

    @cached_property
    def _by_numpy(self) -> Forward:
        return Forward.of(self.model, self.graphs, self.drawn)

    @cached_property
    def _forwards(self) -> list[Forward]:
        """A function of a draw for each strip: by NumPy, or a compiled loop where that pays."""
        random = any(is_random(self.model, graph) for graph in self.graphs.values())
        many = self._n_values * self._draws.n_draws >= _WORTH_COMPILING
        forward = self._by_numpy
        if many and not random:
            forward = Forward.of(self.model, self.graphs, self.drawn, compiled=True)
        return [forward.separate() for _ in range(_STRIPS)]

    @cached_property
    def _n_values(self) -> int:
        """Number of values at a draw, for all rows."""
        layout = self._layout(slice(0, self._n_rows), slice(0, 1)).values()
        return sum(prod(shape) for shape, _ in layout) // (1 if self.means else self._n_chains)

    def _layout(self, rows: slice, draws: slice) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and type of the predictions for some rows and draws of each chain."""
        before = () if self.means else (self._n_chains, draws.stop - draws.start)
        found = {}
        for name, (value, axis) in self._known.items():
            shape = list(value.shape)
            if axis is not None:
                shape[axis] = rows.stop - rows.start
            dtype = np.dtype(np.float64) if self.means else value.dtype
            found[name] = (*before, *shape), dtype
        return found

    @cached_property
    def _known(self) -> dict[str, tuple[np.ndarray, int | None]]:
        """The variables for all rows or a few, and along which of their axes these rows lie."""
        if self.filled is None:
            return {name: (value, None) for name, value in self._at_first(None).items()}
        found: dict[str, tuple[np.ndarray, int | None]] = {}
        fewer, more = self._at_first(2), self._at_first(3)
        for name, value in more.items():
            shapes = list(zip(fewer[name].shape, value.shape, strict=True))
            if shapes.count((2, 3)) != 1:
                raise UnsupportedModelError(
                    f"{name!r} has shape {value.shape} for 3 rows and {fewer[name].shape} for 2: "
                    "it has no axis along the rows. Put the data that it is computed from into "
                    "pm.Data, give it the dims of these (or shape=x.shape[0]), or name others with "
                    "var_names."
                )
            found[name] = value, shapes.index((2, 3))
        return found

    def _at_first(self, n_rows: int | None) -> Values:
        """Return the values for a few rows, at the first draw."""
        remedy = (
            " Put all data of the rows into pm.Data, and let no shape be the number of rows of the "
            "model."
        )
        if self.filled is not None and n_rows is not None:
            self.filled.few(n_rows)
        with self._explained("" if n_rows is None else f" for {n_rows} rows", remedy):
            return self._by_numpy(self._draws.at(0), self.key)

    @contextmanager
    def _explained(self, where: str, remedy: str) -> Iterator[None]:
        """Name the variables that cannot be computed, and what to do."""
        try:
            yield
        except CoresetError:  # which says that already
            raise
        except NotImplementedError as error:
            raise UnsupportedModelError(
                f"{list(self.graphs)!r} cannot be drawn: {error}"
            ) from error
        except _MALFORMED as error:
            raise InvalidDataError(
                f"{list(self.graphs)!r} cannot be computed{where}: {error}{remedy}"
            ) from error


def with_missing(
    idata: xr.DataTree, own: StandIn, *, rng: np.random.Generator, most: float = math.inf
) -> xr.DataTree:
    """Add draws of missing outcomes under the user's names, where draws lack them.

    Their posterior given all other variables is their distribution in the model: no row depends on
    them.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    own : StandIn
        What stands for all rows.
    rng : numpy.random.Generator
    most : float, default inf
        Leave out variables of more entries.

    Returns
    -------
    xarray.DataTree
        The same where nothing is missing, or draws lack variables that were integrated out, on
        which missing outcomes may depend.
    """
    held = own.parts[0].observations.held
    if not held.imputed:
        return idata
    posterior, model = idata["posterior"].to_dataset(), held.whole
    missing = held.imputed.difference(posterior.data_vars)
    if not held.integrated.issubset(posterior.data_vars):
        return idata
    shapes = model.eval_rv_shapes() if missing else {}
    sizes = {name: prod(shapes[model.rvs_to_values[model[name]].name]) for name in missing}
    names = sorted(name for name in missing if sizes[name] <= most)
    if not names:
        return idata
    predictions = Predictions(
        model=model,
        graphs=forward_graphs(model, names, means=False),
        posterior=posterior,
        key=random_key(rng),
        drawn=missing,
    )
    added, _ = predictions.in_memory(progressbar=False)
    return idata.assign(posterior=xr.DataTree(posterior.merge(added)))
