"""Likelihoods with structure: mixtures, vectors, log-likelihoods, several terms, missing values."""

import warnings
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.models.zoo import (
    BINARY,
    CLASS,
    COUNT,
    GROUP,
    MASK,
    OBS,
    POSITIVE,
    REAL,
    TABLE,
    N,
    X,
    case,
    coefficients,
    predictor,
    scale,
)


def component(k: int, b: Any) -> Any:
    """Predictor of one component of a mixture of regressions."""
    return X @ b[k]


# -- mixtures --------------------------------------------------------------------------------------


@case("mixture of two regressions")
def _() -> None:
    b, s = pm.Normal("b", shape=(2, 3)), scale(shape=2)
    parts = [
        pm.Normal.dist(component(0, b), s[0]),
        pm.StudentT.dist(nu=4, mu=component(1, b), sigma=s[1]),
    ]
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), parts, observed=REAL)


@case("mixture of two regressions, batched")
def _() -> None:
    mu = X @ pm.Normal("b", shape=(3, 2))
    parts = pm.Normal.dist(mu, scale(shape=2))
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), parts, observed=REAL)


@case("mixture with weights of each row")
def _() -> None:
    w = pm.math.softmax(X @ pm.Normal("g", shape=(3, 2)), axis=-1)
    pm.Mixture("y", w, pm.Poisson.dist(pm.LogNormal("rate", shape=2)), observed=COUNT)


@case("mixture with outliers as a potential")
def _() -> None:
    inlier = pm.logp(pm.Normal.dist(predictor(), scale()), REAL)
    outlier = pm.logp(pm.Normal.dist(0, 10.0), REAL)
    p = pm.Beta("p", 2, 8)
    pm.Potential("loglik", pt.logaddexp(pt.log1p(-p) + inlier, pt.log(p) + outlier))


# -- categories and vectors ------------------------------------------------------------------------


@case("softmax")
def _() -> None:
    p = pm.math.softmax(X @ pm.Normal("b", shape=(3, 3)), axis=-1)
    pm.Categorical("y", p=p, observed=CLASS)


@case("softmax with a reference category")
def _() -> None:
    eta = pt.concatenate([pt.zeros((N, 1)), X @ pm.Normal("b", shape=(3, 2))], axis=1)
    pm.Categorical("y", logit_p=eta, observed=CLASS)


@case("categorical of each group")
def _() -> None:
    pm.Categorical("y", p=pm.Dirichlet("p", np.ones((4, 3)))[GROUP], observed=CLASS)


@case("categories of one distribution")
def _() -> None:
    pm.Categorical("y", p=pm.Dirichlet("p", np.ones(3)), observed=CLASS)


@case("ordered categories of one distribution")
def _() -> None:
    cut = pm.Normal("cut", [-1.0, 1.0], 1.0, initval=[-0.5, 0.5])
    pm.OrderedLogistic("y", eta=pm.Normal("m"), cutpoints=pt.sort(cut), observed=CLASS)


@case("as many categories as rows")
def _() -> None:
    pm.Categorical("y", p=pm.Dirichlet("p", np.ones(N)), observed=CLASS)


@case("multinomial rows")
def _() -> None:
    pm.Multinomial("y", n=10, p=pm.Dirichlet("p", np.ones(3)), observed=TABLE)


@case("multinomial regression with sizes of rows")
def _() -> None:
    p = pm.math.softmax(X @ pm.Normal("b", shape=(3, 3)), axis=-1)
    table = TABLE + np.arange(N)[:, None]
    pm.Multinomial("y", n=table.sum(axis=1), p=p, observed=table)


@case("dirichlet-multinomial rows")
def _() -> None:
    pm.DirichletMultinomial("y", n=10, a=scale("a", shape=3), observed=TABLE)


@case("dirichlet rows")
def _() -> None:
    shares = (TABLE + 1.0) / 13.0
    pm.Dirichlet("y", a=scale("a", shape=3), observed=shares)


@case("normal vectors with LKJ covariance")
def _() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=pm.Exponential.dist(1, shape=3))
    pm.MvNormal("y", pm.Normal("m", shape=3), chol=chol, observed=X)


@case("normal vectors with a mean of each row")
def _() -> None:
    chol = np.linalg.cholesky(np.eye(2) + 0.5)
    pm.MvNormal("y", X @ pm.Normal("b", shape=(3, 2)), chol=chol, observed=X[:, :2])


@case("student vectors")
def _() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    pm.MvStudentT("y", nu=5, mu=np.zeros(2), chol=chol, observed=X[:, :2])


@case("time series in each row")
def _() -> None:
    series = X.cumsum(axis=1)
    start = pm.Normal.dist(0, 1)
    pm.AR("y", rho=[pm.Normal("rho")], sigma=scale(), init_dist=start, observed=series)


# -- several terms ---------------------------------------------------------------------------------


@case("two observed variables on one dim", coords=OBS)
def _() -> None:
    eta = predictor()
    pm.Normal("y", eta, scale(), observed=REAL, dims="obs")
    pm.Poisson("count", pm.math.exp(eta), observed=COUNT, dims="obs")


