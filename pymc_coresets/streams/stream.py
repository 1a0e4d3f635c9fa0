"""Rows that come chunk by chunk and are seen once: a coreset of all of them at any time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_coresets.coreset import Coreset
from pymc_coresets.display.report import as_text
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, warn_user
from pymc_coresets.methods.job import rows_of_a_quadratic
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.options import generator, positive_number, whole_number
from pymc_coresets.potentials.backends.evaluator import Jax
from pymc_coresets.potentials.of_model import (
    RowsToRead,
    full_model,
    likelihood_of_rows,
    verify_form,
)
from pymc_coresets.potentials.verification import refuse_impossible_rows
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.user_model import given_model
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.streams.arrivals import (
    Arrivals,
    ArrivedRows,
    digest_of_rows,
    rows_given,
    with_chunk,
)
from pymc_coresets.streams.coverage import Coverage
from pymc_coresets.streams.growth import WIDENING, Beginning, Growth, Reason, StreamOptions
from pymc_coresets.streams.stored import (
    chosen_coreset,
    rows_gone,
    state_of_tree,
    template_of_tree,
    tree_of_state,
)

_FEWEST_DRAWS, _LEAST_DRAWS, _MOST_DRAWS = 100, 200, 2_000
_LEAST_GROWTH = 2 * WIDENING  # so that the number of rows doubles in a later epoch


class CoresetStream:
    """A coreset of rows that arrive in chunks and are seen once.

    Use it where rows come one after the other and are not kept.  Where they can be read again,
    ``build_coreset(rows=...)`` looks at them at draws of its own choice, and certifies what it
    found.

    The first rows, the *pilot*, say where the posterior is: the stream compares all later rows at
    draws of the pilot's posterior.  These are wider than the posterior of all rows, in the same
    place.  Of each chunk it adds the exact log-likelihoods at these draws, and keeps a few thousand
    rows to choose from.  `coreset` then chooses those whose weighted sum is that of all.  Neither
    the sums nor the rows depend on how the stream is cut into chunks.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context where it is not given.  Its data containers hold a few rows, as for
        ``build_coreset(rows=...)``.  It is not changed.
    pilot : mapping of str to array_like, RowSource, or anything that `open_rows` reads
        The first rows, by the names of the containers.  They count like all others.  A few thousand
        chosen at random from all over the data serve best; they are held in memory, and must
        determine the posterior roughly.
    size : int, optional
        Largest number of weighted rows.  By default 2 K, but 100 at least and 1 000 at most, where
        K = D(D + 3)/2 + 1 rows match any quadratic log-posterior of D free dimensions.
    tolerance : float, default 0.01
        Symmetrised KL divergence in nats to aim at: no rows are added beyond a tenth of it.
    draws : int, optional
        Draws at which rows are compared, at least 100.  By default four for each of `size`, or two
        for each of K where that is more; but 200 at least and 2 000 at most.
    epoch_growth : float, default 8
        Once there are so many times (4 at least) as many rows as those whose posterior the draws
        are from, a new *epoch* begins: the coreset so far stands for the rows before it, and new
        draws come from its posterior, 1.4 times as wide.  An epoch takes about a second.
    observed, dim : str or sequence of str, optional
        As for `build_coreset`.
    backend : {"numba", "jax"} or Jax, default "numba"
        Who evaluates the rows of chunks at the draws, see `build_coreset`.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Raises
    ------
    CoresetError
        If the model cannot be summarised, an option is out of range, the pilot has values that
        cannot be used, or its posterior cannot be sampled.

    Notes
    -----
    Time: about 10 ns for each row, draw and term of the likelihood.  Memory: the candidates (20
    for each row of the coreset) with their data, and one chunk.

    Within an epoch the sum over all rows is exact, however many they are.  A new epoch replaces
    the rows before it by a coreset of them, of up to twice `size`.  Its error counts for less and
    less as rows follow, since an error of the log-likelihood varies less over a narrower
    posterior: `objective` has it in that proportion.  Long epochs avoid such errors, but
    need more rows to match the log-likelihoods at wide draws: in a logistic regression of 2.6e5
    rows with a pilot of 256, one epoch left errors of 2 to 50 nats, and five of 0.006 at most.

    If the rows drift, so that the posterior moves to where the draws are not, exact sums there say
    little of it.  This is measured with every chunk; if it happens, there is a `CoresetWarning`,
    and an epoch begins that knows of that chunk.

    Rows are kept by priority sampling, with random numbers that belong to their positions in the
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
        pilot: Any,  # noqa: ANN401 - whatever `open_rows` reads
        size: int | None = None,
        tolerance: float = 0.01,
        draws: int | None = None,
        epoch_growth: float = 8.0,
        observed: str | Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        backend: str | Jax = "numba",
        random_seed: int | np.random.Generator | None = None,
    ) -> None:
        model = full_model(model)
        rng = generator(random_seed)
        for name, value, least in (("size", size, 1), ("draws", draws, _FEWEST_DRAWS)):
            if value is not None:
                whole_number(name, value, least=least)
        positive_number("tolerance", tolerance)
        if positive_number("epoch_growth", epoch_growth) < _LEAST_GROWTH:
            raise InvalidOptionError(
                f"epoch_growth={epoch_growth} must be at least {_LEAST_GROWTH:g}."
            )
        source = rows_given(pilot)
        wanted = RowsToRead(observed=observed, dim=dim, rows=source, backend=backend)
        self._settings = wanted.settings
        loglik = likelihood_of_rows(model, wanted, rng=rng.spawn(1)[0])
        verify_form(loglik)
        n_dims = loglik.n_dims
        n_chosen = RiemannianPursuit().default_size(n_dims, 2**31) if size is None else int(size)
        options = StreamOptions(
            size=n_chosen,
            tolerance=float(tolerance),
            n_draws=_default_draws(n_dims, n_chosen) if draws is None else int(draws),
            growth=float(epoch_growth),
            key=random_key(rng),
            seed=int(random_seed) if isinstance(random_seed, int | np.integer) else None,
        )
        # The stream keeps nothing of the pilot but its sums and the rows that it may choose.
        rows = ArrivedRows(loglik.all_rows, loglik.n_rows, source.locate)
        refuse_impossible_rows(loglik.reading(rows), Unconstrained(model))
        self._begin(Growth(loglik.reading(rows_gone()), options))
        digest = digest_of_rows([*source.check().chunks.values()])
        self._state = replace(self._growth.first(rows), known=(digest,))

    def _begin(self, growth: Growth) -> None:
        self._growth, self._arrivals = growth, Arrivals(growth.template)

    # -- rows ----------------------------------------------------------------------------------

    def update(self, chunk: Any, *, weights: ArrayLike | None = None) -> None:  # noqa: ANN401
        """Add a chunk of rows.

        It is checked and evaluated first, and added as a whole: if that fails, or is interrupted,
        the stream is as it was before.

        Parameters
        ----------
        chunk : mapping of str to array_like, RowSource, or anything that `open_rows` reads
            By the names of the model's data containers; other names are ignored.
        weights : array_like of shape (n_rows,), optional
            How many rows each row stands for, where the chunk is a mapping.

        Raises
        ------
        InvalidDataError
            If a name is missing, a shape or a type does not fit, a value is missing or not finite,
            a code is not in what it indexes, a weight is negative, or the log-likelihood of a row
            is not finite at a draw.  The message names the chunk, counted from 1, and the row.
        InvalidOptionError
            If the chunk is nothing that `open_rows` reads.
        SamplingError
            If an epoch begins, and its posterior cannot be sampled.

        Warns
        -----
        CoresetWarning
            If the rows drift away from those before them, or the chunk was given before.

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
        state = self._state
        number = state.n_chunks + 1
        try:
            source = rows_given(chunk, weights)
        except InvalidDataError as error:
            raise InvalidDataError(
                f"{error.message} This is chunk {number} of the stream."
            ) from error
        notes = []
        for rows, noted in self._arrivals.read(source, number=number, start=self._state.n_rows):
            state = self._growth.add(state, rows)
            notes.append(noted)
        known = with_chunk(state.known, digest_of_rows(notes), rows.all, number)
        n_known = len(self._state.beginnings)
        self._state = replace(state, n_chunks=number, known=known)
        for begun in state.beginnings[n_known:]:
            _warn_of_drift(begun, number)

    @property
    def n_rows(self) -> int:
        """Number of rows so far, those of the pilot included."""
        return self._state.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of their base weights."""
        return self._state.total_weight

    @property
    def n_chunks(self) -> int:
        """Number of chunks so far, without the pilot."""
        return self._state.n_chunks

    @property
    def n_epochs(self) -> int:
        """Number of epochs so far, see `epoch_growth`."""
        return len(self._state.beginnings)

    # -- results -------------------------------------------------------------------------------

    @property
    def coverage(self) -> Coverage:
        """Whether the draws at which rows are compared lie where the posterior is."""
        return self._state.coverage

    def coreset(self) -> Coreset:
        """Choose weighted rows that stand for all rows so far.

        The stream stays as it is, and can go on.  Costs `size` passes over the tangent vectors of
        the candidates: a second or less.

        Returns
        -------
        Coreset
            With its rows as data, see `Coreset.rows`; positions are counted from the first row of
            the pilot.  `objective` is the squared distance from the sum over all rows at the
            stream's held-out draws, in nats; to it is added that of the coresets which
            stand for the rows of earlier epochs, times the share that these are of all rows (the
            attribute ``inherited_objective``).  While the draws are wider than the posterior, this
            is no estimate of the divergence but, as a rule, an upper bound.  The attributes of
            `history` say what the draws are: ``draws_distance``, ``draws_width``,
            ``pareto_khat``, ``psis_ess``, and ``epochs``.  There is no certificate, and `check`
            needs all rows.

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
        return chosen_coreset(self._growth, self._state, self._settings)

    # -- storage -------------------------------------------------------------------------------

    def state(self) -> xr.DataTree:
        """Return all that the stream keeps, without the model: arrays that any format can store.

        Returns
        -------
        xarray.DataTree
            Its ``to_netcdf()`` returns the content of a file: written to the path, it would end the
            process on a full disk.  A stream that is restored from it, with the same backend, goes
            on with the same bits as this one.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import CoresetStream
        >>> y = np.random.default_rng(1).normal(size=1_000)
        >>> with pm.Model() as model:
        ...     data = pm.Data("y", y[:100])
        ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=data)
        ...     stream = CoresetStream(pilot={"y": y}, random_seed=1)
        >>> again = CoresetStream.restore(model, stream.state())
        >>> again.update({"y": y + 0.1})
        >>> again.n_rows
        2000
        """
        return tree_of_state(self._state, self._growth, self._settings)

    @classmethod
    def restore(
        cls, model: pm.Model | None, state: xr.DataTree, *, backend: str | Jax = "numba"
    ) -> Self:
        """Return the stream that had a state.

        Parameters
        ----------
        model : pm.Model, optional
            The stream's; by default that of the context.
        state : xarray.DataTree
            From `state`, perhaps stored in between.
        backend : {"numba", "jax"} or Jax, default "numba"
            Who evaluates rows from now on: the state does not say.

        Raises
        ------
        InvalidOptionError
            If `state` is no DataTree, or there is no such backend.
        InvalidDataError
            If the state is no stream's, or was altered; if the model has other free variables or
            data containers.
        """
        found = template_of_tree(state, given_model(model), backend=backend)
        template, options, settings = found
        restored = cls.__new__(cls)
        restored._settings = settings  # noqa: SLF001
        growth = Growth(template.reading(rows_gone()), options)
        restored._begin(growth)  # noqa: SLF001
        restored._state = state_of_tree(state, growth)  # noqa: SLF001
        return restored

    def __repr__(self) -> str:
        state, options = self._state, self._growth.options
        facts = {
            "rows": f"{state.n_rows:,} in the pilot and {state.n_chunks:,} chunks",
            "candidates": f"{len(state.candidates):,} for a coreset of {options.size:,} at most",
            "draws": f"{options.n_draws:,}, epoch {self.n_epochs}",
        }
        return as_text("CoresetStream", facts)


def _default_draws(n_dims: int, size: int) -> int:
    return max(_LEAST_DRAWS, min(max(4 * size, 2 * rows_of_a_quadratic(n_dims)), _MOST_DRAWS))


def _warn_of_drift(begun: Beginning, number: int) -> None:
    """Warn where an epoch began because the posterior had left the draws."""
    if begun.reason is Reason.DRIFT:
        warn_user(
            f"Chunk {number} moves the posterior {begun.distance:.3g} standard deviations "
            "of the stream's draws away from them: its rows are not like those before. A "
            f"new epoch begins, in which a coreset of {begun.size} rows stands for the "
            f"{begun.n_rows} before it, and the draws know of this chunk. If that is no "
            "exception, begin the stream again with a pilot from all over the data, or let "
            "the model depend on time."
        )
