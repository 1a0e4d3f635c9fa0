#!/bin/sh
# Install what the tests of the site need: Chromium with its driver, and axe-core into $1.
set -eu
node=$1
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    if ! command -v apt-get >/dev/null; then
        echo "Install chromium and chromedriver: their tests are skipped without them." >&2
    else
        as_root=$([ "$(id -u)" = 0 ] || echo sudo)
        $as_root apt-get update -qq
        $as_root apt-get install -qq -y --no-install-recommends chromium chromium-driver >/dev/null
    fi
fi
if [ ! -f "$node/node_modules/axe-core/axe.min.js" ]; then
    mkdir -p "$node"
    npm install --silent --no-audit --no-fund --prefix "$node" axe-core@4
fi
