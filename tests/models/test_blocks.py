"""Blocks of hierarchical models: what belongs to a level, what is shared, and what is refused."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import pytest

from pymc_coresets import build_coreset
from pymc_coresets.reading.blocks.independence import dependence_between
from pymc_coresets.reading.blocks.parting import LevelPrior, Parting
from pymc_coresets.reading.blocks.structure import Blocks, NoBlocks, find_blocks
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.graphs import unconstrained_graphs
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import Rows
from tests.models.reference import density_by_level, logp_without

RNG = np.random.default_rng(7)
N, G = 80, 6
SHOP = np.concatenate([np.arange(G), RNG.integers(G, size=N - G)])
TOWN_OF_SHOP = np.array([0, 1, 2, 0, 1, 2])  # two shops in each of three towns
TOWN = TOWN_OF_SHOP[SHOP]
ITEM = RNG.integers(4, size=N)
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=N)
COUNTS = RNG.poisson(2.0, size=N)
COORDS = {"shop": list("abcdef"), "town": list("xyz"), "item": list("klmn"), "k": ["u", "v"]}


@dataclass(frozen=True)
class Case:
    """A model, the level of each row, the local variables and their axes; or why none are."""

    build: Callable[[], Any]
    levels: np.ndarray | None = None
    local: dict[str, int | None] = field(default_factory=dict)
    name: str | None = None
    n_blocks: int = G
    refused: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    standalone: bool = False

    def observations(self) -> Observations:
        if self.standalone:
            return find_observations(self.build())
        with pm.Model(coords=COORDS) as model:
            self.build()
        return find_observations(model, **self.options)


CASES: dict[str, Case] = {}


def case(title: str, levels: np.ndarray | None = None, **expected: Any) -> Callable[[Any], None]:
    def register(build: Callable[[], Any]) -> None:
        assert title not in CASES
        CASES[title] = Case(build, levels, **expected)

    return register


def sd(name: str = "sd", **kwargs: Any) -> Any:
    return pm.HalfNormal(name, **kwargs)


def normal(mu: Any, sigma: Any = 1.0) -> Any:
    pm.Normal("y", mu, sigma, observed=Y)


# -- one factor ------------------------------------------------------------------------------------


@case("centred", SHOP, local={"a": 0}, name="shop")
def _() -> None:
    a = pm.Normal("a", pm.Normal("m"), sd(), dims="shop")
    normal(a[SHOP] + X @ pm.Normal("b", dims="k"), sd("noise"))


@case("not centred", SHOP, local={"z": 0}, name="shop")
def _() -> None:
    z = pm.Normal("z", dims="shop")
    a = pm.Deterministic("a", pm.Normal("m") + sd() * z, dims="shop")
    normal(a[SHOP])


@case("not centred, after the lookup", SHOP, local={"z": 0}, name="z")
def _() -> None:
    normal(pm.Normal("m") + sd() * pm.Normal("z", shape=G)[SHOP], sd("noise"))


@case("no hyperparameters", SHOP, local={"a": 0})
def _() -> None:
    normal(pm.Normal("a", 0.0, 2.0, shape=G)[SHOP])


@case("hyperpriors of hyperpriors", SHOP, local={"a": 0})
def _() -> None:
    top = pm.Normal("top", 0, sd("s0"))
    a = pm.StudentT("a", 4, mu=pm.Normal("m", top, 1), sigma=sd(), shape=G)
    normal(a[SHOP])


@case("intercepts and slopes", SHOP, local={"a": 0, "b": 0}, name="shop")
def _() -> None:
    a = pm.Normal("a", pm.Normal("m"), sd("sa"), dims="shop")
    b = pm.Normal("b", 0, sd("sb"), dims="shop")
    normal(a[SHOP] + b[SHOP] * X[:, 0] + pm.Normal("c") * X[:, 1], sd("noise"))


@case("matrix of slopes", SHOP, local={"b": 0}, name="shop")
def _() -> None:
    normal((X * pm.Normal("b", pm.Normal("m", dims="k"), 1, dims=("shop", "k"))[SHOP]).sum(-1))


@case("matrix with the levels last", SHOP, local={"b": 1}, name="shop")
def _() -> None:
    b = pm.Normal("b", 0, sd(shape=(2, 1)), dims=("k", "shop"))
    normal(b[0, SHOP] + b[1, SHOP] * X[:, 0])


@case("stacked coefficients", SHOP, local={"a": 0, "b": 0})
def _() -> None:
    both = pt.stack([pm.Normal("a", shape=G), pm.Normal("b", 0, sd(), shape=G)], axis=1)
    normal((both[SHOP] * X).sum(axis=1))


@case("correlated, not centred", SHOP, local={"z": 0})
def _() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    ab = pm.Normal("z", shape=(G, 2)) @ chol.T
    normal(ab[SHOP, 0] + ab[SHOP, 1] * X[:, 0])


@case("correlated, centred", SHOP, local={"ab": 0}, name="shop")
def _() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    ab = pm.MvNormal("ab", pm.Normal("m", shape=2), chol=chol, dims=("shop", "k"))
    normal((ab[SHOP] * X).sum(axis=1), sd("noise"))


@case("group-level predictors", SHOP, local={"z": 0})
def _() -> None:
    size = np.linspace(-1, 1, G)
    z = pm.Normal("z", pm.Normal("m") + pm.Normal("slope") * size, sd(), shape=G)
    normal(z[SHOP])


@case("group-level predictors by a matrix", SHOP, local={"z": 0})
def _() -> None:
    w = RNG.normal(size=(G, 3))
    normal((w @ pm.Normal("slopes", shape=3) + sd() * pm.Normal("z", shape=G))[SHOP])


@case("dispersion of each group", SHOP, local={"a": 0, "alpha": 0}, name="shop")
def _() -> None:
    a = pm.Normal("a", 0, sd(), dims="shop")
    alpha = pm.Gamma("alpha", 2, 1, dims="shop")
    mu = pm.math.exp(a[SHOP] + pm.Normal("b") * X[:, 0])
    pm.NegativeBinomial("y", mu=mu, alpha=alpha[SHOP], observed=COUNTS)


@case("scale of each group", SHOP, local={"s": 0})
def _() -> None:
    normal(pm.Normal("m"), pm.LogNormal("s", pm.Normal("ls"), 1, shape=G)[SHOP])


@case("shares of each group", SHOP, local={"p": 0})
def _() -> None:
    p = pm.Dirichlet("p", np.ones(3), shape=(G, 3))
    pm.Categorical("y", p=p[SHOP], observed=np.minimum(COUNTS, 2))


@case("thresholds of each group", SHOP, local={"cut": 0})
def _() -> None:
    cut = pm.Normal(
        "cut", np.array([-1.0, 1.0]), 1, shape=(G, 2),
        transform=pm.distributions.transforms.ordered, initval=np.tile([-1.0, 1.0], (G, 1)),
    )  # fmt: skip
    pm.OrderedLogistic("y", eta=X[:, 0] * pm.Normal("b"), cutpoints=cut[SHOP],
                       observed=np.minimum(COUNTS, 2))  # fmt: skip


@case("mixture for each row", SHOP, local={"a": 0})
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G)
    mu = pt.stack([a[SHOP], a[SHOP] + pm.Normal("shift", shape=2)[1]], axis=1)
    pm.NormalMixture("y", pm.Dirichlet("w", np.ones(2)), mu, 1.0, observed=Y)


@case("walk in time for each group", SHOP, local={"path": 0}, name="shop")
def _() -> None:
    path = pm.GaussianRandomWalk(
        "path", sigma=sd(), init_dist=pm.Normal.dist(), dims=("shop", "item")
    )
    normal(path[SHOP, ITEM])


@case("potential of each level", SHOP, local={"a": 0})
def _() -> None:
    a = pm.Flat("a", shape=G)
    pm.Potential("prior", -0.5 * ((a / sd()) ** 2).sum())
    normal(a[SHOP])


@case("other data that stay", SHOP, local={"a": 0}, options={"observed": ["y"]})
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G)
    pm.Poisson("visits", pm.math.exp(a), observed=np.arange(G))
    normal(a[SHOP])


# -- index -----------------------------------------------------------------------------------------


@case("index in a container", SHOP, local={"a": 0}, name="shop_of")
def _() -> None:
    normal(pm.Normal("a", 0, sd(), shape=G)[pm.Data("shop_of", SHOP)])


@case("index from one", SHOP, local={"a": 0}, name="shop_of")
def _() -> None:
    normal(pm.Normal("a", 0, sd(), shape=G)[pm.Data("shop_of", SHOP + 1) - 1])


@case("index by way of a table", TOWN, local={"a": 0}, name="town", n_blocks=3)
def _() -> None:
    town_of_shop = pm.Data("town_of_shop", TOWN_OF_SHOP)
    normal(pm.Normal("a", 0, sd(), dims="town")[town_of_shop[pm.Data("shop_of", SHOP)]])


@case("index of rows in groups of equal size", np.repeat(np.arange(8), 10), local={"a": 0},
      n_blocks=8)  # fmt: skip
def _() -> None:
    normal(pt.repeat(pm.Normal("a", 0, sd(), shape=8), 10))


@case("index from the end", SHOP[::-1], local={"a": 0})
def _() -> None:
    normal(pm.Normal("a", 0, sd(), shape=G)[SHOP[::-1] - G])


@case("levels without rows", np.minimum(SHOP, 2), local={"a": 0}, name="shop")
def _() -> None:
    normal(pm.Normal("a", 0, sd(), dims="shop")[np.minimum(SHOP, 2)])


@case("reference level", (SHOP + G - 1) % G, local={"a": 0})
def _() -> None:
    a = pt.concatenate([[0.0], pm.Normal("a", 0, sd(), shape=G - 1)])
    normal(pm.Normal("m") + a[SHOP])


@case("cells by two indices", SHOP * 4 + ITEM, local={"cell": None}, n_blocks=4 * G)
def _() -> None:
    normal(pm.Normal("cell", 0, sd(), shape=(G, 4))[SHOP, ITEM])


@case("some rows are missing", SHOP[Y > -1], local={"a": 0})
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G)
    pm.Normal("y", a[SHOP[Y > -1]], 1.0, observed=Y[Y > -1])


@case("model with dims", SHOP, local={"a": 0}, name="shop", options={"dim": "row"})
def _() -> None:
    pm.modelcontext(None).add_coord("row", np.arange(N))
    a = pmd.Normal("a", 0, pmd.HalfNormal("sd"), dims="shop")
    mu = a.isel(shop=pmd.as_xtensor(SHOP, dims=("row",)))
    pmd.Normal("y", mu, 1.0, observed=pmd.as_xtensor(Y, dims=("row",)))


# -- several factors -------------------------------------------------------------------------------


@case("nested, centred", TOWN, local={"t": 0, "s": 0}, name="town", n_blocks=3)
def _() -> None:
    town = pm.Normal("t", pm.Normal("m"), 1.0, dims="town")
    normal(pm.Normal("s", town[TOWN_OF_SHOP], sd(), dims="shop")[SHOP])


@case("nested, not centred", TOWN, local={"t": 0, "s": 0}, name="town", n_blocks=3)
def _() -> None:
    town, shop = pm.Normal("t", dims="town"), pm.Normal("s", dims="shop")
    normal((pm.Normal("m") + town[TOWN_OF_SHOP] + sd() * shop)[SHOP])


@case("nested by two indices", TOWN, local={"t": 0, "s": 0}, name="town", n_blocks=3)
def _() -> None:
    normal(pm.Normal("t", dims="town")[TOWN] + pm.Normal("s", 0, sd(), dims="shop")[SHOP])


@case("few outer levels", RNG.permutation(np.arange(N) % 40), local={"inner": 0}, n_blocks=40)
def _() -> None:
    # Two blocks of twenty levels would have more products than forty with two shared variables.
    outer = pm.Normal("outer", shape=2)
    inner = pm.Normal("inner", outer[np.arange(40) % 2], sd(), shape=40)
    normal(inner[CASES["few outer levels"].levels])


@case("a small second factor", SHOP, local={"a": 0, "b": 0}, name="shop")
def _() -> None:
    a, b = pm.Normal("a", 0, sd(), dims="shop"), pm.Normal("b", dims="shop")
    normal(a[SHOP] + b[SHOP] * X[:, 0] + pm.Normal("i", 0, sd("si"), dims="item")[ITEM])


@case("nested, and a small second factor", TOWN, local={"t": 0, "s": 0}, name="town",
      n_blocks=3)  # fmt: skip
def _() -> None:
    town = pm.Normal("t", pm.Normal("m"), 1.0, dims="town")
    shop = pm.Normal("s", town[TOWN_OF_SHOP], sd(), dims="shop")
    normal(shop[SHOP] + pm.Normal("i", dims="item")[ITEM])


def crossed(n_one: int, n_other: int) -> None:
    rng = np.random.default_rng(3)
    one, other = rng.integers(n_one, size=400), rng.integers(n_other, size=400)
    mu = pm.Normal("one", shape=n_one)[one] + pm.Normal("other", shape=n_other)[other]
    pm.Normal("y", mu, 1.0, observed=rng.normal(size=400))


@case("two large factors", refused=r"'one' \(100 levels\) and 'other' \(70 .*crossed.* 7,000 / M")
def _() -> None:
    crossed(100, 70)


# -- no blocks -------------------------------------------------------------------------------------


@case("sum to zero", refused="'a' is constrained as a whole")
def _() -> None:
    normal(pm.Normal("m") + pm.ZeroSumNormal("a", sd(), shape=G)[SHOP])


@case("shares of levels", refused="'a' is constrained as a whole")
def _() -> None:
    normal(pm.Dirichlet("a", np.ones(G))[SHOP])


@case("ordered levels", refused="'a' is constrained as a whole")
def _() -> None:
    ordered = pm.distributions.transforms.ordered
    normal(pm.Normal("a", shape=G, transform=ordered, initval=np.arange(G))[SHOP])


@case("gaussian process over levels", refused="each row depends on several")
def _() -> None:
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, sd()))
    normal(gp.prior("a", np.arange(G)[:, None])[SHOP])


@case("gaussian process over levels, centred", refused="the density of 'a' links them")
def _() -> None:
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, sd()))
    normal(gp.prior("a", np.arange(G)[:, None], reparameterize=False)[SHOP])


@case("covariance between levels", refused="the density of 'a' links them")
def _() -> None:
    normal(pm.MvNormal("a", np.zeros(G), np.eye(G) + 0.5, shape=G)[SHOP])


RING = np.roll(np.eye(G), 1, axis=0) + np.roll(np.eye(G), -1, axis=0)


@case("spatial prior", refused="the density of 'a' links them")
def _() -> None:
    normal(pm.CAR("a", np.zeros(G), W=RING, alpha=0.5, tau=1.0, shape=G)[SHOP])


@case("intrinsic spatial prior", refused="the density of 'a' links them")
def _() -> None:
    normal(pm.ICAR("a", W=RING, shape=G)[SHOP])


@case("random walk over levels", refused="the density of 'a' links them")
def _() -> None:
    normal(pm.GaussianRandomWalk("a", init_dist=pm.Normal.dist(), shape=G)[SHOP])


@case("autoregression over levels", refused="the density of 'a' links them")
def _() -> None:
    normal(pm.AR("a", [0.5], init_dist=pm.Normal.dist(), shape=G)[SHOP])


@case("cumulative sum over levels", refused="each row depends on several")
def _() -> None:
    normal(pt.cumsum(pm.Normal("a", 0, sd(), shape=G))[SHOP])


@case("deviations from the mean of levels", refused="each row depends on several")
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G)
    normal((a - a.mean())[SHOP])


@case("deviations from the mean of rows", refused="each row depends on several")
def _() -> None:
    mu = pm.Normal("a", 0, sd(), shape=G)[SHOP]
    normal(mu - mu.mean())


@case("spline over levels", refused="no free variable has entries|each row depends on several")
def _() -> None:
    basis = RNG.normal(size=(G, 4))
    normal((basis @ pm.Normal("w", 0, sd(), shape=4))[SHOP])


@case("sum to zero by a potential", refused="the density of 'sum' links them")
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G)
    pm.Potential("sum", pm.logp(pm.Normal.dist(0, 0.01), a.sum()))
    normal(a[SHOP])


@case("order by a potential", refused="the density of 'order' links them")
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G, initval=np.arange(G))
    pm.Potential("order", pt.switch(pt.all(a[1:] > a[:-1]), 0.0, -np.inf))
    normal(a[SHOP])


@case("prior of the level before", refused="the density of 'b' links them")
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G)
    pm.Normal("b", a[1:] - a[:-1], 1.0, observed=np.zeros(G - 1))
    pm.Normal("y", a[SHOP], 1.0, observed=Y)


CASES["prior of the level before"].options["observed"] = ["y"]


@case("several levels for each row", refused="several of them")
def _() -> None:
    pairs = np.stack([SHOP, (SHOP + 1) % G], axis=1)
    normal(pm.Normal("a", 0, sd(), shape=G)[pairs].sum(axis=1))


@case("unknown levels of rows", refused="several of them|no free variable")
def _() -> None:
    means = pm.Normal("means", shape=3)
    pm.NormalMixture("y", pm.Dirichlet("w", np.ones(3)), means, 1.0, observed=Y)


@case("regression", refused="no free variable has entries")
def _() -> None:
    normal(X @ pm.Normal("b", shape=2), sd())


@case("data looked up", refused="no free variable has entries")
def _() -> None:
    normal(pm.Normal("b") * np.linspace(0, 1, G)[SHOP])


@case("many shared coefficients", refused="share 71 coordinates")
def _() -> None:
    wide = RNG.normal(size=(N, 70))
    normal(pm.Normal("a", 0, sd(), shape=G)[SHOP] + wide @ pm.Normal("b", shape=70))


@case("a value of each row", refused="one value per row", options={"allow_local": True})
def _() -> None:
    a = pm.Normal("a", 0, sd(), shape=G)
    normal(a[SHOP] + pm.Normal("e", shape=N))


# -- bambi -----------------------------------------------------------------------------------------


def regression(formula: str) -> pm.Model:
    bambi = pytest.importorskip("bambi", reason="bambi is not installed")
    table = pd.DataFrame({"y": Y, "x": X[:, 0], "group": np.array(list("abcdef"))[SHOP]})
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        model = bambi.Model(formula, table)
        model.build()
    return model.backend.model


@case(
    "bambi: intercepts",
    SHOP,
    local={"1|group_offset": 0},
    name="group__factor_dim",
    standalone=True,
)
def _() -> pm.Model:
    return regression("y ~ x + (1 | group)")


@case("bambi: intercepts and slopes", SHOP, local={"1|group_offset": 0, "x|group_offset": 0},
      name="group__factor_dim",
      standalone=True)  # fmt: skip
def _() -> pm.Model:
    return regression("y ~ x + (x | group)")


# -- rows that lie elsewhere -----------------------------------------------------------------------

ROWS = {"shop_of": np.zeros((), dtype=int), "town_of": np.zeros((), dtype=int), "y": np.zeros(())}
FEW = slice(2, 12)  # not all shops


def columns(*names: str) -> list[Any]:
    data = {"shop_of": SHOP, "town_of": TOWN, "y": Y}
    return [pm.Data(name, data[name][FEW]) for name in names]


@case("rows elsewhere", SHOP[FEW], local={"a": 0}, name="shop", options={"columns": ROWS})
def _() -> None:
    shop, y = columns("shop_of", "y")
    pm.Normal("likelihood", pm.Normal("a", 0, sd(), dims="shop")[shop], 1.0, observed=y)


@case("rows elsewhere, nested by a table", TOWN[FEW], name="town", n_blocks=3,
      local={"shop_effect": 0, "town_effect": 0}, options={"columns": ROWS})  # fmt: skip
def _() -> None:
    shop, y = columns("shop_of", "y")
    mu = pm.Normal("shop_effect", 0, sd(), dims="shop")[shop]
    mu += pm.Normal("town_effect", dims="town")[pm.Data("town_of_shop", TOWN_OF_SHOP)[shop]]
    pm.Normal("likelihood", mu, 1.0, observed=y)


@case("rows elsewhere, by two columns", SHOP[FEW], local={"shop_effect": 0}, name="shop",
      options={"columns": ROWS})  # fmt: skip
def _() -> None:
    # The template does not say that the shops of its rows are in one town each.
    shop, town, y = columns("shop_of", "town_of", "y")
    mu = pm.Normal("shop_effect", 0, sd(), dims="shop")[shop]
    mu += pm.Normal("town_effect", dims="town")[town]
    pm.Normal("likelihood", mu, 1.0, observed=y)


@case("rows elsewhere, by a table that is too short", SHOP[FEW], local={"shop_effect": 0},
      n_blocks=8, options={"columns": ROWS})  # fmt: skip
def _() -> None:
    shop, y = columns("shop_of", "y")
    mu = pm.Normal("shop_effect", 0, sd(), shape=8)[shop]
    mu += pm.Normal("town_effect", dims="town")[pm.Data("town_of_shop", TOWN_OF_SHOP)[shop]]
    pm.Normal("likelihood", mu, 1.0, observed=y)


# -- tests -----------------------------------------------------------------------------------------


def all_rows(observations: Observations) -> Rows:
    arrays = tuple(np.moveaxis(row.values, row.axis, 0) for row in observations.rows)
    return Rows(np.arange(observations.n_obs), np.ones(observations.n_obs), arrays)


@pytest.fixture(scope="module")
def found() -> Callable[[str], tuple[Observations, Blocks | NoBlocks]]:
    memo: dict[str, Any] = {}

    def find(name: str) -> tuple[Observations, Blocks | NoBlocks]:
        if name not in memo:
            observations = CASES[name].observations()
            memo[name] = observations, find_blocks(observations)
        return memo[name]

    return find


ACCEPTED = [name for name, c in CASES.items() if c.refused is None]
#: Long to compile.
LONG = {
    "correlated, centred",
    "correlated, not centred",
    "mixture for each row",
    "mixture with weights of each row",
    "shares of each group",
}


each_accepted = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in ACCEPTED]
)


@each_accepted
def test_levels_and_their_variables(name, found):
    expected = CASES[name]
    observations, blocks = found(name)
    assert isinstance(blocks, Blocks), blocks
    assert blocks.local == expected.local
    assert {*blocks.local, *blocks.shared} == observations.parameters.keys()
    np.testing.assert_array_equal(blocks.block_of(all_rows(observations)), expected.levels)
    assert expected.name in (None, blocks.levels)
    assert blocks.n_blocks == len(blocks.local_columns) == expected.n_blocks


@each_accepted
def test_columns_are_those_of_the_variables(name, found):
    observations, blocks = found(name)
    every = np.concatenate([*blocks.local_columns, blocks.shared_columns])
    np.testing.assert_array_equal(np.sort(every), np.arange(observations.n_dims))
    shapes = observations.model.eval_rv_shapes()
    start = 0
    for value in observations.model.value_vars:
        rv = observations.model.values_to_rvs[value].name
        size = int(np.prod(shapes[value.name], dtype=int))
        own = np.arange(start, start + size)
        assert np.isin(own, blocks.shared_columns).all() == (rv in blocks.shared)
        if blocks.local.get(rv) is not None and len(shapes[value.name]) > 1:
            levels = np.moveaxis(own.reshape(shapes[value.name]), blocks.local[rv], 0)
            assert all(
                np.isin(own, columns).all()
                for own, columns in zip(levels, blocks.local_columns, strict=True)
            )
        start += size


@pytest.mark.parametrize("name", [name for name, c in CASES.items() if c.refused is not None])
def test_models_without_blocks_are_told_why(name, found):
    blocks = found(name)[1]
    assert isinstance(blocks, NoBlocks), blocks
    assert re.search(CASES[name].refused, blocks.reason), blocks.reason


@pytest.mark.parametrize(
    "name",
    [
        "centred",
        "dispersion of each group",
        "shares of each group",
        "walk in time for each group",
        "potential of each level",
        "other data that stay",
        "nested, centred",
    ],
)
def test_prior_is_a_sum_over_levels(name, found):
    observations, blocks = found(name)
    space = Unconstrained(observations.model)
    names = [term.name for term in observations.terms]
    logp = logp_without(observations.model, names)
    rng = np.random.default_rng(4)
    here, there = space.start + rng.uniform(-0.5, 0.5, size=(2, space.n_dims))
    there[blocks.shared_columns] = here[blocks.shared_columns]
    there[blocks.local_columns[1]] = here[blocks.local_columns[1]]
    shared, own = density_by_level(blocks.prior, here)
    same, other = density_by_level(blocks.prior, there)
    assert shared == same
    np.testing.assert_array_equal(own == other, np.arange(len(own)) == 1)
    difference = logp(space.point(there)) - logp(space.point(here))
    np.testing.assert_allclose(other.sum() - own.sum(), difference, rtol=1e-9)


def test_second_derivatives_between_levels_are_zero(found):
    observations, blocks = found("nested, centred")
    space = Unconstrained(observations.model, mode=PLAIN_MODE)
    x = space.start + np.random.default_rng(2).uniform(-0.3, 0.3, size=space.n_dims)
    step = 1e-5
    gradients = space.gradients(np.concatenate([x + step * np.eye(len(x)), x[None]]))
    hessian = (gradients[:-1] - gradients[-1]) / step
    for g, one in enumerate(blocks.local_columns):
        others = np.concatenate([c for h, c in enumerate(blocks.local_columns) if h != g])
        # The error of a difference is rounding over the step: 1e-16 * 1e2 / 1e-5.
        assert np.all(np.abs(hessian[np.ix_(one, others)]) < 1e-8)
        assert np.all(np.abs(np.diag(hessian)[one]) > 0.1)


def test_wrong_blocks_are_noticed(found):
    observations, blocks = found("centred")
    parting = Parting(observations, unconstrained_graphs(observations.model, ["y"]))
    right = blocks.local_columns
    assert dependence_between(right, parting, blocks.block_of) is None

    def shifted(rows: Rows) -> np.ndarray:
        return (blocks.block_of(rows) + 1) % G

    assert "some row depends" in dependence_between(right, parting, shifted)
    observations, _ = found("random walk over levels")
    parting = Parting(observations, unconstrained_graphs(observations.model, ["y"]))
    columns = tuple(np.arange(G)[:, None])
    assert "'a' links" in dependence_between(columns, parting, lambda rows: SHOP[rows.positions])


def test_a_coreset_says_what_was_found():
    with pm.Model(coords=COORDS) as model:
        CASES["no hyperparameters"].build()
    coreset = build_coreset(model, size=20, method="uniform", random_seed=1, progressbar=False)
    assert repr(coreset.blocks) == "Blocks: 6 levels of 'a'; local: a; shared: nothing"


def test_text():
    blocks = Blocks(
        n_blocks=2_000,
        levels="customer",
        local={"intercept": 0, "slope": 0},
        shared=("mean", "sd"),
        block_of=lambda rows: rows.positions,
        local_columns=(),
        shared_columns=np.arange(2),
        prior=LevelPrior(None, None),
    )
    text = "Blocks: 2,000 levels of 'customer'; local: intercept, slope; shared: mean, sd"
    assert repr(blocks) == text
    assert repr(NoBlocks("of a reason.")) == "No blocks: of a reason."
