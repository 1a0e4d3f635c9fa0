"""Logistic regressions by PASS-LR2 and by other methods: error against seconds."""

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from benchmarks.closed_forms import Array
from benchmarks.curves import verdict
from benchmarks.glm_data import DataSet, fair, flights, synthetic
from benchmarks.glm_judge import Judge, judge_of, seconds_of
from benchmarks.tables import markdown
from pymc_coresets import build_coreset, build_pass_glm
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density

N_REFERENCE, N_DRAWS, N_TEST = 8_000, 4_000, 10_000
SAMPLING = {"draws": 1_000, "tune": 500, "chains": 2, "random_seed": 1, "progressbar": False}
PASS, PASS6 = "PASS-LR2", "PASS, degree 6"
RADIUS = 4.0
LEVELS = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """Draws of the coefficients, (n_draws, p), and the verdict of `check`, if there is one."""

    draws: Array
    khat: float = np.nan
    reliable: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One method on one data set, against the full posterior.

    Errors of the means are in posterior standard deviations: the largest, and the root mean square.
    Variances are relative to those of the full posterior: the smallest and the largest.
    """

    data: str
    method: str
    seconds: float
    largest: float
    typical: float
    least_variance: float
    most_variance: float
    test: float
    full_test: float
    khat: float
    reliable: bool | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictors:
    """The linear predictors |eta| of all rows at the posterior mean."""

    data: str
    sizes: Array
    n_coefficients: int
    khat: float
    ess: float


@dataclass(frozen=True, kw_only=True)
class Methods:
    compared: list[Compared]
    predictors: list[Predictors]


# -- methods ---------------------------------------------------------------------------------------
# Each call is timed.  It returns a function that draws from and checks the result, untimed.

type Ask = Callable[[], Outcome]


def by_mode(model: pm.Model) -> Ask:
    point = pm.find_MAP(model=model, progressbar=False)
    return lambda: Outcome(draws=np.atleast_2d(point["theta"]))


def by_laplace(model: pm.Model) -> Ask:
    space = Unconstrained(model)
    around = laplace(Density.of_model(space), space.start)
    points, _ = around.draw(N_DRAWS, rng=np.random.default_rng(1))
    draws = space.constrain(points)
    return lambda: Outcome(draws=draws.values["theta"])


def by_pass(model: pm.Model) -> Ask:
    summary = build_pass_glm(model, radius=RADIUS, random_seed=1, progressbar=False)
    found = summary.closed_form()

    def outcome() -> Outcome:
        rng, check = np.random.default_rng(1), summary.check(random_seed=1)
        draws = rng.multivariate_normal(found["mean"], found["covariance"], N_DRAWS)
        return Outcome(draws=draws, khat=check.draws.pareto_khat, reliable=check.reliable)

    return outcome


def by_degree_6(model: pm.Model) -> Ask:
    summary = build_pass_glm(model, degree=6, radius="auto", random_seed=1, progressbar=False)
    idata = summary.sample(**SAMPLING)

    def outcome() -> Outcome:
        check = summary.check(idata)
        return Outcome(draws=_theta(idata), khat=check.draws.pareto_khat, reliable=check.reliable)

    return outcome


def by_coreset(model: pm.Model) -> Ask:
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.sample(**SAMPLING)

    def outcome() -> Outcome:
        check = coreset.check(idata)
        return Outcome(draws=_theta(idata), khat=check.pareto_khat, reliable=check.reliable)

    return outcome


def by_nuts(model: pm.Model) -> Ask:
    idata = pm.sample(model=model, **SAMPLING)
    return lambda: Outcome(draws=_theta(idata))


METHODS: dict[str, Callable[[pm.Model], Ask]] = {
    "mode": by_mode,
    PASS: by_pass,
    PASS6: by_degree_6,
    "Laplace": by_laplace,
    "coreset (auto)": by_coreset,
    "NUTS, all rows": by_nuts,
}


def _theta(idata: xr.DataTree) -> Array:
    theta = idata["posterior"]["theta"].to_numpy()
    return np.asarray(theta.reshape(-1, theta.shape[-1]))


# -- comparison ------------------------------------------------------------------------------------


def data_sets(n_obs: int) -> list[DataSet]:
    rng = np.random.default_rng(6)
    return [
        synthetic("MIXTURE", n_obs, N_TEST, rng=rng),
        synthetic("BINARY10", n_obs, N_TEST, rng=rng),
        flights(n_obs, N_TEST, rng=rng),
        fair(rng=rng),
    ]


def run_methods(n_obs: int) -> Methods:
    """Compare all methods on all data sets."""
    compared, predictors = [], []
    for i, data in enumerate(data_sets(n_obs)):
        judge = judge_of(data, N_REFERENCE, rng=np.random.default_rng([7, i]))
        predictors.append(
            Predictors(
                data=data.name,
                sizes=np.abs(data.features @ judge.mean),
                n_coefficients=data.features.shape[1],
                khat=judge.full.khat,
                ess=judge.full.ess,
            )
        )
        for method, run in METHODS.items():
            compared.append(_compared(judge, method, run))
            print(*vars(compared[-1]).values(), file=sys.stderr, flush=True)
    return Methods(compared=compared, predictors=predictors)


def _compared(judge: Judge, method: str, run: Callable[[pm.Model], Ask]) -> Compared:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws, few rows: the errors are measured here
        seconds, ask = seconds_of(lambda: run(judge.data.model()))
        outcome = ask()
    errors = (outcome.draws.mean(axis=0) - judge.mean) / judge.sd
    ratios = outcome.draws.var(axis=0) / judge.sd**2
    return Compared(
        data=judge.data.name,
        method=method,
        seconds=seconds,
        largest=float(np.abs(errors).max()),
        typical=float(np.sqrt(np.square(errors).mean())),
        least_variance=float(ratios.min()),
        most_variance=float(ratios.max()),
        test=judge.negative_test_loglik(outcome.draws),
        full_test=judge.negative_test_loglik(judge.full.draws),
        khat=outcome.khat,
        reliable=outcome.reliable,
    )


# -- tables ----------------------------------------------------------------------------------------


def methods_report(methods: Methods) -> str:
    headings = ["data", "method", "seconds", "mean error / sd: largest", "typical"]
    headings += ["variance ratio", "test loss above full", "k-hat of check", "check: reliable"]
    rows = [
        [
            c.data,
            c.method,
            f"{c.seconds:.2g}" if c.seconds < 10 else f"{c.seconds:.0f}",
            f"{c.largest:.2g}",
            f"{c.typical:.2g}",
            f"{c.least_variance:.2f} … {c.most_variance:.2f}",
            f"{1e3 * (c.test - c.full_test):+.3f}e-3",
            "" if np.isnan(c.khat) else f"{c.khat:.2f}",
            "" if c.reliable is None else ("yes" if c.reliable else "no"),
        ]
        for c in methods.compared
    ]
    parts = [_predictor_table(methods), markdown(headings, rows), "\n".join(_verdicts(methods))]
    return "\n\n".join(parts)


def _predictor_table(methods: Methods) -> str:
    headings = [
        "data",
        "rows",
        "coefficients",
        *(f"{100 * q:g} % of \\|eta\\| below" for q in LEVELS),
    ]
    headings += [f"\\|eta\\| > {RADIUS:g}", "reference: k-hat", "ESS"]
    rows = [
        [
            p.data,
            f"{len(p.sizes):,}",
            f"{p.n_coefficients}",
            *(f"{value:.2f}" for value in np.quantile(p.sizes, LEVELS)),
            f"{np.mean(p.sizes > RADIUS):.2%}",
            f"{p.khat:.2f}",
            f"{p.ess:.0f}",
        ]
        for p in methods.predictors
    ]
    return markdown(headings, rows)


def _verdicts(methods: Methods) -> list[str]:
    """Judge that PASS-LR2 is the fastest, and that its check warns wherever it is far off."""
    by_data: dict[str, list[Compared]] = {}
    for c in methods.compared:
        by_data.setdefault(c.data, []).append(c)
    fastest, accurate = [], []
    for own in by_data.values():
        summary = next(c for c in own if c.method == PASS)
        fastest.append(all(summary.seconds <= c.seconds for c in own))
        accurate.append(summary.largest < 0.5 or summary.reliable is False or summary.khat < 0.7)
    return [
        verdict("PASS-LR2 takes the least time", fastest),
        verdict("PASS-LR2 is within half an sd, or check() warns", accurate),
    ]
