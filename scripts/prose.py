"""Look for phrases that readers of the documentation stumbled over: ``make prose``.

They are translated word for word, put nouns before verbs, praise, or need the author beside the
reader. Code, formulas and quoted messages are left alone. ``python scripts/prose.py FOLDER``
looks into the docstrings and comments of a folder of sources.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (
    "README.md",
    "CONTRIBUTING.md",
    "paper.md",
    "docs/*.md",
    "docs/methods/*.md",
    "pymc_coresets/**/*.py",
)
NOT_OURS = ("docs/architecture.md",)  # describes the code, and is edited with it

# Each phrase, as a regular expression, and what to write instead.
PHRASES = {
    r"\bsays? so\b": "name what reports it, and how",
    r"\bwhoever\b": "name who, or: any",
    r"\b(?:no|any|some)body\b": "name who, or use the passive",
    r"\bat last\b": "finally, or: in the end",
    r"\bknows? nothing\b": "does not depend on, or: has no",
    r"\bkeeps? (?:its|their) word\b": "is accurate",
    r"\bflatters?\b": "is over-optimistic",
    r"\bwhat (?:it|they|the quadratic) (?:misses|missed|lacks?|sees?)\b": "name it: the error",
    r"\bwherever\b": "name the cases",
    r"\bby the way\b": "as a side effect",
    r"\bof anybody\b": "of others",
    r"coreset lacks\b": "say what is wrong, and where",
    r"what (?:it|the quadratic) leaves\b": "the residual, or: the error",
    r"anybody's": "of another method",
    r"beyond that and a tenth": "by more than that plus a tenth",
    r"\bthis is no fault": "... and no fault",
    r"stop and go on": "store and continue",
    r"\bbelongs? into": "belongs in, or: add ... to",
    r"\bon the way\b": "during the build",
    r"chose nothing": "held-out draws",
    r"\bin vain": "is reused",
    r"weights make good": "weights correct",
    r"in pictures, and for short|\bfor short\b": "leave it out",
    r"\bby far\b|\bvery\b|\bsimply\b|\bpowerful\b|\bseamless": "no praise",
    r"went astray|\bis of no use\b": "say what happened",
    r"\bcan bear\b": "can handle",
    r"\bat hand\b": "available",
    r"\bnobody's\b|\bfor the sake of\b|\bto be rid of\b": "say it in verbs",
    r"\bhonest(?:y|ly)?\b": "let the figures speak",
    r"\bother than in a\b": "unlike in a",
    r"\bstands? in \[": "is in",
    r"\bsome (?:hundred|thousand|dozen|twenty)": "a few hundred, about twenty",
    r"\bfrom [\d.]+(?: parameters)? on\b": "with 25 or more",
    r"(?<![\d.,])\d{1,3}(?: \d{3})+(?!\d)": "a comma, as in 20,000",
    r"\b(?:entry|entries|rows?|draws?|numbers?) a (?:row|draw|group|step)\b": "per",
}
ALLOWED = {"docs/measured.md": ("at hand",)}  # the name of a line of a table
_SKIPPED = re.compile(
    r"^```.*?^```|\$\$.*?\$\$|`[^`\n]*`|<!--.*?-->|^> .*?$", re.DOTALL | re.MULTILINE
)


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Return line, phrase and advice of what a text should not say."""
    blank = _SKIPPED.sub(lambda skipped: re.sub(r"[^\n]", " ", skipped[0]), text)
    flat = blank.replace("\n", " ")
    for pattern, advice in PHRASES.items():
        for phrase in re.finditer(pattern, flat, re.IGNORECASE):
            yield text.count("\n", 0, phrase.start()) + 1, phrase[0], advice


def files() -> list[Path]:
    """Return the files that are read."""
    every = [path for pattern in FILES for path in sorted(ROOT.glob(pattern))]
    return [path for path in every if path.relative_to(ROOT).as_posix() not in NOT_OURS]


def complaints(path: Path) -> list[str]:
    """Return what a file should not say, with its place."""
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line}: {phrase!r}: {advice}"
        for line, phrase, advice in found(path.read_text())
        if phrase.lower() not in ALLOWED.get(name, ())
    ]


def main() -> None:
    """Print all complaints, and fail if there are any."""
    sources = [path for name in sys.argv[1:] for path in sorted((ROOT / name).rglob("*.py"))]
    lines = [line for path in sources or files() for line in complaints(path)]
    print("\n".join(lines) or "Nothing found.")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
