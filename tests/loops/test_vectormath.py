import timeit

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from scipy.special import gammaln, polygamma

from pymc_coresets.loops.density_loops import density_mode
from pymc_coresets.loops.vectormath import (
    compare_without_sigmoid,
    vector_exp,
    vector_expm1,
    vector_gammaln,
    vector_log,
    vector_log1mexp,
    vector_log1p,
    vector_power,
    vector_sigmoid,
    vector_softplus,
    vector_trigamma,
)
from tests.modes import loop_mode

pytestmark = pytest.mark.compiled

SPECIAL = np.r_[
    [0.0, -0.0, 1.0, -1.0, -2.0, 37.0, np.inf, -np.inf, np.nan],
    [5e-324, 1e-310, 1e-20, -1e-20, 1e308, -1e308, -745.1, -800.0, 709.7, 709.79, 800.0],
]
RNG = np.random.default_rng(1)
WIDE, UNIT, POSITIVE = (
    RNG.uniform(-700, 700, 20_000),
    RNG.normal(size=20_000),
    np.exp(RNG.uniform(-700, 700, 20_000)),
)
CASES = {
    "exp": (vector_exp, np.exp, (WIDE, UNIT), 1.5),
    "log": (vector_log, np.log, (POSITIVE, np.abs(UNIT) + 0.5), 1.5),
    "log1p": (vector_log1p, np.log1p, (POSITIVE, np.expm1(UNIT), UNIT * 1e-9), 1.5),
    "expm1": (vector_expm1, np.expm1, (WIDE, UNIT, UNIT * 1e-9), 4.0),
    "log1mexp": (
        vector_log1mexp,
        lambda x: np.where(
            x > -0.7, np.log(-np.expm1(x)), np.log1p(-np.exp(np.where(x > -0.7, -1.0, x)))
        ),
        (-np.abs(WIDE), -np.abs(UNIT), -POSITIVE[POSITIVE > 1e-300]),
        4.0,
    ),
    "softplus": (
        vector_softplus,
        lambda x: np.logaddexp(x, np.zeros_like(x)),
        (UNIT * 10, UNIT),
        2.0,
    ),
    "sigmoid": (vector_sigmoid, lambda x: 1 / (1 + np.exp(-x)), (UNIT * 10, UNIT), 3.0),
}


def test_gammaln_is_accurate_absolutely_and_relatively():
    run = loop(vector_gammaln)
    for x in (np.exp(RNG.uniform(-30, 30, 20_000)), RNG.uniform(0, 20, 20_000)):
        exact = gammaln(x)
        assert (np.abs(run(x) - exact) / np.maximum(np.abs(exact), 10)).max() < 2e-15


def test_gammaln_limits():
    values = loop(vector_gammaln)(np.array([0.0, 1.0, 2.0, np.inf, np.nan, -1.5]))
    np.testing.assert_allclose(values, [np.inf, 0, 0, np.inf, np.nan, np.nan], atol=1e-14)


def test_trigamma_is_accurate_and_has_the_right_limits():
    for x in (np.exp(RNG.uniform(-30, 30, 20_000)), RNG.uniform(0, 20, 20_000)):
        np.testing.assert_allclose(loop(vector_trigamma)(x), polygamma(1, x), rtol=3e-15)
    limits = loop(vector_trigamma)(np.array([0.0, np.inf, np.nan, -1.5]))
    np.testing.assert_array_equal(limits, [np.nan, 0.0, np.nan, np.nan])


def test_trigamma_is_compiled_as_part_of_a_loop():
    x = pt.dvector("x")
    slope = pt.grad(pt.grad((2 * pt.gammaln(x) ** 2).sum(), x).sum(), x)
    values = np.array([0.3, 2.0, 9.5])
    first, second = polygamma(0, values), polygamma(1, values)
    for mode in (loop_mode(1), density_mode()):
        found = pytensor.function([x], slope, mode=mode)(values)
        np.testing.assert_allclose(found, 4 * (first**2 + gammaln(values) * second), rtol=1e-13)


