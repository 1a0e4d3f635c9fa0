"""What stands between the parameters and the likelihood: groups, bases, shapes, data containers."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.sparse import structured_dot
from scipy import sparse

from tests.models.zoo import (
    COUNT,
    GROUP,
    ITEM,
    MASK,
    OBS,
    OUTER,
    POSITIVE,
    REAL,
    N,
    X,
    case,
    coefficients,
    predictor,
    scale,
)

GROUPS = OBS | {"group": list("abcd"), "k": ["x0", "x1", "x2"]}


def normal(mu: Any, **kwargs: Any) -> Any:
    """Likelihood of most models here."""
    return pm.Normal("y", mu, scale(), **{"observed": REAL} | kwargs)


# -- groups ----------------------------------------------------------------------------------------


@case("varying intercepts, centred", coords=GROUPS)
def _() -> None:
    a = pm.Normal("a", pm.Normal("m"), scale("tau"), dims="group")
    normal(a[GROUP], dims="obs")


@case("varying intercepts, not centred, in data containers", coords=GROUPS)
def _() -> None:
    group = pm.Data("group_of", GROUP, dims="obs")
    x = pm.Data("x", X, dims=("obs", "k"))
    z = pm.Normal("z", dims="group")
    a = pm.Deterministic("a", pm.Normal("m") + scale("tau") * z, dims="group")
    eta = pm.Deterministic("eta", a[group] + x @ coefficients(), dims="obs")
    pm.Poisson("y", pm.math.exp(eta), observed=pm.Data("counts", COUNT, dims="obs"), dims="obs")


@case("varying slopes with LKJ covariance", coords=GROUPS)
def _() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    ab = pm.Deterministic("ab", pm.Normal("z", shape=(4, 2)) @ chol.T)
    normal(ab[GROUP, 0] + ab[GROUP, 1] * X[:, 0])


@case("varying slopes of all covariates", coords=GROUPS)
def _() -> None:
    normal((X * pm.Normal("b", dims=("group", "k"))[GROUP]).sum(-1))


@case("groups and covariates in a sparse design")
def _() -> None:
    design = sparse.csr_matrix(np.hstack([X * (X > 0), np.eye(4)[GROUP]]))
    normal(structured_dot(pytensor.shared(design), pm.Normal("b", shape=(7, 1)))[:, 0])


@case("nested groups")
def _() -> None:
    outer = pm.Normal("outer", shape=2)
    normal(pm.Normal("inner", outer[OUTER], 1.0)[GROUP])


@case("nested groups by two indices")
def _() -> None:
    normal(pm.Normal("a", shape=2)[OUTER[GROUP]] + pm.Normal("b", shape=4)[GROUP])


@case("crossed groups (item response)")
def _() -> None:
    ability, difficulty = pm.Normal("ability", shape=4), pm.Normal("difficulty", shape=5)
    discrimination = pm.LogNormal("discrimination", shape=5)
    eta = discrimination[ITEM] * (ability[GROUP] - difficulty[ITEM])
    pm.Bernoulli("y", logit_p=eta, observed=MASK.astype(int))


@case("cell means by two index arrays")
def _() -> None:
    normal(pm.Normal("cell", shape=(4, 5))[GROUP, ITEM])


@case("normal effect of each row, integrated by quadrature")
def _() -> None:
    nodes, masses = np.polynomial.hermite_e.hermegauss(15)

    def logp(value: Any, eta: Any, sd: Any) -> Any:
        rate = pm.math.exp(eta[:, None] + sd * nodes)
        each = pm.logp(pm.Poisson.dist(rate), value[:, None])
        return pm.math.logsumexp(each + np.log(masses / masses.sum()), axis=1)

    pm.CustomDist("y", predictor(), scale(), logp=logp, observed=COUNT)


@case("matrix factorisation")
def _() -> None:
    u, v = pm.Normal("u", shape=(4, 2)), pm.Normal("v", shape=(5, 2))
    normal((u[GROUP] * v[ITEM]).sum(axis=1))


@case("effects that sum to zero", coords=GROUPS)
def _() -> None:
    normal(pm.Normal("m") + pm.ZeroSumNormal("a", dims="group")[GROUP])


@case("scale of each group")
def _() -> None:
    pm.Normal("y", 0.0, scale(shape=4)[GROUP], observed=REAL)


@case("one-hot design")
def _() -> None:
    normal(np.eye(4)[GROUP] @ pm.Normal("a", shape=4))


# -- bases and transformations ---------------------------------------------------------------------


@case("spline basis")
def _() -> None:
    knots = np.linspace(-1.5, 1.5, 6)
    basis = np.clip(X[:, :1] - knots, 0, None) ** 3
    normal(basis @ pm.Normal("w", 0, scale("tau"), shape=6))


@case("radial basis with a free length scale")
def _() -> None:
    distance = (X[:, :1] - np.linspace(-1, 1, 5)) ** 2
    normal(pm.math.exp(-distance / scale("ell")) @ pm.Normal("w", shape=5))


@case("hilbert space gaussian process")
def _() -> None:
    covariance = scale("eta") ** 2 * pm.gp.cov.ExpQuad(1, ls=scale("ell"))
    normal(pm.gp.HSGP(m=[8], c=1.5, cov_func=covariance).prior("f", X=X[:, :1]))


@case("polynomial and interactions inside the model", coords=GROUPS)
def _() -> None:
    x = pm.Data("x", X, dims=("obs", "k"))
    b = pm.Normal("b", shape=5)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    normal(
        b[0] + b[1] * z[:, 0] + b[2] * z[:, 1] + b[3] * z[:, 0] * z[:, 1] + b[4] * z[:, 2] ** 2,
        dims="obs",
    )


@case("change point in a covariate")
def _() -> None:
    b = pm.Normal("b", shape=2)
    normal(pm.math.switch(X[:, 0] > pm.Normal("at"), b[0], b[1]))


@case("periodic terms")
def _() -> None:
    angle = X[:, :1] * np.arange(1, 4)
    features = pt.concatenate([pt.sin(angle), pt.cos(angle)], axis=1)
    normal(features @ pm.Normal("w", shape=6))


@case("neural network")
def _() -> None:
    hidden = pm.math.tanh(X @ pm.Normal("w1", shape=(3, 4)) + pm.Normal("b1", shape=4))
    normal(hidden @ pm.Normal("w2", shape=4))


@case("saturation and decay")
def _() -> None:
    rate = pm.LogNormal("rate")
    normal(pm.Normal("top") * (1 - pm.math.exp(-rate * POSITIVE)) / (1 + rate))


@case("quadratic form of each row")
def _() -> None:
    a = pm.Normal("a", shape=(3, 3))
    normal(pt.einsum("ni,ij,nj->n", X, a, X))


@case("distance to a free centre")
def _() -> None:
    normal(pt.sqrt(((X - pm.Normal("centre", shape=3)) ** 2).sum(axis=-1)))


# -- shapes ----------------------------------------------------------------------------------------


@case("column vectors")
def _() -> None:
    normal(pt.dot(X, coefficients()[:, None]), observed=REAL[:, None])


@case("column flattened")
def _() -> None:
    normal(pt.dot(X, coefficients()[:, None]).flatten())


@case("transposed design")
def _() -> None:
    normal(coefficients() @ X.T)


@case("columns stacked")
def _() -> None:
    b = coefficients()
    normal(pt.stack([b[0] * X[:, 0], b[1] * X[:, 1]], axis=1).sum(axis=1))


@case("reversed twice")
def _() -> None:
    normal((X[::-1] @ coefficients())[::-1])


@case("elements set by a mask", unselected="no rule for writing by an index array")
def _() -> None:
    eta = predictor()
    normal(pt.set_subtensor(eta[MASK], pm.Normal("other")))


@case("halves joined", unselected="rows of one half are no rows of the other")
def _() -> None:
    b = coefficients()
    normal(pt.concatenate([X[:20] @ b, X[20:] @ -b]))


@case("many terms of a coefficient and a column each")
def _() -> None:
    waves = [np.sin(j * REAL) for j in range(40)]
    normal(pm.Normal("a") + sum(pm.Normal(f"b{j}") * wave for j, wave in enumerate(waves)))


def decay(*shape: int) -> Any:
    weights = pm.Beta("rate", 2, 2, shape=shape)[..., None] ** np.arange(4.0)
    return weights / weights.sum(axis=-1, keepdims=True)


@case("finite convolution of several columns")
def _() -> None:
    padded = pt.join(-1, pt.zeros((3, 3)), pm.Data("spent", X**2).T)
    effect = pt.signal.convolve1d(padded, decay(3), mode="valid")
    normal(effect.T @ coefficients())


@case("finite convolution, its end left out")
def _() -> None:
    normal(pm.Normal("a") + pt.signal.convolve1d(POSITIVE, decay(), mode="full")[:N])


@case("loop over data alone")
def _() -> None:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        stock = pytensor.scan(
            lambda new, old: new + 0.5 * old,
            sequences=[pm.Data("spent", POSITIVE)],
            outputs_info=[pt.zeros(())],
            return_updates=False,
        )
    normal(pm.Normal("a") * stock)


@case("trend summed up", unselected="each row needs all rows before it")
def _() -> None:
    normal(pt.cumsum(predictor()))


@case("predictor centred", unselected="the mean needs all rows")
def _() -> None:
    eta = pm.math.exp(predictor())
    normal(eta - eta.mean())


@case("names that mean something elsewhere")
def _() -> None:
    b = pm.Normal("float64", shape=3)
    pm.Normal("y", X @ b, scale("n_rows") + scale("coreset dim"), observed=REAL)


@case("as many coefficients as rows")
def _() -> None:
    design = np.random.default_rng(1).normal(size=(N, N)) / N
    b = pm.Normal("b", shape=N)
    pm.Deterministic("twice", 2 * b)
    normal(design @ b)


@case("as many outputs as rows")
def _() -> None:
    outputs = np.random.default_rng(1).normal(size=(N, N))
    pm.Normal("y", predictor()[:, None], scale(shape=N), observed=outputs)


@case("as many groups as rows, shuffled")
def _() -> None:
    normal(pm.Normal("a", shape=N)[np.random.default_rng(1).permutation(N)])


@case("one parameter for all rows")
def _() -> None:
    pm.Normal("y", pm.Normal("m"), 1.0, observed=REAL)


@case("observation axis is the last one", coords=OBS | {"k": range(2)}, dim="obs")
def _() -> None:
    mu = pm.Normal("m", dims="k")[:, None] + predictor()
    pm.Normal("y", mu, scale(), observed=np.stack([REAL, 2 * REAL]), dims=("k", "obs"))


@case("several outputs", coords=GROUPS)
def _() -> None:
    mu = pm.Deterministic("mu", X @ pm.Normal("b", shape=(3, 3)), dims=("obs", "k"))
    pm.Normal("y", mu, scale(dims="k"), observed=X[:, ::-1], dims=("obs", "k"))


# -- rows of longer arrays -------------------------------------------------------------------------


@case("lag of numpy", n_obs=N - 1)
def _() -> None:
    normal(pm.Normal("rho") * REAL[:-1], observed=REAL[1:])


@case("lag sliced out of a container", n_obs=N - 1)
def _() -> None:
    series = pm.Data("series", REAL)
    normal(pm.Normal("rho") * series[:-1], observed=REAL[1:])


@case("lag sliced out of the predictor", n_obs=N - 1)
def _() -> None:
    trend = pm.Data("trend", POSITIVE)
    normal((pm.Normal("rho") * trend)[1:], observed=REAL[1:])


@case("masked predictor", n_obs=int(MASK.sum()))
def _() -> None:
    x = pm.Data("x", X)
    normal((x @ coefficients())[MASK], observed=REAL[MASK])


@case("rows repeated", n_obs=2 * N, unselected="a reshape merges the axis with another")
def _() -> None:
    normal(pt.repeat(predictor(), 2), observed=np.repeat(REAL, 2))


# -- containers and labels -------------------------------------------------------------------------


@case("containers without dims")
def _() -> None:
    x, group = pm.Data("x", X), pm.Data("group_of", GROUP)
    a = pm.Normal("a", shape=4)
    normal(x @ coefficients() + a[group], observed=pm.Data("target", REAL))


@case("container of mutable shape", coords=OBS)
def _() -> None:
    x = pm.Data("x", X, shape=(None, None), dims=("obs", None))
    normal(pm.Deterministic("mu", x @ coefficients(), dims="obs"), shape=x.shape[0], dims="obs")


@case("deterministics beside the path", coords=GROUPS)
def _() -> None:
    b = coefficients(dims="k")
    mu = pm.Deterministic("mu", X @ b, dims="obs")
    pm.Deterministic("residual", REAL - mu, dims="obs")
    pm.Deterministic("odds", pm.math.exp(b), dims="k")
    normal(mu, dims="obs")


@case("initial values of the user")
def _() -> None:
    normal(pm.Normal("m", initval=0.7) + X @ coefficients(initval=np.array([0.1, 0.2, 0.3])))


@case("integer labels", coords={"obs": range(100, 100 + N)})
def _() -> None:
    normal(pm.Data("x", X[:, 0], dims="obs") * pm.Normal("b"), dims="obs")


@case("dims model", coords=GROUPS)
def _() -> None:
    x, group = pmd.Data("x", X, dims=("obs", "k")), pmd.Data("group_of", GROUP, dims="obs")
    b, a = pmd.Normal("b", 0, 1, dims="k"), pmd.Normal("a", 0, 1, dims="group")
    mu = pmd.Deterministic("mu", (x * b).sum("k") + a.isel(group=group))
    pmd.Normal("y", mu, pmd.HalfNormal("s", 1), observed=pmd.as_xtensor(REAL, dims=("obs",)))


@case("dims model with several outputs", coords=GROUPS, dim="obs")
def _() -> None:
    x = pmd.Data("x", X, dims=("obs", "k"))
    b = pmd.Normal("b", 0, 1, dims="k")
    y = pmd.as_xtensor(X[:, ::-1].T.copy(), dims=("k", "obs"))
    pmd.Normal("y", (x * b).transpose("k", "obs"), 1.0, observed=y)


@case("regression of bambi", standalone=True)
def _() -> pm.Model:
    bambi = pytest.importorskip("bambi", reason="bambi is not installed")
    table = pd.DataFrame({"y": REAL, "x": X[:, 0], "group": np.array(list("abcd"))[GROUP]})
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        model = bambi.Model("y ~ x + (1 | group)", table)
        model.build()
    return model.backend.model
