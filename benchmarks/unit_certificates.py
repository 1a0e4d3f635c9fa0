"""Are certificates of coresets of units true?  ``python -m benchmarks.unit_certificates``.

Coresets of all qualities, by several methods and sizes, of small models with units whose posterior
is hard in some way: few data for wide scales, priors with heavy tails, units with two modes.  The
truth comes from NUTS on all rows with all variables in small steps.  A certificate is false where
draws are called reliable, once re-weighted if it says so, and a mean or the sd of a variable,
shared or of a unit, is off by more than the divergence and the error of nodes that are stated, and
the noise of both, explain.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import nutpie
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from scipy.special import expit

from benchmarks.differences import Difference
from benchmarks.followed import followed
from benchmarks.tables import markdown
from benchmarks.unit_models import Rng
from pymc_coresets import CoresetError, build_coreset
from pymc_coresets.reading.units.observations_of_units import as_units

HEADER = (
    "units", "built by", "units kept", "J", "error of nodes", "k-hat", "said",
    "largest shift, sd", "largest change of an sd", "beyond noise", "false",
)  # fmt: skip
N = 400  # units
SMALL = 0.1  # sds of a posterior: by as much a divergence of 0.01 nats may move a mean


type Effect = Callable[..., Any]


def centred(mean: Any, sd: Any, nu: float = np.inf) -> Any:  # noqa: ANN401
    """Add the variables of units as the coresets see them."""
    if nu < np.inf:
        return pm.StudentT("own", nu=nu, mu=mean, sigma=sd, shape=N)
    return pm.Normal("own", mean, sd, shape=N)


def standard(mean: Any, sd: Any, nu: float = np.inf) -> Any:  # noqa: ANN401
    """Add them for NUTS: the prior of what it moves does not depend on a scale, maybe near zero."""
    free = pm.StudentT("z", nu=nu, shape=N) if nu < np.inf else pm.Normal("z", shape=N)
    return pm.Deterministic("own", mean + sd * free)


def few_rows(rng: Rng, effect: Effect) -> None:
    """Two binary rows for each unit: the scale is hardly known, and may be zero."""
    user = np.repeat(np.arange(N), 2)
    eta = -0.5 + rng.normal(0, 0.3, N)[user]
    own = effect(pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 1))
    pm.Bernoulli("y", logit_p=own[user], observed=rng.binomial(1, expit(eta)))


def wide_scale(rng: Rng, effect: Effect) -> None:
    """Units that differ by far more than their rows do, under a half-Cauchy scale."""
    user = np.repeat(np.arange(N), 4)
    eta = rng.normal(-1, 4.0, N)[user]
    own = effect(pm.Normal("mean", 0, 5), pm.HalfCauchy("sd", 5))
    pm.Bernoulli("y", logit_p=own[user], observed=rng.binomial(1, expit(eta)))


def heavy_tails(rng: Rng, effect: Effect) -> None:
    """Effects by a t distribution of three degrees of freedom, and outliers among the units."""
    user = np.repeat(np.arange(N), 3)
    y = rng.normal(0.5 + rng.standard_t(2, N)[user], 1.0)
    own = effect(pm.Normal("mean"), pm.HalfNormal("sd", 2), nu=3)
    pm.Normal("y", own[user], pm.HalfNormal("s", 2), observed=y)


def two_modes(rng: Rng, effect: Effect) -> None:
    """Rows that see the square of their unit's variable: each unit has two modes."""
    user = np.repeat(np.arange(N), 4)
    y = rng.normal(np.square(rng.normal(0, 1.5, N))[user], 0.5)
    own = effect(0, pm.HalfNormal("sd", 2))
    square = pm.Deterministic("square", pt.square(own))
    pm.Normal("y", square[user], pm.HalfNormal("s", 1), observed=y)


