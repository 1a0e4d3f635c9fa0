#!/bin/sh
# Install the package beside those whose models it takes, as their users do, and run tests/neighbours:
# beside pymc-marketing, and beside Bambi and HSSM. $1 is a Python; what follows is for pytest.
set -eu
python=$1
shift
flags=$*
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

try() {
    "$python" -m venv --clear "$place/venv"
    "$place/venv/bin/python" -m pip install -qq --disable-pip-version-check . hypothesis pytest "$@"
    echo "Beside $*: $("$place/venv/bin/python" -m pip freeze | grep -iE '^(pymc|pytensor|numpy|bambi|hssm)' | tr '\n' ' ')"
    "$place/venv/bin/python" -m pytest -q -p no:cacheprovider -m "slow or not slow" $flags tests/neighbours
}

try pymc-marketing netcdf4 zarr
try bambi hssm zarr nbclient ipykernel