@pytest.mark.parametrize("compiled", [True, False])
def test_trigamma_of_what_rows_do_not_change_is_evaluated_by_scipy(compiled):
    """Numba warns that it calls Python for each number, if it is asked."""
    shape, rows = pt.dvector("shape"), pt.dmatrix("rows")
    f = pytensor.function(
        [shape, rows], rows * pt.tri_gamma(shape)[:, None], mode=loop_mode(compiled=compiled)
    )
    at = np.array([0.3, 2.0])
    np.testing.assert_allclose(f(at, np.ones((2, 1)))[:, 0], polygamma(1, at), rtol=1e-14)


def test_powers_are_accurate_and_have_the_right_limits():
    @numba.njit
    def run(x, y):
        out = np.empty_like(x)
        for i in range(x.size):
            out[i] = vector_power(x[i], y[i])
        return out

    x, y = np.exp(3 * RNG.normal(size=5_000)), 5 * RNG.normal(size=5_000)
    np.testing.assert_allclose(run(x, y), x**y, rtol=3e-14)
    edges = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 2.0**53, 1e300, np.inf]
    x, y = map(np.ravel, np.meshgrid(*2 * [np.r_[np.negative(edges), edges, np.nan]]))
    with np.errstate(all="ignore"):
        exact = x**y
    np.testing.assert_allclose(run(x, y), exact, rtol=1e-13)
    number = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(run(x, y))[number], np.signbit(exact)[number])


def loop(function):
    @numba.njit
    def run(x):
        out = np.empty_like(x)
        for i in range(x.size):
            out[i] = function(x[i])
        return out

    return run


def errors_in_ulp(values, exact):
    return np.abs(values - exact) / np.spacing(np.abs(exact).astype(float))


@pytest.fixture(scope="module", params=CASES)
def case(request):
    function, exact, inputs, tolerance = CASES[request.param]
    return loop(function), exact, inputs, tolerance


def test_accurate_to_few_units_in_the_last_place(case):
    run, exact, inputs, tolerance = case
    for x in inputs:
        assert errors_in_ulp(run(x), exact(x.astype(np.longdouble))).max() < tolerance


def test_limits_and_nan_are_those_of_numpy(case):
    run, exact, _, _ = case
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            run(SPECIAL), exact(SPECIAL).astype(float), rtol=1e-15, atol=5e-324
        )


def test_mode_agrees_with_pytensor_on_a_composite_expression():
    x, c = pt.vector("x"), pt.vector("c", dtype="bool")
    graph = pt.switch(c, pt.log(pt.sigmoid(x)), pt.log1p(-pt.sigmoid(x))) + pt.exp(-(x**2))
    values, mask = RNG.normal(size=100) * 5, RNG.random(100) < 0.5
    ours = pytensor.function([x, c], graph, mode=loop_mode())(values, mask)
    theirs = pytensor.function([x, c], graph, mode=get_mode("FAST_COMPILE"))(values, mask)
    np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-15)


def test_a_function_common_to_both_branches_is_called_once():
    x, c = pt.vector("x"), pt.vector("c", dtype="bool")
    function = pytensor.function(
        [x, c], pt.switch(c, pt.softplus(x), pt.softplus(-x)), mode=loop_mode()
    )
    [node] = [n for n in function.maker.fgraph.toposort() if "softplus" in str(n.op)]
    assert str(node.op).count("vector_softplus") == 1


def count_of_sigmoids(function):
    loops = [n.op.scalar_op for n in function.maker.fgraph.toposort() if hasattr(n.op, "scalar_op")]
    parts = [n.op for loop in loops if hasattr(loop, "fgraph") for n in loop.fgraph.toposort()]
    return sum("sigmoid" in str(op) for op in [*loops, *parts] if not hasattr(op, "fgraph"))


