"""Predictions for many rows at many draws: block by block, a few draws in each thread."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import Variable

from pymc_coresets.compat.arviz_api import dict_to_dataset
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_coresets.exceptions import (
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
)
from pymc_coresets.predictive.attached_data import data_groups
from pymc_coresets.predictive.filled_models import BLOCK_ROWS, FilledModel
from pymc_coresets.predictive.forward import Forward, Values, is_random
from pymc_coresets.progress.reporter import Reporter
from pymc_coresets.reading.draws import Draws, dims_of
from pymc_coresets.reading.graphs import parameter_inputs
from pymc_coresets.rows.fingerprints import spaced
from pymc_coresets.rows.memory import in_threads

_MOST_BYTES = 2**33  # of a result in memory: 8 GiB
_ENTRIES = 2**25  # float64 numbers in a block of random values: 256 MB
_STRIPS = 32  # into which the draws of a block are divided for the threads
_WORTH_A_THREAD = 2**15  # values of a variable at a draw: Python runs in one thread at a time
_WORTH_COMPILING = 10**8  # means: NumPy takes a second for them, as long as a loop to compile
_MALFORMED = (ValueError, TypeError, IndexError)

type Block = tuple[slice, slice | None, Values]  # its rows, its draws (None for means), its values


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

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    axis: int | None

    def along(self, rows: slice) -> tuple[slice, ...]:
        """Return where some rows lie."""
        return () if self.axis is None else (*[slice(None)] * self.axis, rows)

    def for_rows(self, rows: slice) -> tuple[int, ...]:
        """Return the shape for some rows."""
        n_rows = rows.stop - rows.start
        return tuple(n_rows if i == self.axis else n for i, n in enumerate(self.shape))


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
        sizes = [] if self.means else [self.posterior.sizes[dim] for dim in SAMPLE_DIMS]
        shapes = {name: (*sizes, *v.shape) for name, v in self._variables.items()}
        n_bytes = sum(prod(s) * self._variables[name].dtype.itemsize for name, s in shapes.items())
        if n_bytes > _MOST_BYTES:
            raise InvalidOptionError(
                f"The predictions would take {spaced(n_bytes // 10**6)} MB of memory: ask for "
                "fewer with draws=..., for their mean with kind='mean', or take them block by "
                "block with to=..., a function that stores each."
            )
        whole = self._room(shapes)
        seen = [rv.name for rv in self.model.observed_RVs if observed and rv.name in self.graphs]
        parts: list[Values] = []

        def part(rows: slice, draws: slice | None) -> Values:
            before = () if draws is None else (slice(None), draws)
            inside = {n: (*before, *self._variables[n].along(rows), ...) for n in whole}
            return {name: whole[name][inside[name]] for name in whole}

        for _ in self._computed(part, progressbar=progressbar):
            if seen and (self.filled is not None or not parts):
                group = data_groups(self.model)["observed_data"]
                parts.append({name: group[name].to_numpy() for name in seen})
        data = parts[0] if parts else {}
        if len(parts) > 1:
            axes = {name: self._variables[name].axis for name in seen}
            data = {n: np.concatenate([part[n] for part in parts], axes[n]) for n in seen}
        every, draws = slice(0, self._n_rows), None if self.means else slice(None)
        return self._predicted(every, draws, whole), self._labelled(every, None, data)

    def blocks(self, *, progressbar: bool) -> Iterator[xr.Dataset]:
        """Yield one block after the other."""

        def room(rows: slice, draws: slice | None) -> Values:
            before = () if draws is None else (self._n_chains, draws.stop - draws.start)
            shapes = {n: (*before, *v.for_rows(rows)) for n, v in self._variables.items()}
            return self._room(shapes)

        for block in self._computed(room, progressbar=progressbar):
            yield self._predicted(*block)

    def _room(self, shapes: Mapping[str, tuple[int, ...]]) -> Values:
        return {n: np.zeros(shape, self._variables[n].dtype) for n, shape in shapes.items()}

    def _computed(
        self, room: Callable[[slice, slice | None], Values], *, progressbar: bool
    ) -> Iterator[Block]:
        """Fill the arrays that `room` returns for some rows and draws, block by block."""
        n_predictions = self._n_rows * self._n_draws
        with (
            Reporter(show=progressbar) as report,
            report.passes("predicting", n_predictions, unit="predictions") as show,
        ):
            for number, rows in enumerate(self._rows()):
                for draws in self._slices():
                    values = room(rows, draws)
                    self._compute(values, number, rows, draws, show)
                    yield rows, draws, values

    # -- blocks ------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[slice]:
        """Fill the model with one block of rows after the other."""
        if self.filled is None:
            return iter([slice(0, 1)])
        of_row = self._n_values // self._n_rows * (1 if self.means else self._n_draws)
        return self.filled.blocks(max(1, min(_ENTRIES // max(of_row, 1), BLOCK_ROWS)))

    def _slices(self) -> Iterable[slice | None]:
        """Divide the draws of each chain; None for the means of all."""
        n_draws = self.posterior.sizes["draw"]
        if self.means:
            return [None]
        if self.filled is not None:
            return [slice(0, n_draws)]
        size = max(1, _ENTRIES // max(self._n_chains * self._n_values, 1))
        return (slice(i, min(i + size, n_draws)) for i in range(0, n_draws, size))

    def _compute(
        self,
        values: Values,
        number: int,
        rows: slice,
        draws: slice | None,
        show: Callable[[int], None],
    ) -> None:
        """Compute values at a few draws after the others, or their means, in threads.

        The strips of draws do not depend on the number of threads, so that sums do not.
        """
        by_chain = np.arange(self._n_draws).reshape(self._n_chains, -1)
        numbers = by_chain[:, slice(None) if draws is None else draws].ravel()
        strips = np.array_split(numbers, min(_STRIPS, len(numbers)))
        n_values = max(prod(v.for_rows(rows)) for v in self._variables.values())
        alone = n_values < _WORTH_A_THREAD
        forward = [self._forward] * _STRIPS if alone else self._separate
        tasks = zip(forward, strips, strict=False)
        compute = partial(self._of_strip, values, number, draws)
        found = map(compute, tasks) if alone else in_threads(compute, tasks)
        for strip, sums in zip(strips, found, strict=True):
            for name, value in sums.items():
                values[name] += value / self._n_draws
            show(len(strip) * (rows.stop - rows.start))

    def _of_strip(
        self, values: Values, number: int, draws: slice | None, task: tuple[Forward, np.ndarray]
    ) -> Values:
        """Put the values at some draws where they belong, or return their sums."""
        forward, strip = task
        sums = {n: np.zeros(v.shape) for n, v in values.items()} if draws is None else {}
        for i in strip.tolist():
            chain, draw = divmod(i, self.posterior.sizes["draw"])
            for name, value in self._at_draw(forward, number, chain, draw).items():
                if draws is None:
                    sums[name] += value
                else:
                    values[name][chain, draw - draws.start] = value
        return sums

    def _at_draw(self, forward: Forward, number: int, chain: int, draw: int) -> Values:
        i = chain * self.posterior.sizes["draw"] + draw
        rows = "" if self.filled is None else f" in block {number} of the rows"
        remedy = (
            ". Leave out the rows, or the draws, at which the distribution has no such parameters."
        )
        with self._explained(f" at draw {draw} of chain {chain}{rows}", remedy):
            return forward(self._draws.at(i), self.key, number, i)

    # -- results with PyMC's names -----------------------------------------------------------------

    def _predicted(self, rows: slice, draws: slice | None, values: Values) -> xr.Dataset:
        """Label a block, and say what was averaged."""
        found = self._labelled(rows, draws, values)
        for name in found.data_vars if self.means else ():
            random = is_random(self.model, self.graphs[str(name)])
            found[name].attrs["averaged"] = "predictive draws" if random else "means"
        return found

    def _labelled(self, rows: slice, draws: slice | None, values: Values) -> xr.Dataset:
        before = () if draws is None else SAMPLE_DIMS
        named = self.model.named_vars_to_dims
        dims: dict[Any, Any] = {
            name: dims_of(name, v.ndim - len(before), named) for name, v in values.items()
        }
        labels: dict[Any, Any] = {n: list(v) for n, v in self.model.coords.items() if v}
        for name, own in dims.items():
            if (axis := self._variables[name].axis) is not None:
                labels[own[axis]] = np.arange(rows.start, rows.stop)
        if draws is not None:
            labels["chain"] = self.posterior["chain"].to_numpy()
            labels["draw"] = self.posterior["draw"].to_numpy()[draws]
        found: xr.Dataset = dict_to_dataset(
            values, coords=labels, dims=dims, sample_dims=list(before), inference_library=pm
        )
        return found

    # -- what does not change from block to block --------------------------------------------------

    @cached_property
    def _draws(self) -> Draws:
        """The draws of all free variables, the chains one after the other."""
        shapes = {name: v.type.shape for name, v in parameter_inputs(self.model).items()}
        return Draws.of(self.posterior, {n: s for n, s in shapes.items() if n not in self.drawn})

    @property
    def _n_draws(self) -> int:
        return self._draws.n_draws

    @property
    def _n_chains(self) -> int:
        return int(self.posterior.sizes["chain"])

    @property
    def _n_rows(self) -> int:
        return 1 if self.filled is None else self.filled.source.n_rows

    @cached_property
    def _forward(self) -> Forward:
        """The function of a draw: by NumPy, or as a compiled loop where that pays."""
        random = any(is_random(self.model, graph) for graph in self.graphs.values())
        many = self._n_values * self._n_draws >= _WORTH_COMPILING
        if random or not many:
            return self._by_numpy
        return Forward.of(self.model, self.graphs, self.drawn, compiled=True)

    @cached_property
    def _by_numpy(self) -> Forward:
        return Forward.of(self.model, self.graphs, self.drawn)

    @cached_property
    def _separate(self) -> list[Forward]:
        return [self._forward.separate() for _ in range(_STRIPS)]

    @cached_property
    def _n_values(self) -> int:
        """Number of values at a draw, for all rows."""
        return sum(prod(v.shape) for v in self._variables.values())

    @cached_property
    def _variables(self) -> dict[str, _Variable]:
        """Find the shapes for all rows, from those for none or a few of them."""
        if self.filled is None:
            found = self._at_first(None)
            return {name: self._variable(v, v.shape, None) for name, v in found.items()}
        variables = {}
        fewer, more = self._at_first(2), self._at_first(3)
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
            variables[name] = self._variable(value, shape, axis)
        return variables

    def _variable(self, value: np.ndarray, shape: tuple[int, ...], axis: int | None) -> _Variable:
        return _Variable(shape, np.dtype(np.float64) if self.means else value.dtype, axis)

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
