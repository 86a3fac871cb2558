#!/usr/bin/env bash
# Compiles the library with none of its features, and with each of them alone.
set -euo pipefail
cd "$(dirname "$0")/.."

features=$(sed -n '/^\[features\]/,/^\[/s/^\([a-z-]*\) = .*/\1/p' crates/posthaste/Cargo.toml)
for feature in "" $features; do
  echo "features: ${feature:-none}"
  cargo clippy --quiet -p posthaste --no-default-features --features "$feature" -- -D warnings
done
