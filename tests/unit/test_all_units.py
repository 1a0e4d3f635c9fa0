"""Builds that keep all units: where a coreset of them would keep most."""

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import build_coreset


@pytest.mark.slow
def test_few_units_for_many_shared_parameters_are_all_kept():
    """More than ten levels for each other dimension, and fewer than twenty."""
    rng, n_persons, n_items = np.random.default_rng(1), 320, 26
    person = np.repeat(np.arange(n_persons), 8)
    item = np.concatenate([rng.choice(n_items, 8, replace=False) for _ in range(n_persons)])
    log_mean = rng.normal(0, 0.5, n_items)[item] + rng.normal(size=n_persons)[person]
    with pm.Model():
        own = pm.Normal("own", shape=n_persons)
        of_item = pm.Normal("of_item", 0, 2, shape=n_items)
        mean = pm.math.exp(own[person] + of_item[item])
        pm.Poisson("y", mean, observed=rng.poisson(np.exp(log_mean)))
        coreset = build_coreset(random_seed=1, progressbar=False)
    assert coreset.approximation.parts[0].observations.integrated == ("own",)
    assert coreset.method == "exact"
    assert len(coreset.indices) == n_persons
