"""Does a coreset keep its word?  ``python -m benchmarks.reliability [--seeds 10 --n 20000]``.

Coresets of simulated models of many kinds, each with several seeds.  Of each: the divergence that
the construction reported, and the same at 1 000 fresh draws of the coreset's posterior, which chose
nothing and decided nothing.  A build has broken its word where it reported a divergence within the
tolerance and the fresh one is above three times that.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from rich.console import Console
from rich.table import Table

from benchmarks.curves import markdown
from pymc_coresets import Coreset, CoresetWarning, build_coreset
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.sampler import CoresetSampler

TOLERANCE = 0.01
HEADER = ("model", "D", "rows", "passes", "k-hat", "J reported", "J fresh", "largest",
          "within", "word broken")  # fmt: skip
FRESH = 1_000

type Build = Callable[[np.random.Generator, int], None]


def expit(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-x))
    return result


def regression(rng: np.random.Generator, n: int, p: int, scale: float = 1.0) -> Any:  # noqa: ANN401
    """Return covariates, their true predictor, and the model's."""
    X = rng.normal(size=(n, p))
    truth = X @ rng.normal(0, scale / np.sqrt(p), size=p)
    return X, truth, pm.Normal("a") + pm.Data("X", X) @ pm.Normal("b", shape=p)


def logistic(p: int, scale: float = 1.0, shift: float = 0.0) -> Build:
    def build(rng: np.random.Generator, n: int) -> None:
        _, truth, eta = regression(rng, n, p, scale)
        pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth + shift)))

    return build


def heavy_tailed_covariates(rng: np.random.Generator, n: int) -> None:
    X = rng.standard_t(2.5, size=(n, 4))
    y = rng.binomial(1, expit(X @ [0.5, -0.3, 0.2, 0.0]))
    pm.Bernoulli("y", logit_p=pm.Normal("a") + X @ pm.Normal("b", shape=4), observed=y)


def poisson(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 6, 0.7)
    pm.Poisson("y", pt.exp(eta), observed=rng.poisson(np.exp(truth)))


def negative_binomial(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 5, 0.7)
    y = rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(truth)))
    pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=pm.Exponential("alpha", 1.0), observed=y)


def gamma(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 4, 0.7)
    shape = pm.Exponential("shape", 0.5)
    pm.Gamma("y", shape, shape * pt.exp(-eta), observed=rng.gamma(2.0, np.exp(truth) / 2.0))


def linear(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 10)
    pm.Normal("y", eta, pm.HalfNormal("s"), observed=rng.normal(truth, 0.7))


def robust(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 5)
    y = truth + 0.5 * rng.standard_t(3, size=n)
    nu, s = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("s")
    pm.StudentT("y", nu=nu, mu=eta, sigma=s, observed=y)


def quantiles(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 3)
    scale = pm.HalfNormal("s")
    pm.AsymmetricLaplace("y", mu=eta, q=0.8, b=1 / scale, observed=rng.normal(truth, 1.0))


def mixture(rng: np.random.Generator, n: int) -> None:
    y = np.where(rng.random(n) < 0.3, rng.normal(-1, 0.8, n), rng.normal(2, 0.8, n))
    mu = pm.Normal("mu", 0, 3, shape=2, transform=ordered, initval=[-2.0, 2.0])
    pm.NormalMixture("y", pm.Dirichlet("w", np.ones(2)), mu, pm.HalfNormal("s"), observed=y)


def weibull(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 3, 0.5)
    pm.Weibull(
        "y", pm.Exponential("k", 1.0), pt.exp(eta), observed=np.exp(truth) * rng.weibull(1.5, n)
    )


def ordered_logistic(rng: np.random.Generator, n: int) -> None:
    X = rng.normal(size=(n, 4))
    latent = X @ [0.8, -0.5, 0.2, 0.0] + rng.logistic(size=n)
    cuts = pm.Normal("cuts", 0, 3, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
    y = np.digitize(latent, [-1.0, 0.5, 2.0])
    pm.OrderedLogistic("y", cutpoints=cuts, eta=X @ pm.Normal("b", shape=4), observed=y)


def categories(rng: np.random.Generator, n: int) -> None:
    X = rng.normal(size=(n, 3))
    truth = X @ rng.normal(size=(3, 2))
    utilities = np.c_[truth, np.zeros(n)] + rng.gumbel(size=(n, 3))
    free = X @ pm.Normal("b", shape=(3, 2))
    logits = pt.concatenate([free, pt.zeros((n, 1))], axis=1)
    pm.Categorical("y", logit_p=logits, observed=utilities.argmax(axis=1))


def groups(n_groups: int, *, centred: bool, spread: float) -> Build:
    def build(rng: np.random.Generator, n: int) -> None:
        group, x = rng.integers(0, n_groups, n), rng.normal(size=n)
        truth = rng.normal(0, spread, n_groups)[group] + 0.5 * x
        s = pm.HalfNormal("s")
        if centred:
            a = pm.Normal("a", pm.Normal("m"), s, shape=n_groups)
        else:
            a = pm.Normal("m") + s * pm.Normal("z", shape=n_groups)
        eta = a[group] + pm.Normal("b") * x
        pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth)))

    return build


