"""The elpd of regressions with known noise, and what `loo` costs beside one pass over the data.

Posteriors and elpd have closed forms.  A coreset is built once for each set; every run draws from
its posterior anew, and leaves out other rows.
"""

import time

import numpy as np
import pymc as pm
import xarray as xr

from benchmarks.curves import markdown
from pymc_coresets import build_coreset
from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.predictive.leave_one_out import elpd_of_rows
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations

PRIOR_SD, NOISE, SHAPE = 2.0, 1.3, (4, 500)
SETS = (
    ("normal", 5_000, 5),
    ("normal", 10_000, 20),
    ("outliers", 10_000, 10),
    ("normal", 30_000, 20),
)
HEADINGS = ("data", "rows", "k-hat", "elpd", "se", "error (RMS)", "mcse", "subsampling se")


def make_data(kind: str, n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n + p)
    x = rng.normal(size=(n, p))
    errors = rng.normal(size=n) if kind == "normal" else rng.standard_t(4, size=n)
    return x, x @ rng.normal(size=p) + NOISE * errors


def posterior(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    precision = np.eye(x.shape[1]) / PRIOR_SD**2 + (x.T * weights) @ x / NOISE**2
    covariance = np.linalg.inv(precision)
    return covariance @ x.T @ (weights * y) / NOISE**2, covariance


def exact_elpd(x: np.ndarray, y: np.ndarray) -> float:
    """Of all rows: the posterior without row n has the precision less x_n x_n' / noise^2."""
    mean, covariance = posterior(x, y, np.ones(len(y)))
    leverage = np.einsum("ni,ij,nj->n", x, covariance, x) / NOISE**2
    error, variance = (y - x @ mean) / (1 - leverage), NOISE**2 / (1 - leverage)
    return float(np.sum(-0.5 * np.log(2 * np.pi * variance) - 0.5 * error**2 / variance))


def coverage(kind: str, n: int, p: int, runs: int) -> tuple[str, ...]:
    x, y = make_data(kind, n, p)
    with pm.Model() as model:
        pm.Normal("y", x @ pm.Normal("beta", 0, PRIOR_SD, shape=p), NOISE, observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    mean, covariance = posterior(x[coreset.indices], y[coreset.indices], coreset.weights)
    root, truth = np.linalg.cholesky(covariance), exact_elpd(x, y)
    found = []
    for seed in range(runs):
        beta = mean + np.random.default_rng(seed).normal(size=(*SHAPE, p)) @ root.T
        draws = xr.Dataset({"beta": (("chain", "draw", "k"), beta)})
        found.append(coreset.loo(xr.DataTree.from_dict({"posterior": draws}), random_seed=seed))
    errors = np.array([one.elpd for one in found]) - truth
    ses = np.array([np.hypot(one.mcse, one.subsampling_se) for one in found])
    return (
        f"{kind}, {n:,} × {p}",
        f"{coreset.size}",
        f"{np.median([one.posterior_khat for one in found]):.2f}",
        f"{truth:,.1f}",
        f"{np.mean([one.se for one in found]):.1f}",
        f"{np.sqrt(np.mean(errors**2)):.3f}",
        f"{np.mean([one.mcse for one in found]):.3f}",
        f"{np.mean([one.subsampling_se for one in found]):.3f}",
        f"{np.count_nonzero(np.abs(errors) < 1.96 * ses)} of {runs}",
    )


def closed_forms_table(runs: int) -> str:
    rows = [coverage(*which, runs) for which in SETS]
    return markdown((*HEADINGS, "within 1.96 se"), rows)


def seconds_of_loo(n: int, p: int = 20) -> str:
    """Of a pass over all rows at 2 000 draws of a logistic regression, and of what loo adds."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, p))
    y = rng.binomial(1, 0.5, size=n)
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=x @ pm.Normal("beta", shape=p), observed=y)
    loglik = LogLikelihood(find_observations(model))
    draws = Draws({"beta": rng.normal(scale=2 / np.sqrt(n), size=(np.prod(SHAPE), p))})
    loglik.look(Draws({"beta": np.zeros((64, p))}))  # compiles
    start = time.process_time()
    total = loglik.look(draws).total.reshape(SHAPE)
    passed = time.process_time()
    found = EvaluatedDraws(np.arange(SHAPE[1]), total, total)
    elpd_of_rows([loglik], draws, found, observations=1_000, key=1, remedy="")
    one, more = passed - start, time.process_time() - passed
    return (
        f"N = {n:,}: one pass {one:.1f} processor seconds, the rest of loo {more:.1f}: "
        f"{1 + more / one:.2f} passes in all"
    )
