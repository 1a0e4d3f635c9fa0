"""Predictors of the rows: linear terms in several styles, groups, bases, curves."""

from collections.abc import Callable

from tests.grammar.program import Program

__all__ = ["codes", "coefficients", "covariates", "location", "positive", "predictor", "scale"]


def predictor(p: Program) -> str:
    """Write a predictor with one entry per row, or one number, and return its name."""
    n_terms = p.pick(1, 1, 2, 2, 3)
    terms = [p.pick(*_TERMS)(p) for _ in range(n_terms)]
    if p.chance(0.02):
        terms.append(p.pick(covariate_with_gaps, measured_with_error)(p))
    if p.chance(0.5):
        terms.insert(0, location(p))
    return p.of_rows("eta", p.pick(" + ", " + ", " - ").join(terms))


# -- free variables --------------------------------------------------------------------------------


def location(p: Program, stem: str = "a", shape: str = "") -> str:
    """Write a real free variable."""
    return p.free(
        stem,
        *p.pick(
            ("Normal", f"0, 0.5{shape}"),
            ("Normal", f"0.1, 0.5{shape}"),
            ("StudentT", f"nu=4, mu=0, sigma=0.3{shape}"),
            ("Laplace", f"0, 0.3{shape}"),
            ("Uniform", f"-1, 1{shape}"),
            ("Logistic", f"0, 0.2{shape}"),
            (
                "Normal",
                f"0, 0.5, initval=np.float64(0.2){shape}" if not shape else f"0, 0.4{shape}",
            ),
        ),
    )


def positive(p: Program, stem: str = "s", shape: str = "") -> str:
    """Write a positive free variable."""
    return p.free(
        stem,
        *p.pick(
            ("HalfNormal", f"1.0{shape}"),
            ("Exponential", f"1.0{shape}"),
            ("LogNormal", f"0.0, 0.5{shape}"),
            ("Gamma", f"4.0, 4.0{shape}"),
            ("InverseGamma", f"4.0, 3.0{shape}"),
            ("HalfStudentT", f"nu=4.0, sigma=1.0{shape}"),
            ("Uniform", f"0.1, 3.0{shape}"),
        ),
    )


def coefficients(p: Program, n: int) -> str:
    """Write a vector of coefficients, perhaps shrunken by a common scale."""
    if p.chance(0.2):
        tau = positive(p, "tau")
        return p.free("b", "Normal", f"0, {tau}, shape={n}")
    if p.chance(0.1):
        tau, z = positive(p, "tau"), p.free("z", "Normal", f"0, 1, shape={n}")
        local = p.free("lam", "HalfNormal", f"1.0, shape={n}")
        return p.let(p.name("b"), f"{z} * {local} * {tau}")
    return location(p, "b", f", shape={n}")


def scale(p: Program) -> str:
    """Write a positive parameter of a likelihood: of all rows, of groups, of each row."""
    kind = p.number(0, 9)
    if kind == 0:
        return "1.5"
    if kind == 1:
        log_scale = linear(p)
        return p.of_rows("sigma", f"pt.exp(0.3 * ({log_scale}))")
    if kind == 2:
        codes_, n = codes(p)
        return f"{positive(p, 's', f', shape={n}')}[{codes_}]"
    if kind == 3:
        return p.column("noise", "rng.gamma(4.0, 0.3, size=N)")
    return positive(p)


# -- terms -----------------------------------------------------------------------------------------


def covariates(p: Program, n: int) -> str:
    """Write a matrix of covariates."""
    values = p.pick(
        f"rng.normal(size=(N, {n}))",
        f"rng.normal(size=(N, {n}))",
        f"rng.normal(size=(N, {n})).astype('float32')",
        f"rng.integers(-1, 2, size=(N, {n}))",
        f"np.asfortranarray(rng.normal(size=(N, {n})))",
        f"rng.normal(size=({n}, N)).T",
    )
    return p.column("x", values, axes=2)


