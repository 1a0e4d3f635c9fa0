"""What a refusal or a warning has to name, without its sentences."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pymc_coresets import CoresetError, CoresetWarning

#: A name, a number, an option, a word that tells one refusal from another; or several.
type Facts = str | tuple[str, ...]


def naming(*facts: Facts) -> str:
    """Return a pattern of messages that name all of these, in any order."""
    each = [fact for some in facts for fact in ((some,) if isinstance(some, str) else some)]
    return "(?s)^" + "".join(f"(?=.*{_whole(fact)})" for fact in each)


def _whole(fact: str) -> str:
    """Return a pattern of it where it is no part of a longer name or number."""
    before = r"(?<!\w)(?<!\d[.,])" if re.match(r"\w", fact) else ""
    after = r"(?!\w|[.,]\d)" if re.search(r"\w$", fact) else ""
    return before + re.escape(fact) + after


@contextmanager
def refused[E: CoresetError](
    kind: type[E], *facts: Facts, topic: str = ""
) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error of this class itself, of this topic, whose message names these facts."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert (type(error), error.topic) == (kind, topic or kind.section), error
    assert re.search(naming(*facts), error.message), f"{facts} are not all in: {error.message}"


def warned(*facts: Facts) -> pytest.WarningsRecorder:
    """Expect a warning of ours that names these facts; others are issued again."""
    return pytest.warns(CoresetWarning, match=naming(*facts))
