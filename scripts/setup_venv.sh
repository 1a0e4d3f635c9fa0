#!/bin/sh
# Create or refresh the virtual environment in $1 with the project, editable, and its extras in $2.
set -eu
venv=$1
extras=$2
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

started=$(date +%s)
if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
    python=$(sh scripts/find_python.sh)
    echo "Creating $venv with $("$python" --version) ($python)"
    "$python" -m venv --clear "$venv"
fi
echo "Installing pymc_coresets with the extras [$extras] into $venv (one to three minutes the first time)"
# Python compiles what it imports, a tenth of the files that pip would compile: half of its time.
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --editable ".[$extras]"
"$venv/bin/python" - <<'EOF'
from importlib.metadata import version
names = ("pymc", "pytensor", "arviz", "numpy", "nutpie")
print("Installed", ", ".join(f"{name} {version(name)}" for name in names))
EOF
echo "Ready after $(($(date +%s) - started)) s"
