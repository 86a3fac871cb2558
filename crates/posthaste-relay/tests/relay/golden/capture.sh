#!/usr/bin/env bash
# Captures anew what the client libraries write: scripts/setup.sh receivers, then this. One JSON
# file for each library.
#
# The inputs stand in the programs beside it. A private Redis (its MONITOR, then its keys) and a
# private RabbitMQ (the frames that a client sends) are looked at by capture.py. Where the clock
# could be held it stood at 1700000000.125; ids were given; what a library makes up by itself
# differs from capture to capture.
#
# Sidekiq 8 wants Ruby 3.2. Where SIDEKIQ8 names a checkout of its sources, its own client is run on
# the redis gem. Standard Webhooks needs its Python library, of which pip fetches this version into
# a folder that goes again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../../../.."
tools=$PWD/.tools
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"

python3 -m venv "$scratch/webhooks"
"$scratch/webhooks/bin/pip" install --quiet --disable-pip-version-check standardwebhooks==1.1.0
(cd lab/testkit/receivers/asynq && "$tools/examples/go/go" build -o "$scratch/asynq" \
    "$here/asynq.go")
export NODE_PATH=$tools/receivers/bullmq/node_modules
"$tools/receivers/python/bin/python" "$here/capture.py" "$scratch" "$here"
