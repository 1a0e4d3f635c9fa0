"""Predictions for many rows at many draws: block by block of rows, a few draws in each thread."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import batched
from math import prod
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr

from pymc_coresets.compat.arviz_api import dict_to_dataset
from pymc_coresets.compat.pytensor_api import Variable
from pymc_coresets.exceptions import CoresetError, InvalidDataError, UnsupportedModelError
from pymc_coresets.predictive.destinations import Destination, Region
from pymc_coresets.predictive.filled_models import FilledModel
from pymc_coresets.predictive.forward import Forward, ForwardCopies, is_random
from pymc_coresets.progress.reporter import Reporter
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.graphs import parameter_inputs
from pymc_coresets.rows.threads import in_threads

__all__ = ["Predictions"]

type Shape = tuple[int, ...]
type Values = dict[str, np.ndarray]
type Task = tuple[int, ...]  # numbers of draws

_ENTRIES = 2**22  # of float64 that are held before they are written: 32 MB
_CHUNK = 2**16  # entries of a chunk along any axis
_TASKS = 8  # of which such a group consists
_WORTH_A_THREAD = 2**15  # values of a variable at a draw: Python runs in one thread at a time
_SAMPLE_DIMS = ["chain", "draw"]
_MALFORMED = (ValueError, TypeError, IndexError)
_OBSERVED = "observed_data"


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
    group : str
        Name of the group of the results.
    filled : FilledModel or None
        The same model with rows from elsewhere; None for those that it holds, all at once.
    observed : bool
        Add what was observed in the rows.

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
    group: str
    filled: FilledModel | None
    observed: bool

    def write(self, destination: Destination, *, progressbar: bool) -> None:
        """Compute all of them, and write them part by part."""
        variables, observed = self._variables, self._observed
        layout = self._layout(variables, [] if self.means else _SAMPLE_DIMS)
        for name in variables if self.means else ():
            random = is_random(self.model, self.graphs[name])
            layout[name].attrs["averaged"] = "predictive draws" if random else "means"
        destination.create(self.group, layout, self._chunks(variables, sampled=not self.means))
        if observed:
            values = {name: self.model.rvs_to_values[self.model[name]] for name in observed}
            known = {n: replace(variables[n], dtype=np.dtype(v.dtype)) for n, v in values.items()}
            layout = self._layout(known, [])
            destination.create(_OBSERVED, layout, self._chunks(known, sampled=False))
        n_predictions = self._n_rows * self.draws.n_draws
        with (
            Reporter(show=progressbar) as report,
            report.passes("predicting", n_predictions, unit="predictions") as show,
        ):
            for number, rows in enumerate(self._blocks()):
                for name, function in observed.items():
                    destination.write(_OBSERVED, name, variables[name].part(rows), function()[0])
                n_rows = self._n_rows if self.filled is None else rows.stop - rows.start
                write = self._write_means if self.means else self._write_draws
                for n_draws in write(destination, rows, number):
                    show(n_draws * n_rows)

    # -- a block of rows -----------------------------------------------------------------------

    def _blocks(self) -> Iterator[slice]:
        return iter([slice(None)]) if self.filled is None else self.filled.blocks()

    def _write_draws(self, destination: Destination, rows: slice, number: int) -> Iterator[int]:
        """Write the draws for a block of rows in groups, and yield how many each holds."""
        computed = self._in_threads(partial(self._stacked, number))
        for chain, start, stop in self._groups():
            parts = [next(computed) for _ in self._tasks_of(chain, start, stop)]
            for name, variable in self._variables.items():
                region: Region = (chain, slice(start, stop), *variable.part(rows))
                together = np.concatenate([part[name] for part in parts])
                destination.write(self.group, name, region, together)
            yield stop - start

    def _write_means(self, destination: Destination, rows: slice, number: int) -> Iterator[int]:
        totals: dict[str, Any] = dict.fromkeys(self.graphs, 0.0)
        summed = self._in_threads(partial(self._summed, number))
        for task, part in zip(self._tasks(), summed, strict=True):
            for name, value in part.items():
                totals[name] = totals[name] + value
            yield len(task)
        for name, variable in self._variables.items():
            mean = totals[name] / self.draws.n_draws
            destination.write(self.group, name, variable.part(rows), mean)

    # -- a few draws ---------------------------------------------------------------------------

    def _groups(self) -> Iterator[tuple[int, int, int]]:
        """Return the draws that are written at once: their chain, the first, and the end."""
        n_draws = self.posterior.sizes["draw"]
        for chain in range(self.posterior.sizes["chain"]):
            for start in range(0, n_draws, self._group_size):
                yield chain, start, min(start + self._group_size, n_draws)

    def _tasks(self) -> Iterator[Task]:
        """Return the numbers of the draws that a thread computes at once, for all draws in order.

        They do not depend on the number of threads, so that sums do not.
        """
        for group in self._groups():
            yield from self._tasks_of(*group)

    def _tasks_of(self, chain: int, start: int, stop: int) -> Iterator[Task]:
        before = chain * self.posterior.sizes["draw"]
        return batched(range(before + start, before + stop), self._task_size)

    def _in_threads(self, compute: Callable[[Task], Values]) -> Iterator[Values]:
        """Compute all tasks in order; by this thread alone where others would wait for Python."""
        small = max(prod(self._of_a_block(v)) for v in self._variables.values()) < _WORTH_A_THREAD
        return map(compute, self._tasks()) if small else in_threads(compute, self._tasks())

    def _stacked(self, number: int, task: Task) -> Values:
        values = list(self._computed(number, task))
        return {name: np.stack([value[name] for value in values]) for name in self.graphs}

    def _summed(self, number: int, task: Task) -> Values:
        totals: dict[str, Any] = dict.fromkeys(self.graphs, 0.0)
        for value in self._computed(number, task):
            for name, one in value.items():
                totals[name] = totals[name] + one.astype(np.float64)
        return totals

    def _computed(self, number: int, task: Task) -> Iterator[Values]:
        with self._copies.one() as forward:
            for i in task:
                forward.reseed(self.key, number, i)
                try:
                    values = forward(self._point(i))
                except _MALFORMED as error:
                    chain, draw = divmod(i, self.posterior.sizes["draw"])
                    rows = "" if self.filled is None else f" in block {number} of the rows"
                    raise InvalidDataError(
                        f"{list(self.graphs)!r} cannot be computed at draw {draw} of chain {chain}"
                        f"{rows}: {error}. Leave out the rows, or the draws, at which the "
                        "distribution has no such parameters."
                    ) from error
                yield values

    def _point(self, i: int) -> Values:
        return {name: values[i] for name, values in self.draws.values.items()}

    # -- what does not change from block to block ----------------------------------------------

    @cached_property
    def draws(self) -> Draws:
        """The draws of all free variables, the chains one after the other."""
        shapes = {name: v.type.shape for name, v in parameter_inputs(self.model).items()}
        return Draws.of(self.posterior, shapes)

    @cached_property
    def _forward(self) -> Forward:
        return Forward.of(self.model, self.graphs)

    @cached_property
    def _copies(self) -> ForwardCopies:
        return ForwardCopies(self._forward)

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
            return self._forward(self._point(0))
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
    def _group_size(self) -> int:
        """How many draws are held before they are written."""
        entries = sum(prod(self._of_a_block(v)) for v in self._variables.values())
        return min(max(1, _ENTRIES // max(entries, 1)), self.posterior.sizes["draw"])

    @property
    def _task_size(self) -> int:
        return max(1, self._group_size // _TASKS)

    def _of_a_block(self, variable: _Variable) -> Shape:
        """Return the shape for one block of rows."""
        return tuple(min(n, _CHUNK) if i == variable.axis else n
                     for i, n in enumerate(variable.shape))  # fmt: skip

    def _chunks(
        self, variables: Mapping[str, _Variable], *, sampled: bool
    ) -> dict[str, Sequence[int]]:
        before = (1, self._group_size) if sampled else ()
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
        dims: dict[Any, Any] = {name: self._dims(name, v) for name, v in variables.items()}
        layout: xr.Dataset = dict_to_dataset(
            empty, coords=labels, dims=dims, sample_dims=sample_dims, inference_library=pm
        )
        return layout

    def _dims(self, name: str, variable: _Variable) -> list[str]:
        own = self.model.named_vars_to_dims.get(name) or [None] * len(variable.shape)
        return [dim or f"{name}_dim_{i}" for i, dim in enumerate(own)]

    @cached_property
    def _observed(self) -> dict[str, Any]:
        """Functions that return what was observed in the rows that the model holds."""
        if not self.observed:
            return {}
        return {
            rv.name: pytensor.function([], [self.model.rvs_to_values[rv]], mode=PLAIN_MODE)
            for rv in self.model.observed_RVs
            if rv.name in self.graphs
        }
