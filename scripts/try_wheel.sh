#!/bin/sh
# Install the wheel $2 into a new environment made by the Python $1, and use it far from the sources.
set -eu
python=$1
wheel=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
script=$(cd "$(dirname "$0")" && pwd)/smoke_test.py

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install -qq --disable-pip-version-check "$wheel"
cd "$place"
"$place/venv/bin/python" "$script"
