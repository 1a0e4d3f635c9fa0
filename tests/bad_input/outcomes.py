"""What may come of a call: a result, or an error of ours that says which argument was bad."""

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pymc as pm

from pymc_coresets import CoresetError, CoresetWarning
from tests.bad_input import stage

_PACKAGE = "pymc_coresets"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of an entry point.

    `names` are the words of which an error has to name one: bad arguments or variables; none where
    all input is valid.  `refused` says whether there has to be an error, None if there may be one.
    """

    run: Callable[[], object]
    given: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    refused: bool | None = None
    model: pm.Model | None = None

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.given.items())


@dataclass(frozen=True)
class Outcome:
    """What came of a call, in a word, and what is wrong with it; empty where nothing is."""

    kind: str
    wrong: str = ""
    last_line: str = ""


def attempt(call: Call) -> Outcome:
    """Make the call, and judge what comes of it."""
    model = stage.model() if call.model is None else call.model
    before, files = stage.snapshot(model), stage.files()
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call.run()
        except Exception as raised:  # noqa: BLE001
            error = raised
    foreign = [str(w.message) for w in caught if not issubclass(w.category, CoresetWarning)]
    if stage.snapshot(model) != before:
        return Outcome("model changed", "the user's model has changed")
    if stage.files() != files:
        return Outcome("files changed", "files were left behind, or have changed")
    if foreign:
        return Outcome("foreign warning", f"a warning that is not ours: {foreign[0]}")
    return _judged(call, error)


def _judged(call: Call, error: Exception | None) -> Outcome:
    if error is None:
        return Outcome("succeeded", "bad input was accepted" if call.refused else "")
    kind = type(error).__name__
    last = "".join(traceback.format_exception_only(error)).strip()
    if not isinstance(error, CoresetError):
        return Outcome(f"raw {kind}", f"a raw error: {last}", _where(error))
    if call.refused is False:
        return Outcome(f"valid input, {kind}", f"valid input was refused: {last}", _where(error))
    words = error.message
    if not (words.rstrip().endswith(".") and " " in words):
        return Outcome(kind, f"the message is no sentence: {words}", _where(error))
    if call.names and not any(name in words for name in call.names):
        return Outcome(kind, f"the message names none of {call.names}: {words}", _where(error))
    return Outcome(kind)


def _where(error: Exception) -> str:
    """Return the last line of the package that the error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"/{_PACKAGE}/" in frame.filename]
    if not ours:
        return ""
    path = ours[-1].filename.rpartition(f"/{_PACKAGE}/")[2]
    return f"{path}:{ours[-1].lineno} {ours[-1].line}"


class Tally:
    """How many inputs were tried, and what came of them."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.wrong: dict[tuple[str, str], tuple[Outcome, str]] = {}

    def add(self, entry: str, call: Call, outcome: Outcome) -> None:
        self.counts.setdefault(entry, Counter())[outcome.kind] += 1
        if outcome.wrong:
            key = (entry, outcome.last_line or outcome.wrong)
            self.wrong.setdefault(key, (outcome, repr(call)[:300]))

    def __str__(self) -> str:
        lines = []
        for entry, kinds in self.counts.items():
            parts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
            lines.append(f"{entry}: {kinds.total()} inputs: {parts}")
        total = sum(kinds.total() for kinds in self.counts.values())
        lines.append(f"{total} inputs in all, {len(self.wrong)} kinds of them went wrong.")
        for (entry, _), (outcome, given) in self.wrong.items():
            lines += ["", f"{entry}({given})", f"  {outcome.wrong}", f"  {outcome.last_line}"]
        return "\n".join(lines)
