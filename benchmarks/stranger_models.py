"""Models that were written for other samplers, with data from known values.

`benchmarks.strangers` runs `pymc_coresets.sample` of each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable
from scipy.special import expit

__all__ = ["CASES", "Case"]

type Array = np.ndarray
type Rng = np.random.Generator
type Tensor = TensorVariable[Any, Any]
type Truth = Mapping[str, Any]
type Write = Callable[[Rng, int], Truth]

MISSING = 0.2  # share of a covariate's values


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model: `write` adds its variables for so many units, and returns their known values."""

    name: str
    n_units: int
    write: Write
    options: Mapping[str, Any] = field(default_factory=dict)  # of `pymc_coresets.sample`

    def model(self, part: float, seed: int) -> tuple[pm.Model, Truth]:
        """Draw data of a part of the units, and return the model of them with the known values."""
        with pm.Model() as model:
            truth = self.write(np.random.default_rng(seed), round(part * self.n_units))
        return model, truth


# -- effects, holes, walks, and starts -------------------------------------------------------------


def counts_of_people(rng: Rng, n: int) -> Truth:
    """150 counts for each person, who has an effect."""
    person, x = np.repeat(np.arange(n), 150), rng.normal(size=150 * n)
    u = rng.normal(0.0, 0.5, n)
    y = rng.poisson(np.exp(0.4 + 0.3 * x + u[person]))
    pm.modelcontext(None).add_coords({"person": np.arange(n)})
    mean, slope, sd = pm.Normal("mean", 0, 2), pm.Normal("slope"), pm.HalfNormal("sd", 1)
    own = pm.Normal("u", 0, sd, dims="person")
    pm.Deterministic("rate", pm.math.exp(mean + own), dims="person")
    pm.Poisson("y", pm.math.exp(mean + slope * x + own[person]), observed=y)
    return {"mean": 0.4, "slope": 0.3, "sd": 0.5, "u": u, "rate": np.exp(0.4 + u)}


def imputed(x: Array, hole: Array, mu: Tensor, sd: Tensor) -> Tensor:
    """Return a covariate whose missing values PyMC imputes."""
    return pm.Normal("x", mu, sd, observed=np.ma.masked_array(x, hole))


def written_into_data(x: Array, hole: Array, mu: Tensor, sd: Tensor) -> Tensor:
    """Return data with latent values in the holes."""
    pm.Normal("x_known", mu, sd, observed=x[~hole])
    missing = pm.Normal("x_missing", mu, sd, shape=int(hole.sum()))
    return pt.set_subtensor(pt.as_tensor(np.where(hole, 0.0, x))[np.flatnonzero(hole)], missing)


def one_for_every_row(x: Array, hole: Array, mu: Tensor, sd: Tensor) -> Tensor:
    """Return latent values of all rows, used where the data have holes."""
    every = pm.Normal("x_missing", mu, sd, shape=len(x))
    known = pm.logp(pm.Normal.dist(mu, sd), np.where(hole, 0.0, x))
    pm.Potential("x_known", pt.where(hole, 0.0, known))
    return pt.where(hole, every, x)


def covariate_with_holes(
    covariate: Callable[[Array, Array, Tensor, Tensor], Tensor] | None,
    rng: Rng,
    n: int,
) -> Truth:
    """Binary outcomes with a covariate that is missing in a fifth of the rows."""
    x, z = rng.normal(1, 2, n), rng.normal(size=n)
    y, hole = rng.binomial(1, expit(0.3 + 0.5 * x - 0.4 * z)), rng.random(n) < MISSING
    mu, sd, b = pm.Normal("mu", 0, 5), pm.HalfNormal("sd", 5), pm.Normal("b", 0, 2, shape=3)
    truth = {"mu": 1.0, "sd": 2.0, "b": np.array([0.3, 0.5, -0.4])}
    if covariate is None:  # one likelihood for complete rows, and one for the others
        pm.Normal("x_known", mu, sd, observed=x[~hole])
        missing = pm.Normal("x_missing", mu, sd, shape=int(hole.sum()))
        for name, value, rows in (("y_known", x[~hole], ~hole), ("y_other", missing, hole)):
            pm.Bernoulli(name, logit_p=b[0] + b[1] * value + b[2] * z[rows], observed=y[rows])
        return truth | {"x_missing": x[hole]}
    pm.Bernoulli("y", logit_p=b[0] + b[1] * covariate(x, hole, mu, sd) + b[2] * z, observed=y)
    every = {"imputed": {"x_unobserved": x[hole]}, "written_into_data": {"x_missing": x[hole]}}
    return truth | every.get(covariate.__name__, {})


