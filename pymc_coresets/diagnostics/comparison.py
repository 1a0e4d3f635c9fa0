"""Compare an approximate posterior with a run of the full posterior, variable by variable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import wasserstein_distance

from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics import distances
from pymc_coresets.diagnostics.alignment import common_draws, labelled_components
from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.display.report import Numbers, Part, as_html, as_text
from pymc_coresets.exceptions import InvalidDataError

QUANTILES = (0.05, 0.5, 0.95)
"""Probabilities of the quantiles that are compared."""

_ROUNDING = 1e-13  # relative differences below this are rounding: constant components have them
_LEAST_DRAWS = 4  # of a chain: ArviZ's minimum for an effective sample size
_WITHIN = (1, 2)  # axes of the chains and the draws of components
_SHOWN_ROWS = 20
_LONG = 100.0  # numbers from here on are written with an exponent

#: How numbers are written: most of them, and those of 100 or more.
_MEAN, _RATIO, _SHIFT = (".4g", ".4g"), (".3f", ".1e"), ("+.3f", "+.1e")
#: Columns of the table that are shown: their headings, and how they are written.
_SHOWN = {
    "mean_full": ("full", _MEAN),
    "mean_approximation": ("approx.", _MEAN),
    "delta_mean_sd": ("shift", _SHIFT),
    "delta_mean_noise": ("noise", _RATIO),
    "sd_ratio": ("sd ratio", _RATIO),
    "sd_ratio_noise": ("noise", _RATIO),
    "wasserstein_sd": ("W1", _RATIO),
    "wasserstein_noise": ("noise", _RATIO),
}
_LEGEND = (
    "Means, their shift and the Wasserstein distance W1 in sd of the full posterior, each with the "
    "noise that two full runs would show."
)
_JOINT = {
    "gaussian_kl_approximation_full": "Gaussian KL(approximation || full), nats",
    "gaussian_kl_full_approximation": "Gaussian KL(full || approximation), nats",
    "energy_distance": "energy distance",
    "mmd": "MMD",
}


class Largest(NamedTuple):
    """The component in which two posteriors differ most, and by how much.

    Parameters
    ----------
    name : str
        Label of the component, as in the index of the table.
    value : float
        Difference, with its sign.

    Examples
    --------
    >>> Largest("mu", -0.2).name
    'mu'
    """

    name: str
    value: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """How an approximate posterior differs from the full one, and how much of it noise explains.

    The approximation is the posterior of a coreset or of a polynomial summary.

    Parameters
    ----------
    table : pandas.DataFrame
        One row per scalar component. ``mean_full`` and ``mean_approximation`` are the means.
        ``delta_mean_sd`` (difference of means), ``shift_q5``, ``shift_q50``, ``shift_q95``
        (differences of quantiles), all approximation minus full, and ``wasserstein_sd``
        (Wasserstein-1 distance) are in standard deviations of the full posterior; ``sd_ratio`` is
        the standard deviation of the approximation over that of the full posterior. Each
        difference has a column ``..._noise``: what two independent runs of the full posterior
        with the effective sample sizes of these two would show (a standard error; for
        ``sd_ratio`` a relative one; for the Wasserstein distance its expectation).
    joint : pandas.DataFrame
        Rows: Gaussian KL in both directions (nats), energy distance and polynomial MMD of the
        standardised draws. Columns: ``value``, and ``noise``, the root mean square (for KL the
        mean) of the value if both posteriors were equal.
    skipped : tuple of str
        Variables that could not be compared, because they are missing in one of the two or have
        another shape or other labels there, as variables with one entry per observation do.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> mu = xr.DataArray(np.random.default_rng(1).normal(size=(4, 500)), dims=("chain", "draw"))
    >>> found = compare(xr.Dataset({"mu": mu}), xr.Dataset({"mu": mu + 1}))
    >>> found.largest_mean_shift.name, round(found.largest_mean_shift.value, 1)
    ('mu', 1.0)
    """

    table: pd.DataFrame
    joint: pd.DataFrame
    skipped: tuple[str, ...]

    @property
    def largest_mean_shift(self) -> Largest:
        """Component with the largest ``|delta_mean_sd|``, and that value with its sign."""
        return self._largest(self.table["delta_mean_sd"])

    @property
    def largest_sd_change(self) -> Largest:
        """Component whose log ``sd_ratio`` is largest in modulus, and that logarithm."""
        with np.errstate(divide="ignore"):
            return self._largest(np.log(self.table["sd_ratio"]))

    @property
    def within_noise(self) -> float:
        """Share of the components whose means differ by no more than two standard errors."""
        noise = 2 * self.table["delta_mean_noise"]
        return float((self.table["delta_mean_sd"].abs() <= noise).mean())

    @staticmethod
    def _largest(values: pd.Series) -> Largest:
        name = values.abs().idxmax()
        return Largest(str(name), float(values[name]))

    def _summary(self) -> str:
        mean, sd = self.largest_mean_shift, self.largest_sd_change
        return (
            f"Largest shift of a mean: {mean.value:+.3f} sd ({mean.name}); largest change of an "
            f"sd: x {np.exp(sd.value):.3f} ({sd.name}). {self.within_noise:.0%} of the means lie "
            "within two Monte Carlo standard errors."
        )

    def _shown(self) -> tuple[str, *tuple[Part, ...]]:
        order = self.table["delta_mean_sd"].abs().sort_values(ascending=False, kind="stable").index
        shown = self.table.loc[order[:_SHOWN_ROWS], list(_SHOWN)]
        formats = [written for _, written in _SHOWN.values()]
        head = [
            [name, *(f"{v:{f[abs(v) >= _LONG]}}" for v, f in zip(row, formats, strict=True))]
            for name, *row in shown.itertuples()  # of Python's floats
        ]
        joint = [
            [words, *(f"{number:.3g}" for number in self.joint.loc[name])]
            for name, words in _JOINT.items()
        ]
        more = len(self.table) - len(shown)
        left_out = [f"{more} more rows in .table."] * (more > 0)
        left_out += [f"Not compared: {', '.join(self.skipped)}."] * bool(self.skipped)
        return (
            "Approximate posterior against full posterior",
            Numbers(["", *(heading for heading, _ in _SHOWN.values())], head),
            _LEGEND,
            Numbers(["all components together", "value", "noise"], joint),
            self._summary(),
            " ".join(left_out),
        )

    def __repr__(self) -> str:
        return as_text(*self._shown())

    def _repr_html_(self) -> str:
        return as_html(*self._shown())


def compare(
    full: xr.DataTree | xr.Dataset,
    approximation: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
) -> Comparison:
    """Compare draws of an approximate posterior with draws of the full posterior.

    For those who ran both; `Coreset.check` needs no run of the full posterior. Costs a few
    milliseconds per scalar component, and O(n**2 d) for the energy distance and the MMD of n draws
    (thinned to at most 4000) of d components.

    Parameters
    ----------
    full, approximation : xarray.DataTree or xarray.Dataset
        Draws with dims chain and draw; of a DataTree the group ``posterior``.
    var_names : str or sequence of str, optional
        Variables to compare; by default all that both have with equal shape and labels.

    Returns
    -------
    Comparison

    Raises
    ------
    InvalidOptionError
        If a variable of `var_names` cannot be compared.
    InvalidDataError
        If no variable is left, draws are not finite, or chains have fewer than 4 draws.

    Notes
    -----
    Noise levels use the effective sample sizes a (of `full`) and b (of `approximation`), after
    re-weighting at most their ``psis_ess``, each for the quantity that is estimated.

    - Difference of means: ``sqrt(1/a + 1/b)`` standard deviations.
    - Ratio of standard deviations: half the root of ``(kurtosis - 1) (1/a + 1/b)``.
    - Quantiles: root of the sum of both runs' squared Monte Carlo standard errors.
    - Wasserstein distance: :func:`~pymc_coresets.diagnostics.distances.wasserstein_noise`.
    - Gaussian KL: half the number of moments, d for the means and d(d + 1)/2 for the covariance,
      each times its ``1/a + 1/b``. Exact for Gaussian posteriors; heavier tails show more.
    - Energy distance and MMD: :func:`~pymc_coresets.diagnostics.distances.kernel_noise` with the
      average over the components of the larger ``1/a + 1/b`` of mean and standard deviation. For
      autocorrelated chains this is up to about a quarter too high.

    References
    ----------
    Huggins, Campbell, Broderick (2016). Coresets for scalable Bayesian logistic regression.
    https://doi.org/10.48550/arXiv.1605.06423

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = np.random.default_rng(1).normal(size=(2, 4, 500))
    >>> full, approximation = (xr.Dataset({"mu": (("chain", "draw"), mu)}) for mu in draws)
    >>> compare(full, approximation).within_noise
    1.0
    """
    first, second, skipped = common_draws(full, approximation, var_names)
    for name, draws in (("full", first), ("approximation", second)):
        if draws.sizes["draw"] < _LEAST_DRAWS:
            raise InvalidDataError(
                f"{name} has chains of {draws.sizes['draw']} draws, but at least {_LEAST_DRAWS} "
                "are needed to tell differences from noise."
            )
    pair = [dict(labelled_components(draws)) for draws in (first, second)]
    x, y = (np.stack([*components.values()]) for components in pair)
    size = np.maximum(*(np.abs(z).max(axis=_WITHIN) for z in (x, y)))
    rounding = _ROUNDING * size
    x, y = (_unless_rounding(z, rounding) for z in (x, y))
    centre, sd = x.mean(axis=_WITHIN), _sd(x)
    means = {"mean_full": centre, "mean_approximation": y.mean(axis=_WITHIN)}
    # Constants keep their unit: a change of theirs is infinitely many sds.
    unit = np.where(sd > 0, sd, 1.0)
    x, y = ((z - centre[:, None, None]) / unit[:, None, None] for z in (x, y))
    limits = [float(draws.attrs.get("psis_ess", np.inf)) for draws in (first, second)]
    inverse_ess = pd.DataFrame(
        {
            method: 1 / np.minimum(array_stats.ess(x, method=method), limits[0])
            + 1 / np.minimum(array_stats.ess(y, method=method), limits[1])
            for method in ("mean", "sd", "median")
        },
        index=[*pair[0]],
    )
    table = pd.DataFrame(means | _differences(x, y, inverse_ess, rounding), index=[*pair[0]])
    joint = _joint(x[sd > 0], y[sd > 0], inverse_ess[sd > 0].to_numpy())
    return Comparison(table=table, joint=joint, skipped=skipped)


def _unless_rounding(draws: Floats, rounding: Floats) -> Floats:
    """Return the draws; their mean, where they differ by no more than rounding errors."""
    varies = np.ptp(draws, axis=_WITHIN, keepdims=True) > rounding[:, None, None]
    return np.where(varies, draws, draws.mean(axis=_WITHIN, keepdims=True))


def _sd(draws: Floats) -> Floats:
    """Return the sd of each component; 0 where it is constant, whose mean may be rounded."""
    return np.where(np.ptp(draws, axis=_WITHIN) > 0, draws.std(axis=_WITHIN, ddof=1), 0.0)


def _differences(
    x: Floats, y: Floats, inverse_ess: pd.DataFrame, rounding: Floats
) -> dict[str, Floats]:
    """Return the columns of the table from the second pair of columns on.

    Parameters
    ----------
    x, y : ndarray of shape (n_components, n_chains, n_draws)
        Of the full posterior and of the approximation, in sds of the full posterior.
    inverse_ess : pandas.DataFrame
        For each component, the reciprocals of the effective sample sizes of both for means, sds
        and the distribution function at the median, added up.
    rounding : ndarray of shape (n_components,)
        Differences of constants up to this are rounding errors.
    """
    flat_x, flat_y = (z.reshape(len(z), -1) for z in (x, y))
    sd_y, varies = _sd(y), _sd(x) > 0

    def in_sds(difference: ArrayLike) -> Floats:
        changed = np.where(np.abs(difference) > rounding, np.copysign(np.inf, difference), 0.0)
        return np.where(varies, difference, changed)

    variances = np.where(varies, np.mean(flat_x**2, axis=1), 1.0)
    kurtosis = np.mean(flat_x**4, axis=1) / variances**2
    found = {
        "delta_mean_sd": in_sds(flat_y.mean(axis=1) - flat_x.mean(axis=1)),
        "delta_mean_noise": np.where(varies, np.sqrt(inverse_ess["mean"]), 0.0),
        "sd_ratio": np.where(varies, sd_y, np.where(sd_y > 0, np.inf, 1.0)),
        "sd_ratio_noise": np.sqrt(np.maximum(kurtosis - 1, 0.0) * inverse_ess["sd"]) / 2,
        "wasserstein_sd": in_sds([*map(wasserstein_distance, flat_x, flat_y)]),
        "wasserstein_noise": [*map(distances.wasserstein_noise, flat_x, inverse_ess["median"])],
    }
    for q in QUANTILES:
        name = f"shift_q{100 * q:.0f}"
        errors = [array_stats.mcse(z, method="quantile", prob=q) for z in (x, y)]
        found[name] = in_sds(np.quantile(flat_y, q, axis=1) - np.quantile(flat_x, q, axis=1))
        found[f"{name}_noise"] = in_sds(np.hypot(*errors))
    return found


def _joint(x: Floats, y: Floats, inverse_ess: Floats) -> pd.DataFrame:
    """Return distances between the joint distributions of the components that vary.

    Parameters
    ----------
    x, y, inverse_ess
        See `_differences`.
    """
    if not len(x):
        return pd.DataFrame({"value": np.nan, "noise": np.nan}, index=list(_JOINT))
    x, y = (z.reshape(len(z), -1).T for z in (x, y))
    kls, rank = distances.gaussian_kls(y, x)
    moments = np.array([rank, rank * (rank + 1) / 2])  # of the means, and of the covariance
    inverse_ess = inverse_ess[:, :2]
    kl_noise = np.nan if np.isnan(kls[0]) else float(moments @ inverse_ess.mean(axis=0)) / 2
    x, y = (distances.thinned(z) for z in (x, y))
    # The effective sample size of thinned draws is at most their number.
    pairs = max(float(inverse_ess.max(axis=1).mean()), 1 / len(x) + 1 / len(y))
    kernels = (distances.negative_distance, distances.cubic_kernel)
    values = [*kls, *(distances.kernel_distance(x, y, k) for k in kernels)]
    noise = [kl_noise, kl_noise, *(distances.kernel_noise(x, k, pairs) for k in kernels)]
    return pd.DataFrame({"value": values, "noise": noise}, index=list(_JOINT))
