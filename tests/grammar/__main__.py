"""Judge many random models: ``python -m tests.grammar --models 5000 --seed 1``.

``--only 123`` shows and judges the model of that number alone.
"""

import argparse

import pytensor

from tests.grammar.judging import judge
from tests.grammar.models import random_source
from tests.grammar.tally import Tally

EVERY = 20  # models between two lines of progress


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    parser.add_argument("--only", type=int, help="number of one model to show and judge")
    parser.add_argument("--show", default="\n", help="show models with this in the reason, too")
    given = parser.parse_args()
    pytensor.config.blas__ldflags = ""
    if given.only is not None:
        source = random_source(given.seed, given.only)
        print(source)
        print(judge(source, given.only))
        return 0
    tally = Tally()
    for number in range(given.first, given.first + given.models):
        source = random_source(given.seed, number)
        verdict = judge(source, number)
        tally.add(number, verdict, source)
        if verdict.bad or given.show in verdict.reason:
            print(f"\n-- seed {given.seed}, model {number}: {verdict}\n{source}\n", flush=True)
        if not (number + 1) % EVERY:
            print(f"model {number}\n{tally}", flush=True)
    print(tally)
    return bool(tally.bad)


if __name__ == "__main__":
    raise SystemExit(main())
