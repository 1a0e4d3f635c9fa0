"""Long sums of coefficients times columns become products with one matrix; nothing else does."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.likelihood.joined_columns import join_columns
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.pushdown import Pushdown

RNG = np.random.default_rng(4)
N, K = 7, 12
DATA = RNG.normal(size=(N, K + 2))
COUNTS = RNG.integers(0, 5, size=(N, K))
B = pt.tensor("b", shape=(K,), dtype="float64")
S = pt.dscalar("s")
X = [pt.constant(column) for column in DATA.T]


def equation(i):
    return sum(B[(i + j) % K] * X[j] for j in range(K))


def terms(n=K):
    return sum((B[j] * X[j] for j in range(n)), pt.as_tensor(0.0))


#: Each graph, and the shapes of the matrices that it is to have.
GRAPHS = {
    "a predictor": (lambda: 2.0 + S + terms(), [(N, K)]),
    "few terms": (lambda: S + terms(3), []),
    "products of coefficients": (lambda: sum(S * B[j] * X[j] for j in range(K)), [(N, K)]),
    "whole numbers": (lambda: sum(B[j] * COUNTS[:, j] for j in range(K)), [(N, K)]),
    "a column twice": (lambda: terms() + S * X[3], [(N, K)]),
    "several equations": (lambda: pt.stack([equation(i) for i in range(3)], axis=1), [(N, K)]),
    "powers": (lambda: sum(B[j] * X[j] ** 2 for j in range(K)), [(N, K)]),
    "products of columns": (lambda: terms() + S * X[12] * X[13], [(N, K)]),
    "a matrix": (lambda: terms() + DATA[:, :K] @ B, [(N, K)]),
    "two predictors": (lambda: terms() * pt.exp(1.0 - terms()), [(N, K)]),
    "a sum in a sum": (lambda: terms() + pt.exp(S + terms(11)), [(N, 11), (N, K)]),
    "a column elsewhere": (lambda: terms() * X[2], [(N, K)]),
    "differences": (lambda: X[12] - terms(), [(N, K)]),
    "a name": (lambda: terms(9) + S * pt.constant(DATA[:, 9], name="age"), []),
    "functions of both": (lambda: sum(pt.exp(B[j] * X[j]) for j in range(K)), []),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_joined_columns_have_the_same_values(name):
    build, shapes = GRAPHS[name]
    pushdown = Pushdown([B, S], N)
    selected = pushdown.select(build(), 0)
    rows, b = pushdown.row_arrays(), RNG.normal(size=K)

    def values(graph, rows):
        function = numpy_function([B, S, *(row.placeholder for row in rows)], [graph])
        return function(b, 0.7, *(row.values for row in rows))[0]

    expected = values(selected, rows)
    [joined], found = join_columns([selected], rows)
    np.testing.assert_allclose(values(joined, found), expected, rtol=1e-12)
    matrices = [row for row in found if row.values.ndim == 2 and row not in rows]
    assert sorted(row.values.shape for row in matrices) == shapes
    for row in matrices:
        np.testing.assert_allclose(pt.as_tensor(row.source).eval(), row.values, rtol=1e-15)


def test_a_variable_of_the_model_shares_the_matrix():
    with pm.Model() as model:
        a, b = pm.Normal("a"), [pm.Normal(f"b{j}") for j in range(K)]
        mu = pm.Deterministic("mu", a + sum(b[j] * DATA[:, j] for j in range(K)))
        pm.Normal("y", mu, 1.0, observed=DATA[:, K])
    assert [row.values.shape for row in find_observations(model).rows] == [(N,), (N, K)]


def test_containers_stay_apart():
    with pm.Model() as model:
        mu = sum(pm.Normal(f"b{j}") * pm.Data(f"x{j}", DATA[:, j]) for j in range(K))
        pm.Normal("y", mu, 1.0, observed=DATA[:, K])
    assert {row.name for row in find_observations(model).rows} >= {f"x{j}" for j in range(K)}