def levels_of_all_sizes(rng: Rng, n: int) -> Truth:
    """A hundred binary outcomes for each level on average, in sizes by a Pareto distribution."""
    sizes = rng.pareto(1.5, n) + 0.2
    g, x = rng.choice(n, 100 * n, p=sizes / sizes.sum()), rng.normal(size=(100 * n, 3))
    own, slopes = rng.normal(-1, 0.7, n), np.array([0.5, -0.3, 0.2])
    y = rng.random(len(g)) < expit(own[g] + x @ slopes)
    mu, sd = pm.Normal("mu", 0, 2), pm.HalfNormal("sd", 1)
    z, b = pm.Normal("z", 0, 1, shape=n), pm.Normal("b", 0, 1, shape=3)
    pm.Bernoulli("y", logit_p=mu + sd * z[g] + x @ b, observed=y)
    return {"mu": -1.0, "sd": 0.7, "z": (own + 1) / 0.7, "b": slopes}


def zero_inflated_subjects(rng: Rng, n: int) -> Truth:
    """Eight counts for each subject, with an intercept for zeros and one for the rate."""
    subject, x = np.repeat(np.arange(n), 8), rng.normal(size=8 * n)
    of_rate, of_zeros = rng.normal(0, 0.5, n), rng.normal(0, 0.8, n)
    active = rng.random(8 * n) < expit(0.7 + of_zeros[subject])
    y = active * rng.poisson(np.exp(0.8 + 0.3 * x + of_rate[subject]))
    mean, slope = pm.Normal("mean", 0, 2, shape=2), pm.Normal("slope")
    sd = pm.HalfNormal("sd", 1, shape=2)
    rate = pm.Normal("of_rate", 0, sd[0], shape=n)
    zeros = pm.Normal("of_zeros", 0, sd[1], shape=n)
    pm.ZeroInflatedPoisson(
        "y",
        psi=pm.math.sigmoid(mean[1] + zeros[subject]),
        mu=pm.math.exp(mean[0] + slope * x + rate[subject]),
        observed=y,
    )
    truth = {"mean": np.array([0.8, 0.7]), "slope": 0.3, "sd": np.array([0.5, 0.8])}
    return truth | {"of_rate": of_rate, "of_zeros": of_zeros}


def walks_of_areas(rng: Rng, n: int) -> Truth:
    """Counts of three years for each area, whose rate walks."""
    walk = np.cumsum(rng.normal(0, 0.3, (n, 3)), axis=1)
    at_risk = rng.uniform(5, 50, (n, 3))
    pm.modelcontext(None).add_coords({"area": np.arange(n), "year": np.arange(3)})
    mean, step = pm.Normal("mean", 0, 2), pm.HalfNormal("step", 1)
    of_area = pm.GaussianRandomWalk(
        "walk", sigma=step, init_dist=pm.Normal.dist(0, step), dims=("area", "year")
    )
    y = rng.poisson(at_risk * np.exp(-0.5 + walk))
    pm.Poisson("y", at_risk * pm.math.exp(mean + of_area), observed=y, dims=("area", "year"))
    return {"mean": -0.5, "step": 0.3, "walk": walk}


def extremes(rng: Rng, n: int) -> Truth:
    """Annual maxima by a generalised extreme value distribution, whose shape starts at zero."""

    def logp(value: Any, mu: Any, sigma: Any, xi: Any) -> Tensor:  # noqa: ANN401
        inside = 1 + xi * (value - mu) / sigma
        base = pt.log(pt.clip(inside, 1e-12, np.inf))
        density = -pt.log(sigma) - (1 + 1 / xi) * base - pt.exp(-base / xi)
        return pt.switch(inside > 0, density, -np.inf)

    year = np.arange(n) / n
    y = 3.8 + 0.4 * year + 0.2 * ((-np.log(rng.random(n))) ** -0.1 - 1) / 0.1
    mu, trend = pm.Normal("mu", 3.8, 0.5), pm.Normal("trend", 0, 1)
    sigma, xi = pm.HalfNormal("sigma", 0.3), pm.Normal("xi", 0, 0.2)
    pm.CustomDist("y", mu + trend * year, sigma, xi, logp=logp, observed=y)
    return {"mu": 3.8, "trend": 0.4, "sigma": 0.2, "xi": 0.1}


