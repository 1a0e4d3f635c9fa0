"""Coresets of PyMC models, and the true divergences of their posteriors.

The judge does not depend on the construction: it integrates by importance sampling, with fresh
draws of Student-t distributions about the modes, under each posterior separately.
"""

import sys
import time
import warnings
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from benchmarks.closed_forms import Array
from benchmarks.curves import verdict
from benchmarks.paper_data import DATA_SETS, LOGISTIC, load, needed_folder
from benchmarks.regressions import Regression
from benchmarks.tables import markdown
from pymc_coresets import Coreset, CoresetWarning, build_coreset

TOLERANCES = (1.0, 0.1, 0.01)
ALLOWED = 3.0  # times the tolerance
DEGREES, N_BATCHES, BATCH = 8, 20, 5_000


def pymc_model(name: str, regression: Regression) -> pm.Model:
    """Return the same model in PyMC."""
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=regression.n_dims)
        eta = regression.features @ theta
        if name in LOGISTIC:
            pm.Bernoulli("y", logit_p=eta, observed=(regression.response > 0).astype(int))
        else:
            pm.Poisson("y", pm.math.log1pexp(eta), observed=regression.response.astype(int))
    return model


@dataclass(frozen=True, kw_only=True)
class Integrals:
    """Integrals under one posterior by importance sampling, one entry per batch of draws.

    ``log_norm`` is the log of the normaliser, ``mean`` the posterior mean of log r, where r is the
    likelihood of all rows over that of the coreset, and ``log_mean`` the log of the mean of r, or
    of 1/r under the posterior of all rows.
    """

    log_norm: Array
    mean: Array
    log_mean: Array


def integrate(
    regression: Regression, weights: Array, *, under_coreset: bool, rng: np.random.Generator
) -> Integrals:
    """Integrate under the posterior of the weighted rows, or under that of all rows."""
    chosen = weights if under_coreset else np.ones_like(weights)
    approximation = regression.laplace(chosen)
    proposal = multivariate_t(
        approximation.mean, np.linalg.inv(approximation.precision), df=DEGREES, seed=rng
    )
    batches = np.array(
        [_batch(regression, weights, proposal.rvs(BATCH), proposal) for _ in range(N_BATCHES)]
    )
    own, full, log_prior, log_proposal = np.moveaxis(batches, 1, 0)
    log_r = full - own
    log_weights = (own if under_coreset else full) + log_prior - log_proposal
    total = logsumexp(log_weights, axis=1)
    shares = np.exp(log_weights - total[:, None])
    sign = 1 if under_coreset else -1
    return Integrals(
        log_norm=total - np.log(BATCH),
        mean=(shares * log_r).sum(axis=1),
        log_mean=logsumexp(log_weights + sign * log_r, axis=1) - total,
    )


def _batch(
    regression: Regression,
    weights: Array,
    draws: Array,
    proposal: multivariate_t,
) -> tuple[Array, Array, Array, Array]:
    """Return log-likelihoods of coreset and all rows, and log-densities of prior and proposal."""
    draws = draws.reshape(BATCH, -1)
    loglik = regression.loglik(draws)
    dimension = draws.shape[1]
    log_prior = -(np.square(draws).sum(axis=1) + dimension * np.log(2 * np.pi)) / 2
    return weights @ loglik, loglik.sum(axis=0), log_prior, proposal.logpdf(draws)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over batches, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, batches: Array) -> "Estimate":
        return cls(value=float(batches.mean()), error=float(batches.std(ddof=1)) / N_BATCHES**0.5)

    def __str__(self) -> str:
        return f"{self.value:.2g} ± {self.error:.0e}"


@dataclass(frozen=True, kw_only=True)
class Truth:
    """KL(coreset || full), the same with normalisers of separate draws, and KL(full || coreset).

    The first is more precise where the two posteriors are close.  Elsewhere the second is, for the
    tails of one posterior seldom yield the ratio of the two normalisers.
    """

    kl: Estimate
    separately: Estimate
    reverse: Estimate


def true_divergences(regression: Regression, weights: Array, *, rng: np.random.Generator) -> Truth:
    """Return the divergences between the posteriors of the weighted rows and of all, in nats."""
    ours = integrate(regression, weights, under_coreset=True, rng=rng)
    full = integrate(regression, weights, under_coreset=False, rng=rng)
    return Truth(
        kl=Estimate.of(ours.log_mean - ours.mean),
        separately=Estimate.of(full.log_norm - ours.log_norm - ours.mean),
        reverse=Estimate.of(full.log_mean + full.mean),
    )


def nuts_table() -> str:
    """Build a coreset of every data set for every tolerance, and judge it."""
    folder, rows = needed_folder(), []
    met: dict[float, list[bool]] = {tolerance: [] for tolerance in TOLERANCES}
    for name in DATA_SETS:
        regression = load(name, folder)
        for tolerance in TOLERANCES:
            coreset, seconds, warned = _build(pymc_model(name, regression), tolerance)
            weights = np.zeros(len(regression.features))
            weights[coreset.indices] = coreset.weights
            truth = true_divergences(regression, weights, rng=np.random.default_rng(2))
            worst = max(truth.kl.value, truth.separately.value)
            met[tolerance].append(worst < ALLOWED * tolerance)
            estimated = coreset.objective
            symmetrised = truth.kl.value + truth.reverse.value
            cells = f"{estimated:.2g}", f"{truth.kl}", f"{truth.separately}", f"{symmetrised:.2g}"
            said = "not met" if warned else ""
            label = f"{name} ({regression.n_dims})"
            rows.append(
                [label, f"{tolerance:g}", f"{coreset.size}", *cells, f"{seconds:.1f}", said]
            )
            print(*rows[-1], file=sys.stderr)
    headings = ["data (D)", "tolerance", "rows", "estimate of the run", "KL(coreset‖full)"]
    headings += ["with separate normalisers", "symmetrised", "seconds", "warning"]
    verdicts = [
        verdict(f"true KL below {ALLOWED:g} times the tolerance of {tolerance:g}", results)
        for tolerance, results in met.items()
    ]
    return markdown(headings, rows) + "\n\n" + "\n".join(verdicts)


def _build(model: pm.Model, tolerance: float) -> tuple[Coreset, float, bool]:
    """Return the coreset, its wall time in seconds, and whether it missed the tolerance."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CoresetWarning)
        coreset = build_coreset(model, tolerance=tolerance, random_seed=1, progressbar=False)
    seconds = time.perf_counter() - began
    unmet = [w for w in caught if "not within" in str(w.message)]
    return coreset, seconds, bool(unmet)
