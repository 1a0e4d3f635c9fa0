#!/bin/sh
# Install the lowest versions that pyproject.toml allows into an environment of their own, try the
# installed package, and run the tests. $1 is an environment with uv; what follows is for pytest.
set -eu
venv=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$venv/bin/python" -m uv venv --quiet --python "$venv/bin/python" "$place/venv"
"$venv/bin/python" -m uv pip install --quiet --python "$place/venv/bin/python" \
    --resolution lowest-direct --only-binary :all: --no-binary pymc-coresets ".[test]"
cp scripts/smoke_test.py "$place"
(cd "$place" && venv/bin/python smoke_test.py)
# Old packages use what the newer ones below them have deprecated.
"$place/venv/bin/python" -m pytest -W ignore::DeprecationWarning -p no:cacheprovider "$@"