@pytest.mark.parametrize(
    ("elsewhere", "number"), [(0.0, 1), (pt.sigmoid(pt.vector("x")), 2)], ids=["nowhere", "too"]
)
def test_a_function_within_both_branches_is_called_once_unless_it_is_needed_elsewhere(
    elsewhere, number
):
    x = pt.vector("x") if number == 1 else elsewhere.owner.inputs[0]
    w, c, bad = pt.vector("w"), pt.vector("c", dtype="bool"), pt.vector("bad", dtype="bool")
    left = pt.switch(bad, 0.0, w * pt.sigmoid(-x))
    right = pt.switch(bad, 0.0, -w * pt.sigmoid(x) * (1 - pt.sigmoid(x)))
    graphs = [pt.switch(c, left, right), pt.switch(c, pt.sigmoid(-x), 1.0) + elsewhere]
    inputs = [x, w, c, bad]
    function = pytensor.function(inputs, graphs, mode=loop_mode())
    assert count_of_sigmoids(function) == number
    values = [*(5 * RNG.normal(size=(2, 100))), *(RNG.random((2, 100)) < 0.5)]
    theirs = pytensor.function(inputs, graphs, mode=get_mode("FAST_COMPILE"))(*values)
    np.testing.assert_allclose(function(*values), theirs, rtol=1e-12, atol=1e-15)


def test_a_function_needed_in_the_other_branch_stays():
    """There the condition is false, and the argument another."""
    x, c = pt.vector("x"), pt.vector("c", dtype="bool")
    graphs = [pt.switch(c, pt.exp(x), pt.exp(-x)), pt.switch(c, 0.0, pt.exp(x))]
    values, mask = RNG.normal(size=100), RNG.random(100) < 0.5
    found = pytensor.function([x, c], graphs, mode=loop_mode())(values, mask)
    expected = np.where(mask, np.exp(values), [np.exp(-values), np.exp(values)])
    expected[1, mask] = 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("where", [1.0, 0.0], ids=["above", "below"])
def test_no_sigmoid_is_evaluated_to_know_that_it_is_between_zero_and_one(where):
    x = pt.vector("x")
    share = pt.sigmoid(x)
    checked = pt.switch(
        pt.ge(share, 0) & pt.le(share, 1) & pt.ge(1 - share, 0) & pt.le(1 - share, 1), -x, where
    )
    function = pytensor.function([x], checked, mode=loop_mode())
    assert "sigmoid" not in pytensor.printing.debugprint(function, file="str")
    values = np.array([-np.inf, -800.0, 0.3, 800.0, np.inf, np.nan])
    np.testing.assert_array_equal(function(values), [np.inf, 800, -0.3, -800, -np.inf, where])


def test_comparisons_of_a_sigmoid_keep_their_shape():
    x = pt.tensor("x", shape=(1,))
    node = pt.ge(pt.constant(np.ones(3)) - pt.sigmoid(x), pt.constant(np.zeros(1))).owner
    assert compare_without_sigmoid.transform(None, node) is None


def test_bounds_within_zero_and_one_need_the_sigmoid():
    x = pt.vector("x")
    function = pytensor.function([x], pt.ge(pt.sigmoid(x), 0.5) * 1.0, mode=loop_mode())
    np.testing.assert_array_equal(function([-1.0, 1.0]), [0.0, 1.0])


def test_minus_infinity_takes_no_longer_than_a_number():
    """A product too small for a double takes ten times as long as another."""
    run = loop(vector_exp)

    def seconds(x: np.ndarray) -> float:
        run(x)
        return min(timeit.repeat(lambda: run(x), number=20, repeat=20))

    assert seconds(np.full(20_000, -np.inf)) < 3 * seconds(np.full(20_000, -1.0))


def test_float32_is_left_to_pytensor():
    x = pt.fvector("x")
    function = pytensor.function([x], pt.exp(x), mode=loop_mode())
    assert "vector_exp" not in str(function.maker.fgraph.toposort())
