"""Likelihoods: a predictor, a link and a family, plain or wrapped; and vectors of each row."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.grammar.predictors import (
    codes,
    coefficients,
    covariates,
    location,
    positive,
    predictor,
    scale,
)
from tests.grammar.program import Program

__all__ = ["likelihood"]

#: What is observed, of a given size.
VALUES = {
    "real": "rng.normal(size={size})",
    "positive": "rng.gamma(3.0, 0.5, size={size})",
    "unit": "rng.beta(2.0, 2.0, size={size})",
    "count": "rng.poisson(2.0, size={size})",
    "at least 1": "rng.poisson(2.0, size={size}) + 1",
    "binary": "rng.integers(0, 2, size={size})",
    "with zeros": "rng.gamma(3.0, 0.5, size={size}) * (rng.random({size}) < 0.7)",
}
#: Families of numbers: what they are of, and their arguments.  {e} is a predictor, {s} and {t} are
#: positive, {q} is a probability.
FAMILIES = [
    ("Normal", "real", "{e}, {s}"),
    ("Normal", "real", "mu={e}, tau={s}"),
    ("Normal", "real", "{e}, pt.exp(0.2 * {e})"),
    ("StudentT", "real", "nu={t} + 2, mu={e}, sigma={s}"),
    ("StudentT", "real", "nu=4, mu={e}, lam={s}"),
    ("Laplace", "real", "{e}, {s}"),
    ("Cauchy", "real", "{e}, {s}"),
    ("Logistic", "real", "{e}, {s}"),
    ("Gumbel", "real", "{e}, {s}"),
    ("SkewNormal", "real", "mu={e}, sigma={s}, alpha=0.7"),
    ("AsymmetricLaplace", "real", "b={s}, q=0.7, mu={e}"),
    ("ExGaussian", "real", "{e}, {s}, nu={t}"),
    ("LogNormal", "positive", "{e}, {s}"),
    ("Gamma", "positive", "alpha={s}, beta=pt.exp({e})"),
    ("Gamma", "positive", "mu=pt.exp({e}), sigma={s}"),
    ("Gamma", "positive", "alpha={s}, beta={s} / pm.math.exp({e})"),
    ("InverseGamma", "positive", "{s} + 1, pt.exp({e})"),
    ("Weibull", "positive", "{s}, pt.exp({e})"),
    ("Exponential", "positive", "pt.exp({e})"),
    ("Exponential", "positive", "scale=pt.softplus({e})"),
    ("HalfNormal", "positive", "pt.exp({e})"),
    ("Wald", "positive", "pt.exp({e}), {s}"),
    ("Beta", "unit", "mu=pm.math.sigmoid({e}), nu=2.0 + {s}"),
    ("Beta", "unit", "pt.exp({e}), {s}"),
    ("Kumaraswamy", "unit", "pt.exp({e}), {s}"),
    ("LogitNormal", "unit", "{e}, {s}"),
    ("Bernoulli", "binary", "logit_p={e}"),
    ("Bernoulli", "binary", "pm.math.sigmoid({e})"),
    ("Bernoulli", "binary", "p=pm.math.invprobit({e})"),
    ("Bernoulli", "binary", "p=1 - pt.exp(-pt.exp({e}))"),
    ("Binomial", "count", "n=20, p=pm.math.sigmoid({e})"),
    ("Binomial", "count", "n=20, logit_p={e}"),
    ("BetaBinomial", "count", "pt.exp({e}), {s}, n=20"),
    ("Poisson", "count", "pt.exp({e})"),
    ("Poisson", "count", "pt.softplus({e}) + 0.01"),
    ("NegativeBinomial", "count", "mu=pt.exp({e}), alpha={s}"),
    ("NegativeBinomial", "count", "n={s}, p=pm.math.sigmoid({e})"),
    ("Geometric", "at least 1", "pm.math.sigmoid({e})"),
    ("DiscreteWeibull", "count", "pm.math.sigmoid({e}), {s}"),
    ("ZeroInflatedPoisson", "count", "{q}, pt.exp({e})"),
    ("ZeroInflatedPoisson", "count", "psi=pm.math.sigmoid({e}), mu={s}"),
    ("ZeroInflatedBinomial", "count", "{q}, 20, pm.math.sigmoid({e})"),
    ("ZeroInflatedNegativeBinomial", "count", "{q}, pt.exp({e}), {s}"),
    ("HurdlePoisson", "count", "{q}, pt.exp({e})"),
    ("HurdleNegativeBinomial", "count", "{q}, pt.exp({e}), {s}"),
    ("HurdleGamma", "with zeros", "{q}, {s}, pt.exp({e})"),
    ("HurdleLogNormal", "with zeros", "{q}, {e}, {s}"),
]
#: Families that can be censored and truncated: with distribution functions.
WITH_CDF = {
    "Normal", "Laplace", "Cauchy", "Logistic", "Gumbel", "LogNormal", "Gamma", "InverseGamma",
    "Weibull", "Exponential", "HalfNormal", "Wald", "Poisson", "StudentT", "NegativeBinomial",
    "Binomial", "Beta", "Kumaraswamy", "Geometric",
}  # fmt: skip
BOUNDS = {"real": (-0.8, 0.8), "positive": (0.5, 2.5), "unit": (0.2, 0.8)}
WHOLE_BOUNDS = {"count": (1, 4), "at least 1": (1, 4)}


@dataclass(frozen=True)
class Layout:
    """How the rows lie in the observed array: its size, and what makes a column fit it."""

    size: str = "N"
    fit: str = ""  # after the name of something with one entry per row
    first: str | None = None  # names of other dims, before and after that of the rows
    last: tuple[str | None, ...] = ()


PLAIN = Layout()


def likelihood(p: Program) -> None:
    """Write one or several observed variables or potentials."""
    kind = p.number(0, 11)
    if kind <= 7:
        univariate(p)
    elif kind <= 9:
        p.pick(*_VECTORS)(p)
    elif kind == 10:
        several(p)
    else:
        mixture(p)


# -- numbers ---------------------------------------------------------------------------------------


def univariate(p: Program) -> None:
    layout = p.pick(PLAIN, PLAIN, PLAIN, PLAIN, *_LAYOUTS)
    if layout.first and not p.dims:
        layout = PLAIN  # only a name says which axis has the rows
    family, kind, arguments = written(p, layout)
    wraps: list[Callable[..., None]] = [observed] * 5
    if layout is PLAIN:
        wraps += [missing, custom, beside_others, flattened]
        # pm.logp of a transformed variable holds random draws in place of the model's variables.
        wraps += [] if family == "LogitNormal" else [potential, summed]
        if family in WITH_CDF:
            wraps += [censored, truncated]
    p.pick(*wraps)(p, layout, family, kind, arguments)


_LAYOUTS = [
    Layout("(N, 1)", "[:, None]", last=(None,)),
    Layout("(N, 2)", "[:, None]", last=("k",)),
    Layout("(2, N)", "", first="k"),
]


def written(p: Program, layout: Layout = PLAIN, *, eta: str = "") -> tuple[str, str, str]:
    """Choose a family, and write its arguments; return its name and what it is of, too."""
    family, kind, arguments = p.pick(*FAMILIES)
    return family, kind, filled(p, arguments, layout, eta=eta)


def filled(p: Program, arguments: str, layout: Layout = PLAIN, *, eta: str = "") -> str:
    eta = eta or predictor(p)
    given = {"e": fitted(p, eta, layout)}
    for place, write in (("s", scale), ("t", positive)):
        if f"{{{place}}}" in arguments:
            given[place] = fitted(p, write(p), layout)
    if "{q}" in arguments:
        given["q"] = p.free("q", "Beta", "2, 2")
    return arguments.format(**given)


def fitted(p: Program, name: str, layout: Layout) -> str:
    """Make something with one entry per row fit the observed array; numbers fit anyway."""
    if not layout.fit:
        return name
    return p.let(p.name("column"), f"(pt.as_tensor({name}) + np.zeros(N)){layout.fit}")


def values(p: Program, kind: str, layout: Layout = PLAIN, *, wrap: str = "{}") -> str:
    array = wrap.format(VALUES[kind].format(size=layout.size))
    if p.chance(0.15):
        array = f"({array})" + (".astype('float32')" if kind in BOUNDS else ".astype('int32')")
    elif p.chance(0.1) and layout is PLAIN:
        return p.data("y", p.pick(f"pd.Series({array})", f"list({array})", f"{array}[::-1]"))
    return (
        p.data("y", array)
        if layout.first
        else p.column("y", array, axes=layout.size.count(",") + 1)
    )


def dims_of(p: Program, layout: Layout) -> str:
    return p.row_dims(*layout.last, first=layout.first)


def observed(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    name = p.name("obs_")
    dims, y = dims_of(p, layout), values(p, kind, layout)
    if layout.first:
        p.options["dim"] = "obs"
    elif dims and layout.last == ("k",) and p.chance(0.3):
        p.options["dim"] = ("obs", "k")
    p.do(f"pm.{family}({name!r}, {arguments}, observed={y}{dims})")


def missing(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    array = p.data("y", VALUES[kind].format(size="N"))
    masked = p.data("masked", f"np.ma.masked_array({array}, np.arange(N) % 4 == 1)")
    p.do(f"pm.{family}({p.name('obs_')!r}, {arguments}, observed={masked}{p.row_dims()})")


def potential(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    logp = f"pm.logp(pm.{family}.dist({arguments}), {values(p, kind)})"
    p.do(f"pm.Potential({p.name('obs_')!r}, {logp}{p.row_dims()})")


def summed(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    logp = f"pm.logp(pm.{family}.dist({arguments}), {values(p, kind)})"
    total = p.pick(f"{logp}.sum()", f"pt.sum({logp})", f"pm.math.sum({logp}) * 0.5")
    p.options["observed"] = p.name("obs_")
    p.do(f"pm.Potential({p.options['observed']!r}, {total})")


def beside_others(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    """A likelihood beside others with another number of rows, or with none."""
    m, p.options["observed"] = location(p, "m"), p.name("obs_")
    p.do(f"pm.Normal({p.name('calibration')!r}, {m}, 0.5, observed=[0.1, 0.3, 0.2])")
    p.do(f"pm.Potential({p.name('constraint')!r}, -({m} ** 2))")
    y = values(p, kind)
    given = arguments if p.chance(0.5) else arguments.replace("eta", f"(eta + {m})")
    p.do(f"pm.{family}({p.options['observed']!r}, {given}, observed={y}{p.row_dims()})")


def flattened(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    """Two outputs in one long vector, or one vector as a matrix."""
    eta, s = predictor(p), positive(p)
    y = p.data("y", "rng.normal(size=2 * N)")
    mu = p.pick(
        f"pt.concatenate([{eta} + np.zeros(N), -{eta} + np.zeros(N)])",
        f"pt.stack([{eta}, -{eta}]).flatten()",
        f"pt.stack([{eta}, -{eta}], axis=-1).flatten()",
        f"pt.repeat({eta} + np.zeros(N), 2)",
        f"pt.tile({eta} + np.zeros(N), 2)",
        f"({eta} + np.zeros(N))[np.arange(2 * N) % N]",
    )
    p.do(f"pm.Normal({p.name('obs_')!r}, {mu}, {s}, observed={y})")


def custom(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    y, eta = values(p, "real"), predictor(p)
    body = p.pick(
        "pm.logp(pm.Normal.dist(m, s), v)",
        "-abs(v - m) / s - pt.log(s)",
        "pt.switch(v > m, -(v - m) / s, (v - m) * s)",
        "-0.5 * ((v - m) / s) ** 2 - pt.log(s)",
    )
    logp = f"logp=lambda v, m, s: {body}"
    name = p.name("obs_")
    p.do(f"pm.CustomDist({name!r}, {eta}, {scale(p)}, {logp}, observed={y}{p.row_dims()})")


def censored(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    low, high = (BOUNDS | WHOLE_BOUNDS)[kind]
    bounds = p.pick((low, high), (None, high), (low, None))
    clipped = f"np.clip({{}}, {bounds[0]}, {bounds[1]})"
    y = values(p, kind, wrap=clipped)
    upper: object = bounds[1]
    if upper is not None and p.chance(0.3):
        upper = p.data("limit", f"np.where(np.arange(N) % 2, {upper}, {high + 99})")
        y = p.data("y", f"np.clip({VALUES[kind].format(size='N')}, {bounds[0]}, {upper})")
    limits = f"lower={bounds[0]}, upper={upper}"
    name = p.name("obs_")
    dist = f"pm.{family}.dist({arguments})"
    p.do(f"pm.Censored({name!r}, {dist}, {limits}, observed={y}{p.row_dims()})")


def truncated(p: Program, layout: Layout, family: str, kind: str, arguments: str) -> None:
    low, high = (BOUNDS | WHOLE_BOUNDS)[kind]
    bounds = p.pick((low, high), (None, high), (low, None))
    y = values(p, kind, wrap=f"np.clip({{}}, {low} + 0.01, {high} - 0.01)"
               if kind in BOUNDS else f"np.clip({{}}, {low}, {high})")  # fmt: skip
    limits = f"lower={bounds[0]}, upper={bounds[1]}"
    name = p.name("obs_")
    dist = f"pm.{family}.dist({arguments})"
    p.do(f"pm.Truncated({name!r}, {dist}, {limits}, observed={y}{p.row_dims()})")


def several(p: Program) -> None:
    """Two observed variables of the same rows, with a predictor in common or their own."""
    eta = predictor(p)
    for _ in range(2):
        own = eta if p.chance(0.6) else ""
        family, kind, arguments = written(p, eta=own)
        wrap = observed if family == "LogitNormal" else p.pick(observed, observed, potential)
        wrap(p, PLAIN, family, kind, arguments)


def mixture(p: Program) -> None:
    candidates = [f for f in FAMILIES if f[1] == "real"], [f for f in FAMILIES if f[1] == "count"]
    chosen = p.pick(*candidates)
    kind = chosen[0][1]
    if p.chance(0.25):
        s, m = positive(p, "s", ", shape=2"), location(p, "m", ", shape=2")
        y, w = values(p, "real"), p.free("w", "Dirichlet", "np.ones(2)")
        p.do(f"pm.NormalMixture({p.name('obs_')!r}, {w}, {m}, {s}, observed={y}{p.row_dims()})")
        return
    parts = [f"pm.{f}.dist({filled(p, a)})" for f, _, a in (p.pick(*chosen), p.pick(*chosen))]
    if p.chance(0.3):
        eta = predictor(p)
        shares = f"pm.math.softmax(pt.stack([{eta}, -{eta}], axis=-1) + np.zeros((N, 2)), axis=-1)"
        weights = p.let(p.name("w"), shares)
    else:
        weights = p.free("w", "Dirichlet", "np.ones(2)")
    y = values(p, kind)
    mixed = f"{weights}, [{', '.join(parts)}]"
    p.do(f"pm.Mixture({p.name('obs_')!r}, {mixed}, observed={y}{p.row_dims()})")


# -- vectors ---------------------------------------------------------------------------------------


def logits(p: Program) -> str:
    """Write a matrix with three columns for each row."""
    if p.chance(0.3):
        g, n = codes(p)
        return f"{location(p, 'b', f', shape=({n}, 3)')}[{g}]"
    if p.chance(0.3):
        x, b = covariates(p, 2), location(p, "b", ", shape=(2, 2)")
        return f"pt.concatenate([np.zeros((N, 1)), {x} @ {b}], axis=1)"
    x, b = covariates(p, 2), location(p, "b", ", shape=(2, 3)")
    return f"({x} @ {b} + {location(p, 'a', ', shape=3')})"


def categories(p: Program) -> None:
    y = p.column("y", "rng.integers(0, 3, size=N)")
    eta = logits(p)
    by = p.pick(
        f"p=pm.math.softmax({eta}, axis=-1)",
        f"p=pt.special.softmax({eta}, axis=1)",
        f"logit_p={eta}",
    )
    p.do(f"pm.Categorical({p.name('obs_')!r}, {by}, observed={y}{p.row_dims()})")


def choices(p: Program) -> None:
    """Conditional logit: covariates of each alternative."""
    n = p.number(1, 3)
    x = p.column("alternatives", f"rng.normal(size=(N, 3, {n}))", axes=3)
    b = coefficients(p, n)
    utility = p.pick(f"({x} @ {b})", f"({x} * {b}).sum(axis=-1)", f"pt.dot({x}, {b})")
    constants = f"pt.concatenate([[0.0], {location(p, 'c', ', shape=2')}])"
    y = p.column("y", "rng.integers(0, 3, size=N)")
    probability = f"pm.math.softmax({utility} + {constants}, axis=1)"
    p.do(f"pm.Categorical({p.name('obs_')!r}, p={probability}, observed={y}{p.row_dims()})")


def ordered(p: Program) -> None:
    transform = "transform=pm.distributions.transforms.ordered, initval=[-0.5, 0.5]"
    cut = p.free("cut", "Normal", f"[-1.0, 1.0], 1.0, {transform}")
    y = p.column("y", "rng.integers(0, 3, size=N)")
    family, eta = p.pick("OrderedLogistic", "OrderedLogistic", "OrderedProbit"), predictor(p)
    given = f"eta={eta}, cutpoints={cut}, compute_p=False, observed={y}"
    p.do(f"pm.{family}({p.name('obs_')!r}, {given}{p.row_dims()})")


def tables(p: Program) -> None:
    y = p.column("y", "rng.multinomial(10, [0.2, 0.3, 0.5], size=N)", axes=2)
    if p.chance(0.5):
        eta = logits(p)
        family, given = p.pick(
            ("Multinomial", f"n=10, p=pm.math.softmax({eta}, axis=-1)"),
            ("Multinomial", f"n=np.full(N, 10), p=pm.math.softmax({eta}, axis=-1)"),
            ("DirichletMultinomial", f"n=10, a=pt.exp({eta})"),
        )
    elif p.chance(0.5):
        family, given = "Multinomial", f"n=10, p={p.free('p', 'Dirichlet', 'np.ones(3)')}"
    else:
        family, given = "DirichletMultinomial", f"n=10, a={positive(p, 'conc', ', shape=3')}"
    p.do(f"pm.{family}({p.name('obs_')!r}, {given}, observed={y})")


def shares(p: Program) -> None:
    y = p.column("y", "rng.dirichlet(np.ones(3), size=N)", axes=2)
    name, concentration = p.name("obs_"), f"pt.exp(0.5 * {logits(p)})"
    p.do(f"pm.Dirichlet({name!r}, a={concentration}, observed={y})")


def vectors(p: Program) -> None:
    y = p.column("y", "rng.normal(size=(N, 2))", axes=2)
    family, covariance = p.pick(("MvNormal", "cov"), ("MvNormal", "cov"), ("MvStudentT", "scale"))
    if p.chance(0.4):
        chol, sd = p.name("chol"), "sd_dist=pm.Exponential.dist(1, shape=2)"
        p.do(f"{chol}, _, _ = pm.LKJCholeskyCov({chol!r}, n=2, eta=2, {sd})")
        spread = f"chol={chol}"
    else:
        given = "np.eye(2) + 0.5"
        spread = p.pick(
            f"{covariance}={given}", f"chol=np.linalg.cholesky({given})", "tau=np.eye(2)"
        )
    if p.chance(0.5):
        mu = f"{covariates(p, 2)} @ {location(p, 'b', ', shape=(2, 2)')}"
    else:
        mu = location(p, "m", ", shape=2")
    nu = "nu=5, " if family == "MvStudentT" else ""
    p.do(f"pm.{family}({p.name('obs_')!r}, {nu}mu={mu}, {spread}, observed={y})")


_VECTORS = [categories, categories, choices, ordered, ordered, tables, shares, vectors]
