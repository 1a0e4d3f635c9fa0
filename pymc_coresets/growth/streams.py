"""Coresets of rows that arrive in chunks and are seen once, available at any time."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_coresets.advice import decided_by
from pymc_coresets.coreset import Coreset
from pymc_coresets.display import as_text
from pymc_coresets.exceptions import (
    CoresetError,
    CoresetWarning,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    warn_user,
)
from pymc_coresets.growth.coverage import Coverage
from pymc_coresets.growth.epochs import WIDENING, Growth, StreamState
from pymc_coresets.methods.job import rows_of_a_quadratic
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.options import generator, if_given, positive_number, whole_number
from pymc_coresets.reading.draws import Draws, dims_of
from pymc_coresets.reading.likelihood.prototypes import Prototypes
from pymc_coresets.reading.user_model import given_model
from pymc_coresets.rowlogp.code_checks import CodeCheck
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.kept_rows import kept_dataset, rows_of_dataset
from pymc_coresets.rowlogp.known_rows import KnownRows, recurring
from pymc_coresets.rowlogp.of_model import (
    RowsToRead,
    full_model,
    likelihood_of_rows,
    verify_form,
)
from pymc_coresets.rowlogp.units import chosen_units, may_have_units
from pymc_coresets.rowlogp.verification import refuse_impossible_rows
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.passes import AbsentRows, PassSums
from pymc_coresets.rows.sources.opening import open_rows
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.storage import (
    NO_CORESET,
    fields_of_groups,
    fields_with_model,
    history_dataset,
    read_netcdf,
    stored_tree,
    write_netcdf,
)

_DRAWS, _CANDIDATES = "stream_draws", "stream_candidates"  # groups of a file
_GONE = (
    "This needs all rows of the stream, which were not kept; the coreset can still be sampled. "
    "Diagnostics without them are coreset.objective, measured against their exact sum at held-out "
    "draws, and stream.coverage. If the rows can be read again, in the same order, store the "
    "coreset and read it with Coreset.from_netcdf(path, model, rows=open_rows(...))."
)


class CoresetStream:
    """A coreset of rows that arrive in chunks and are seen once.

    Use it if rows arrive one after the other and are not kept.  If they can be read again, use
    ``build_coreset(rows=...)``, which evaluates them at draws of its own choice and certifies the
    result.

    The first rows, the *pilot*, locate the posterior: all later rows are compared at draws of the
    pilot's posterior, which is wider than the posterior of all rows, in the same place.  For each
    chunk the exact log-likelihoods at these draws are added up, and a few thousand rows are kept as
    candidates.  `coreset` then chooses those whose weighted sum matches that of all rows.  Neither
    the sums nor the rows depend on the division of the stream into chunks.

    Nothing is integrated out.  If each chunk has all rows of its levels, such as users, build a
    coreset of the first ones, and `Coreset.extend` it by each later chunk: that integrates their
    variables out.

    Parameters
    ----------
    model : pm.Model, optional
        By default that of the context.  Its data containers hold a few rows, as for
        ``build_coreset(rows=...)``.  It is not changed.
    pilot : mapping of str to array_like, RowSource, or anything that `open_rows` reads
        The first rows, by the names of the containers.  They count like all others.  Best are a few
        thousand rows chosen at random from the whole data; they are held in memory, and must
        roughly determine the posterior.
    size : int, optional
        Largest number of weighted rows.  By default 2 K, at least 100 and at most 1,000, where
        K = D(D + 3)/2 + 1 rows match any quadratic log-posterior of D free dimensions.
    tolerance : float, default 0.01
        Symmetrised KL divergence in nats to aim at: no rows are added beyond a tenth of it.
    draws : int, optional
        Draws at which rows are compared, at least 100.  By default 4 `size`, or 2 K if that is
        more; at least 200 and at most 2,000.
    epoch_growth : float, default 8
        A new *epoch* begins once the number of rows has grown by this factor (at least 4) since the
        draws were made: the coreset so far represents the rows before it, and new draws come from
        its posterior, 1.4 times as wide.  A new epoch takes about a second.
    observed, dim : str or sequence of str, optional
        As for `build_coreset`.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Raises
    ------
    CoresetError
        If the model cannot be summarised, an option is out of range, the pilot has values that
        cannot be used, or its posterior cannot be sampled.

    Notes
    -----
    Time: about 10 ns per row, draw and term of the likelihood.  Memory: the candidates (20 per row
    of the coreset) with their data, and one chunk.

    Within an epoch the sum over all rows is exact, however many they are.  A new epoch replaces
    the rows before it by a coreset of them, of up to twice `size`.  The effect of its error falls
    as more rows follow, since an error of the log-likelihood varies less over a narrower
    posterior: `objective` includes it in that proportion.  Long epochs avoid such errors, but
    need more rows to match the log-likelihoods at wide draws: in a logistic regression of 2.6e5
    rows with a pilot of 256, one epoch left errors of 2 to 50 nats, and five of 0.006 at most.

    If the rows drift, so that the posterior moves away from the draws, exact sums at these draws
    carry little information about it.  Drift is measured with every chunk; if it occurs, there is a
    `CoresetWarning`, and a new epoch begins that includes that chunk.

    Rows are kept by priority sampling, with random numbers derived from their positions in the
    stream, half by the length of their tangent vectors and half uniformly.

    References
    ----------
    Campbell and Broderick (2019), Automated scalable Bayesian inference via Hilbert coresets,
    Journal of Machine Learning Research 20(15), Section 3.
    Duffield, Lund and Thorup (2007), Priority sampling for estimation of arbitrary subset sums,
    Journal of the ACM 54(6). https://doi.org/10.1145/1314690.1314696

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import CoresetStream
    >>> rng = np.random.default_rng(1)
    >>> chunks = [{"y": rng.normal(2.0, 1.0, size=5_000)} for _ in range(4)]
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", chunks[0]["y"][:100])
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu", 0, 10), 1.0, observed=y)
    ...     stream = CoresetStream(pilot=chunks[0], random_seed=1)
    >>> for chunk in chunks[1:]:
    ...     stream.update(chunk)
    >>> coreset = stream.coreset()
    >>> coreset.n_observations, coreset.size < 10
    (20000, True)
    """

    def __init__(  # noqa: PLR0913
        self,
        model: pm.Model | None = None,
        *,
        pilot: object,
        size: int | None = None,
        tolerance: float = 0.01,
        draws: int | None = None,
        epoch_growth: float = 8.0,
        observed: str | Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        random_seed: int | np.random.Generator | None = None,
    ) -> None:
        model = full_model(model)
        rng = generator(random_seed)
        size = if_given(whole_number, "size", size, least=1)
        draws = if_given(whole_number, "draws", draws, least=100)
        positive_number("tolerance", tolerance)
        least_growth = 2 * WIDENING  # so that the number of rows doubles in a later epoch
        if positive_number("epoch_growth", epoch_growth) < least_growth:
            raise InvalidOptionError(
                f"epoch_growth={epoch_growth} must be at least {least_growth:g}."
            )
        source = _rows_given(pilot, None)
        wanted = RowsToRead(observed=observed, dim=dim, rows=source)
        self._settings = wanted.settings
        _warn_of_levels(model, wanted, source)
        loglik = likelihood_of_rows(model, wanted, rng=rng.spawn(1)[0])
        verify_form(loglik)
        n_dims = loglik.n_dims
        n_chosen = RiemannianPursuit().default_size(n_dims, 2**31) if size is None else size
        n_draws = max(200, min(max(4 * n_chosen, 2 * rows_of_a_quadratic(n_dims)), 2_000))
        self._seed = int(random_seed) if isinstance(random_seed, int | np.integer) else None
        self._begin(
            loglik,
            size=n_chosen,
            tolerance=float(tolerance),
            n_draws=n_draws if draws is None else draws,
            growth=float(epoch_growth),
            key=random_key(rng),
        )
        # Only the sums and the candidates of the pilot are kept.
        refuse_impossible_rows(loglik, loglik.observations.space)
        self._state = self._growth.first(loglik)

    def _begin(self, loglik: LogLikelihood, **options: Any) -> None:  # noqa: ANN401
        # Its functions, for any number of rows, are those of all chunks.
        loglikelihood = LogLikelihood(loglik.observations, source=AbsentRows(0, 0.0, _GONE))
        self._growth = Growth(loglikelihood=loglikelihood, **options)
        self._codes = CodeCheck(loglikelihood.observations)

    # -- rows ----------------------------------------------------------------------------------

    def update(self, chunk: object, *, weights: ArrayLike | None = None) -> None:
        """Add a chunk of rows.

        It is checked and evaluated first, and then added: after a failure or an interrupt, the
        stream is unchanged.

        Parameters
        ----------
        chunk : mapping of str to array_like, RowSource, or anything that `open_rows` reads
            By the names of the model's data containers; other names are ignored.
        weights : array_like of shape (n_rows,), optional
            How often each row counts; only if the chunk is a mapping.

        Raises
        ------
        InvalidDataError
            If a name is missing, a shape or a type does not fit, a value is missing or not finite,
            a code is not in what it indexes, a weight is negative, or the log-likelihood of a row
            is not finite at a draw.  The message names the chunk, counted from 1, and the row.
        InvalidOptionError
            If `open_rows` cannot read the chunk.
        SamplingError
            If a new epoch begins, and its posterior cannot be sampled.

        Warns
        -----
        CoresetWarning
            If the rows drift, or the chunk equals the one before it.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import CoresetStream, InvalidDataError
        >>> y = np.random.default_rng(1).normal(size=1_000)
        >>> with pm.Model() as model:
        ...     data = pm.Data("y", y[:100])
        ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=data)
        ...     stream = CoresetStream(pilot={"y": y}, random_seed=1)
        >>> stream.update({"y": y}, weights=np.full(1_000, 3.0))
        >>> stream.n_rows, stream.total_weight
        (2000, 4000.0)
        """
        start, number = self._state.n_rows, self._state.n_chunks + 1
        try:
            rows = self._examined(_rows_given(chunk, weights))
            grown = self._growth.add(self._state, rows.moved(start))
        except (InvalidDataError, UnsupportedModelError) as error:
            raise InvalidDataError(
                f"{error.message} This is chunk {number} of the stream, of which nothing was "
                "added.",
                topic="streams",
            ) from error
        loglik = self._growth.loglikelihood.reading(rows.moved(0))
        known, last = KnownRows.among(loglik, start), KnownRows(*self._state.last_chunk)
        if known.hashes == last.hashes and any(recurring([last], loglik)):
            warn_user(
                f"Chunk {number} of the stream has the same rows as the one before, so they count "
                "twice. If that is a mistake, read the stream from a file stored earlier, and "
                "continue without this chunk."
            )
        self._state = replace(grown, n_chunks=number, last_chunk=known)

    def _examined(self, source: RowSource) -> StreamedRows:
        """Return the rows of a chunk, after checking that the model can use them.

        Rows that fit into memory are kept, and not read again.
        """
        observations = self._growth.loglikelihood.observations
        types = {row.name: row.values.dtype for row in observations.rows}
        missing = [name for name in types if name not in source.columns]
        if missing:
            raise InvalidDataError(
                f"There is no column {missing[0]!r}, but {', '.join(source.columns)}: each chunk "
                f"needs {', '.join(types)}, as in the pilot.",
                topic="streams",
            )
        Prototypes.of(observations.model, {name: source.columns[name] for name in types})
        rows = StreamedRows(source, types)
        return self._codes.usable(rows, rows.n_rows if rows.n_rows <= rows.most_kept else 0)

    @property
    def n_rows(self) -> int:
        """Number of rows so far, including the pilot."""
        return self._state.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the case weights of all rows so far."""
        return self._state.total_weight

    @property
    def n_chunks(self) -> int:
        """Number of chunks so far, without the pilot."""
        return self._state.n_chunks

    @property
    def n_epochs(self) -> int:
        """Number of epochs so far, see `epoch_growth`."""
        return len(self._state.epochs)

    # -- results -------------------------------------------------------------------------------

    @property
    def coverage(self) -> Coverage:
        """Diagnostic of whether the draws at which rows are compared cover the posterior."""
        return self._state.coverage

    def coreset(self) -> Coreset:
        """Choose weighted rows that represent all rows so far.

        The stream is not changed, and can be continued.  Costs `size` passes over the tangent
        vectors of the candidates: a second or less.

        Returns
        -------
        Coreset
            With its rows as data, see `Coreset.rows`; positions are counted from the first row of
            the pilot.  `objective` is the squared distance from the sum over all rows at the
            stream's held-out draws, in nats, plus that of the coresets which represent the rows of
            earlier epochs, times their share of all rows (the attribute ``inherited_objective``).
            While the draws are wider than the posterior, this is not an estimate of the divergence
            but usually an upper bound.  The attributes of `history` describe the draws:
            ``draws_distance``, ``draws_width``, ``pareto_khat``, ``psis_ess``, and ``epochs``.
            There is no certificate, and `check` needs all rows.

        Warns
        -----
        CoresetWarning
            If the objective is above one nat.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import CoresetStream
        >>> y = np.random.default_rng(1).normal(size=1_000)
        >>> with pm.Model() as model:
        ...     data = pm.Data("y", y[:100])
        ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=data)
        ...     coreset = CoresetStream(pilot={"y": y}, random_seed=1).coreset()
        >>> coreset.history.attrs["n_epochs"], coreset.objective < 0.01
        (1, True)
        """
        state, growth = self._state, self._growth
        solution = growth.choose(state)
        objective = solution.objective + state.inherited_objective
        if not objective <= max(1.0, growth.tolerance):
            warn_user(
                f"The coreset is {objective:.3g} nats from the rows of the stream at its "
                f"draws: use a larger size than {growth.size}, more draws than "
                f"{growth.n_draws}, or a larger pilot."
            )
        gone = AbsentRows(state.n_rows, state.total_weight, _GONE)
        loglik, found = growth.loglikelihood.reading(gone), state.coverage
        figures = {
            "n_chunks": state.n_chunks,
            "n_epochs": self.n_epochs,
            "epochs": "; ".join(state.epochs),
            "inherited_objective": state.inherited_objective,
            "n_candidates": len(state.seen.candidates),
            "n_draws": found.n_draws,
            "n_passes": 1,
            "draws_distance": found.distance,
            "draws_width": found.width,
            "pareto_khat": found.pareto_khat,
            "psis_ess": found.ess,
            "norm_total": state.seen.norm_total,
            "size": len(solution.rows),
        }
        return Coreset(
            **decided_by(solution) | {"objective": objective},
            n_observations=round(state.total_weight),
            n_distinct=state.n_rows,
            method="stream",
            weighting="the last epoch's draws" if self.n_epochs > 1 else "the pilot's posterior",
            random_seed=self._seed,
            history=history_dataset(solution.history, figures),
            settings=self._settings,
            loglikelihood=loglik,
            data=kept_dataset(loglik, solution.rows, solution.weights),
        )

    # -- storage -------------------------------------------------------------------------------

    def to_netcdf(self, path: str | Path) -> None:
        """Write the state of the stream to a NetCDF file, without the model.

        The file contains its `coreset`, which `Coreset.from_netcdf` reads, and the state needed to
        continue the stream.  It appears only when complete, and `from_netcdf` detects any later
        change to it.

        Parameters
        ----------
        path : str or Path
            An existing file is replaced atomically.

        Raises
        ------
        InvalidOptionError
            If h5netcdf is not installed (``pip install "pymc-coresets[netcdf]"``), or the file
            cannot be written: it is a folder, a pipe or a device, or the disk is full.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import CoresetStream
        >>> y = np.random.default_rng(1).normal(size=1_000)
        >>> with pm.Model() as model:
        ...     data = pm.Data("y", y[:100])
        ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=data)
        ...     stream = CoresetStream(pilot={"y": y}, random_seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stream.to_netcdf(f"{folder}/stream.nc")
        ...     again = CoresetStream.from_netcdf(f"{folder}/stream.nc", model)
        >>> again.update({"y": y + 0.1})
        >>> again.n_rows
        2000
        """
        state, tree = self._state, stored_tree(self.coreset())
        seen, numbers = state.seen, state.numbers
        draws = {
            name: (("draw", *dims_of(name, values.ndim - 1, {})), values)
            for name, values in state.draws.values.items()
        }
        tree[_DRAWS] = xr.DataTree(xr.Dataset(draws))
        tree[_CANDIDATES] = xr.DataTree(
            kept_dataset(self._growth.loglikelihood, seen.candidates, seen.keys).assign(
                stream_origin=("draw", state.origin), stream_total=("draw", seen.total)
            )
        )
        tree[_CANDIDATES].attrs |= {
            "norm_total": seen.norm_total,
            "options": json.dumps(self._growth.options),
            "numbers": json.dumps(numbers),
        }
        write_netcdf(tree, path)

    @classmethod
    def from_netcdf(cls, path: str | Path, model: pm.Model | None = None) -> Self:
        """Read a stream from a file; it resumes bit for bit.

        Parameters
        ----------
        path : str or Path
            A file written by `to_netcdf`.
        model : pm.Model, optional
            The stream's; by default that of the context.

        Raises
        ------
        InvalidOptionError
            If `model` is not a model, or h5netcdf is not installed.
        InvalidDataError
            If the file is missing, damaged, or not a stream file; if the model has other free
            variables, data containers, priors or another likelihood.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     stream = CoresetStream.from_netcdf("nowhere.nc")
        Traceback (most recent call last):
        pymc_coresets.exceptions.InvalidDataError: nowhere.nc cannot be read: [Errno 2] No such file
        or directory: 'nowhere.nc'. (docs: troubleshooting#coresets-in-files)
        """
        model, groups = given_model(model), read_netcdf(path)
        stream = cls.__new__(cls)
        try:
            stream._resume(groups, model)  # noqa: SLF001
        except CoresetError:
            raise
        except NO_CORESET as error:
            raise InvalidDataError(
                f"{path} is not a stream file: {error}.", topic="streams"
            ) from error
        return stream

    def _resume(self, groups: Mapping[str, xr.Dataset], model: pm.Model) -> None:
        """Restore the stream from the groups of a file."""
        kept, draws = groups[_CANDIDATES], groups[_DRAWS]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoresetWarning)  # of other priors
            found = fields_with_model(fields_of_groups(groups), model, None, None)
        if found["built_from"] is None:
            raise InvalidDataError(
                "The priors of the model differ from those under which the stream made its draws: "
                "pass the model that the stream was created with.",
                topic="streams",
            )
        self._settings = found["settings"]
        self._seed = found["random_seed"]
        self._begin(found["loglikelihood"], **json.loads(kept.attrs["options"]))
        loglikelihood, numbers = self._growth.loglikelihood, json.loads(kept.attrs["numbers"])
        values = {str(name): array.to_numpy() for name, array in draws.data_vars.items()}
        self._state = StreamState(
            **numbers | {"epochs": tuple(numbers["epochs"])},
            draws=Draws.of(values, loglikelihood.shapes),
            origin=kept["stream_origin"].to_numpy(),
            seen=PassSums(
                total=kept["stream_total"].to_numpy(),
                norm_total=float(kept.attrs["norm_total"]),
                candidates=rows_of_dataset(loglikelihood.observations, kept),
                keys=kept["weight"].to_numpy(),
            ),
        )

    def __repr__(self) -> str:
        state, growth = self._state, self._growth
        n_candidates = len(state.seen.candidates)
        facts = {
            "rows": f"{state.n_rows:,} in the pilot and {state.n_chunks:,} chunks",
            "candidates": f"{n_candidates:,} for a coreset of {growth.size:,} at most",
            "draws": f"{growth.n_draws:,}, epoch {self.n_epochs}",
        }
        return as_text("CoresetStream", facts)


def _warn_of_levels(model: pm.Model, wanted: RowsToRead, source: RowSource) -> None:
    """Warn of variables of many levels, which remain parameters."""
    if not may_have_units(model):
        return
    rows = replace(wanted, rows=None).rows_of(model)
    names, _ = chosen_units(rows, n_rows=len(source))
    if names:
        warn_user(
            f"{list(names)!r} remain parameters of a stream: thousands of rows may not be enough. "
            "If each chunk has all rows of its levels, build a coreset of the first ones, and "
            "extend it by each later chunk: coreset.extend(model, rows=open_rows(chunk))."
        )


def _rows_given(chunk: object, weights: ArrayLike | None) -> RowSource:
    """Return a source of the rows that a user gave, with their case weights."""
    if weights is None:
        return chunk if isinstance(chunk, RowSource) else open_rows(chunk)
    if not isinstance(chunk, Mapping):
        raise InvalidOptionError(
            "weights=... needs a mapping from names to arrays. For other sources, name the column "
            "of weights: open_rows(..., weight=...)."
        )
    column = "weights=..."  # a name that is not a variable's
    return open_rows({**chunk, column: np.asarray(weights)}, weight=column)