# -- six kinds of public data ----------------------------------------------------------------------


def occupancy(rng: Rng, n: int) -> Truth:
    """Detections of 158 species in three visits to each site, as in breeding bird surveys."""
    n_species = 158
    elevation, forest = rng.normal(size=(2, n))
    day = rng.normal(size=(n, 1))
    mean, sd = np.array([-0.8, -0.5, 0.3, -0.4]), np.array([1.5, 1.0, 0.5, 0.8])
    own = rng.normal(mean, sd, (n_species, 4))
    present = expit(own[:, 0] + np.outer(elevation, own[:, 1]) + np.outer(forest, own[:, 2]))
    seen = expit(own[:, 3] + 0.2 * day)
    y = rng.binomial(3, seen) * (rng.random((n, n_species)) < present)
    pm.modelcontext(None).add_coords(
        {"species": np.arange(n_species), "site": np.arange(n), "effect": list("ieft")}
    )
    mu = pm.Normal("mu", 0, 1.5, dims="effect")
    tau = pm.HalfNormal("tau", 1.5, dims="effect")
    of_day = pm.Normal("of_day", 0, 1)
    b = pm.Normal("b", mu, tau, dims=("species", "effect"))
    logit = b[:, 0] + b[:, 1] * elevation[:, None] + b[:, 2] * forest[:, None]
    pm.ZeroInflatedBinomial(
        "y",
        psi=pm.math.sigmoid(logit),
        n=3,
        p=pm.math.sigmoid(b[:, 3] + of_day * day),
        observed=y,
        dims=("site", "species"),
    )
    return {"mu": mean, "tau": sd, "of_day": 0.2, "b": own}


def gompertz(rng: Rng, n: int) -> Truth:
    """Deaths of old people in families that share a frailty, observed from some age on."""
    family = np.repeat(np.arange(n), 1 + rng.poisson(1.5, n))
    frailty, female = rng.gamma(4.0, 0.25, n), rng.integers(2, size=len(family))
    rate, shape, effect = 0.02, 0.09, -0.25
    entry = rng.exponential(6.0, len(family))
    own = frailty[family] * np.exp(effect * female) * rate / shape  # years since the age of sixty
    # Those who would have died before are not seen: the age at death, given that of entry.
    gained = -np.log(rng.random(len(family))) / own
    death = np.log(np.exp(shape * entry) + gained) / shape
    exit_ = np.minimum(death, entry + rng.uniform(2, 20, len(family)))
    event = (death <= exit_).astype(float)

    def logp(
        value: Tensor, start: Tensor, died: Tensor, log_rate: Tensor, by_year: Tensor
    ) -> Tensor:
        risk = pt.exp(log_rate) * (pt.exp(by_year * value) - pt.exp(by_year * start)) / by_year
        return died * (log_rate + by_year * value) - risk

    pm.modelcontext(None).add_coords({"family": np.arange(n)})
    log_rate = pm.Normal("log_rate", -4, 1)
    by_year = pm.Gamma("by_year", 2, 20)
    of_female = pm.Normal("of_female", 0, 1)
    theta = pm.Gamma("theta", 2, 6)
    own_frailty = pm.Gamma("frailty", 1 / theta, 1 / theta, dims="family")
    eta = log_rate + of_female * female + pt.log(own_frailty[family])
    pm.CustomDist("exit", entry, event, eta, by_year, logp=logp, observed=exit_)
    truth = {"log_rate": np.log(rate), "by_year": shape, "of_female": effect, "theta": 0.25}
    return truth | {"frailty": frailty}


