"""Generalised linear models and their kin: one linear predictor, and a likelihood."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from tests.models.zoo import (
    ANGLE,
    BINARY,
    CLASS,
    COUNT,
    MASK,
    POSITIVE,
    REAL,
    UNIT,
    X,
    case,
    predictor,
    scale,
)

_exp, _sigmoid = pm.math.exp, pm.math.sigmoid

_FAMILIES: dict[str, Callable[[Any], object]] = {
    "linear": lambda e: pm.Normal("y", e, scale(), observed=REAL),
    "logistic by p": lambda e: pm.Bernoulli("y", p=_sigmoid(e), observed=BINARY),
    "logistic by logit_p": lambda e: pm.Bernoulli("y", logit_p=e, observed=BINARY),
    "probit": lambda e: pm.Bernoulli("y", p=pm.math.invprobit(e), observed=BINARY),
    "complementary log-log": lambda e: pm.Bernoulli("y", 1 - _exp(-_exp(e)), observed=BINARY),
    "binomial": lambda e: pm.Binomial("y", n=COUNT + 3, logit_p=e, observed=COUNT),
    "poisson": lambda e: pm.Poisson("y", _exp(e), observed=COUNT),
    "poisson with offset": lambda e: pm.Poisson("y", _exp(e + np.log(POSITIVE)), observed=COUNT),
    "negative binomial": lambda e: pm.NegativeBinomial("y", _exp(e), alpha=scale(), observed=COUNT),
    "geometric": lambda e: pm.Geometric("y", _sigmoid(e), observed=COUNT + 1),
    "beta-binomial": lambda e: pm.BetaBinomial("y", _exp(e), scale(), n=COUNT + 3, observed=COUNT),
    "uniform of unknown length, a discrete variable": lambda e: pm.DiscreteUniform(
        "y", -5, pm.Poisson("upper", 3.0, initval=20), observed=COUNT
    ),
    "student": lambda e: pm.StudentT(
        "y", nu=pm.Gamma("nu", 2, 0.1), mu=e, sigma=scale(), observed=REAL
    ),
    "cauchy": lambda e: pm.Cauchy("y", e, scale(), observed=REAL),
    "laplace": lambda e: pm.Laplace("y", e, scale(), observed=REAL),
    "logistic distribution": lambda e: pm.Logistic("y", e, scale(), observed=REAL),
    "asymmetric laplace": lambda e: pm.AsymmetricLaplace(
        "y", b=scale(), kappa=0.7, mu=e, observed=REAL
    ),
    "quantile regression": lambda e: pm.AsymmetricLaplace(
        "y", b=scale(), q=0.9, mu=e, observed=REAL
    ),
    "skew normal": lambda e: pm.SkewNormal(
        "y", mu=e, sigma=scale(), alpha=pm.Normal("alpha"), observed=REAL
    ),
    "ex-gaussian": lambda e: pm.ExGaussian("y", e, scale(), nu=scale("nu"), observed=REAL),
    "gumbel": lambda e: pm.Gumbel("y", e, scale(), observed=REAL),
    "von mises": lambda e: pm.VonMises("y", e, scale(), observed=ANGLE),
    "gamma": lambda e: pm.Gamma("y", alpha=2.0, beta=_exp(e), observed=POSITIVE),
    "gamma by mean": lambda e: pm.Gamma("y", mu=_exp(e), sigma=scale(), observed=POSITIVE),
    "inverse gamma": lambda e: pm.InverseGamma("y", scale(), _exp(e), observed=POSITIVE),
    "lognormal": lambda e: pm.LogNormal("y", e, scale(), observed=POSITIVE),
    "exponential": lambda e: pm.Exponential("y", _exp(e), observed=POSITIVE),
    "weibull": lambda e: pm.Weibull("y", scale(), _exp(e), observed=POSITIVE),
    "half-normal": lambda e: pm.HalfNormal("y", _exp(e), observed=POSITIVE),
    "half-student": lambda e: pm.HalfStudentT("y", 4.0, _exp(e), observed=POSITIVE),
    "wald": lambda e: pm.Wald("y", _exp(e), scale(), observed=POSITIVE),
    "pareto": lambda e: pm.Pareto("y", _exp(e), 0.01, observed=POSITIVE),
    "beta": lambda e: pm.Beta("y", mu=_sigmoid(e), nu=3.0 + scale(), observed=UNIT),
    "kumaraswamy": lambda e: pm.Kumaraswamy("y", _exp(e), scale(), observed=UNIT),
    "logit-normal": lambda e: pm.LogitNormal("y", e, scale(), observed=UNIT),
    "rice": lambda e: pm.Rice("y", nu=_exp(e), sigma=scale(), observed=POSITIVE),
    "triangular": lambda e: pm.Triangular("y", lower=-9, c=e, upper=9, observed=REAL),
    "heteroscedastic": lambda e: pm.Normal("y", e, _exp(0.3 * e), observed=REAL),
    "two predictors in the scale": lambda e: pm.Normal(
        "y", e, _exp(X[:, 0] * pm.Normal("tau")), observed=REAL
    ),
    "known noise of each row": lambda e: pm.Normal("y", e, POSITIVE, observed=REAL),
    "zero-inflated poisson": lambda e: pm.ZeroInflatedPoisson(
        "y", pm.Beta("psi", 2, 2), _exp(e), observed=COUNT
    ),
    "zero-inflated binomial": lambda e: pm.ZeroInflatedBinomial(
        "y", pm.Beta("psi", 2, 2), 12, _sigmoid(e), observed=COUNT
    ),
    "zero-inflated negative binomial": lambda e: pm.ZeroInflatedNegativeBinomial(
        "y", _sigmoid(X[:, 0]), _exp(e), scale(), observed=COUNT
    ),
    "hurdle poisson": lambda e: pm.HurdlePoisson(
        "y", pm.Beta("psi", 2, 2), _exp(e), observed=COUNT
    ),
    "hurdle gamma": lambda e: pm.HurdleGamma(
        "y", pm.Beta("psi", 2, 2), 2.0, _exp(e), observed=np.where(MASK, 0.0, POSITIVE)
    ),
    "censored weibull": lambda e: pm.Censored(
        "y",
        pm.Weibull.dist(1.0 + scale(), _exp(e)),
        lower=None,
        upper=np.where(MASK, POSITIVE, np.inf),
        observed=POSITIVE,
    ),
    "censored normal on both sides": lambda e: pm.Censored(
        "y", pm.Normal.dist(e, scale()), lower=-1.0, upper=1.0, observed=REAL.clip(-1, 1)
    ),
    "truncated": lambda e: pm.Truncated(
        "y", pm.Normal.dist(e, scale()), lower=-4.0, upper=4.0, observed=REAL
    ),
    "truncated poisson": lambda e: pm.Truncated(
        "y", pm.Poisson.dist(_exp(e)), lower=1, observed=COUNT + 1
    ),
    "custom logp": lambda e: pm.CustomDist(
        "y", e, scale(), logp=lambda y, mu, s: -pm.math.abs(y - mu) / s, observed=REAL
    ),
    "custom graph": lambda e: pm.CustomDist(
        "y",
        e,
        scale(),
        dist=lambda mu, s, size: pm.math.exp(pm.Normal.dist(mu, s, size=size)),
        observed=POSITIVE,
    ),
    "ordered logistic": lambda e: pm.OrderedLogistic("y", e, _cutpoints(), observed=CLASS),
    "ordered probit": lambda e: pm.OrderedProbit("y", e, _cutpoints(), observed=CLASS),
    "normal mixture": lambda e: pm.NormalMixture(
        "y",
        pm.Dirichlet("w", np.ones(2)),
        pm.Normal("m", shape=2),
        scale(shape=2),
        observed=REAL,
    ),
    "mixture with common predictor": lambda e: pm.Mixture(
        "y",
        pm.Dirichlet("w", np.ones(2)),
        [pm.Normal.dist(e, scale()), pm.StudentT.dist(nu=4, mu=e, sigma=3.0)],
        observed=REAL,
    ),
}


def _cutpoints() -> Any:
    ordered = pm.distributions.transforms.ordered
    return pm.Normal("cut", [-1.0, 1.0], 1.0, transform=ordered, initval=[-0.5, 0.5])


def _family(likelihood: Callable[[Any], object]) -> Callable[[], object]:
    return lambda: likelihood(predictor())


for _name, _likelihood in _FAMILIES.items():
    case(_name)(_family(_likelihood))
