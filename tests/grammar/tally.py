"""How many models came to what."""

from collections import Counter

from tests.grammar.judging import AGREES, NO_MODEL, RAW, REFUSED, WRONG, Verdict

__all__ = ["Tally"]


class Tally:
    """Counts of verdicts, and the sources of what is wrong."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.reasons: dict[str, Counter[str]] = {REFUSED: Counter(), NO_MODEL: Counter()}
        self.bad: list[tuple[int, Verdict, str]] = []

    def add(self, number: int, verdict: Verdict, source: str) -> None:
        self.kinds[verdict.kind] += 1
        if verdict.kind in self.reasons:
            self.reasons[verdict.kind][verdict.reason] += 1
        elif verdict.bad:
            self.bad.append((number, verdict, source))

    def __str__(self) -> str:
        order = (AGREES, REFUSED, WRONG, RAW, NO_MODEL)
        head = ", ".join(f"{self.kinds[kind]} {kind}" for kind in order)
        lines = [f"{self.kinds.total()} models: {head}"]
        for kind, reasons in self.reasons.items():
            lines += [f"{count:6d} {kind}: {reason}" for reason, count in reasons.most_common()]
        return "\n".join(lines)
