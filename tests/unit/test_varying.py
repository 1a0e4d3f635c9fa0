"""Terms of a log-density that depend on some variables."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.ragged import collect, spread
from pymc_coresets.reading.units.varying import varying_terms

Z, A, SIZES = pt.dvector("z"), pt.dvector("a"), pt.lvector("sizes")
Y = pt.dvector("y")
OF_ROWS = Y * spread(Z, SIZES) - pt.exp(spread(Z, SIZES)) - pt.gammaln(Y + 1)
GRAPHS = {
    "sum": pt.gammaln(A) - 2.0 * (pt.exp(Z) + A),
    "difference": A - pt.exp(Z),
    "units": collect(OF_ROWS, SIZES) - pt.gammaln(A),
    "possible cases": pt.switch(pt.exp(Z) > 0, -(Z**2) - pt.gammaln(A), -np.inf),
    "cases of data": pt.switch(A > 1.0, Z - pt.gammaln(A), pt.exp(Z) + A),
}
DATA = [np.array([0.5, 2.0]), np.array([3, 1]), np.array([1.0, 0.0, 2.0, 4.0])]


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_differences_are_kept_and_nothing_is_evaluated_that_they_do_not_need(graph):
    found = varying_terms(graph, [Z])
    assert "gammaln" not in pytensor.dprint(found, file="str").lower()
    whole, terms = (numpy_function([Z, A, SIZES, Y], [g]) for g in (graph, found))
    ones, others = np.array([0.3, -1.0]), np.array([1.3, 0.2])
    changes = [np.subtract(*(f(z, *DATA)[0] for z in (ones, others))) for f in (whole, terms)]
    np.testing.assert_allclose(*changes, rtol=1e-12)


def test_cases_that_the_variables_decide_keep_their_constants():
    graph = pt.switch(Z > 0, A - Z, 2.0 * A)
    assert varying_terms(graph, [Z]) is graph


def test_a_sum_without_the_variables_is_left_as_it_is():
    graph = pt.gammaln(A)
    assert varying_terms(graph, [Z]) is graph
