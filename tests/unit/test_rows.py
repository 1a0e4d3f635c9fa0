import numpy as np
import pytensor.tensor as pt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.rows.collapsing import collapse_rows
from pymc_coresets.solving.candidates import sample_candidates


def row_array(values, axis=0):
    return RowArray(placeholder=pt.scalar(), source=pt.scalar(), values=values, axis=axis)


@given(
    binary=arrays(np.bool_, (12, 2)),
    counts=arrays(np.int64, 12, elements=st.integers(0, 2)),
    reals=arrays(np.float64, (1, 12), elements=st.sampled_from([0.0, -0.0, 1.5])),
)
def test_collapse_agrees_with_a_plain_count(binary, counts, reals):
    kept, weights = collapse_rows(
        [row_array(binary), row_array(counts), row_array(reals, axis=1)], 12
    )
    rows = [(*b, c, r) for b, c, r in zip(binary, counts, reals[0], strict=True)]
    assert [rows[i] for i in kept] == list(dict.fromkeys(rows))
    assert [rows.count(rows[i]) for i in kept] == weights.tolist()


def test_candidates_are_distinct_and_useful():
    scores = np.r_[np.zeros(5), np.ones(20)]
    chosen = sample_candidates(scores, 10, rng=np.random.default_rng(1))
    assert len(np.unique(chosen)) == 10
    assert chosen.min() >= 5


def test_all_useful_rows_are_taken_where_they_fit():
    assert sample_candidates(
        np.array([0.0, 2.0, 1.0]), 5, rng=np.random.default_rng(1)
    ).tolist() == [1, 2]


def test_single_candidates_follow_the_mixture():
    scores, n = np.array([1.0, 2.0, 5.0]), 20_000
    rng = np.random.default_rng(1)
    drawn = np.bincount([sample_candidates(scores, 1, rng=rng)[0] for _ in range(n)], minlength=3)
    expected = 0.5 * scores / scores.sum() + 0.5 / 3
    # Four standard errors of a binomial share.
    assert np.all(np.abs(drawn / n - expected) < 4 * np.sqrt(expected * (1 - expected) / n))
