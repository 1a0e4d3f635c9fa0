"""Measure the published tables anew: ``python -m benchmarks [WORD ...]``, for hours.

The commands of `docs/tables/figures.json` whose tables are not all of the commit that is checked
out, or those with one of the words in them, run one after another.  Each saves its tables in
`docs/tables`, and where they were measured is noted after each: what is interrupted goes on where
it stopped.  ``--list`` only says what would run.  A second core takes other words, in a clone.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs/tables"
FILE = TABLES / "figures.json"


def to_measure(
    sources: Mapping[str, Mapping[str, str]], commit: str, words: Collection[str] = ()
) -> list[str]:
    """Return the commands with tables of another commit, or with one of the words, each once."""
    wanted = (
        source["command"]
        for source in sources.values()
        if any(word in source["command"] for word in words)
        or not (words or source["commit"] == commit)
    )
    return list(dict.fromkeys(wanted))


def measure(command: str) -> bool:
    """Run a command; where it ends, note that its tables are of this commit and day."""
    print(f"\n## {command}\n", flush=True)
    began = time.perf_counter()
    module, *options = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", module, *options, "--tables", TABLES], cwd=ROOT, check=False
    )
    print(f"\n{command}: {time.perf_counter() - began:.0f} s", flush=True)
    if done.returncode:
        return False
    fill = [sys.executable, "scripts/fill_tables.py", "--measured", command]
    return not subprocess.run(fill, cwd=ROOT, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="measure what has one of them")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    options = parser.parse_args()
    head = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True)
    sources = json.loads(FILE.read_text())["sources"]
    commands = to_measure(sources, commit.stdout.strip(), options.words)
    if options.list:
        print(*commands, sep="\n")
        return
    failed = [command for command in commands if not measure(command)]
    if failed:
        sys.exit(f"Not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