def linear(p: Program) -> str:
    n = p.pick(1, 2, 3, 4)
    x, b = covariates(p, n), coefficients(p, n)
    columns = [f"{b}[{i}] * {x}[:, {i}]" for i in range(n)]
    listed = ", ".join(columns)
    return p.pick(
        f"{x} @ {b}",
        f"pt.dot({x}, {b})",
        f"pm.math.dot({x}, {b})",
        f"{b} @ {x}.T",
        f"({x} * {b}).sum(axis=1)",
        f"pt.sum({x} * {b}, axis=-1)",
        f"({' + '.join(columns)})",
        f"pt.stack([{listed}], axis=1).sum(axis=1)",
        f"pt.stack([{listed}]).sum(axis=0)",
        f"pt.tensordot({x}, {b}, axes=1)",
        f"pt.einsum('ni,i->n', pt.as_tensor({x}), {b})",
        f"({x} @ {b}[:, None])[:, 0]",
        f"({x} @ {b}[:, None]).flatten()",
        f"pt.squeeze({x} @ {b}[:, None], axis=1)",
        f"pt.concatenate([{x}, np.ones((N, 1))], axis=1) @ pt.concatenate([{b}, [0.1]])",
        f"(({x} - {x}.mean(axis=0)) @ {b})",
        f"pt.as_tensor({x})[:, ::-1] @ {b}[::-1]",
        f"pt.sum([{listed}], axis=0)",
    )


def one_column(p: Program) -> str:
    values = p.pick(
        "rng.normal(size=N)",
        "rng.normal(size=N).astype('float32')",
        "rng.integers(0, 3, size=N)",
        "rng.random(N) < 0.5",
        "np.linspace(-1, 1, N)",
    )
    return p.column("u", values)


def polynomial(p: Program) -> str:
    u, b = one_column(p), coefficients(p, 2)
    u = f"pt.as_tensor({u}).astype('float64')" if p.chance(0.5) else f"({u} * 1.0)"
    return f"({b}[0] * {u} + {b}[1] * {u} ** 2)"


def interaction(p: Program) -> str:
    u, v = one_column(p), one_column(p)
    return f"{location(p, 'b')} * {u} * {v}"


def offset(p: Program) -> str:
    exposure = p.column("exposure", "rng.gamma(4.0, 0.3, size=N)")
    log = p.pick("np.log", "pt.log") if "data" not in exposure else "pt.log"
    return f"({location(p)} + {log}({exposure}))"


def codes(p: Program) -> tuple[str, int]:
    """Write a column of group codes, or take one that is there; return how many groups, too."""
    if p.groups and p.chance(0.4):
        return p.pick(*p.groups)
    n = p.number(2, 6)
    dtype = p.pick("", "", ".astype('int32')", ".astype('int8')")
    values = p.pick(f"rng.integers({n}, size=N){dtype}", f"np.sort(rng.integers({n}, size=N))")
    p.groups.append((p.column("g", values), n))
    return p.groups[-1]


def effects(p: Program, n: int) -> str:
    """Write the effects of n groups: centred, not centred, summing to zero, below another level."""
    kind = p.number(0, 5)
    if kind == 0:
        return p.free("a", "Normal", f"{location(p, 'm')}, {positive(p, 'tau')}, shape={n}")
    if kind == 1:
        m, tau, z = location(p, "m"), positive(p, "tau"), p.free("z", "Normal", f"shape={n}")
        name = p.name("a")
        effect = f"{m} + {tau} * {z}"
        return p.let(name, f"pm.Deterministic({name!r}, {effect})" if p.chance(0.5) else effect)
    if kind == 2:
        return p.free("a", "ZeroSumNormal", f"{positive(p, 'tau')}, shape={n}")
    if kind == 3:
        outer = p.free("outer", "Normal", "0, 0.5, shape=2")
        of_group = p.data("outer_of", f"rng.integers(2, size={n})")
        return p.free("a", "Normal", f"{outer}[{of_group}], 0.5, shape={n}")
    if kind == 4:
        return p.let(p.name("a"), f"pt.cumsum({location(p, 'step', f', shape={n}')})")
    return location(p, "a", f", shape={n}")


def intercepts(p: Program) -> str:
    g, n = codes(p)
    a = effects(p, n)
    return p.pick(
        f"{a}[{g}]",
        f"{a}[{g}]",
        f"pt.take({a}, {g})",
        f"{a}.take({g})",
        f"pt.concatenate([[0.0], {a}])[{g}]",
        f"pt.eye({n})[{g}] @ {a}",
        f"pt.eq(pt.as_tensor({g})[:, None], np.arange({n})) @ {a}",
    )


def crossed(p: Program) -> str:
    (g, n), (h, m) = codes(p), codes(p)
    if p.chance(0.5):
        return f"({effects(p, n)}[{g}] {p.pick('+', '*', '-')} {effects(p, m)}[{h}])"
    table = location(p, "cell", f", shape=({n}, {m})")
    return p.pick(f"{table}[{g}, {h}]", f"{table}.flatten()[{g} * {m} + {h}]")


