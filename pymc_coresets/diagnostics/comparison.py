"""Compare an approximate posterior with a run of the full posterior, variable by variable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pymc_coresets.compat.arviz_api import BaseLabeller, array_stats, xarray_sel_iter
from pymc_coresets.diagnostics.importance import MIN_PER_CHAIN, Floats
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, posterior_dataset
from pymc_coresets.display import TEXT_WIDTH, as_text
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.options import names_of

_WITHIN = (1, 2)  # axes of the chains and the draws of components

#: Columns of the table that are shown: their headings, and how their numbers are written.
_SHOWN = {
    "mean_full": ("full", ".4g"),
    "mean_approximation": ("approx.", ".4g"),
    "delta_mean_sd": ("shift", "+.2g"),
    "delta_mean_noise": ("noise", ".2g"),
    "sd_ratio": ("sd ratio", ".3g"),
    "sd_ratio_noise": ("noise", ".2g"),
    "shift_q5": ("of 5 %", "+.2g"),
    "shift_q95": ("of 95 %", "+.2g"),
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
    """Differences between an approximate and the full posterior, next to Monte Carlo noise.

    The approximation is the posterior of a coreset or of a polynomial summary.

    Parameters
    ----------
    table : pandas.DataFrame
        One row per scalar component. ``mean_full`` and ``mean_approximation`` are the means.
        ``delta_mean_sd`` (difference of means) and ``shift_q5``, ``shift_q50``, ``shift_q95``
        (differences of quantiles), all approximation minus full, are in standard deviations of the
        full posterior; ``sd_ratio`` is the standard deviation of the approximation over that of
        the full posterior. Each has a column ``..._noise``: the standard error of the difference
        between two independent runs with the effective sample sizes of these two (for ``sd_ratio``
        a relative one).
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

    def __repr__(self) -> str:
        order = self.table["delta_mean_sd"].abs().sort_values(ascending=False, kind="stable").index
        shown = self.table.loc[order[:20], list(_SHOWN)]  # the largest shifts fit on a screen
        headings, formats = zip(*_SHOWN.values(), strict=True)
        lines = shown.to_string(
            header=list(headings),
            formatters=[f"{{:{written}}}".format for written in formats],
            line_width=TEXT_WIDTH,
        )
        legend = (
            "Means, and their shift and those of the quantiles of 5 and 95 % in sd of the full "
            "posterior; the noise is what two full runs would show."
        )
        mean, sd = self.largest_mean_shift, self.largest_sd_change
        found = (
            f"Largest shift of a mean: {mean.value:+.3f} sd ({mean.name}); largest change of an "
            f"sd: x {np.exp(sd.value):.3f} ({sd.name}). {self.within_noise:.0%} of the means lie "
            "within two Monte Carlo standard errors."
        )
        more = len(self.table) - len(shown)
        left_out = [f"{more} more rows in .table."] * (more > 0)
        left_out += [f"Not compared: {', '.join(self.skipped)}."] * bool(self.skipped)
        title = "Approximate posterior against full posterior"
        return as_text(title, lines.splitlines(), legend, found, " ".join(left_out))


def compare(
    full: xr.DataTree | xr.Dataset,
    approximation: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
) -> Comparison:
    """Compare draws of an approximate posterior with draws of the full posterior.

    For those who ran both; `Coreset.check` needs no run of the full posterior. Costs a few
    milliseconds per scalar component.

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
    The noise of a difference is the root of the sum of both runs' squared Monte Carlo standard
    errors, as ArviZ estimates them.  Of re-weighted draws, which repeat themselves in random order,
    they are those of ``psis_ess`` independent ones.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = np.random.default_rng(1).normal(size=(2, 4, 500))
    >>> full, approximation = (xr.Dataset({"mu": (("chain", "draw"), mu)}) for mu in draws)
    >>> compare(full, approximation).within_noise
    1.0
    """
    pair, skipped = common_draws(full, approximation, var_names)
    names, x, y = [], [], []
    for (label, of_full), (_, other) in zip(*map(labelled_components, pair), strict=True):
        names.append(label)
        x.append(of_full)
        y.append(other)
    table = _differences(np.stack(x), np.stack(y), [_repeated(draws) for draws in pair])
    return Comparison(table=pd.DataFrame(table, index=names), skipped=skipped)


def common_draws(
    full: xr.DataTree | xr.Dataset,
    approximation: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
) -> tuple[list[xr.Dataset], tuple[str, ...]]:
    """Return the draws of the variables that two posteriors have in common.

    Parameters
    ----------
    full, approximation, var_names
        See `compare`.

    Returns
    -------
    list of xarray.Dataset
        The draws of both posteriors, dims chain and draw first, with numbers along dims without
        labels.
    tuple of str
        Variables that were left out.

    Raises
    ------
    InvalidOptionError
        If a variable of `var_names` cannot be compared.
    InvalidDataError
        If no variable is left, or there are too few draws.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = (("chain", "draw"), np.zeros((2, 4)))
    >>> common_draws(xr.Dataset({"mu": draws}), xr.Dataset({"mu": draws, "z": draws}))[1]
    ('z',)
    """
    given = {"full": full, "approximation": approximation}
    pair = []
    for name, data in given.items():
        draws = posterior_dataset(data, name)
        if draws.sizes["draw"] < MIN_PER_CHAIN:
            raise InvalidDataError(
                f"{name} has chains of {draws.sizes['draw']} draws, but at least {MIN_PER_CHAIN} "
                "are needed to tell differences from noise.",
                topic="draws",
            )
        pair.append(draws.assign_coords({dim: draws[dim] for dim in draws.dims}))
    every = [str(name) for name in dict.fromkeys([*pair[0].data_vars, *pair[1].data_vars])]
    common = [name for name in every if _comparable([d[name] for d in pair if name in d.data_vars])]
    wanted = names_of("var_names", var_names)
    asked = [wanted] if isinstance(wanted, str) else wanted
    if asked is None:
        names, skipped = common, tuple(name for name in every if name not in common)
    elif asked and set(asked) <= set(common):
        names, skipped = asked, ()
    else:
        raise InvalidOptionError(
            f"var_names={asked!r}: names of variables are needed that both posteriors have, with "
            f"equal shape and labels. Choose among {', '.join(common)}."
        )
    if not common:
        raise InvalidDataError(
            f"full has the variables {list(pair[0].data_vars)} and approximation "
            f"{list(pair[1].data_vars)}, none of them in common with equal shape and labels: "
            "compare posteriors of the same model.",
            topic="draws",
        )
    return [draws[names].transpose(*SAMPLE_DIMS, ...) for draws in pair], skipped