def crossed(rng: np.random.Generator, n: int) -> None:
    one, two, x = rng.integers(0, 12, n), rng.integers(0, 8, n), rng.normal(size=n)
    truth = rng.normal(0, 1, 12)[one] + rng.normal(0, 0.5, 8)[two] + 0.5 * x
    u = pm.Normal("u", 0, pm.Gamma("su", 2, 2), shape=12)
    v = pm.Normal("v", 0, pm.Gamma("sv", 2, 2), shape=8)
    eta = pm.Normal("m") + u[one] + v[two] + pm.Normal("b") * x
    pm.Poisson("y", pt.exp(eta), observed=rng.poisson(np.exp(truth)))


def funnel(rng: np.random.Generator, n: int) -> None:
    """Groups that hardly differ: their spread may be 0, where the density has no mode."""
    group, x = rng.integers(0, 8, n), rng.normal(size=n)
    a = pm.Normal("a", 0, pm.HalfNormal("s"), shape=8)
    pm.Normal("y", a[group] + pm.Normal("b") * x, 1.0, observed=rng.normal(x, 1.0))


MODELS: Mapping[str, Build] = {
    "logistic, D = 3": logistic(2),
    "logistic, D = 11": logistic(10),
    "logistic, D = 41": logistic(40),
    "logistic, rare events": logistic(5, shift=-5.0),
    "logistic, nearly separated": logistic(5, scale=15.0),
    "logistic, heavy-tailed covariates": heavy_tailed_covariates,
    "poisson": poisson,
    "negative binomial": negative_binomial,
    "gamma": gamma,
    "linear": linear,
    "student": robust,
    "quantiles": quantiles,
    "mixture": mixture,
    "weibull": weibull,
    "ordered logistic": ordered_logistic,
    "three categories": categories,
    "groups, centred": groups(30, centred=True, spread=1.0),
    "groups, not centred": groups(30, centred=False, spread=1.0),
    "groups that hardly differ": groups(10, centred=False, spread=0.02),
    "crossed effects": crossed,
    "a funnel": funnel,
}


def fresh_objective(loglik: LogLikelihood, rows: Rows, weights: np.ndarray, seed: int) -> float:
    """Variance of log r at fresh draws of a coreset's posterior, in nats."""
    rng = np.random.default_rng(10_000 + seed)
    draws = CoresetSampler(loglik).draw(rows, weights, FRESH, rng=rng)
    return float(np.var(loglik.sums(draws).total - weights @ loglik.matrix(draws, rows)))


def proposal_khat(coreset: Coreset) -> float:
    """Pareto k-hat of the draws from around the mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)
        return float(coreset.importance_draws(random_seed=1)["posterior"].attrs["pareto_khat"])


@dataclass(frozen=True)
class Found:
    """One build."""

    n_dims: int
    size: int
    passes: float
    khat: float
    reported: float
    fresh: float


def measure(model: pm.Model, seed: int) -> Found:
    """Build a coreset, and measure it at fresh draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)  # the table says it
        coreset = build_coreset(model, random_seed=seed, progressbar=False)
    loglik = coreset.loglikelihood
    assert loglik is not None
    return Found(
        n_dims=loglik.n_dims,
        size=coreset.size,
        passes=float(coreset.history["n_passes"][-1]),
        khat=np.nan if coreset.proposal is None else proposal_khat(coreset),
        reported=coreset.objective,
        fresh=fresh_objective(loglik, loglik.source.at(coreset.indices), coreset.weights, seed),
    )


def row(found: list[Found]) -> list[str]:
    """Summarise the builds of a model."""
    columns = {f.name: np.array([getattr(one, f.name) for one in found]) for f in fields(Found)}
    middle = {name: float(np.median(values)) for name, values in columns.items()}
    return [
        f"{middle['n_dims']:.0f}",
        f"{middle['size']:.0f}",
        f"{middle['passes']:.1f}",
        "" if np.isnan(middle["khat"]) else f"{middle['khat']:.2f}",
        f"{middle['reported']:.1e}",
        f"{middle['fresh']:.1e}",
        f"{columns['fresh'].max():.1e}",
        f"{np.count_nonzero(columns['fresh'] <= TOLERANCE)} of {len(found)}",
        str(sum(is_broken(one) for one in found)),
    ]


def is_broken(found: Found) -> bool:
    """Whether a divergence within the tolerance was reported wrongly."""
    return found.reported <= TOLERANCE and found.fresh > 3 * TOLERANCE


def options_parser(description: str | None) -> argparse.ArgumentParser:
    """Read which models, of how many rows, and how many seeds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--n", type=int, default=20_000, help="rows")
    parser.add_argument("--only", default="", help="models whose name has this in it")
    return parser


def simulated(options: argparse.Namespace) -> Iterator[tuple[str, pm.Model]]:
    """Make the models that were asked for, one after the other."""
    for name, build in MODELS.items():
        if options.only in name:
            with pm.Model() as model:
                build(np.random.default_rng(1), options.n)
            yield name, model


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--markdown", type=Path, help="save the table in this file")
    options = parser.parse_args()
    console = Console()
    table = Table(*HEADER, title=f"N = {options.n:,}, tolerance {TOLERANCE} nats")
    every: list[Found] = []
    lines: list[list[str]] = []
    for name, model in simulated(options):
        found = [measure(model, seed) for seed in range(1, options.seeds + 1)]
        lines.append([name, *row(found)])
        table.add_row(*lines[-1])
        console.print(*lines[-1], style="dim")
        every += found
    console.print(table)
    within = sum(one.fresh <= TOLERANCE for one in every)
    broken = sum(map(is_broken, every))
    console.print(f"{within} of {len(every)} within the tolerance; {broken} broke their word")
    if options.markdown:
        options.markdown.write_text(markdown(HEADER, lines) + "\n")


if __name__ == "__main__":
    main()
