"""Try many inputs and say what came of them: ``python -m tests.bad_input --examples 2000``."""

import argparse
import time

from hypothesis import HealthCheck, Phase, given, settings

from tests.bad_input.entries import ENTRIES, Entry
from tests.bad_input.outcomes import Call, Tally, attempt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2_000, help="inputs in all, roughly")
    parser.add_argument("--only", default="", help="part of the name of an entry point")
    chosen = parser.parse_args()
    wanted = {name: entry for name, entry in ENTRIES.items() if chosen.only in name}
    shares, tally = sum(entry.share for entry in wanted.values()), Tally()
    for name, entry in wanted.items():
        began = time.process_time()
        try_many(name, entry, max(1, round(chosen.examples * entry.share / shares)), tally)
        print(f"{name}: {time.process_time() - began:.1f} s of CPU time", flush=True)
    print(tally)
    return bool(tally.wrong)


def try_many(name: str, entry: Entry, n_examples: int, tally: Tally) -> None:
    """Try inputs without an end at the first that goes wrong."""

    @settings(
        max_examples=n_examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(call=entry.calls)
    def run(call: Call) -> None:
        tally.add(name, call, attempt(call))

    run()


if __name__ == "__main__":
    raise SystemExit(main())
