"""The result of PASS-GLM: polynomial statistics, the model built from them, and its checks."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.coreset import Coreset
from pymc_coresets.display import as_text
from pymc_coresets.exceptions import CoresetError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.predictor.predictors import coefficient_draws
from pymc_coresets.options import generator, whole_number
from pymc_coresets.papers.polynomial.parts_of_data import PredictorRows
from pymc_coresets.papers.polynomial.replacement import (
    NormalPosterior,
    PolynomialCheck,
    polynomial_model,
)
from pymc_coresets.papers.polynomial.statistics import PolynomialStatistics
from pymc_coresets.predictive.approximate_posterior import (
    ApproximatePosterior,
    KnownLikelihood,
    log_ratios,
)
from pymc_coresets.predictive.model_data import with_data
from pymc_coresets.predictive.pymc_densities import verify
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.user_model import PUT_BACK
from pymc_coresets.sampling import sample_and_check as shared
from pymc_coresets.sampling.density import Density


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PolynomialSummary:
    """Polynomial approximate sufficient statistics of a generalised linear model (PASS-GLM).

    Built by `build_pass_glm`.  Summaries of disjoint data can be added: ``summary + other``
    summarises all the data.  Its priors are those of the first one's model, and `check` reads the
    data of both.

    Parameters
    ----------
    statistics : PolynomialStatistics
        Sums over all rows: for degree 2 a number, a vector and a matrix of the coefficients.
    parts : tuple of PredictorRows
        Coefficients, design matrix, offset and log-likelihood of each summarised part of the data;
        or the source of its rows.
    progressbar : bool, default True
        Default of `sample` and `predict` for showing progress.

    Notes
    -----
    ``sum_n log p(y_n | eta_n)`` is replaced by ``sum_n sum_m b_nm eta_n^m``, the Chebyshev
    expansion of each row's log-likelihood on ``[-radius, radius]``, cut at `degree`.

    References
    ----------
    Huggins, J. H., Adams, R. P. and Broderick, T. (2017). PASS-GLM: polynomial approximate
    sufficient statistics for scalable Bayesian GLM inference.
    https://doi.org/10.48550/arXiv.1709.09216

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_pass_glm
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=1_000)
    >>> y = rng.binomial(1, 1 / (1 + np.exp(-x)))
    >>> with pm.Model():
    ...     slope = pm.Normal("slope", 0, 10)
    ...     likelihood = pm.Bernoulli("y", logit_p=slope * x, observed=y)
    ...     summary = build_pass_glm(random_seed=1, progressbar=False)
    >>> summary.closed_form()["mean"].sizes["coefficient"]
    1
    """

    statistics: PolynomialStatistics
    parts: tuple[PredictorRows, ...]
    progressbar: bool = True

    @property
    def degree(self) -> int:
        """Degree of the polynomials."""
        return self.statistics.degree

    @property
    def radius(self) -> float:
        """The polynomials approximate the log-likelihood where ``|eta_n| <= radius``."""
        return self.statistics.radius

    @property
    def n_observations(self) -> int:
        """Number of summarised rows, including their case weights."""
        return int(self.statistics.n_obs)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Labels of the coefficients of the linear predictor."""
        return self.parts[0].names

    @property
    def full_model(self) -> pm.Model:
        """The user's model (that of the first part, if summaries were added)."""
        if self.parts[0].seen.elsewhere:
            raise CoresetError("Your model holds only some of the rows: pm.set_data replaces them.")
        return self.parts[0].observations.snapshot.unchanged(PUT_BACK)

    @cached_property
    def model(self) -> pm.Model:
        """A plain PyMC model: the user's priors, and a `Potential` in place of the likelihood."""
        return polynomial_model(self.parts[0].held, self.statistics)

    # -- inference -----------------------------------------------------------------------------

    def closed_form(self) -> xr.Dataset:
        """Mean and covariance of the coefficients, if the approximate posterior is Gaussian.

        Needs degree 2, or a log-likelihood that is itself quadratic, and coefficients that are
        linear in free variables with Gaussian priors.  No draws are needed; it costs O(p^3) for p
        coefficients.

        Returns
        -------
        xarray.Dataset
            ``mean`` (coefficient), ``sd`` (coefficient) and ``covariance`` (coefficient,
            other_coefficient), labelled by the names of the coefficients.

        Raises
        ------
        InvalidOptionError
            If the degree is not 2, unless the log-likelihood itself is quadratic.
        UnsupportedModelError
            If the prior of a free variable is not Gaussian (hierarchical scales are not), or the
            coefficients are not linear in the free variables.
        InvalidDataError
            If the posterior is improper.

        Notes
        -----
        With statistics t1 and T2, the precision is ``Sigma_0^-1 - 2 T2`` and the mean solves
        ``precision @ mean = Sigma_0^-1 mu_0 + t1``.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import build_pass_glm
        >>> with pm.Model():
        ...     y = pm.Normal("y", pm.Normal("mu", 0, 1), 1.0, observed=np.array([1.0, 2.0, 3.0]))
        ...     summary = build_pass_glm(random_seed=1, progressbar=False)
        >>> float(summary.closed_form()["mean"].sel(coefficient="mu").round(3))
        1.5
        """
        dims, names = ("coefficient", "other_coefficient"), list(self.coefficients)
        mean, covariance = self._posterior.mean, self._posterior.covariance
        sd = np.sqrt(np.diag(covariance))
        return xr.Dataset(
            {"mean": (dims[0], mean), "sd": (dims[0], sd), "covariance": (dims, covariance)},
            coords=dict.fromkeys(dims, names),
        )

    def draw(
        self,
        draws: int = 500,
        *,
        random_seed: int | np.random.Generator | None = None,
    ) -> xr.DataTree:
        """Draw from the approximate posterior if it is Gaussian, without MCMC.

        The draws are independent.  Takes O(p^3) time once and O(p^2) for each draw, for p
        coefficients.

        Parameters
        ----------
        draws : int, default 500
            Number of draws in each of four chains.
        random_seed : int or Generator, optional
            The result is reproducible from it.

        Returns
        -------
        xarray.DataTree
            The free variables, in the group ``posterior``, with the data that `sample` adds.

        Raises
        ------
        InvalidOptionError
            If there is no closed form, or `draws` is not a positive whole number.
        UnsupportedModelError
            If the approximate posterior is not Gaussian, see `closed_form`.
        InvalidDataError
            If the posterior is improper.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import build_pass_glm
        >>> with pm.Model():
        ...     y = pm.Normal("y", pm.Normal("mu", 0, 1), 1.0, observed=np.array([1.0, 2.0, 3.0]))
        ...     summary = build_pass_glm(random_seed=1, progressbar=False)
        >>> dict(summary.draw(100, random_seed=1)["posterior"].sizes)
        {'chain': 4, 'draw': 100}
        """
        n_draws = 4 * whole_number("draws", draws, least=1)
        z, _ = self._posterior.normal.draw(n_draws, rng=generator(random_seed))
        observations = self.parts[0].held.observations
        model = observations.model
        idata = observations.space.constrain(z).to_datatree(
            n_chains=4, dims=model.named_vars_to_dims, coords=model.coords
        )
        return with_data(idata, self.approximation)

    @cached_property
    def _posterior(self) -> NormalPosterior:
        return NormalPosterior.of(self.parts[0].held, self.statistics.quadratic(self.coefficients))

    # -- use: functions of the rooms below, documented there ---------------------------------------

    sample = shared.sample
    reweight = shared.reweight
    with_log_densities = shared.with_log_densities
    log_ratios = log_ratios
    verify = verify
    loo = Coreset.loo
    predict = Coreset.predict

    @cached_property
    def approximation(self) -> ApproximatePosterior:
        """The approximation of all rows in `model`.

        :meta private:
        """
        return ApproximatePosterior(
            parts=[part.loglikelihood for part in self.parts],
            replacement=KnownLikelihood(
                self.parts[0].loglikelihood, self._loglik, self._density.slopes
            ),
            impossible="the support of the likelihood depends on the predictor, which polynomials "
            "cannot represent. Use another link, or build_coreset.",
            remedy="check() shows why.",
            progressbar=self.progressbar,
        )

    def _loglik(self, draws: DrawsLike) -> np.ndarray:
        """Return the polynomials at draws, (n_draws,)."""
        return self.statistics.loglik(coefficient_draws(self.parts[0].held, draws))

    @cached_property
    def _density(self) -> Density:
        return Density.of_model(Unconstrained(self.model))

    # -- judging -------------------------------------------------------------------------------

    def check(
        self,
        idata: xr.DataTree | None = None,
        *,
        draws: int | None = None,
        random_seed: int | np.random.Generator | None = None,
    ) -> PolynomialCheck:
        """Assess the accuracy of draws, without sampling the full posterior.

        Costs one pass over the data for 400 draws, or all of them.  Predictors and polynomials are
        compared at 64 draws for at most 100,000 rows.

        Parameters
        ----------
        idata : xarray.DataTree, optional
            Draws of the approximate posterior, from `sample` or `pm.sample`.  By default 2,000
            draws from the closed form.
        draws : int, optional
            Number of draws to evaluate, as in `Coreset.check`.
        random_seed : int or Generator, optional
            For the draws from the closed form.

        Returns
        -------
        PolynomialCheck
            Share of predictors outside the radius, error of the polynomials there, Pareto k-hat,
            KL divergence, and a verdict in words.

        Raises
        ------
        InvalidOptionError
            If there is no closed form and no draws were given.
        InvalidDataError
            If the draws have no values of a variable, are impossible under the full data, or are
            fewer than 30.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_coresets import build_pass_glm
        >>> with pm.Model():
        ...     y = pm.Normal("y", pm.Normal("mu", 0, 1), 1.0, observed=np.array([1.0, 2.0, 3.0]))
        ...     summary = build_pass_glm(random_seed=1, progressbar=False)
        >>> check = summary.check(random_seed=1)
        >>> check.reliable, check.needs_reweighting
        (True, False)
        """
        if idata is None:
            idata = self._closed_form_draws(random_seed)
        check = shared.check(self, idata, draws=draws)
        theta = coefficient_draws(self.parts[0].held, idata)
        some = theta[:: -(-len(theta) // 64)]
        parts = [part.reach(self.degree, self.radius, some) for part in self.parts]
        sizes = [part.loglikelihood.source.total_weight for part in self.parts]
        return PolynomialCheck(
            degree=self.degree,
            radius=self.radius,
            outside=float(np.average([part.outside for part in parts], weights=sizes)),
            reach=max(part.far for part in parts),
            max_error=max(part.max_error for part in parts),
            bounded=self.statistics.is_proper,
            draws=replace(check, subject="polynomial"),
        )

    def _closed_form_draws(self, random_seed: int | np.random.Generator | None) -> xr.DataTree:
        try:
            return self.draw(random_seed=random_seed)
        except (InvalidOptionError, UnsupportedModelError) as error:
            raise InvalidOptionError(
                f"check() needs draws here: pass it the result of sample(). {error.message}"
            ) from error

    # -- adding --------------------------------------------------------------------------------

    def __add__(self, other: "PolynomialSummary") -> "PolynomialSummary":
        if not isinstance(other, PolynomialSummary):
            return NotImplemented
        mine, its = self.parts[0], other.parts[0]
        for what, own, given in (
            ("coefficients", mine.names, its.names),
            ("free variables", mine.observations.shapes, its.observations.shapes),
        ):
            if own != given:
                raise InvalidOptionError(
                    f"The summaries have different {what}, {own} and {given}: only summaries of "
                    "different data under the same model can be added."
                )
        return replace(
            self, statistics=self.statistics + other.statistics, parts=(*self.parts, *other.parts)
        )

    # -- display and copies --------------------------------------------------------------------

    def __repr__(self) -> str:
        facts = {
            "rows": f"{self.n_observations:,}",
            "coefficients": f"{len(self.coefficients):,}",
            "degree": str(self.degree),
            "radius": f"{self.radius:.4g}",
        }
        if len(self.parts) > 1:
            facts["parts"] = str(len(self.parts))
        return as_text(type(self).__name__, facts)

    __reduce__ = shared.pickled
    __copy__ = replace