def slopes(p: Program) -> str:
    g, n = codes(p)
    kind = p.number(0, 3)
    if kind == 0:
        return f"{effects(p, n)}[{g}] * {one_column(p)}"
    x = covariates(p, 2)
    if kind == 1 and p.chance(0.3):
        chol, z = p.name("chol"), p.free("z", "Normal", f"shape=({n}, 2)")
        sd = "sd_dist=pm.Exponential.dist(1, shape=2)"
        p.do(f"{chol}, _, _ = pm.LKJCholeskyCov({chol!r}, n=2, eta=2, {sd})")
        ab = p.let(p.name("ab"), f"{z} @ {chol}.T")
        return f"({ab}[{g}, 0] + {ab}[{g}, 1] * {x}[:, 0])"
    turned, at = p.chance(0.5), p.chance(0.5)
    if turned:
        b = location(p, "b", f", shape=(2, {n})")
        return f"({b}[:, {g}].T * {x}).sum(axis=1)" if at else f"({b}[:, {g}] * {x}.T).sum(axis=0)"
    b = location(p, "b", f", shape=({n}, 2)")
    return f"({b}[{g}] * {x}).sum(axis=-1)" if at else f"pt.sum({x} * {b}[{g}, :], axis=1)"


def spline(p: Program) -> str:
    u, n = one_column(p), p.number(3, 6)
    w = coefficients(p, n)
    if p.chance(0.2):
        w = p.free(
            "w", "GaussianRandomWalk", f"0, 0.3, init_dist=pm.Normal.dist(0, 0.5), shape={n}"
        )
    knots, column = f"np.linspace(-1, 1, {n})", f"pt.as_tensor({u})[:, None]"
    kind = p.number(0, 3)
    if kind == 0:
        return f"pt.exp(-((({column} - {knots}) / {positive(p, 'ell')}) ** 2)) @ {w}"
    return p.pick(
        f"pt.clip({column} - {knots}, 0, np.inf) @ {w}",
        f"pt.exp(-(({column} - {knots}) ** 2)) @ {w}",
        f"pt.sin({column} * np.arange(1, {n + 1})) @ {w}",
    )


def curve(p: Program) -> str:
    v = p.column("v", "rng.gamma(3.0, 0.5, size=N)")
    rate = positive(p, "rate")
    if p.chance(0.2):
        return f"pt.switch({v} > {rate}, {location(p, 'low')}, {location(p, 'high')})"
    top = location(p, "top")
    return f"{top} * " + p.pick(
        f"(1 - pt.exp(-{rate} * {v}))",
        f"{v} ** {rate} / (1 + {v} ** {rate})",
        f"pt.where({v} > {rate}, {v} - {rate}, 0.0)",
        f"pt.tanh({rate} * {v})",
        f"pt.maximum({v} - {rate}, 0)",
        f"pt.log1p({v} / {rate})",
    )


def adstock(p: Program) -> str:
    lags, n = p.column("spend", "rng.gamma(2.0, 0.5, size=(N, 4))", axes=2), 4
    decay = p.free("decay", "Beta", "2, 2")
    mixed = f"({lags} @ ({decay} ** np.arange({n})))"
    return f"{location(p)} * {p.pick(mixed, f'pt.tanh({mixed})', f'(1 - pt.exp(-{mixed}))')}"


def network(p: Program) -> str:
    x = covariates(p, 2)
    hidden = f"pt.tanh({x} @ {location(p, 'w', ', shape=(2, 3)')})"
    return f"{hidden} @ {location(p, 'v', ', shape=3')}"


def mixed_shares(p: Program) -> str:
    shares = p.free("share", "Dirichlet", "np.ones(3)")
    return f"{covariates(p, 3)} @ {shares}"


def factorised(p: Program) -> str:
    (g, n), (h, m) = codes(p), codes(p)
    u, v = location(p, "u", f", shape=({n}, 2)"), location(p, "v", f", shape=({m}, 2)")
    return f"({u}[{g}] * {v}[{h}]).sum(axis=1)"


def of_times(p: Program) -> str:
    """A level that changes at a row, or differs between parts of the rows."""
    at = f"{p.n_rows // 2}"
    if p.chance(0.3):
        at = p.free("at", "DiscreteUniform", f"1, {p.n_rows - 1}")
    elif p.chance(0.5):
        at = p.free("at", "Uniform", f"1, {p.n_rows - 1}")
    low, high = location(p, "low"), location(p, "high")
    return p.pick(
        f"pt.switch(np.arange(N) < {at}, {low}, {high})",
        f"pt.switch({at} > pt.arange(N), {low}, {high})",
        f"pm.math.switch({at} <= np.arange(N), {low}, {high})",
    )


