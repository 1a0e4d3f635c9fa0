"""The log-density of ten models with weighted rows and its gradient, written by hand in NumPy."""

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import gammaln

from tests.models.zoo import BINARY, COUNT, GROUP, REAL, X

__all__ = ["BY_HAND", "Problem"]

type Array = np.ndarray
type Point = Mapping[str, Array]
type Value = tuple[float, dict[str, Array]]
#: Takes the data of some rows and their weights; returns value and gradient at a point.
type Problem = Callable[[Mapping[str, Array], Array], Callable[[Point], Value]]

_LOG_2_PI = np.log(2 * np.pi)
_ZOO = {"x": X, "real": REAL, "binary": BINARY, "count": COUNT, "group": GROUP}


def _normal(x: Array, mean: Array | float = 0.0, sd: float = 1.0) -> tuple[float, Array]:
    """Return the log-density of independent normal variables, and its derivative for each."""
    z = (x - mean) / sd
    return -0.5 * (np.sum(z * z) + np.size(z) * (_LOG_2_PI + 2 * np.log(sd))), -z / sd


def _half_normal(log_s: Array) -> tuple[float, Array, float]:
    """Return the log-density of a half-normal variable's logarithm, its derivative, and exp."""
    s = float(np.exp(log_s))
    return 0.5 * np.log(2 / np.pi) - 0.5 * s * s + float(log_s), 1 - s * s, s


def _sigmoid(eta: Array) -> Array:
    return 1 / (1 + np.exp(-eta))


def _bernoulli(y: Array, eta: Array) -> tuple[Array, Array]:
    return y * eta - np.logaddexp(0, eta), y - _sigmoid(eta)


def _chosen(utility: Array, chosen: Array) -> tuple[Array, Array]:
    """Return the log-probability of each choice, and its derivatives for the utilities."""
    shifted = utility - utility.max(axis=1, keepdims=True)
    odds = np.exp(shifted)
    total = odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(chosen))
    slope = -odds / total
    slope[rows, chosen] += 1
    return shifted[rows, chosen] - np.log(total[:, 0]), slope


def _regression(
    likelihood: Callable[[Array, Array, float], tuple[Array, Array, Array | float]],
    observed: str,
    *,
    scaled: bool = False,
) -> Problem:
    """Write a model of three coefficients and, where it has one, a scale."""

    def problem(data: Mapping[str, Array], weights: Array) -> Callable[[Point], Value]:
        x, y = data["x"], data[observed]

        def value(point: Point) -> Value:
            prior, slope = _normal(point["b"], sd=0.5)
            of_scale, log_s_slope, s = _half_normal(point["s_log__"]) if scaled else (0.0, 0.0, 1.0)
            logp, by_eta, by_log_s = likelihood(y, x @ point["b"], s)
            gradient = {"b": slope + x.T @ (weights * by_eta)}
            if scaled:
                gradient["s_log__"] = log_s_slope + np.asarray(weights @ by_log_s)
            return prior + of_scale + weights @ logp, gradient

        return value

    return problem


def _gaussian(y: Array, eta: Array, s: float) -> tuple[Array, Array, Array]:
    z = (y - eta) / s
    return -0.5 * (z * z + _LOG_2_PI) - np.log(s), z / s, z * z - 1


def _cauchy(y: Array, eta: Array, s: float) -> tuple[Array, Array, Array]:
    z = (y - eta) / s
    share = 2 * z / (1 + z * z)
    return -np.log(np.pi * s) - np.log1p(z * z), share / s, z * share - 1


def _laplace(y: Array, eta: Array, s: float) -> tuple[Array, Array, Array]:
    z = (y - eta) / s
    return -np.log(2 * s) - np.abs(z), np.sign(z) / s, np.abs(z) - 1


def _logistic(y: Array, eta: Array, _: float) -> tuple[Array, Array, float]:
    return *_bernoulli(y, eta), 0.0


def _poisson(y: Array, eta: Array, _: float) -> tuple[Array, Array, float]:
    rate = np.exp(eta)
    return y * eta - rate - gammaln(y + 1), y - rate, 0.0


def _varying_intercepts(data: Mapping[str, Array], weights: Array) -> Callable[[Point], Value]:
    y, group = data["real"], data["group"]

    def value(point: Point) -> Value:
        a, m = point["a"], point["m"]
        of_m, m_slope = _normal(m)
        of_tau, tau_slope, tau = _half_normal(point["tau_log__"])
        of_s, s_slope, s = _half_normal(point["s_log__"])
        of_a, a_slope = _normal(a, m, tau)
        logp, by_eta, by_log_s = _gaussian(y, a[group], s)
        by_group = np.bincount(group, weights * by_eta, minlength=len(a))
        gradient = {
            "m": m_slope - a_slope.sum(),
            "tau_log__": tau_slope + np.square(a - m).sum() / tau**2 - len(a),
            "a": a_slope + by_group,
            "s_log__": s_slope + np.asarray(weights @ by_log_s),
        }
        return of_m + of_tau + of_s + of_a + weights @ logp, gradient

    return value


