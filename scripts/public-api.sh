#!/usr/bin/env bash
# The public items of the crates that are published, as rustdoc lists them after `make docs`: held
# against crates/*/public-api.txt, so that nothing becomes public, or ceases to be, unnoticed.
# With --write the lists are written instead.
set -euo pipefail
cd "$(dirname "$0")/.."

items() {
    grep -o 'href="[^"]*\.html"' "${CARGO_TARGET_DIR:-target}/doc/$1/all.html" |
        sed -nE 's|href="(.*/)?([a-z]+)\.([A-Za-z0-9_]+)\.html"|\2 \1\3|p' |
        sed "s|/|::|g; s| | $1::|" | LC_ALL=C sort
}

status=0
for crate in posthaste posthaste_capture posthaste_console posthaste_elastic posthaste_observe \
    posthaste_relay posthaste_sync posthaste_tantivy; do
    list=crates/${crate//_/-}/public-api.txt
    now=$(items "$crate") || { echo "no documentation of $crate: make docs" >&2 && exit 1; }
    if [ "${1:-}" = --write ]; then
        printf '%s\n' "$now" >"$list"
    elif ! diff -u "$list" <(printf '%s\n' "$now"); then
        echo "$list differs from what is public: make docs && scripts/public-api.sh --write" >&2
        status=1
    fi
done
exit "$status"