def outlying_rows(rng: Rng, effect: Effect) -> None:
    """Rows by a t distribution, of which two of four disagree: some units have two modes."""
    user = np.repeat(np.arange(N), 4)
    far = np.tile([0.0, 0.0, 6.0, 6.0], N) * (rng.random(N) < 0.3)[user]
    y = rng.normal(0, 1, N)[user] + far + 0.3 * rng.standard_t(3, len(user))
    own = effect(pm.Normal("mean"), pm.HalfNormal("sd", 5))
    pm.StudentT("y", nu=2, mu=own[user], sigma=pm.HalfNormal("s", 1), observed=y)


def counts(rng: Rng, effect: Effect) -> None:
    """Counts with an effect for each row, most of them zero."""
    x = rng.normal(size=N)
    own = effect(0, pm.HalfNormal("sd", 2))
    eta = pm.Normal("mean", 0, 2) + pm.Normal("slope", 0, 1) * x + own
    pm.Poisson("y", pt.exp(eta), observed=rng.poisson(np.exp(-1.5 + 0.5 * x + rng.normal(0, 1, N))))


def ordered_answers(rng: Rng, effect: Effect) -> None:
    """Three answers of each unit in four ordered categories, whose cutpoints are free."""
    user = np.repeat(np.arange(N), 3)
    eta = rng.normal(0, 1.2, N)[user] + rng.logistic(size=len(user))
    own = effect(0, pm.HalfNormal("sd", 2))
    cutpoints = pm.Normal(
        "cutpoints",
        [-1, 0, 1],
        2,
        transform=pm.distributions.transforms.ordered,
        initval=[-1, 0, 1],
    )
    pm.OrderedLogistic(
        "y", eta=own[user], cutpoints=cutpoints, observed=np.digitize(eta, [-1, 0, 2])
    )


def inflated_zeros(rng: Rng, effect: Effect) -> None:
    """Counts that are zero with a probability of their unit's own."""
    user = np.repeat(np.arange(N), 4)
    lives = rng.random(len(user)) < expit(rng.normal(0.5, 1.5, N))[user]
    own = effect(pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 2))
    rate = pm.Gamma("rate", 2, 1)
    counts = np.where(lives, rng.poisson(1.5, len(user)), 0)
    pm.ZeroInflatedPoisson("y", psi=pm.math.sigmoid(own[user]), mu=rate, observed=counts)


def waiting_times(rng: Rng, effect: Effect) -> None:
    """Times until an event, of which many are only known to be later than one."""
    user = np.repeat(np.arange(N), 3)
    times = rng.weibull(0.8, len(user)) * np.exp(rng.normal(0.3, 0.8, N)[user])
    own = effect(pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 2))
    law = pm.Weibull.dist(alpha=pm.Gamma("shape", 2, 2), beta=pt.exp(own[user]))
    pm.Censored("y", law, lower=None, upper=1.0, observed=np.minimum(times, 1.0))


MODELS: dict[str, Callable[[Rng, Effect], None]] = {
    "two binary rows each": few_rows,
    "a wide scale": wide_scale,
    "heavy tails": heavy_tails,
    "two modes each": two_modes,
    "rows that disagree": outlying_rows,
    "counts, an effect each": counts,
    "ordered answers": ordered_answers,
    "zeros by unit": inflated_zeros,
    "censored waiting times": waiting_times,
}
#: Whose sign no row tells: chains of NUTS never change it, and are no reference for it.
SIGNS = {"two modes each": ["own"]}
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"tolerance": 0.5},
    {"size": 6},
    {"size": 12},
    {"method": "uniform", "size": 100},
    {"method": "uniform", "size": 300},
    {"method": "pursuit", "size": 20},
)


