"""The elpd of regressions with known noise, and what follows sampling beside its arithmetic.

Posteriors and elpd have closed forms.  A coreset is built once for each set; every run draws from
its posterior anew, and leaves out other rows.
"""

import time
from functools import partial

import numpy as np
import pymc as pm
import xarray as xr

from benchmarks.predicted import timed
from benchmarks.tables import markdown
from pymc_coresets import build_coreset
from pymc_coresets.rows.memory import one_blas_thread

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


def seconds_after(n: int, p: int = 30) -> str:
    """Processor seconds of all that needs all rows after sampling, beside NumPy's by hand."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, p))
    y = rng.binomial(1, 1 / (1 + np.exp(-x @ rng.normal(scale=0.2, size=p))))
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=x @ pm.Normal("beta", shape=p), observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.sample(random_seed=1, progressbar=False)
    beta = np.concatenate(idata["posterior"]["beta"].to_numpy())
    n_draws = len(beta)
    corrected, seconds = timed(partial(coreset.reweight, idata, random_seed=1))
    some = corrected["posterior"].attrs["n_evaluated"]
    calls = {
        "check": (partial(coreset.check, idata), 400),
        "reweight, all draws": (partial(coreset.reweight, idata, ess=np.inf), n_draws),
        "loo": (partial(coreset.loo, idata, random_seed=1), some + 64),
        "predict, means": (partial(coreset.predict, idata, progressbar=False), n_draws),
    }
    rows = [("reweight", some, seconds)]
    rows += [(name, number, timed(call)[1]) for name, (call, number) in calls.items()]
    each = by_hand(x[:200_000], y[:200_000], beta[:400])
    return markdown(
        ("what", "rows", "draws", "processor s", "arithmetic"),
        [
            (name, f"{n:,}", f"{number:,}", f"{s:.1f}", f"{each * n * number:.1f}")
            for name, number, s in rows
        ],
    )


def by_hand(x: np.ndarray, y: np.ndarray, beta: np.ndarray) -> float:
    """Seconds of one log-likelihood: a product, an exponential and a logarithm in the cache."""
    signed = x * (2 * y[:, None] - 1)
    size = max(64, 2**17 // len(beta))
    start = time.process_time()
    with one_blas_thread():
        for i in range(0, len(x), size):
            values = beta @ signed[i : i + size].T
            np.exp(-np.abs(values), out=(terms := np.empty_like(values)))
            (np.minimum(values, 0.0) - np.log1p(terms, out=terms)).sum(axis=1)
    return (time.process_time() - start) / len(x) / len(beta)
