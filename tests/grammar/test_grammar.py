"""Random models agree with PyMC's own densities, or are refused.

To try more of them: ``python -m tests.grammar --models 5000 --seed 1``.
"""

import pytensor
import pytest

from pymc_coresets import Coreset
from tests.grammar import judging
from tests.grammar.judging import AGREES, NO_MODEL, judge
from tests.grammar.models import random_source

pytensor.config.blas__ldflags = ""  # where there is no BLAS for C code, looking for one warns

SMALL = """
with pm.Model() as model:
    b = pm.Normal("b")
    pm.Normal("y", b, 1.0, observed=np.arange(9.0))
options = {}
"""


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[pytest.mark.slow] * (n > 2)) for n in range(8)]
)
def test_random_model_agrees_or_is_refused(number):
    check(1, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8, 60))
def test_more_random_models_agree_or_are_refused(number):
    check(1, number)


def check(seed, number):
    source = random_source(seed, number)
    verdict = judge(source, number)
    assert not verdict.bad, f"{verdict}\n{source}"
    assert verdict.kind != NO_MODEL, f"{verdict}\n{source}"


def test_same_number_same_model():
    assert random_source(1, 5) == random_source(1, 5) != random_source(1, 6)


def test_other_log_ratios_are_noticed(monkeypatch):
    true = Coreset.log_ratios
    monkeypatch.setattr(Coreset, "log_ratios", lambda *given: true(*given) * (1 + 1e-5))
    assert judge(SMALL, 1).reason.startswith("log ratios")


def test_another_density_of_all_rows_is_noticed(monkeypatch):
    monkeypatch.setattr(judging, "all_rows", lambda coreset: coreset.model)
    assert judge(SMALL, 1).reason.startswith("log-density of all rows")


def test_model_that_is_right_agrees():
    assert judge(SMALL, 1).kind == AGREES