def through_shapes(p: Program) -> str:
    """A predictor that goes through other shapes, or through all rows."""
    x, b, eta = covariates(p, 2), coefficients(p, 2), linear(p)
    half = p.n_rows // 2
    return p.pick(
        f"({eta}).reshape((N, 1))[:, 0]",
        f"pt.flatten({eta})",
        f"pt.repeat({eta}, 1)",
        f"pt.concatenate([({eta})[:{half}], ({eta})[{half}:]])",
        f"pt.concatenate([{x}[:{half}] @ {b}, {x}[{half}:] @ -{b}])",
        f"pt.cumsum({eta}) / N",
        f"({eta}) - ({eta}).mean()",
        f"({eta})[::-1]",
        f"pt.stack([{eta}, {x} @ {b}], axis=-1).max(axis=-1)",
        f"pt.logsumexp({x} * {b}, axis=1)",
        f"pt.set_subtensor(pt.zeros(N)[:], {eta})",
        f"pt.set_subtensor(({eta})[:{half}], 0.3)",
        f"pt.set_subtensor(({eta})[np.arange(N) % 3 == 0], {b}[0])",
        f"pt.inc_subtensor(({x} * {b})[:, 0], {b}[1])[:, 0]",
        f"pt.dot(np.stack([{x}.eval() if hasattr({x}, 'eval') else {x}] * 3, axis=1), {b})[:, 1]",
        f"pt.einsum('nki,i->nk', np.ones((N, 3, 2)) * np.arange(N)[:, None, None] / N, {b})[:, 2]",
        f"pt.sort({x} * {b}, axis=1)[:, 0]",
        f"pt.prod({x} * {b}, axis=1)",
        f"pt.diag(pt.dot({x}, {x}.T)) * {b}[0]",
        f"({x} ** 2 @ {b})",
        f"pt.outer(pt.as_tensor({x})[:, 0], {b}).sum(axis=1)",
        f"pt.tile({b}[0], N) * {x}[:, 1]",
        f"(pt.ones((N,)) * {b}[0] + {x}[:, 1])",
        f"pt.full((N,), {b}[1])",
        f"pt.sqrt((({x} - {b}) ** 2).sum(axis=1))",
        f"(({x} @ (np.eye(2) + 0.1) * {x}).sum(axis=1) * {b}[0])",
        f"pt.diff(pt.concatenate([[0.0], {eta}]))",
        f"pt.clip({eta}, -2.0, 2.0)",
        f"abs({eta})",
    )


def by_computed_codes(p: Program) -> str:
    """A lookup whose codes are computed in the model."""
    g, n = codes(p)
    a = effects(p, n)
    u = one_column(p)
    return p.pick(
        f"{a}[{g} - {n}]",
        f"{a}[pt.cast({g}, 'int64')]",
        f"{a}[({u} > 0) * 1]",
        f"{a}[pt.as_tensor({g})][:]",
        f"{a}[{g}][np.arange(N)]",
        f"{a}[1:][{g} % {n - 1}]",
        f"pt.switch(pt.eq({g}, 0), 0.0, {a}[{g}])",
        f"pt.stack([{a}, -{a}], axis=1)[{g}, ({u} > 0) * 1]",
        f"pt.stack([{a}, -{a}])[:, {g}].sum(axis=0)",
        f"{a}[::-1][{g}]",
    )


def covariate_with_gaps(p: Program) -> str:
    """A covariate of which some entries are free variables."""
    p.options["observed"], p.options["allow_local"] = "obs_", p.chance(0.8)
    x = p.data("gaps", "np.ma.masked_array(rng.normal(size=N), np.arange(N) % 5 == 2)")
    return f"{location(p, 'b')} * {p.free('filled', 'Normal', f'0, 1, observed={x}')}"


def measured_with_error(p: Program) -> str:
    """A free variable of each row."""
    p.options["allow_local"] = p.chance(0.8)
    p.options["observed"] = "obs_"
    true = p.free("true", "Normal", "0, 1, shape=N")
    seen = p.column("seen", "rng.normal(size=N)")
    p.do(f"pm.Normal({p.name('measured')!r}, {true}, 0.5, observed={seen})")
    return f"{location(p, 'b')} * {true}"


_TERMS: list[Callable[[Program], str]] = [
    *[linear] * 5,
    *[intercepts] * 4,
    polynomial,
    interaction,
    offset,
    *[crossed] * 2,
    *[slopes] * 2,
    spline,
    curve,
    adstock,
    network,
    mixed_shares,
    factorised,
    of_times,
    *[through_shapes] * 3,
    *[by_computed_codes] * 2,
]
