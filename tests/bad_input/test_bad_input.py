"""Whatever is passed: a result, or an error of ours in a sentence that says what was bad.

Every argument of every public function and class is drawn from valid values and from junk; so are
data, models, draws and the contents of files.  Valid input has to succeed, and bad input has to be
refused by an error of ours that names the argument or the variable.  No warning may come that is
not ours, the user's model must not change, and no file may be left behind.  To try more inputs, and
to see how many came to what: ``python -m tests.bad_input --examples 2000``.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.bad_input import stage
from tests.bad_input.entries import ENTRIES
from tests.bad_input.outcomes import attempt

pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")


@pytest.fixture(scope="module", autouse=True)
def _stage():
    """Everything is built before examples are timed."""
    stage.folder()


@pytest.mark.parametrize("name", ENTRIES)
def test_bad_input_is_refused_in_a_sentence(name):
    check_many(name, -(-ENTRIES[name].short // 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_much_bad_input_is_refused_in_a_sentence(name):
    check_many(name, 10 * ENTRIES[name].short)


def check_many(name, n_examples):
    @settings(
        max_examples=n_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # calls are small already, and some take long
        suppress_health_check=list(HealthCheck),
    )
    @given(call=ENTRIES[name].calls)
    def run(call):
        outcome = attempt(call)
        assert not outcome.wrong, f"{name}({call!r}): {outcome.wrong} [{outcome.last_line}]"

    run()
