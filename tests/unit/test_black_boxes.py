"""Operations of other packages, as likelihoods: rows are selected, or the operation is named."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pytensor.graph import Apply, Op, vectorize_graph

from pymc_coresets import UnsupportedModelError, build_coreset
from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.observations import find_observations
from tests.refusals import refused

DATA = np.random.default_rng(1).normal(0.5, size=4_000)


class WithoutGradient(Op):
    """Minus half the squared distance of each observation from the mean."""

    def make_node(self, *inputs):
        data, mu = (pt.as_tensor(x) for x in inputs)
        return Apply(self, [data, mu], [data.type()])

    def perform(self, node, inputs, storage):
        data, mu = inputs
        storage[0][0] = np.asarray(-((data - mu) ** 2) / 2)


class RowByRow(WithoutGradient):
    def pullback(self, inputs, outputs, cotangents):
        data, mu = inputs
        slope = (cotangents[0] * (data - mu)).sum(keepdims=mu.type.ndim > 0)
        return [pt.zeros_like(data), slope]


class AllAtOnce(RowByRow):
    def perform(self, node, inputs, storage):
        super().perform(node, inputs, storage)
        storage[0][0] = np.cumsum(storage[0][0])


def model_of(op):
    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("mu"), logp=op, observed=DATA)
    return model


def test_rows_of_a_black_box_are_selected():
    model = model_of(RowByRow())
    assert not find_observations(model).unselected
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.sample(random_seed=1, progressbar=False)
    assert coreset.size < 10
    assert coreset.check(idata).reliable
    mean = DATA.sum() / (len(DATA) + 1)
    assert_allclose(idata["posterior"]["mu"].mean(), mean, atol=5 * len(DATA) ** -0.5 / 1_000**0.5)


@pytest.mark.parametrize(
    ("op", "facts"),
    [
        (AllAtOnce(), ("['AllAtOnce']", "observation 7")),
        (WithoutGradient(), ("gradient", "WithoutGradient")),
    ],
)
def test_other_black_boxes_are_refused_by_name(op, facts):
    with refused(UnsupportedModelError, facts):
        build_coreset(model_of(op), random_seed=1, progressbar=False)


def test_threads_share_a_loop_over_a_black_box():
    data, mu, several = pt.vector("data"), pt.scalar("mu"), pt.vector("several")
    one = RowByRow()(data, mu)
    function = pytensor.function(
        [several, data], vectorize_graph(one, {mu: several}), mode=loop_mode()
    ).vm.jit_fn
    means = np.arange(20.0)
    parts = [DATA[:n] for n in range(1, 400)]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda part: function(means, part), parts)
        for part, values in zip(parts, found, strict=True):
            assert_allclose(np.squeeze(values, axis=0), -((part - means[:, None]) ** 2) / 2)