def labelled_components(draws: xr.Dataset) -> Iterator[tuple[str, Floats]]:
    """Yield ArviZ's label and the draws of each scalar component.

    Parameters
    ----------
    draws : xarray.Dataset
        With dims chain and draw first.

    Yields
    ------
    tuple of str and ndarray of shape (n_chains, n_draws)

    Raises
    ------
    InvalidDataError
        If draws are not finite, or their squares are not.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = xr.Dataset({"b": (("chain", "draw", "k"), np.zeros((2, 3, 2)))})
    >>> [label for label, _ in labelled_components(draws)]
    ['b[0]', 'b[1]']
    """
    labeller = BaseLabeller()
    most = 1e150  # the squares of larger numbers are infinite
    for name, selection, position in xarray_sel_iter(draws, skip_dims={*SAMPLE_DIMS}):
        label = str(labeller.make_label_flat(name, selection, position))
        values = np.asarray(draws[name].isel(position).values, dtype=np.float64)
        if not np.abs(values).max() <= most:  # NaN is not
            raise InvalidDataError(
                f"{label} has draws that are not finite, or beyond {most:g}, whose squares are "
                "infinite: leave it out through var_names, use another unit, or find out why the "
                "model yields them.",
                topic="draws",
            )
        yield label, values


def _comparable(found: Sequence[xr.DataArray]) -> bool:
    """Whether both are draws of numbers, with equal shape and labels."""
    sampled = set(SAMPLE_DIMS)
    pair = [v for v in found if sampled <= set(v.dims)]
    if len(pair) < 2 or not all(v.dtype.kind in "biuf" for v in pair):
        return False
    x, y = (v.isel(chain=0, draw=0, drop=True) for v in pair)
    return x.sizes == y.sizes and all(x[dim].equals(y[dim]) for dim in x.dims)


def _repeated(draws: xr.Dataset) -> float:
    """Return how many draws count as one: those of `reweight` repeat themselves."""
    n_draws = draws.sizes["chain"] * draws.sizes["draw"]
    return max(n_draws / float(draws.attrs.get("psis_ess", n_draws)), 1.0)


def _differences(x: Floats, y: Floats, repeated: Sequence[float]) -> dict[str, Floats]:
    """Return the columns of the table.

    Parameters
    ----------
    x, y : ndarray of shape (n_components, n_chains, n_draws)
        Of the full posterior and of the approximation.
    repeated : sequence of float
        How many draws of each count as one.
    """
    # Relative differences below 1e-13 are rounding: constant components have them.
    rounding = 1e-13 * np.maximum(*(np.abs(z).max(axis=_WITHIN) for z in (x, y)))
    pair = [_unless_rounding(z, rounding) for z in (x, y)]
    means = [z.mean(axis=_WITHIN) for z in pair]
    sds = [np.where(np.ptp(z, axis=_WITHIN) > 0, z.std(axis=_WITHIN, ddof=1), 0.0) for z in pair]
    unit = np.where(sds[0] > 0, sds[0], 1.0)
    # Digits are lost where draws are far from zero.
    pair = [(z - means[0][:, None, None]) / unit[:, None, None] for z in pair]

    def noise(**statistic: object) -> Floats:
        with np.errstate(invalid="ignore"):  # of constants
            errors = [array_stats.mcse(z, **statistic) for z in pair]
        of_each = [np.nan_to_num(error) * n**0.5 for error, n in zip(errors, repeated, strict=True)]
        return np.where(sds[0] > 0, np.hypot(*of_each), 0.0)

    def shift(values: Sequence[Floats]) -> Floats:
        difference = values[1] - values[0]
        # A change of a constant is infinitely many standard deviations.
        changed = np.where(np.abs(difference) > rounding, np.copysign(np.inf, difference), 0.0)
        return np.where(sds[0] > 0, difference, changed)

    same = (sds[0] == 0) & (sds[1] == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(same, 1.0, sds[1] / sds[0])
    found = {
        "mean_full": means[0],
        "mean_approximation": means[1],
        "delta_mean_sd": shift([z.mean(axis=_WITHIN) for z in pair]),
        "delta_mean_noise": noise(method="mean"),
        "sd_ratio": ratio,
        "sd_ratio_noise": noise(method="sd"),
    }
    for q in (0.05, 0.5, 0.95):
        name = f"shift_q{100 * q:.0f}"
        found[name] = shift([np.quantile(z, q, axis=_WITHIN) for z in pair])
        found[f"{name}_noise"] = noise(method="quantile", prob=q)
    return found


def _unless_rounding(draws: Floats, rounding: Floats) -> Floats:
    """Return the draws; their mean, where they differ by no more than rounding errors."""
    varies = np.ptp(draws, axis=_WITHIN, keepdims=True) > rounding[:, None, None]
    return np.where(varies, draws, draws.mean(axis=_WITHIN, keepdims=True))
