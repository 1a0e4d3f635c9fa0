import numpy as np
import pytest

from pymc_coresets.solving.problem import Problem

VECTORS = np.random.default_rng(2).normal(size=(20, 6)) * np.linspace(0.1, 5, 20)[:, None]
WEIGHTS = np.linspace(1, 2, 20)


def make(vectors=VECTORS, **changes):
    weights = changes.pop("case_weights", WEIGHTS)
    return Problem(vectors=vectors, target=weights @ vectors, case_weights=weights, **changes)


def test_norms_and_their_sum():
    norms = np.linalg.norm(VECTORS, axis=1)
    assert make().norms == pytest.approx(norms)
    assert make().sigma == pytest.approx(WEIGHTS @ norms)
    assert make(total_norm=8.0).sigma == 8.0


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("length", [1e-20, 1.0, 1e5])
def test_project_at_every_scale(scale, length):
    direction = length * np.arange(6.0)
    units = VECTORS / np.linalg.norm(VECTORS, axis=1)[:, None]
    assert make(scale * VECTORS).project(direction) == pytest.approx(units @ direction, rel=1e-9)


def test_project_keeps_the_digits_of_single_precision():
    """A residual of 1e-42 would be denormal in float32."""
    direction = 1e-42 * np.arange(6.0)
    expected = make().project(direction)
    found = make(VECTORS.astype(np.float32)).project(direction)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-47)


def test_rows_of_no_length_or_no_weight_are_barred():
    vectors, weights = VECTORS.copy(), WEIGHTS.copy()
    vectors[0], vectors[1], weights[2] = 0, 1e-17 * vectors[1], 0
    space = make(vectors, case_weights=weights)
    scores = np.full(20, -1.0)
    scores[:3], scores[7] = 5, -0.5
    assert (space.inverse_norms == 0).nonzero()[0].tolist() == [0, 1, 2]
    assert (space.project(np.ones(6))[:3] == 0).all()
    assert space.best(scores) == 7


def test_objectives_are_in_nats():
    heldout = np.random.default_rng(3).normal(size=(20, 9))
    space = make(heldout_vectors=heldout, heldout_target=WEIGHTS @ heldout)
    weights = np.where(np.arange(20) % 3, 0.0, 2.0)
    assert space.residual(weights) == pytest.approx((WEIGHTS - weights) @ VECTORS)
    assert space.heldout_objective(weights) == pytest.approx(
        np.sum(((WEIGHTS - weights) @ heldout) ** 2)
    )
    assert np.isnan(make().heldout_objective(weights))