def thresholds(rng: Rng, n: int) -> Truth:
    """Twenty answers of each person on a scale of five, by thresholds of one's own."""
    n_items = 20
    person, item = np.repeat(np.arange(n), n_items), np.tile(np.arange(n_items), n)
    base, of_item = np.array([-1.5, -0.5, 0.5, 1.5]), rng.normal(0, 0.8, n_items)
    of_item -= of_item.mean()
    shift, stretch = rng.normal(0, 0.7, n), rng.normal(0, 0.3, n)
    cut = shift[:, None] + np.exp(stretch)[:, None] * base
    latent = of_item[item] + rng.logistic(size=len(item))
    y = (latent[:, None] > cut[person]).sum(axis=1)
    pm.modelcontext(None).add_coords(
        {"person": np.arange(n), "item": np.arange(n_items), "step": np.arange(4)}
    )
    common = pm.Normal(
        "common", 0, 2, dims="step", transform=pm.distributions.transforms.ordered,
        initval=np.linspace(-1, 1, 4),
    )  # fmt: skip
    difficulty = pm.ZeroSumNormal("difficulty", 1, dims="item")
    sd = pm.HalfNormal("sd", 1, shape=2)
    own_shift = pm.Normal("shift", 0, sd[0], dims="person")
    own_stretch = pm.Normal("stretch", 0, sd[1], dims="person")
    cutpoints = own_shift[:, None] + pt.exp(own_stretch)[:, None] * common
    pm.OrderedLogistic("y", eta=difficulty[item], cutpoints=cutpoints[person], observed=y)
    truth = {"common": base, "difficulty": of_item, "sd": np.array([0.7, 0.3])}
    return truth | {"shift": shift, "stretch": stretch}


def weeks_of_shops(rng: Rng, n: int) -> Truth:
    """Sales of 104 weeks for each shop, of which one in twenty was not reported."""
    n_weeks = 104
    price, season = rng.normal(size=(n, n_weeks)), rng.normal(0, 0.2, n_weeks)
    own = rng.normal(1.5, 0.6, n)
    mean = np.exp(own[:, None] + season - 0.4 * price)
    counts = rng.negative_binomial(3.0, 3.0 / (3.0 + mean))
    y = np.ma.masked_array(counts, rng.random(counts.shape) < 0.05)
    pm.modelcontext(None).add_coords({"shop": np.arange(n), "week": np.arange(n_weeks)})
    level, sd, of_price = pm.Normal("level", 0, 2), pm.HalfNormal("sd", 1), pm.Normal("of_price")
    week_sd, alpha = pm.HalfNormal("week_sd", 0.5), pm.Gamma("alpha", 2, 0.5)
    of_week = pm.ZeroSumNormal("of_week", week_sd, dims="week")
    of_shop = pm.Normal("of_shop", level, sd, dims="shop")
    mu = pm.math.exp(of_shop[:, None] + of_week + of_price * price)
    pm.NegativeBinomial("sales", mu=mu, alpha=alpha, observed=y, dims=("shop", "week"))
    truth = {
        "level": 1.5 + season.mean(),
        "sd": 0.6,
        "of_price": -0.4,
        "week_sd": 0.2,
        "alpha": 3.0,
    }
    return truth | {"of_week": season - season.mean(), "of_shop": own + season.mean()}


def claims(rng: Rng, n: int) -> Truth:
    """Whether a policy had claims in each of three years, and of what amount."""
    policy, x = np.repeat(np.arange(n), 3), rng.normal(size=(3 * n, 2))
    u = rng.normal(size=n)
    b, d = np.array([0.4, -0.2]), np.array([0.1, 0.3])
    some = rng.random(3 * n) < expit(-2.0 + x @ b + 0.8 * u[policy])
    mean = np.exp(7.0 + x[some] @ d + 0.3 * u[policy[some]])
    amount = rng.gamma(1.5, mean / 1.5)
    pm.modelcontext(None).add_coords({"policy": np.arange(n), "covariate": ["age", "power"]})
    own = pm.Normal("u", 0, 1, dims="policy")
    often, high = pm.Normal("often", 0, 2), pm.Normal("high", 7, 2)
    sd, loading = pm.HalfNormal("sd", 1), pm.Normal("loading", 0, 1)
    by_often = pm.Normal("by_often", 0, 1, dims="covariate")
    by_high = pm.Normal("by_high", 0, 1, dims="covariate")
    shape = pm.Gamma("shape", 2, 1)
    pm.Bernoulli("some", logit_p=often + x @ by_often + sd * own[policy], observed=some)
    mu = pm.math.exp(high + x[some] @ by_high + loading * own[policy[some]])
    pm.Gamma("amount", alpha=shape, beta=shape / mu, observed=amount)
    truth = {"often": -2.0, "high": 7.0, "sd": 0.8, "loading": 0.3, "shape": 1.5}
    return truth | {"by_often": b, "by_high": d, "u": u}


