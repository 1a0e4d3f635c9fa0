"""A number that is a sum comes apart into arrays whose sums add up to it."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import CheckParameterValue

from pymc_coresets.reading.likelihood.row_terms import addends_of
from tests.modes import PLAIN_MODE

N = 7
VALUES = np.random.default_rng(1).normal(size=(N, 3))
s, b = pt.dscalar("s"), pt.dvector("b", shape=(3,))
POINT = {s: 1.3, b: np.array([0.2, -0.5, 0.7])}
terms, few = pt.constant(VALUES[:, 0]) * s, b**2
table = pt.constant(VALUES) * b


def checked(x):
    return CheckParameterValue("positive")(x, pt.all(s > 0))


# name: (graph, axis, lengths of the sums, or None for what is no sum)
CASES = {
    "sum": (terms.sum(), 0, [N]),
    "of all entries": (table.sum(), 0, [N]),
    "over one axis, then the other": (table.sum(axis=1).sum(), 0, [N]),
    "two": (terms.sum() + few.sum(), 0, [N, 3]),
    "difference": (pt.log(s) - terms.sum(), 0, [N, None]),
    "difference from a sum": (terms.sum() - few.sum() - s, 0, [N, 3, None]),
    "negative": (-(terms.sum() - s), 0, [N, None]),
    "factor": (-0.5 * s * terms.sum() * b[0], 0, [N]),
    "factor that is a shorter sum": (few.sum() * terms.sum(), 0, [N]),
    "square of a number": (s * s + terms.sum(), 0, [N, None]),
    "square of a sum": (terms.sum() ** 2, 0, [None]),
    "quotient": ((terms.sum() + few.sum()) / s, 0, [N, 3]),
    "divisor": (s / terms.sum(), 0, [None]),
    "mean": (terms.mean(), 0, [N]),
    "product of vectors": (pt.dot(terms, terms) / s, 0, [N]),
    "check": (2.0 * checked(terms.sum() - s), 0, [N, None]),
    "new axis": ((terms.sum()[None] + b[:1]).sum(), 0, [N, None]),
    "function of a sum": (pt.exp(terms.sum()), 0, [None]),
    "of several series": (b + table.sum(axis=0), 0, None),
    "of several series, by the other axis": (s + 2 * b + table.T.sum(axis=1), 1, [N, None]),
    "of several series, scaled one by one": (b * table.T.sum(axis=1), 1, [None]),
    "of several series, and in all": (table.T.sum(), 1, [N]),
    "of several series, added up first": (table.T.sum(axis=0).sum(), 1, [None]),
    "number": (pt.log(s), 0, [None]),
}


def value(graph):
    function = pytensor.function([s, b], graph, mode=PLAIN_MODE, on_unused_input="ignore")
    return function(*POINT.values())


@pytest.mark.parametrize("name", [n for n, (_, _, lengths) in CASES.items() if lengths])
def test_sums_add_up(name):
    total, axis, lengths = CASES[name]
    parts = addends_of(total, axis, N if axis else 0)
    found = [p.variable.type.shape[p.axes[0]] if p.axes else None for p in parts]
    assert sorted(found, key=str) == sorted(lengths, key=str)
    whole = value([total.sum(), *(part.variable.sum() for part in parts)])
    np.testing.assert_allclose(whole[0], sum(whole[1:]), rtol=1e-12)