def _conditional_logit(data: Mapping[str, Array], weights: Array) -> Callable[[Point], Value]:
    x, chosen = data["x"], data["chosen"]

    def value(point: Point) -> Value:
        prior, slope = _normal(point["b"])
        logp, by_utility = _chosen(x @ point["b"], chosen)
        by_column = (weights[:, None] * by_utility).ravel() @ x.reshape(-1, x.shape[-1])
        return prior + weights @ logp, {"b": slope + by_column}

    return value


def _mixed_logit(data: Mapping[str, Array], weights: Array) -> Callable[[Point], Value]:
    x, person, chosen = data["x"], data["person"], data["chosen"]

    def value(point: Point) -> Value:
        z, b, log_spread = point["z"], point["b"], point["spread_log__"]
        (of_z, z_slope), (of_b, b_slope) = _normal(z), _normal(b)
        spread = np.exp(log_spread)
        prior = of_z + of_b + (0.5 * np.log(2 / np.pi) - 0.5 * spread**2 + log_spread).sum()
        tastes = b + spread * z[person]
        logp, by_utility = _chosen((x * tastes[:, None]).sum(axis=-1), chosen)
        by_taste = ((weights[:, None] * by_utility)[..., None] * x).sum(axis=1)
        np.add.at(z_slope, person, by_taste * spread)
        by_spread = (by_taste * z[person]).sum(axis=0)
        gradient = {
            "z": z_slope,
            "b": b_slope + by_taste.sum(axis=0),
            "spread_log__": 1 - spread**2 + by_spread * spread,
        }
        return prior + weights @ logp, gradient

    return value


def _schools(data: Mapping[str, Array], weights: Array) -> Callable[[Point], Value]:
    x, y, school, district = data["x"], data["y"], data["school"], data["district"]

    def value(point: Point) -> Value:
        z, b, a, upper = point["z"], point["b"], point["a"], point["district"]
        (of_z, z_slope), (of_b, b_slope), (of_a, a_slope) = _normal(z), _normal(b), _normal(a)
        of_sd, sd_slope, sd = _half_normal(point["s_district_log__"])
        of_school, school_slope, s_school = _half_normal(point["s_school_log__"])
        of_s, s_slope, s = _half_normal(point["s_log__"])
        of_upper, upper_slope = _normal(upper, a, sd)
        logp, by_eta, by_log_s = _gaussian(y, upper[district] + s_school * z[school] + b * x, s)
        by_eta = weights * by_eta
        by_school = np.bincount(school, by_eta, minlength=len(z))
        gradient = {
            "district": upper_slope + np.bincount(district, by_eta, minlength=len(upper)),
            "a": a_slope - upper_slope.sum(),
            "s_district_log__": sd_slope + np.square((upper - a) / sd).sum() - len(upper),
            "z": z_slope + s_school * by_school,
            "s_school_log__": school_slope + s_school * (by_school @ z),
            "b": b_slope + by_eta @ x,
            "s_log__": s_slope + weights @ by_log_s,
        }
        prior = of_z + of_b + of_a + of_sd + of_school + of_s + of_upper
        return prior + weights @ logp, gradient

    return value


def _two_parameters(data: Mapping[str, Array], weights: Array) -> Callable[[Point], Value]:
    right, person, item = data["right"], data["person"], data["item"]

    def value(point: Point) -> Value:
        ability, difficulty, log_slope = (
            point[n] for n in ("ability", "difficulty", "slope_log__")
        )
        of_ability, ability_slope = _normal(ability)
        of_difficulty, difficulty_slope = _normal(difficulty)
        of_slope, slope_slope = _normal(log_slope, 0.0, 0.5)
        distance, slope = ability[person] - difficulty[item], np.exp(log_slope)[item]
        logp, by_eta = _bernoulli(right, slope * distance)
        by_eta = weights * by_eta * slope
        n, k = len(ability), len(difficulty)
        gradient = {
            "ability": ability_slope + np.bincount(person, by_eta, minlength=n),
            "difficulty": difficulty_slope - np.bincount(item, by_eta, minlength=k),
            "slope_log__": slope_slope + np.bincount(item, by_eta * distance, minlength=k),
        }
        return of_ability + of_difficulty + of_slope + weights @ logp, gradient

    return value


def _of_the_zoo(problem: Problem) -> Problem:
    def of_rows(data: Mapping[str, Array], weights: Array) -> Callable[[Point], Value]:
        positions = data["positions"]
        return problem({name: values[positions] for name, values in _ZOO.items()}, weights)

    return of_rows


#: By the name of the model.
BY_HAND: dict[str, Problem] = {
    "linear": _of_the_zoo(_regression(_gaussian, "real", scaled=True)),
    "cauchy": _of_the_zoo(_regression(_cauchy, "real", scaled=True)),
    "laplace": _of_the_zoo(_regression(_laplace, "real", scaled=True)),
    "logistic by logit_p": _of_the_zoo(_regression(_logistic, "binary")),
    "poisson": _of_the_zoo(_regression(_poisson, "count")),
    "varying intercepts, centred": _of_the_zoo(_varying_intercepts),
    "conditional logit": _conditional_logit,
    "mixed logit, tastes of 500 persons": _mixed_logit,
    "schools nested in districts": _schools,
    "2PL, 2,000 persons and 50 items": _two_parameters,
}
