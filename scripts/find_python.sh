#!/bin/sh
# Print the path of a Python that can run the project, or say what was tried and what to install.
# With a version such as 3.13 as the argument, only a Python of this version will do.
#
# Order: $PYTHON if set (and then nothing else), the one pyenv selects here (.python-version),
# any other version that pyenv has, then the names that are usual on the PATH. A candidate is
# run, not trusted by its name: pyenv's shims exist for versions that are not selected.

minimum=3.12
wanted=${1:-}
tried=""

# The interpreter's own path where it is recent enough and can create virtual environments.
usable() {
    "$1" - "$minimum" "$wanted" 2>/dev/null <<'EOF'
import sys
minimum, wanted = (tuple(map(int, filter(None, v.split(".")))) for v in sys.argv[1:])
if sys.version_info < minimum or (wanted and sys.version_info[:2] != wanted):
    sys.exit(1)
import ensurepip, venv  # Debian and Ubuntu ship these apart
print(sys.executable)
EOF
}

# What a candidate is, for the message: too old, without venv, or not there.
describe() {
    "$1" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])' 2>/dev/null || echo "not found"
}

try() {
    if found=$(usable "$1") && [ -n "$found" ]; then
        echo "$found"
        exit 0
    fi
    tried="$tried
  $1: $(describe "$1")"
}

if [ -n "$PYTHON" ]; then
    try "$PYTHON"
else
    if command -v pyenv >/dev/null 2>&1; then
        selected=$(pyenv which python 2>/dev/null) && try "$selected"
        for installed in "$(pyenv root)"/versions/3.*/bin/python; do
            # Only recent ones: the message below shall not list every old version.
            [ -x "$installed" ] && [ -n "$(usable "$installed")" ] && try "$installed"
        done
    fi
    names="python3.12 python3.13 python3.14"
    [ -z "$wanted" ] || names="python$wanted"
    for name in $names python3 python; do
        try "$name"
    done
fi

cat >&2 <<EOF
pymc_coresets needs Python ${wanted:-$minimum or newer} with the venv module. Tried:$tried

Any of these gives one:
  pyenv install ${wanted:-$minimum}          (https://github.com/pyenv/pyenv)
  apt install python${wanted:-$minimum}-venv  (Debian, Ubuntu; "dnf install python${wanted:-$minimum}" on Fedora)
  brew install python@${wanted:-$minimum}     (macOS)
or name it yourself: make PYTHON=/path/to/python${wanted:-$minimum} <target>
EOF
exit 1