@dataclass(frozen=True, kw_only=True)
class Build:
    """A coreset, what was said of it, and how far its draws are from the truth."""

    name: str
    way: str
    size: int = 0
    objective: float = np.nan
    node_error: float = np.nan
    khat: float = np.nan
    said: str = ""
    reweighted: bool = False
    found: Difference | None = None

    @property
    def is_false(self) -> bool:
        """Whether draws that are off were called reliable."""
        found = self.found
        if found is None or not self.said.startswith("reliable"):
            return False
        moved = SMALL if self.reweighted else max(SMALL, (self.objective + self.node_error) ** 0.5)
        return found.mean > moved + found.mean_limit or found.sd > moved + found.sd_limit


def model_of(name: str, effect: Effect) -> pm.Model:
    """Return one of the models, always of the same data."""
    with pm.Model() as model:
        MODELS[name](np.random.default_rng(1), effect)
    return model


def truth_of(model: pm.Model) -> xr.Dataset:
    """Sample all rows with all variables, in small steps."""
    compiled = nutpie.compile_pymc_model(model)
    found = nutpie.sample(
        compiled, draws=3_000, tune=1_500, chains=2, cores=2, seed=1,
        target_accept=0.95, progress_bar=False,
    )  # fmt: skip
    full: xr.Dataset = found["posterior"].to_dataset()
    return full


def builds(name: str) -> Iterator[Build]:
    """Coresets of a model by all ways."""
    model, for_nuts = (model_of(name, effect) for effect in (centred, standard))
    truth = truth_of(for_nuts).drop_vars(SIGNS.get(name, []))
    for seed, way in enumerate(WAYS):
        label = ", ".join(f"{key} {value}" for key, value in way.items()) or "default"
        try:
            yield judged(name, label, model, truth, way | {"random_seed": seed})
        except CoresetError as error:
            yield Build(name=name, way=label, said=f"refused: {str(error)[:60]}")


def judged(name: str, label: str, model: pm.Model, truth: xr.Dataset, way: dict[str, Any]) -> Build:
    """Build a coreset, and follow what its check says."""
    coreset = build_coreset(model, **way, integrate="own", progressbar=False)
    draws = followed(coreset, truth, random_seed=1)
    check = draws.check
    assert coreset.loglikelihood is not None
    units = as_units(coreset.loglikelihood.observations)
    return Build(
        name=name,
        way=label,
        size=coreset.size,
        objective=check.symmetrised_kl,
        node_error=units.node_error,
        khat=check.pareto_khat,
        said=check.verdict.level.lower(),
        reweighted=draws.reweighted,
        found=draws.found,
    )


def line_of(build: Build) -> list[str]:
    """Return a build's line of the table."""
    found = build.found
    if found is None:
        return [build.name, build.way, "", "", "", "", build.said, *[""] * 4]
    return [
        build.name,
        build.way,
        str(build.size),
        f"{build.objective:.2g}",
        f"{build.node_error:.2g}",
        f"{build.khat:.2f}",
        build.said,
        f"{found.mean:.3f} (noise: {found.mean_limit:.3f})",
        f"× {np.exp(found.sd):.2f} (noise: {np.exp(found.sd_limit):.2f})",
        _some(found.beyond_noise),
        "**false**" if build.is_false else "",
    ]


def _some(names: list[str]) -> str:
    more = len(names) - 3
    return ", ".join([*names[:3], *[f"{more} more"] * (more > 0)])


def main() -> None:
    """Print each build, and how many certificates were false."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--markdown", type=Path, help="save the table in this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # the verdict says it
    found: list[Build] = []
    for name in options.models:
        for build in builds(name):
            found.append(build)
            print(" | ".join(line_of(build)), flush=True)
    reliable = sum(build.said.startswith("reliable") for build in found)
    false = sum(build.is_false for build in found)
    table = (
        f"{markdown(HEADER, map(line_of, found))}\n\n"
        f"False among {reliable} called reliable, of {len(found)} builds: {false}.\n"
    )
    print(f"\n{table}")
    if options.markdown:
        options.markdown.write_text(table)


if __name__ == "__main__":
    main()
