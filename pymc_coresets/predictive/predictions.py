"""Predictions for many rows at many draws: block by block of rows, a few draws in each thread."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pytensor.graph import Variable

from pymc_coresets.compat.arviz_api import dict_to_dataset
from pymc_coresets.exceptions import CoresetError, InvalidDataError, UnsupportedModelError
from pymc_coresets.predictive.destinations import Destination, Region
from pymc_coresets.predictive.filled_models import FilledModel
from pymc_coresets.predictive.forward import Forward, RowMeans, is_random, means_by_row
from pymc_coresets.progress.reporter import Reporter
from pymc_coresets.reading.draws import Draws, dims_of
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.graphs import parameter_inputs
from pymc_coresets.rows.memory import in_threads

type Shape = tuple[int, ...]
type Values = dict[str, np.ndarray]
type Task = tuple[int, int, int]
type Parts = dict[tuple[Any, ...], np.ndarray]  # by group, variable and region
type Part = tuple[int, Parts]  # and how many predictions were made for it

_ENTRIES = 2**19  # of float64 that a thread holds before they are written: 4 MB
_CHUNK = 2**16  # entries of a chunk along any axis
_WORTH_COMPILING = 10**8  # values: NumPy takes three seconds for them, draw by draw
_WORTH_A_THREAD = 2**15  # values of a variable at a draw: Python runs in one thread at a time
_SAMPLE_DIMS = ["chain", "draw"]
_MALFORMED = (ValueError, TypeError, IndexError)
_OBSERVED = "observed_data"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Variable:
    """A variable for all rows.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    axis : int or None
        Along which the rows lie; None where all of it is computed at once.
    """

    shape: Shape
    dtype: np.dtype[Any]
    axis: int | None

    def part(self, rows: slice) -> Region:
        """Return where the values for some rows belong."""
        return tuple(rows if i == self.axis else slice(None) for i in range(len(self.shape)))


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
    means : bool
        Average over the draws.
    key : int
        Of the random numbers.
    filled : FilledModel or None
        The same model with rows from elsewhere; None for those that it holds, all at once.
    its_own : bool
        They are the rows of the posterior: add what was observed there.

    Notes
    -----
    Random numbers depend on the key, the number of the block of rows, and that of the draw, not on
    threads.  Rows that the model holds are one block, others come in blocks of 65 536, whatever the
    chunks that they are read in.
    """

    model: pm.Model
    graphs: Mapping[str, Variable]
    posterior: xr.Dataset
    means: bool
    key: int
    filled: FilledModel | None
    its_own: bool

    @property
    def group(self) -> str:
        """Name of the group of the results."""
        return "posterior_predictive" if self.its_own else "predictions"

    def write(self, destination: Destination, *, progressbar: bool) -> None:
        """Compute all of them, and write them part by part."""
        self._create(destination)
        n_predictions = self._n_rows * self.draws.n_draws
        with (
            Reporter(show=progressbar) as report,
            report.passes("predicting", n_predictions, unit="predictions") as show,
        ):
            for n_done, parts in self._parts():
                for (group, name, *region), values in parts.items():
                    destination.write(group, name, tuple(region), values)
                if n_done:
                    show(n_done)

    def _create(self, destination: Destination) -> None:
        """Make room for what is predicted, and for what was observed."""
        variables, dims = self._variables, [] if self.means else _SAMPLE_DIMS
        layout = self._layout(variables, dims)
        for name in variables if self.means else ():
            random = is_random(self.model, self.graphs[name])
            layout[name].attrs["averaged"] = "predictive draws" if random else "means"
        destination.create(self.group, layout, self._chunks(variables, dims))
        if self._observed:
            values = {n: self.model.rvs_to_values[self.model[n]] for n in self._observed}
            known = {n: replace(variables[n], dtype=np.dtype(v.dtype)) for n, v in values.items()}
            destination.create(_OBSERVED, self._layout(known, []), self._chunks(known, []))

    # -- parts -----------------------------------------------------------------------------------

    def _parts(self) -> Iterator[Part]:
        """Compute everything, and yield where it belongs."""
        by_row = self._by_row()
        if by_row is not None:
            yield from self._parts_by_row(by_row)
            return
        for number, rows in enumerate(self._blocks()):
            yield 0, self._seen_in(rows)
            n_rows = 1 if self.filled is None else rows.stop - rows.start
            totals: Values = {}
            computed = self._in_threads(partial(self._computed, number))
            for task, found in zip(self._tasks(), computed, strict=True):
                parts = {}
                if self.means:
                    totals = {name: totals.get(name, 0.0) + found[name] for name in found}
                else:
                    parts = self._of_rows(rows, found, task[0], slice(*task[1:]))
                yield (task[2] - task[1]) * n_rows, parts
            means = {name: total / self.draws.n_draws for name, total in totals.items()}
            yield 0, self._of_rows(rows, means)

    def _blocks(self) -> Iterator[slice]:
        return iter([slice(None)]) if self.filled is None else self.filled.blocks()

    def _of_rows(self, rows: slice, values: Values, *where: int | slice) -> Parts:
        """Say where values of some rows belong, at all draws or at some."""
        return {
            (self.group, name, *where, *self._variables[name].part(rows)): value
            for name, value in values.items()
        }

    def _seen_in(self, rows: slice) -> Parts:
        """Return what was observed in the rows that the model holds now."""
        return {
            (_OBSERVED, name, *self._variables[name].part(rows)): function()[0]
            for name, function in self._observed.items()
        }

    # -- row by row --------------------------------------------------------------------------------

    def _by_row(self) -> RowMeans | None:
        """Return means as functions of the rows, where there are enough to compile these for."""
        n_values = sum(prod(v.shape) for v in self._variables.values()) * self.draws.n_draws
        if not self.means or n_values < _WORTH_COMPILING:
            return None
        axes = {name: variable.axis for name, variable in self._variables.items()}
        found = means_by_row(self.model, self.graphs, axes, self.filled)
        return None if found is None or not self._agrees(found) else found

    def _agrees(self, found: RowMeans) -> bool:
        """Whether both ways of computing the first rows at the first draw agree."""
        rows, ours = next(iter(found.blocks(self.draws.take(slice(0, 1)))))
        if self.filled is not None:
            self.filled.fill(rows.arrays)
        theirs = self._at(None)
        same = all(
            np.allclose(np.take(theirs[name], np.arange(len(rows)), axis), ours[name], rtol=1e-6)
            for name, axis in found.axes.items()
        )
        if not same:
            _log.warning("%r: means are computed draw by draw.", list(self.graphs))
        return same

    def _parts_by_row(self, found: RowMeans) -> Iterator[Part]:
        start = 0
        if self.filled is None:
            yield 0, self._seen_in(slice(None))
        for rows, means in found.blocks(self.draws):
            here = slice(start, start := start + len(rows))
            parts: Parts = {
                (self.group, name, *replace(self._variables[name], axis=axis).part(here)): value
                for (name, axis), value in zip(found.axes.items(), means.values(), strict=True)
            }
            if self.filled is None:
                yield self.draws.n_draws * len(rows) // found.source.n_rows, parts
            else:
                self.filled.fill(rows.arrays)
                yield self.draws.n_draws * len(rows), parts | self._seen_in(here)

    # -- draw by draw ------------------------------------------------------------------------------

    def _tasks(self) -> Iterator[Task]:
        """Return the draws that a thread computes at once: their chain, the first, and the end.

        They do not depend on the number of threads, so that sums do not.
        """
        n_draws, size = self.posterior.sizes["draw"], self._task_size
        for chain in range(self.posterior.sizes["chain"]):
            for start in range(0, n_draws, size):
                yield chain, start, min(start + size, n_draws)

    def _in_threads(self, compute: Callable[[Task], Values]) -> Iterator[Values]:
        """Compute all tasks in order; by this thread alone where others would wait for Python."""
        small = max(prod(self._of_a_block(v)) for v in self._variables.values()) < _WORTH_A_THREAD
        return map(compute, self._tasks()) if small else in_threads(compute, self._tasks())

    def _computed(self, number: int, task: Task) -> Values:
        """Return the draws of a task, or their sums, for the rows that the model holds."""
        chain, start, stop = task
        with self._forward.one() as forward:
            found = [self._at_draw(forward, number, chain, draw) for draw in range(start, stop)]
        join: Any = partial(np.sum, axis=0, dtype=np.float64) if self.means else np.stack
        return {name: join([values[name] for values in found]) for name in self.graphs}

    def _at_draw(self, forward: Forward, number: int, chain: int, draw: int) -> Values:
        i = chain * self.posterior.sizes["draw"] + draw
        forward.reseed(self.key, number, i)
        try:
            return forward(self.draws.at(i))
        except _MALFORMED as error:
            rows = "" if self.filled is None else f" in block {number} of the rows"
            raise InvalidDataError(
                f"{list(self.graphs)!r} cannot be computed at draw {draw} of chain {chain}{rows}: "
                f"{error}. Leave out the rows, or the draws, at which the distribution has no such "
                "parameters."
            ) from error

    # -- what does not change from block to block ----------------------------------------------

    @cached_property
    def draws(self) -> Draws:
        """The draws of all free variables, the chains one after the other."""
        shapes = {name: v.type.shape for name, v in parameter_inputs(self.model).items()}
        return Draws.of(self.posterior, shapes)

    @cached_property
    def _forward(self) -> Forward:
        return Forward.of(self.model, self.graphs)

    @property
    def _n_rows(self) -> int:
        return 1 if self.filled is None else self.filled.source.n_rows

    @cached_property
    def _variables(self) -> dict[str, _Variable]:
        """Find the shapes for all rows, from those for none or a few of them."""
        if self.filled is None:
            return {
                name: _Variable(value.shape, self._dtype(value), None)
                for name, value in self._at(None).items()
            }
        found = {}
        fewer, more = self._at(2), self._at(3)
        for name, value in more.items():
            shapes = list(zip(fewer[name].shape, value.shape, strict=True))
            axes = [axis for axis, lengths in enumerate(shapes) if lengths == (2, 3)]
            if len(axes) != 1:
                raise UnsupportedModelError(
                    f"{name!r} has shape {value.shape} for 3 rows and {fewer[name].shape} for 2: "
                    "it has no axis along the rows. Put the data that it is computed from into "
                    "pm.Data, give it the dims of these (or shape=x.shape[0]), or name others with "
                    "var_names."
                )
            [axis] = axes
            shape = (*value.shape[:axis], self._n_rows, *value.shape[axis + 1 :])
            found[name] = _Variable(shape, self._dtype(value), axis)
        return found

    def _at(self, n_rows: int | None) -> Values:
        """Return the values for a few rows, at the first draw."""
        try:
            if self.filled is not None and n_rows is not None:
                self.filled.few(n_rows)
            self._forward.reseed(self.key)
            return self._forward(self.draws.at(0))
        except NotImplementedError as error:
            raise UnsupportedModelError(
                f"{list(self.graphs)!r} cannot be drawn: {error}"
            ) from error
        except CoresetError:  # the rows are not what they were
            raise
        except _MALFORMED as error:
            rows = "" if n_rows is None else f" for {n_rows} rows"
            raise InvalidDataError(
                f"{list(self.graphs)!r} cannot be computed{rows}: {error} Put all data of the rows "
                "into pm.Data, and let no shape be the number of rows of the model."
            ) from error

    def _dtype(self, value: np.ndarray) -> np.dtype[Any]:
        return np.dtype(np.float64) if self.means else value.dtype

    @property
    def _task_size(self) -> int:
        """How many draws are held before they are written."""
        entries = sum(prod(self._of_a_block(v)) for v in self._variables.values())
        return min(max(1, _ENTRIES // max(entries, 1)), self.posterior.sizes["draw"])

    def _of_a_block(self, variable: _Variable) -> Shape:
        """Return the shape for one block of rows."""
        return tuple(min(n, _CHUNK) if i == variable.axis else n
                     for i, n in enumerate(variable.shape))  # fmt: skip

    def _chunks(
        self, variables: Mapping[str, _Variable], sample_dims: Sequence[str]
    ) -> dict[str, Sequence[int]]:
        before = (1, self._task_size) if sample_dims else ()
        return {
            name: (*before, *(max(1, min(n, _CHUNK)) for n in v.shape))
            for name, v in variables.items()
        }

    def _layout(self, variables: Mapping[str, _Variable], sample_dims: Sequence[str]) -> xr.Dataset:
        """Return what the result looks like, with no memory for its values."""
        sizes = tuple(self.posterior.sizes[dim] for dim in sample_dims)
        empty = {
            name: np.broadcast_to(np.zeros((), v.dtype), (*sizes, *v.shape))
            for name, v in variables.items()
        }
        moved = set() if self.filled is None else self.filled.dims
        labels: dict[Any, Any] = {
            n: list(v) for n, v in self.model.coords.items() if v and n not in moved
        }
        labels |= {dim: self.posterior[dim].to_numpy() for dim in sample_dims}
        named = self.model.named_vars_to_dims
        dims: dict[Any, Any] = {n: dims_of(n, len(v.shape), named) for n, v in variables.items()}
        layout: xr.Dataset = dict_to_dataset(
            empty, coords=labels, dims=dims, sample_dims=sample_dims, inference_library=pm
        )
        return layout

    @cached_property
    def _observed(self) -> dict[str, Any]:
        """Functions that return what was observed in the rows that the model holds."""
        if not self.its_own:
            return {}
        return {
            rv.name: pytensor.function([], [self.model.rvs_to_values[rv]], mode=PLAIN_MODE)
            for rv in self.model.observed_RVs
            if rv.name in self.graphs
        }
