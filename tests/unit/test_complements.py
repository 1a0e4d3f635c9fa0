"""The complement of a complement, of rows that are censored."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.complements import without_double_complements

X, SEEN = pt.vector("x", dtype="float64"), pt.vector("seen", dtype="bool")
CASES = {
    "alone": pt.log1mexp(X),
    "beside impossible ones": pt.switch(SEEN, pt.log1mexp(X), -np.inf),
    "beside certain ones": pt.switch(SEEN, 0.0, pt.switch(X > -2.0, pt.log1mexp(X), -0.5)),
}


@pytest.mark.parametrize("inner", CASES.values(), ids=CASES)
def test_values_and_gradients_are_those_of_two_complements(inner):
    whole = pt.log1mexp(inner)
    [found] = without_double_complements([whole])
    assert "log1mexp" not in pytensor.dprint(found, file="str").lower()
    both = [numpy_function([X, SEEN], [g, pt.grad(g.sum(), X)]) for g in (whole, found)]
    x, seen = np.array([-0.7, -1.0, -1.5, -3.0]), np.array([True, True, False, False])
    with np.errstate(all="ignore"):
        expected, written = (f(x, seen) for f in both)
    is_known = np.isfinite(expected[1])
    assert is_known.any()
    np.testing.assert_allclose(written[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(written[1][is_known], expected[1][is_known], rtol=1e-12)


def test_what_is_no_log_probability_remains_so():
    [found] = without_double_complements([pt.log1mexp(pt.log1mexp(X))])
    np.testing.assert_array_equal(found.eval({X: [np.nan, 1.0, 0.0]}), [np.nan, np.nan, 0.0])


def test_other_complements_are_kept():
    other = pt.log1mexp(pt.switch(SEEN, pt.log1mexp(X), X))
    assert without_double_complements([other])[0] is other
