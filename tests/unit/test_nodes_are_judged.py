"""By what the number of nodes of units is judged, whatever their log-likelihoods are."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_coresets.reading.units.nodes import Rule, rule_to_judge_by, rules_to_judge_first_by
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.sampling.normal import Normal, heavy_tailed
from pymc_coresets.sampling.units.centring import _Group, _Nodes, _Sample, _Several

N_DIMS, N_UNITS, ENOUGH = 2, 500, 1e-3
AROUND = heavy_tailed(np.zeros(1), np.eye(1))
#: Of 50 draws, with mean 0 and standard deviation 1.
NOISE = np.tile([-1.0, 1.0], 25)


class Units:
    """Which units of a group are left."""

    def __init__(self, which):
        self.which = which

    def take(self, some):
        return Units(self.which[some])


def sample_of(errors, several=None):
    """Return a sample of units whose sums have an error of some size by each rule."""

    def sums(rule, around, group):
        used.append((rule, len(group.weights)))
        return errors.get(rule, 0.0) * NOISE

    used = []
    factor = SimpleNamespace(n_dims=N_DIMS, names=("a", "b"))
    numbers = SimpleNamespace(number=np.ones(N_UNITS, dtype=int))
    single = SimpleNamespace(
        units=SimpleNamespace(factor=factor),
        point=lambda x: {},
        modes=SimpleNamespace(every=lambda point, rows: numbers),
        sums=sums,
        sample=_Group(Units(np.arange(N_UNITS)), np.ones(N_UNITS)),
    )
    return _Sample(single, {}, has_all=False, several=several), used


@pytest.mark.parametrize("doubt", [0.0, 0.009, 0.011, 0.1])
def test_fewer_nodes_judge_where_they_are_as_good(doubt):
    """In a part of the units: if their variance is a tenth of what is acceptable."""
    most, [fewer] = rule_to_judge_by(N_DIMS), rules_to_judge_first_by(N_DIMS)
    sample, used = sample_of({fewer: doubt})
    number, sums, stated = sample._judge(AROUND, sample.single.sample, ENOUGH)
    is_alike = doubt**2 <= ENOUGH / 10
    assert number == 1
    assert stated == (pytest.approx(doubt) if is_alike else 0.0)
    np.testing.assert_allclose(sums, doubt * NOISE if is_alike else 0.0)
    assert used == [(most, 167), (fewer, 167), (fewer if is_alike else most, N_UNITS)]


def test_doubts_add_to_the_error(monkeypatch):
    own = Rule(5)
    monkeypatch.setattr(_Sample, "_options", lambda *_: [_Nodes(own)])
    [fewer] = rules_to_judge_first_by(N_DIMS)
    # Both are off by 0.002 in the same direction: their difference is none.
    sample, _ = sample_of({own: 0.002, fewer: 0.002})
    found = sample.sufficient(_Nodes(own), AROUND, ENOUGH)
    assert found.error == pytest.approx(0.002**2)


def near(x):
    return Normal(np.full(1, x), AROUND.factor)


@pytest.mark.parametrize(
    ("most_modes", "several_at", "lacks"),
    [(1, None, False), (2, None, True), (2, 0.29, False), (2, -0.29, False), (2, -0.31, True)],
)
def test_units_of_several_modes_are_judged_by_near_the_middle(most_modes, several_at, lacks):
    several = None if several_at is None else _Several(None, np.full(1, several_at))
    sample, _ = sample_of({}, several)
    assert sample.lacks(np.array([1, most_modes, 1]), near(0.0)) == lacks


def test_a_part_of_the_units_stands_for_all():
    weights = np.random.default_rng(1).uniform(1, 5, N_UNITS)
    part = _Group(Units(np.arange(N_UNITS)), weights).part(200)
    assert len(part.weights) == len(part.rows.which) == 167
    assert part.weights.sum() == pytest.approx(weights.sum())
    np.testing.assert_allclose(np.ptp(part.weights / weights[part.rows.which]), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("local", "options"),
    [((), "integrate=False"), (("z", "b"), "integrate=False, allow_local=True")],
)
def test_variables_of_each_row_are_kept_by_two_options(local, options):
    factor, rows = SimpleNamespace(names=("a", "b")), SimpleNamespace(local=local)
    assert UnitModel(rows, factor, None).options_to_keep == options
