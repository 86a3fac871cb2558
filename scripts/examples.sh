#!/usr/bin/env bash
# Runs the examples in other languages against a private Postgres, and looks at the database from
# outside after each: what was committed is there exactly, of what was rolled back there is nothing.
# Then a worker really runs the jobs. Arguments name the languages to run: scripts/examples.sh
# python go. Without any, all run. POSTHASTE_PROGRAM names a program that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

root=$PWD
tools=$root/.tools/examples
languages=("$@")
[ ${#languages[@]} -gt 0 ] || languages=(python node go ruby)
pids=()
failed=0

main() {
    # The one of whoever calls is not for this.
    unset DATABASE_URL
    scripts/setup.sh examples "${languages[@]}"
    posthaste=${POSTHASTE_PROGRAM:-}
    if [ -z "$posthaste" ]; then
        cargo build --quiet -p posthaste-cli
        posthaste=$(realpath "${CARGO_TARGET_DIR:-target}")/debug/posthaste
    fi
    work=$(mktemp -d)
    trap end EXIT
    trap 'exit 130' INT TERM
    # The servers' account must be able to walk through.
    chmod 755 "$work"
    : >"$work/ran"
    start_postgres
    local language
    for language in "${languages[@]}"; do "in_$language"; done
    worked
    # Each folder is an example: one that did not run is missing.
    local demand=()
    for language in "${languages[@]}"; do
        demand+=("$language=$(find "examples/$language" -mindepth 2 \
            \( -name 'enqueue.*' -o -name 'receive.*' -o -name 'delay.*' \
            -o -name 'verify.*' \) | wc -l)")
    done
    scripts/ran.sh "$work/ran" "${demand[@]}"
    return "$failed"
}

end() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
    rm -rf "$work"
}

# --- the languages --------------------------------------------------------------------------------

in_python() {
    example python psycopg "$tools/python/bin/python" examples/python/psycopg/enqueue.py
    example python sqlalchemy "$tools/python/bin/python" examples/python/sqlalchemy/enqueue.py
    example python django "$tools/python/bin/python" examples/python/django/enqueue.py
    receiver python psycopg "$tools/python/bin/python" examples/python/psycopg/receive.py
    delays python psycopg "$tools/python/bin/python" examples/python/psycopg/delay.py
    verifier python webhook "$tools/python/bin/python" examples/python/webhook/verify.py
}

# Node looks for packages above the program, so the programs go to their packages.
in_node() {
    cp -r examples/node/*/ "$tools/node/"
    example node pg node "$tools/node/pg/enqueue.js"
    example node drizzle node "$tools/node/drizzle/enqueue.js"
    receiver node pg node "$tools/node/pg/receive.js"
    verifier node webhook node "$tools/node/webhook/verify.js"
}

in_go() {
    (cd examples/go && "$tools/go/go" vet ./... && "$tools/go/go" build -o "$work/go/" ./...)
    example go pgx "$work/go/pgx"
    receiver go pgx "$work/go/receive"
    verifier go verify "$work/go/verify"
}

in_ruby() {
    example ruby activerecord ruby examples/ruby/activerecord/enqueue.rb
    receiver ruby activerecord ruby examples/ruby/activerecord/receive.rb
    verifier ruby webhook ruby examples/ruby/webhook/verify.rb
    enqueues_what_it_has_enqueued
}

# Rails answers a SELECT that it has asked before from its cache.
enqueues_what_it_has_enqueued() {
    if run ruby -I examples/ruby/activerecord -e 'require "enqueue"
        Job.cache do
          Job.transaction do
            ids = 2.times.map { Job.enqueue("mail.welcome", {}) }
            abort "the second is the first: #{ids}" if ids.uniq.size < 2
            raise ActiveRecord::Rollback
          end
        end'; then
        echo "ruby activerecord: the same job twice is two jobs, under the query cache too"
    else
        complain "ruby activerecord: the query cache answered for an enqueue"
        failed=1
    fi
}

# --- one example ----------------------------------------------------------------------------------

example() {
    local language=$1 tool=$2
    shift 2
    if commits "$tool" "$@" && rolls_back "$tool" "$@"; then
        echo "$language $tool: committed the customer and both jobs; rolled back all three"
        echo "$language=1" >>"$work/ran"
        printf '%s\n' "$(name_of "$tool")" >>"$work/welcomed"
    else
        echo "$language $tool: FAILED"
        failed=1
    fi
}

# One that receives: what fails leaves no trace, then the same delivery has its effect, and never
# again.
receiver() {
    local language=$1 tool=$2 id name before
    shift 2
    id=$(ask -c 'SELECT gen_random_uuid()')
    name="$(name_of "$tool") receives"
    before=$(count)
    if run "$@" "$id" "$name" declined; then
        complain "$tool: the declined card went through" && failed=1 && return
    fi
    if grep -q 'the card was declined' "$work/err" &&
        expect "$tool: customers and jobs after the rollback" "$(count)" "$before" &&
        run "$@" "$id" "$name" valid &&
        expect "$tool: the first delivery" "$(cat "$work/out")" first &&
        run "$@" "$id" "$name" valid &&
        expect "$tool: the second delivery" "$(cat "$work/out")" again &&
        expect "$tool: customers and jobs after both" "$(count)" \
            "$((${before% *} + 1)) ${before#* }"; then
        echo "$language $tool: a delivery that came thrice had its effect once"
        echo "$language=1" >>"$work/ran"
    else
        complain "$language $tool: FAILED to receive"
        failed=1
    fi
}

# One that has Celery's calls: each is a job with Celery's arguments, one of them for later.
delays() {
    local language=$1 tool=$2
    shift 2
    if run "$@" Ada && enqueued &&
        expect "$tool: the jobs" "$(ask -c "SELECT name, queue, state, kwargs FROM posthaste.job
            WHERE id IN ($welcome, $reminder) ORDER BY id")" \
            'shop.tasks.welcome celery available {"args": ["Ada"]}
shop.tasks.welcome celery scheduled {"name": "Ada"}'; then
        echo "$language $tool: delay() enqueues"
        echo "$language=1" >>"$work/ran"
    else
        complain "$language $tool: FAILED to delay"
        failed=1
    fi
    # Nothing of them is left for the worker.
    ask -c "SELECT posthaste.cancel($welcome), posthaste.cancel($reminder)" >/dev/null
    ask -c "DELETE FROM posthaste.dead WHERE name = 'shop.tasks.welcome'"
}

# One that checks signatures: it accepts its own and one of two, and refuses an old one, another
# body and another secret.
verifier() {
    local language=$1 tool=$2 now body='{"to": "Zoë"}' wrong=0
    local secret other id=0190d5a2-0000-7000-8000-00000000002a
    shift 2
    now=$(date +%s)
    secret=whsec_$(openssl rand -base64 32)
    other=whsec_$(openssl rand -base64 32)
    verifies "$tool: its own" signed "$now" "$(signature "$secret" "$id.$now.$body")" "$@" &&
        verifies "$tool: one of two" signed "$now" \
            "$(signature "$other" "$id.$now.$body") $(signature "$secret" "$id.$now.$body")" "$@" &&
        verifies "$tool: an old one" refused $((now - 600)) \
            "$(signature "$secret" "$id.$((now - 600)).$body")" "$@" &&
        verifies "$tool: of another body" refused "$now" \
            "$(signature "$secret" "$id.$now.$body ")" "$@" &&
        verifies "$tool: of another secret" refused "$now" \
            "$(signature "$other" "$id.$now.$body")" "$@" || wrong=1
    if [ "$wrong" = 0 ]; then
        echo "$language $tool: accepts what is signed and refuses the rest"
        echo "$language=1" >>"$work/ran"
    else
        complain "$language $tool: FAILED to verify"
        failed=1
    fi
}

verifies() {
    local message=$1 expected=$2 timestamp=$3 signatures=$4
    shift 4
    WEBHOOK_SECRET=$secret run "$@" "$id" "$timestamp" "$signatures" <<<"$body" &&
        expect "$message" "$(cat "$work/out")" "$expected"
}

# As Standard Webhooks define it: of a secret and a text.
signature() {
    local key
    key=$(base64 -d <<<"${1#whsec_}" | od -An -v -tx1 | tr -d ' \n')
    printf 'v1,%s' "$(printf '%s\n' "$2" |
        openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)"
}

# What needs quoting in one language or another.
name_of() { printf '%s' "Zoë O'Hara \"$1\" \\ ?"; }

# A program's time zone is not the server's.
run() { TZ=Asia/Kathmandu timeout 60 "$@" >"$work/out" 2>"$work/err"; }

commits() {
    local tool=$1 name before
    shift
    name=$(name_of "$tool")
    before=$(count)
    run "$@" "$name" valid || { complain "$tool: the program failed" && return 1; }
    enqueued || { complain "$tool: it printed no two jobs" && return 1; }
    expect "$tool: after the commit" "$(committed "$name")" \
        "mail.welcome default available t t t
mail.reminder reminders scheduled t t t" || return 1
    expect "$tool: customers and jobs after the commit" "$(count)" \
        "$((${before% *} + 1)) $((${before#* } + 2))"
}

rolls_back() {
    local tool=$1 before
    shift
    before=$(count)
    if run "$@" nobody declined; then
        complain "$tool: the declined card went through" && return 1
    fi
    grep -q 'the card was declined' "$work/err" ||
        { complain "$tool: it failed otherwise" && return 1; }
    enqueued || { complain "$tool: it failed before both jobs were enqueued" && return 1; }
    expect "$tool: jobs of the rollback" "$(committed nobody)" "" || return 1
    expect "$tool: customers and jobs after the rollback" "$(count)" "$before"
}

# The program prints the ids that it got.
enqueued() {
    read -r welcome reminder rest <"$work/out" &&
        [[ "$welcome $reminder$rest" =~ ^[0-9]+\ [0-9]+$ ]]
}

committed() {
    ask -v name="$1" -v welcome="$welcome" -v reminder="$reminder" \
        -f examples/committed.sql
}
count() { ask -c 'SELECT (SELECT count(*) FROM customer), (SELECT count(*) FROM posthaste.job)'; }

expect() {
    [ "$2" = "$3" ] || { complain "$1: expected \"$3\", found \"$2\"" && return 1; }
}

complain() {
    echo "$1" >&2
    sed 's/^/  | /' "$work/out" "$work/err" >&2
}

# --- the worker -----------------------------------------------------------------------------------

# Each welcome reaches a worker once, with its arguments; the reminders wait for tomorrow.
worked() {
    [ -s "$work/welcomed" ] || return 0
    printf '%s\n' '#!/bin/sh' \
        "printf '%s %s\\n' \"\$POSTHASTE_JOB_NAME\" \"\$(cat)\" >>'$work/worked'" >"$work/note"
    chmod 755 "$work/note"
    : >"$work/worked"
    start_worker --queue default=2 --queue reminders=2 --exec "mail.*=$work/note"
    local tries=0
    until [ "$(ask -c "SELECT count(*) FROM posthaste.job WHERE name = 'mail.welcome'")" = 0 ] ||
        [ $((tries += 1)) -gt 300 ]; do
        sleep 0.1
    done
    stop_worker
    local jobs
    jobs=$(wc -l <"$work/welcomed")
    expect "what the worker ran" "$(ran_welcomes | sort)" \
        "$(sed 's/^/mail.welcome t /' "$work/welcomed" | sort)" || failed=1
    expect "what is left" \
        "$(ask -c "SELECT name, state, count(*) FROM posthaste.job GROUP BY 1, 2")" \
        "mail.reminder scheduled $jobs" || failed=1
    [ "$failed" -ne 0 ] ||
        echo "worker: ran each of the $jobs welcomes once, with its arguments; the reminders wait"
}

# Each run's job, whether its arguments are those of the customer, and the customer.
ran_welcomes() {
    local name json
    while read -r name json; do
        echo "$name $(ask -v json="$json" -f <(echo "
            SELECT jsonb_build_object('customer', id, 'to', name) = :'json'::jsonb, name
              FROM customer WHERE name = :'json'::jsonb->>'to'"))"
    done <"$work/worked"
}

# --- the private Postgres -------------------------------------------------------------------------

# `posthaste migrate` makes it; each program of posthaste that runs in the folder keeps it up, and
# the last one stops it. So a worker without work is there as long as this script.
start_postgres() {
    local bin
    bin=$(scripts/setup.sh pg-bin)
    [ -z "$bin" ] || export POSTHASTE_PG_BIN=$bin
    psql=$(find_psql)
    (cd "$work" && "$posthaste" migrate >"$work/migrate.log" 2>&1) ||
        { cat "$work/migrate.log" >&2 && return 1; }
    start_worker --queue idle=1 --exec idle=true
    DATABASE_URL=$(cat "$work/.posthaste/url")
    export DATABASE_URL
    ask -f examples/customer.sql
}

find_psql() {
    local program
    for program in "${POSTHASTE_PG_BIN:-}/psql" "$(type -P psql)" /usr/lib/postgresql/*/bin/psql; do
        if [ -x "$program" ]; then echo "$program" && return; fi
    done
    echo "examples: no psql" >&2
    return 1
}

ask() { "$psql" -X -q -A -t -F ' ' -v ON_ERROR_STOP=1 "$@" "$DATABASE_URL"; }

start_worker() {
    local log=$work/worker.${#pids[@]} tries=0
    (cd "$work" && DATABASE_URL='' exec "$posthaste" work "$@") >"$log" 2>&1 &
    pids+=($!)
    until grep -q 'working on' "$log"; do
        if ! kill -0 "${pids[-1]}" 2>/dev/null || [ $((tries += 1)) -gt 600 ]; then
            cat "$log" >&2 && return 1
        fi
        sleep 0.1
    done
}

stop_worker() {
    kill "${pids[-1]}" && wait "${pids[-1]}"
    unset 'pids[-1]'
}

main
