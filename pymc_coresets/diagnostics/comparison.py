"""Compare an approximate posterior with a run of the full posterior, variable by variable."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import wasserstein_distance

from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics import distances
from pymc_coresets.diagnostics.alignment import common_draws, labelled_components
from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.display.facts import table_text, wrapped
from pymc_coresets.display.page import numbers_table, page_of, sentences
from pymc_coresets.exceptions import InvalidDataError

QUANTILES = (0.05, 0.5, 0.95)
"""Probabilities of the quantiles that are compared."""

_ROUNDING = 1e-13  # relative differences below this are rounding: constant components have them
_LEAST_DRAWS = 4  # of a chain: ArviZ's minimum for an effective sample size
_SHOWN_ROWS = 20
_LONG = 100.0  # numbers from here on are written with an exponent
_TITLE = "Approximate posterior against full posterior"


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
_HEADER = ["", *(heading for heading, _ in _SHOWN.values())]
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
_JOINT_HEADER = ["all components together", "value", "noise"]


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

    def _head(self) -> list[list[str]]:
        order = self.table["delta_mean_sd"].abs().sort_values(ascending=False, kind="stable").index
        shown = self.table.loc[order[:_SHOWN_ROWS], list(_SHOWN)]
        formats = [written for _, written in _SHOWN.values()]
        return [
            [
                str(name),
                *(f"{v:{f[int(abs(v) >= _LONG)]}}" for v, f in zip(row, formats, strict=True)),
            ]
            for name, row in zip(shown.index, shown.to_numpy(), strict=True)
        ]

    def _joint_rows(self) -> list[list[str]]:
        return [
            [words, *(f"{number:.3g}" for number in self.joint.loc[name])]
            for name, words in _JOINT.items()
        ]

    def _left_out(self) -> str:
        rows = len(self.table) - _SHOWN_ROWS
        parts = [f"{rows} more rows in .table."] if rows > 0 else []
        if self.skipped:
            parts.append(f"Not compared: {', '.join(self.skipped)}.")
        return " ".join(parts)

    def __repr__(self) -> str:
        parts = [
            _TITLE,
            table_text(_HEADER, self._head()),
            wrapped(_LEGEND),
            table_text(_JOINT_HEADER, self._joint_rows()),
            wrapped(self._summary()),
            wrapped(self._left_out()),
        ]
        return "\n\n".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        return page_of(
            _TITLE,
            numbers_table(_HEADER, self._head()),
            sentences(_LEGEND),
            numbers_table(_JOINT_HEADER, self._joint_rows()),
            sentences(f"{self._summary()} {self._left_out()}"),
            plain=repr(self),
        )


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
    pairs = zip(labelled_components(first), labelled_components(second), strict=True)
    limits = [float(draws.attrs.get("psis_ess", np.inf)) for draws in (first, second)]
    components = [_Component.of(label, x, y, *limits) for (label, x), (_, y) in pairs]
    table = pd.DataFrame([item.row() for item in components], index=[c.label for c in components])
    return Comparison(table=table, joint=_joint(components), skipped=skipped)


class _Component(NamedTuple):
    """Draws of one scalar component in both posteriors, and their effective sample sizes."""

    label: str
    x: Floats  # full posterior, (n_chains, n_draws)
    y: Floats  # approximation
    rounding: float  # differences up to this are rounding errors
    sd: float  # of x
    inverse_ess: float  # of the mean, summed over both
    inverse_ess_sd: float  # of the sd, likewise
    inverse_ess_cdf: float  # of the distribution function at the median, likewise

    @classmethod
    def of(cls, label: str, x: Floats, y: Floats, limit_x: float, limit_y: float) -> "_Component":
        rounding = _ROUNDING * max(float(np.abs(x).max()), float(np.abs(y).max()))
        x, y = (np.full_like(z, z.mean()) if np.ptp(z) <= rounding else z for z in (x, y))
        inverse = [
            1 / min(_stat("ess", x, method), limit_x) + 1 / min(_stat("ess", y, method), limit_y)
            for method in ("mean", "sd", "median")
        ]
        sd = float(x.std(ddof=1)) if np.ptp(x) > 0 else 0.0
        return cls(label, x, y, rounding, sd, *inverse)

    def row(self) -> dict[str, float]:
        """One row of the table."""
        x, y = self.x.ravel(), self.y.ravel()
        sd_y = float(y.std(ddof=1)) if np.ptp(y) > 0 else 0.0
        varies = self.sd > 0
        row = {
            "mean_full": float(x.mean()),
            "mean_approximation": float(y.mean()),
            "delta_mean_sd": self._over_sd(float(y.mean() - x.mean())),
            "delta_mean_noise": np.sqrt(self.inverse_ess) if varies else 0.0,
            "sd_ratio": sd_y / self.sd if varies else (1.0 if sd_y == 0 else np.inf),
            "sd_ratio_noise": self._sd_noise(),
            "wasserstein_sd": self._over_sd(float(wasserstein_distance(x, y))),
            "wasserstein_noise": self._over_sd(
                distances.wasserstein_noise(x, self.inverse_ess_cdf)
            ),
        }
        shifts = np.quantile(y, QUANTILES) - np.quantile(x, QUANTILES)
        for probability, shift in zip(QUANTILES, shifts, strict=True):
            name = f"shift_q{100 * probability:.0f}"
            errors = [_stat("mcse", z, "quantile", probability) for z in (self.x, self.y)]
            row[name] = self._over_sd(float(shift))
            row[f"{name}_noise"] = self._over_sd(math.hypot(*errors))
        return row

    def _over_sd(self, difference: float) -> float:
        """Return the difference in sds of the full posterior; infinite where a constant changed."""
        if self.sd > 0:
            return difference / self.sd
        unchanged = abs(difference) <= self.rounding
        return 0.0 if unchanged else float(np.copysign(np.inf, difference))

    def _sd_noise(self) -> float:
        """Relative standard error of the ratio of standard deviations."""
        if self.sd == 0:
            return 0.0
        kurtosis = float(np.mean((self.x - self.x.mean()) ** 4)) / float(self.x.var()) ** 2
        return float(np.sqrt(max(kurtosis - 1, 0.0) * self.inverse_ess_sd)) / 2


def _joint(components: Sequence[_Component]) -> pd.DataFrame:
    """Return distances between the joint distributions of the components that vary."""
    kept = [item for item in components if item.sd > 0]
    if not kept:
        return pd.DataFrame({"value": np.nan, "noise": np.nan}, index=list(_JOINT))
    centre = np.array([item.x.mean() for item in kept])
    scale = np.array([item.sd for item in kept])
    x = (np.column_stack([item.x.ravel() for item in kept]) - centre) / scale
    y = (np.column_stack([item.y.ravel() for item in kept]) - centre) / scale
    inverse = np.array([[item.inverse_ess, item.inverse_ess_sd] for item in kept])
    # The effective sample size of thinned draws is at most their number.
    used = [min(len(draws), distances.MAX_PAIR_DRAWS) for draws in (x, y)]
    pairs = max(float(inverse.max(axis=1).mean()), sum(1 / n for n in used))
    kernels = (distances.negative_distance, distances.cubic_kernel)
    (forward, backward), kl_noise = _gaussian_kls(x, y, inverse.mean(axis=0))
    values = [forward, backward, *(distances.kernel_distance(x, y, k) for k in kernels)]
    noise = [kl_noise, kl_noise, *(distances.kernel_noise(x, k, pairs) for k in kernels)]
    return pd.DataFrame({"value": values, "noise": noise}, index=list(_JOINT))


def _gaussian_kls(x: Floats, y: Floats, inverse: Floats) -> tuple[tuple[float, float], float]:
    """Return KL(approximation || full), KL(full || approximation), and their noise level."""
    x, y = distances.independent_coordinates(x, y)
    dims = x.shape[1]
    if min(len(x), len(y)) <= dims:
        return (np.nan, np.nan), np.nan
    moments = np.array([dims, dims * (dims + 1) / 2])
    both = (distances.gaussian_kl(y, x), distances.gaussian_kl(x, y))
    return both, float(moments @ inverse) / 2


def _stat(name: str, values: Floats, method: str, probability: float | None = None) -> float:
    stats: Any = array_stats
    return float(getattr(stats, name)(values, method=method, prob=probability))
