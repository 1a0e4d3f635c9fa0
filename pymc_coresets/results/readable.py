"""What a coreset shows of itself: its summary, and how it is printed."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd
import xarray as xr

from pymc_coresets.diagnostics.judging import Certificate
from pymc_coresets.display.facts import facts_text
from pymc_coresets.display.page import card, facts_table, figure_of, verdict_html
from pymc_coresets.display.sketches import curve_sketch, weights_sketch
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import generator, names_of
from pymc_coresets.potentials.kept_rows import rows_of_dataset
from pymc_coresets.reading.observations import TERM_OF_ROW
from pymc_coresets.reading.row_arrays import RowArray
from pymc_coresets.results.columns import Levels, RowColumns
from pymc_coresets.results.groups import level_labels, levels_of_rows, own_values
from pymc_coresets.results.kept_columns import columns_of_kept
from pymc_coresets.results.model_columns import cell_codes, columns_of_model
from pymc_coresets.results.summarising import effective_size, summary_table
from pymc_coresets.rows.values import Rows
from pymc_coresets.updates.ancestry import OBJECTIVE_OF_PARTS
from pymc_coresets.updates.coreset_parts import BuiltCoreset, required_likelihood

__all__ = ["CoresetRows", "Readable", "row_columns"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SHOWN_GROUPS = 6


class CoresetRows(BuiltCoreset, Protocol):
    """What is read of a `Coreset`; see there."""

    @property
    def method(self) -> str: ...  # noqa: D102
    @property
    def weighting(self) -> str: ...  # noqa: D102
    @property
    def status(self) -> str: ...  # noqa: D102
    @property
    def certificate(self) -> Certificate | None: ...  # noqa: D102


def row_columns(
    coreset: CoresetRows,
    random_seed: int | np.random.Generator | None = None,
    *,
    read: bool = True,
) -> RowColumns:
    """Return the columns of a coreset's rows, beside those of all rows.

    Parameters
    ----------
    coreset : Coreset
    random_seed : int or Generator, optional
        Of the sample of rows that lie elsewhere.
    read : bool, default True
        Whether to read such rows at all.

    Raises
    ------
    CoresetError
        If the coreset was read without its model, which holds the rows.
    """
    rng = generator(random_seed)
    if coreset.data is not None:
        loglik = coreset.loglikelihood
        return columns_of_kept(loglik, coreset.data, coreset.weights, rng=rng, read=read)
    observations = required_likelihood(coreset).observations
    return RowColumns(columns_of_model(observations, coreset.indices), coreset.weights)


class Readable:
    """A coreset that can be read: in a table, in print, in a notebook.  For frozen dataclasses."""

    def summary(
        self,
        columns: str | Sequence[str] | None = None,
        *,
        quantiles: Sequence[float] = _QUANTILES,
        random_seed: int | np.random.Generator | None = None,
    ) -> pd.DataFrame:
        """Summarise the chosen rows: how they differ from all rows, and what the weights make good.

        Each quantity is computed three times: for all rows, for the chosen rows without their
        weights, and with them.  The chosen rows alone often lie far out, where they say most about
        the parameters.  With their weights they come closer to all rows, but need not match them
        (least of all beside a quadratic, which stands for most of what they say):
        what is matched is the log-likelihood.

        Costs a sort of each column of the data.  Rows elsewhere (``rows=...``) are read twice: what
        is counted, the smallest and the largest value are exact, all else comes from 100 000 rows
        drawn at random, if there are more.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Which columns to summarise; an array with several numbers for each row is one name.  By
            default all: the data containers along the observation dimension (also those that the
            likelihood does not use), the observed values, other arrays with one entry for each row,
            the indices by which variables are looked up, and the dimensions of cells.
        quantiles : sequence of float
            Their probabilities, between 0 and 1.
        random_seed : int or Generator, optional
            Which rows are drawn, of rows elsewhere.

        Returns
        -------
        pandas.DataFrame
            With the columns ``all``, ``chosen`` and ``weighted``, and an index of two levels,
            ``part`` and ``quantity``:

            ===================  ==================================================================
            rows                 ``number``; ``distinct``, where equal rows were merged;
                                 ``effective``: ``(sum w)^2 / sum w^2``, as many rows of equal
                                 weights
            largest weights      the five rows of the largest weights
            (name of a column)   ``mean``, ``sd``, ``min``, quantiles, ``max``; of a column of
                                 levels, ``levels`` (that have rows), ``in these levels`` (rows in
                                 levels of which a row was chosen), and the rows of each level, if
                                 there are at most 20
            ===================  ==================================================================

            Numbers of rows are sums of weights in the column ``weighted``.  ``all`` is NaN where
            all rows are out of reach, as after `merge` or reading without ``rows=...``.  Missing
            values are left out.  ``attrs["n_sampled"]`` is the number of rows drawn, or None.

        Raises
        ------
        InvalidOptionError
            If there is no column of a name, or `quantiles` are not between 0 and 1.
        CoresetError
            If the coreset was read without its model.

        Notes
        -----
        The effective number is that of Kish (1965), *Survey Sampling*.  Quantiles are those of the
        distribution that has the given weights: the smallest value up to which at least this share
        of the weight lies.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import build_coreset
        >>> x = np.arange(500.0)
        >>> with pm.Model():
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
        ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
        >>> table = coreset.summary()
        >>> table.loc[("rows", "number")].tolist()
        [500.0, 5.0, 500.0]
        >>> float(table.loc[("y", "50%"), "all"])
        249.0
        """
        names, probabilities = names_of("columns", columns), _probabilities(quantiles)
        own = self._read
        found = row_columns(own, random_seed)
        named = [names] if isinstance(names, str) else names
        chosen = found.columns if named is None else found.named(named)
        return summary_table(
            found,
            chosen,
            labels=_row_labels(own),
            n_observations=own.n_observations,
            n_distinct=own.n_distinct,
            quantiles=probabilities,
        )

    @property
    def _read(self) -> CoresetRows:
        return cast(CoresetRows, self)

    def _facts(self) -> dict[str, str]:
        own = self._read
        rows = f"{len(own.indices):,} of {own.n_observations:,}"
        if own.n_distinct < own.n_observations:
            rows += f" ({own.n_distinct:,} distinct)"
        facts = {"rows": rows}
        if own.quadratic is not None:
            facts["quadratic"] = f"of {len(own.quadratic.names):,} coefficients, for all rows"
        if len(own.weights):
            facts["weights"] = _weights_in_words(own)
        terms = _terms_in_words(own)
        if terms:
            facts["terms"] = terms
        groups = _covered(own)
        if groups:
            facts["groups"] = ", ".join(groups)
        facts |= {"method": own.method, "weighting": own.weighting}
        unmeasured = np.isnan(own.history.attrs.get(OBJECTIVE_OF_PARTS, 0.0))
        if np.isfinite(own.objective) and not unmeasured:
            facts["divergence"] = f"about {own.objective:.3g} nats"
        modes = None if own.certificate is None else own.certificate.modes
        if modes is not None and modes.n_modes > 1:
            facts["modes"] = modes.words
        return facts | {"status": own.status}

    def __repr__(self) -> str:
        certificate = self._read.certificate
        verdict = [] if certificate is None else [certificate.verdict]
        return facts_text(type(self).__name__, self._facts(), *verdict)

    def _repr_html_(self) -> str:
        own, facts = self._read, self._facts()
        certificate = own.certificate
        pictures = (
            figure_of(weights_sketch(own.weights.tolist(), own.n_observations), _CAPTION),
            figure_of(*_divergences(own.history)),
        )
        return card(
            type(self).__name__,
            f'<div class="pmc-pictures">{"".join(pictures)}</div>',
            facts_table(facts),
            verdict_html("" if certificate is None else certificate.verdict),
            plain=repr(self),
        )


_CAPTION = "weights, the largest first (dashed: uniform rows)"


def _probabilities(quantiles: Any) -> list[float]:  # noqa: ANN401 - what users pass
    try:
        found = np.asarray(quantiles)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    kind, n_axes = found.dtype.kind, found.ndim
    if kind not in "iuf" or n_axes != 1 or not ((found >= 0) & (found <= 1)).all():
        raise InvalidOptionError(
            f"quantiles={quantiles!r} must be a sequence of numbers between 0 and 1."
        )
    return [float(p) for p in found]


def _weights_in_words(coreset: CoresetRows) -> str:
    weights = coreset.weights
    lowest, highest = f"{weights.min():,.4g}", f"{weights.max():,.4g}"
    if lowest == highest:
        return f"{lowest} each"
    largest = _row_labels(coreset)[int(np.argmax(weights))]
    return f"{lowest} to {highest} ({largest}), worth {effective_size(weights):,.0f} equal ones"


def _row_labels(coreset: CoresetRows) -> list[str]:
    """Labels of the chosen rows: their positions, or the labels of their cells."""
    if coreset.data is None and coreset.loglikelihood is not None:
        observations = coreset.loglikelihood.observations
        if observations.sets:
            return [observations.place(position) for position in coreset.indices.tolist()]
        if len(observations.dims) > 1:
            codes = cell_codes(observations, coreset.indices)
            labels = [
                level_labels(observations, dim, int(max(c) + 1))[c] for dim, c in codes.items()
            ]
            return [", ".join(map(str, pair)) for pair in zip(*labels, strict=True)]
    return [f"row {position}" for position in coreset.indices]


def _terms_in_words(coreset: CoresetRows) -> str:
    """Say how many rows each likelihood term has, and how many are chosen, where these differ."""
    sets = () if coreset.loglikelihood is None else coreset.loglikelihood.observations.sets
    chosen = [
        np.count_nonzero((s.start <= coreset.indices) & (coreset.indices < s.stop)) for s in sets
    ]
    return ", ".join(
        f"{n:,} of {s.stop - s.start:,} of {s.names}" for n, s in zip(chosen, sets, strict=True)
    )


def _covered(coreset: CoresetRows) -> list[str]:
    """Say how many levels have a chosen row, for each index by which variables are looked up."""
    loglik = coreset.loglikelihood
    if loglik is None:
        return []
    observations = loglik.observations
    if coreset.data is None:
        rows = loglik.collapsed(collapse=False).source.at(coreset.indices)
    else:
        rows = rows_of_dataset(observations, coreset.data)
    found = [
        f"{name} {_n_covered(observations.rows[i], rows.arrays[i], rows, levels):,} "
        f"of {len(levels):,}"
        for i, (name, levels) in levels_of_rows(observations).items()
        if name != TERM_OF_ROW
    ]
    more = len(found) - _SHOWN_GROUPS
    return [*found[:_SHOWN_GROUPS], *([f"and {more} more"] if more > 0 else [])]


def _n_covered(row: RowArray, codes: np.ndarray, rows: Rows, levels: Levels) -> int:
    own = own_values(row, codes, rows.positions)
    return int(np.count_nonzero(levels.totals(own.ravel(), None)))


def _divergences(history: xr.Dataset) -> tuple[str, str]:
    """Sketch what was estimated of the divergence from step to step, and say what it is."""
    for name in ("heldout_objective", "objective"):
        values = np.asarray(history.get(name, []), dtype=np.float64)
        picture = curve_sketch(values.tolist(), "divergence by round")
        if picture:
            shown = values[np.isfinite(values) & (values > 0)]
            caption = f"divergence by round: {shown[0]:.3g} to {shown[-1]:.3g} nats"
            return picture, caption
    return "", ""