def response_times(rng: Rng, n: int) -> Truth:
    """Four hundred response times of each person, by a shifted Wald distribution with lapses."""
    each, longest = 400, 4.0
    person, hard = np.repeat(np.arange(n), each), np.tile([0.0, 1.0], n * each // 2)
    drift, bound = rng.normal(2.5, 0.5, n), np.exp(rng.normal(0.0, 0.2, n))
    wait = np.exp(rng.normal(-1.4, 0.15, n))
    speed = drift[person] - 0.6 * hard
    decided = rng.wald(bound[person] / speed, bound[person] ** 2) + wait[person]
    lapse = rng.random(len(person)) < 0.03
    y = np.where(lapse, rng.uniform(0, longest, len(person)), decided)  # some take longer
    pm.modelcontext(None).add_coords({"person": np.arange(n), "of": ["drift", "bound", "wait"]})
    mean = pm.Normal("mean", [2, 0, -1.5], [1, 0.5, 0.5], dims="of")
    sd = pm.HalfNormal("sd", 0.5, dims="of")
    z = pm.Normal("z", 0, 1, dims=("person", "of"))
    own = mean + sd * z
    of_hard, lapses = pm.Normal("of_hard", 0, 1), pm.Beta("lapses", 1, 20)
    v = own[person, 0] + of_hard * hard
    a = pm.math.exp(own[:, 1])[person]
    parts = [
        pm.Wald.dist(mu=a / v, lam=a**2, alpha=pm.math.exp(own[:, 2])[person]),
        pm.Uniform.dist(0, longest, shape=len(y)),
    ]
    pm.Mixture("rt", w=pt.stack([1 - lapses, lapses]), comp_dists=parts, observed=y)
    means, sds = np.array([2.5, 0.0, -1.4]), np.array([0.5, 0.2, 0.15])
    of_people = (np.c_[drift, np.log(bound), np.log(wait)] - means) / sds
    return {"mean": means, "sd": sds, "of_hard": -0.6, "lapses": 0.03, "z": of_people}


CASES: dict[str, Case] = {
    "people": Case(name="300 people × 150 counts", n_units=300, write=counts_of_people),
    **{
        f"holes-{key}": Case(
            name=f"20,000 rows, a covariate with holes, {words}",
            n_units=20_000,
            write=partial(covariate_with_holes, covariate),
        )
        for key, words, covariate in (
            ("imputed", "imputed", imputed),
            ("parts", "two likelihoods", None),
            ("written", "written into data", written_into_data),
            ("every", "one for every row", one_for_every_row),
        )
    },
    "levels": Case(
        name="400 levels of 1 to thousands of rows", n_units=400, write=levels_of_all_sizes
    ),
    "zeros": Case(
        name="2,500 subjects × 8 counts, zero-inflated, two intercepts, 200 s at most",
        n_units=2_500,
        write=zero_inflated_subjects,
        options={"time_budget": 200},
    ),
    "walks": Case(
        name="900 areas × 3 years, a random walk each", n_units=900, write=walks_of_areas
    ),
    "extremes": Case(
        name="2,000 maxima, GEV whose shape starts at 0", n_units=2_000, write=extremes
    ),
    "occupancy": Case(name="158 species at 267 sites, three visits", n_units=267, write=occupancy),
    "gompertz": Case(
        name="6,500 persons of 2,600 families, Gompertz, left-truncated, gamma frailty",
        n_units=2_600,
        write=gompertz,
    ),
    "thresholds": Case(
        name="5,000 persons × 20 ordinal answers, thresholds of each",
        n_units=5_000,
        write=thresholds,
    ),
    "weeks": Case(
        name="600 shops × 104 weeks, negative binomial, 5 % missing",
        n_units=600,
        write=weeks_of_shops,
    ),
    "claims": Case(
        name="20,000 policies × 3 years, two parts, effects of policies",
        n_units=20_000,
        write=claims,
    ),
    "times": Case(
        name="60 persons × 400 response times, shifted Wald with lapses",
        n_units=60,
        write=response_times,
    ),
}