@case("two observed variables, vector and scalar")
def _() -> None:
    mu = X[:, :1] * pm.Normal("b", shape=2)
    pm.Normal("y", mu, 1.0, observed=X[:, 1:])
    pm.Bernoulli("z", logit_p=mu[:, 0], observed=BINARY)


@case("another observed variable left in the model", coords=OBS, observed=["y"])
def _() -> None:
    mu = pm.Normal("m")
    pm.Normal("y", mu + predictor(), scale(), observed=REAL, dims="obs")
    pm.Normal("calibration", mu, 0.5, observed=np.array([0.1, 0.3]))


@case("another observed variable with the same dim left in the model", coords=OBS, observed="y")
def _() -> None:
    eta = predictor()
    pm.Normal("y", eta, scale(), observed=pm.Data("target", REAL, dims="obs"), dims="obs")
    pm.Poisson("count", pm.math.exp(eta), observed=COUNT, dims="obs")


@case("potential on the parameters left in the model")
def _() -> None:
    b = coefficients()
    pm.Potential("constraint", -((b[0] - b[1]) ** 2))
    pm.Normal("y", X @ b, scale(), observed=REAL)


@case("potential as the likelihood")
def _() -> None:
    pm.Potential("loglik", -0.5 * (REAL - predictor()) ** 2)


@case("potential as the likelihood, with dims", coords=OBS, dim="obs")
def _() -> None:
    x = pm.Data("x", X, dims=("obs", None))
    pm.Potential("loglik", -pt.abs(REAL - x @ coefficients()), dims="obs")
    pm.Potential("constraint", -(pm.Normal("c") ** 2))


@case("likelihood and an additional potential per row", coords=OBS)
def _() -> None:
    mu = predictor()
    pm.Normal("y", mu, scale(), observed=REAL, dims="obs")
    pm.Potential("penalty", -0.1 * mu**4, dims="obs")


@case("censoring by a potential with masks")
def _() -> None:
    alpha, beta = 1.0 + scale(), pm.math.exp(predictor())
    dist = pm.Weibull.dist(alpha, beta)
    survival = -((POSITIVE / beta) ** alpha)
    pm.Potential("loglik", pt.switch(MASK, survival, pm.logp(dist, POSITIVE)))


@case("censoring by a mask, the seen rows", observed="seen", n_obs=int((~MASK).sum()))
def _() -> None:
    alpha, beta = 1.0 + scale(), pm.math.exp(predictor())
    pm.Weibull("seen", alpha, beta[~MASK], observed=POSITIVE[~MASK])
    pm.Potential("censored", (-((POSITIVE[MASK] / beta[MASK]) ** alpha)).sum())


@case("censoring by a mask, the censored rows", observed="censored", n_obs=int(MASK.sum()))
def _() -> None:
    alpha, beta = 1.0 + scale(), pm.math.exp(predictor())
    pm.Weibull("seen", alpha, beta[~MASK], observed=POSITIVE[~MASK])
    pm.Potential("censored", -((POSITIVE[MASK] / beta[MASK]) ** alpha))


# -- missing values, discrete and local variables --------------------------------------------------


@case("missing values imputed", n_obs=int((~MASK).sum()))
def _() -> None:
    with warnings.catch_warnings(action="ignore", category=pm.exceptions.ImputationWarning):
        pm.Normal("y", predictor(), scale(), observed=np.ma.masked_array(REAL, MASK))


@case("missing values imputed, with dims", coords=OBS, n_obs=int((~MASK).sum()))
def _() -> None:
    mu = pm.Deterministic("mu", predictor(), dims="obs")
    with warnings.catch_warnings(action="ignore", category=pm.exceptions.ImputationWarning):
        pm.Normal("y", mu, scale(), observed=np.ma.masked_array(REAL, MASK), dims="obs")


@case("discrete free variable")
def _() -> None:
    at = pm.DiscreteUniform("at", 10, 30, initval=20)
    rate = pm.math.switch(np.arange(N) < at, *pm.LogNormal("rate", shape=2))
    pm.Poisson("y", rate, observed=COUNT)


@case("discrete free index")
def _() -> None:
    chosen = pm.Categorical("chosen", p=np.ones(3) / 3)
    pm.Normal("y", pt.as_tensor(X)[:, chosen] * pm.Normal("b"), 1.0, observed=REAL)


@case("local variables", coords=OBS, allow_local=True)
def _() -> None:
    local = pm.Normal("local", 0, 0.3, dims="obs")
    pm.Poisson("y", pm.math.exp(predictor() + local), observed=COUNT, dims="obs")


@case("local variables without dims", allow_local=True)
def _() -> None:
    true_x = pm.Normal("true_x", shape=N)
    pm.Normal("measured", true_x, 0.3, observed=X[:, 0])
    pm.Normal("y", pm.Normal("b") * true_x, scale(), observed=POSITIVE)
