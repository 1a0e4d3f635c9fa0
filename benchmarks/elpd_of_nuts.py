"""The elpd of all rows of real data, against ArviZ's at draws of NUTS on all rows.

For each data set one run of NUTS on all rows, and `arviz.loo` of all its rows, in blocks, since
each is left out by itself.  A coreset is built once for each set; every run has four chains of its
own, and leaves out other rows.
"""

import sys

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

from benchmarks.real_rows import REAL_ROWS
from benchmarks.tables import markdown
from pymc_coresets import build_coreset
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood

CHAINS, FULL_DRAWS, DRAWS = 4, 2_000, 500
BLOCK = 1_000  # rows: 64 MB of log-likelihoods
HEADINGS = (
    "data", "N, D", "coreset", "k-hat", "elpd by NUTS", "se", "error (RMS)", "mcse",
    "subsampling se", "within 2 of these", "within 2 se",
)  # fmt: skip


def elpd_by_arviz(model: pm.Model, idata: xr.DataTree) -> float:
    loglik = LogLikelihood(find_observations(model))
    posterior, total = idata["posterior"].to_dataset(), 0.0
    for rows in loglik.all_rows.blocks(BLOCK):
        values = loglik.matrix(idata, rows).T.reshape(CHAINS, FULL_DRAWS, len(rows))
        by_row = xr.Dataset({"y": (("chain", "draw", "row"), values)}).assign_coords(
            chain=posterior["chain"], draw=posterior["draw"]
        )
        tree = xr.DataTree.from_dict({"posterior": posterior, "log_likelihood": by_row})
        total += float(az.loo(tree).elpd)
    return total


def against_nuts(name: str, runs: int) -> tuple[str, ...]:
    model = REAL_ROWS[name]()
    full = pm.sample(
        FULL_DRAWS, tune=500, chains=CHAINS, model=model, nuts_sampler="nutpie", random_seed=1,
        progressbar=False,
    )  # fmt: skip
    truth = elpd_by_arviz(model, full)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.sample(
        draws=DRAWS, chains=CHAINS * runs, random_seed=1, progressbar=False, quiet=True
    )
    posterior, found = idata["posterior"].to_dataset(), []
    for seed in range(runs):
        own = posterior.isel(chain=slice(CHAINS * seed, CHAINS * (seed + 1)))
        draws = xr.DataTree.from_dict({"posterior": own})
        found.append(coreset.loo(draws, random_seed=seed))
    errors = np.abs([one.elpd - truth for one in found])
    ours = np.array([np.hypot(one.mcse, one.subsampling_se) for one in found])
    ses = np.array([one.se for one in found])
    return (
        name,
        f"{coreset.n_observations:,}, {coreset.loglikelihood.n_dims}",
        f"{coreset.size}",
        f"{np.median([one.posterior_khat for one in found]):.2f}",
        f"{truth:,.2f}",
        f"{ses.mean():.1f}",
        f"{np.sqrt(np.mean(errors**2)):.3f}",
        f"{np.mean([one.mcse for one in found]):.3f}",
        f"{np.mean([one.subsampling_se for one in found]):.3f}",
        f"{np.count_nonzero(errors < 2 * ours)} of {runs}",
        f"{np.count_nonzero(errors < 2 * ses)} of {runs}",
    )


def nuts_table(runs: int) -> str:
    rows = []
    for name in REAL_ROWS:
        rows.append(against_nuts(name, runs))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return markdown(HEADINGS, rows)
