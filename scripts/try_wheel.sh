#!/bin/sh
# Try the wheel $2 far from the sources, with each Python that pyproject.toml supports, or with those
# named after it: in a new environment, the smoke test, the time of an import, the types that a user's
# mypy sees, and whether every extra can be installed. $1 is a Python with mypy and uv.
# Pythons that are not on this machine are named; if there is none at all, that is an error.
set -eu
tools=$1
wheel=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
shift 2
scripts=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- $(sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' "$scripts/../pyproject.toml")

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp "$scripts/smoke_test.py" "$scripts/import_time.py" "$place"
# The second and the last line are errors that types must find: mypy would say that they are none.
cat > "$place/user.py" <<'EOF'
from pymc_coresets import Coreset, build_coreset
from pymc_coresets import build_corset  # type: ignore[attr-defined]
coreset: Coreset = build_coreset(random_seed=1)
build_coreset(size="many")  # type: ignore[arg-type]
EOF
cd "$place"

try() {
    echo "Python $1 ($2)"
    "$2" -m venv venv
    venv/bin/python -m pip install -qq --disable-pip-version-check "$wheel"
    venv/bin/python smoke_test.py
    venv/bin/python import_time.py
    "$tools" -m mypy --strict --python-executable venv/bin/python user.py
    extras=$(venv/bin/python -c 'from importlib.metadata import metadata
print(*metadata("pymc-coresets").get_all("Provides-Extra"))')
    for extra in $extras; do
        "$tools" -m uv pip install --quiet --dry-run --python venv/bin/python "pymc-coresets[$extra] @ file://$wheel"
    done
    echo "extras that can be installed: $extras"
    rm -rf venv
}

missing=""
tried=""
for version in "$@"; do
    if python=$(cd "$scripts/.." && sh scripts/find_python.sh "$version" 2>/dev/null); then
        try "$version" "$python"
        tried="$tried $version"
    else
        missing="$missing $version"
    fi
done
echo "The wheel works with Python${tried:- (none)}.${missing:+ Not on this machine, and not tried:$missing.}"
[ -n "$tried" ]
