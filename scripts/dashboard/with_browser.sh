#!/bin/sh
# Runs a command with CHROMIUM set to a browser: the one that is named, one that is there, or Debian's package where it may be
# installed. Says why it is skipped where there is none; then it succeeds, since nothing was found wrong.
set -u
found=${CHROMIUM:-}
for name in chromium chromium-browser google-chrome; do
    [ -n "$found" ] || found=$(command -v "$name" || true)
done
if [ -z "$found" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    if (apt-get update && apt-get install --yes --no-install-recommends chromium) >/dev/null 2>&1; then
        found=$(command -v chromium || true)
    fi
fi
if [ -z "$found" ]; then
    echo "skipped: there is no Chromium, and apt-get could not install it; set CHROMIUM to one"
    exit 0
fi
CHROMIUM=$found exec "$@"
