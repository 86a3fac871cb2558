# shellcheck shell=bash
# The servers behind the relay and beside the exporter, workers on them that people run, and the
# browser before the console: sourced by scripts/setup.sh.

receivers=(redis rabbitmq nats kafka opensearch sidekiq asynq python_workers bullmq promtool
    alertmanager browser)
received=$tools/receivers
receivers_sources=lab/testkit/receivers

# Like the tests, which look no further. Debian's servers are run with private folders and ports.
has_redis() { has_command redis-server && has_command redis-cli; }
packages_for_redis() { packages+=(redis-server redis-tools); }
install_redis() { :; }
missing_redis() { missing+=("Redis (Debian: redis-server redis-tools)"); }

has_rabbitmq() {
    [ -x "${POSTHASTE_RABBITMQ_BIN:-/usr/lib/rabbitmq/bin}/rabbitmq-server" ] &&
        has_command epmd
}
packages_for_rabbitmq() { packages+=(rabbitmq-server); }
install_rabbitmq() { :; }
missing_rabbitmq() {
    lacks "RabbitMQ (Debian: rabbitmq-server); elsewhere name the folder of rabbitmq-server and" \
        "rabbitmqctl in POSTHASTE_RABBITMQ_BIN"
}

has_nats() { has_command nats-server; }
packages_for_nats() { packages+=(nats-server); }
install_nats() { :; }
missing_nats() { missing+=("NATS (Debian: nats-server)"); }

has_alertmanager() { has_command prometheus-alertmanager || has_command alertmanager; }
packages_for_alertmanager() { packages+=(prometheus-alertmanager); }
install_alertmanager() { :; }
missing_alertmanager() { missing+=("Alertmanager (Debian: prometheus-alertmanager)"); }

has_command() { [ -n "$(PATH="$PATH:/usr/sbin:/usr/local/sbin" type -P "$1")" ]; }

# --- Kafka's jars, which Maven copies; kafka_2.13 is a broker whole -------------------------------

has_kafka() { has_java && is_installed kafka pom.xml sha256sums; }
has_java() {
    [ "$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')" -ge 17 ] \
        2>/dev/null
}
packages_for_kafka() {
    has_java || packages+=(default-jre-headless)
    has_command mvn || packages+=(maven ca-certificates)
}
install_kafka() {
    has_java && has_command mvn || return
    say "a Kafka broker ($receivers_sources/kafka/pom.xml)"
    local place=$received/kafka
    rm -rf "$place" && mkdir -p "$place" || return
    # A store of its own, gone at once: the user's stays as it is.
    quietly mvn -B -q -f "$receivers_sources/kafka/pom.xml" "-Dmaven.repo.local=$place/store" \
        dependency:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$place/lib" || return
    rm -rf "$place/store"
    (cd "$place/lib" &&
        quietly sha256sum --strict --check "$OLDPWD/$receivers_sources/kafka/sha256sums") || return
    mark_installed kafka pom.xml sha256sums
}
missing_kafka() { missing+=("Kafka (Java 17 or newer, and Maven with a way to Maven Central)"); }

# --- OpenSearch: the bare server, and beside it the modules that it lacks -------------------------

has_opensearch() {
    # shellcheck disable=SC2046 # One word per file.
    has_java && is_installed opensearch $(opensearch_sources) &&
        as_servers test -r "$(realpath "$received/opensearch")/lib"
}
opensearch_sources() { (cd "$receivers_sources/opensearch" && LC_ALL=C find . -type f | sort); }
packages_for_opensearch() { packages_for_kafka; }
install_opensearch() {
    has_java && has_command mvn || return
    local place=$received/opensearch sources=$PWD/$receivers_sources/opensearch
    # It refuses root, as Postgres does, and a home folder of mode 0700 hides what is below it.
    if ! as_servers test -x "$tools" && [ "$(id -u)" -eq 0 ]; then
        place=$state/opensearch
        mkdir -p "$state" && chmod 755 "$state"
    fi
    say "an OpenSearch ($receivers_sources/opensearch/pom.xml) into $place"
    rm -rf "$place" "$received/opensearch" && mkdir -p "$place" "$received" || return
    # A store of its own, gone at once: the user's stays as it is.
    quietly mvn -B -q -f "$sources/pom.xml" "-Dmaven.repo.local=$place/store" "-Dto=$place" \
        dependency:unpack@server dependency:copy@modules || return
    rm -rf "$place/store"
    (cd "$place" && quietly sha256sum --strict --check "$sources/sha256sums") || return
    cp -r "$sources/modules" "$place" && chmod -R a+rX "$place" || return
    [ "$place" = "$received/opensearch" ] || ln -s "$place" "$received/opensearch" || return
    # shellcheck disable=SC2046
    mark_installed opensearch $(opensearch_sources)
}
missing_opensearch() {
    lacks "OpenSearch (Java 17 or newer, and Maven with a way to Maven Central)"
}

# --- workers --------------------------------------------------------------------------------------

has_sidekiq() {
    ruby -e 'gem "sidekiq", ">= 6.4"; require "sidekiq"' 2>/dev/null &&
        has_command sidekiq
}
packages_for_sidekiq() { packages+=(ruby ruby-sidekiq); }
install_sidekiq() { :; }
missing_sidekiq() { missing+=("Sidekiq 6.4 or newer (Debian: ruby-sidekiq)"); }

has_asynq() { is_installed asynq go.mod go.sum main.go && [ -x "$received/asynq/worker" ]; }
packages_for_asynq() { has_go || packages_for_go_examples; }
install_asynq() {
    has_go || install_go || return
    say "an asynq worker ($receivers_sources/asynq)"
    mkdir -p "$received/asynq" || return
    (cd "$receivers_sources/asynq" && quietly "$examples/go/go" build -mod=readonly \
        -o "$received/asynq/worker" .) || return
    mark_installed asynq go.mod go.sum main.go
}
missing_asynq() {
    lacks "an asynq worker (Go 1.$(go_minor) or newer, with a way to its modules)"
}

# Celery, and clients for RabbitMQ, NATS and SMTP.
has_python_workers() {
    [ -x "$received/python/bin/python" ] &&
        is_installed python requirements.txt
}
packages_for_python_workers() { packages_for_pg18; }
install_python_workers() {
    say "the Python packages of $receivers_sources/python/requirements.txt"
    venv_with "$received/python" -r "$receivers_sources/python/requirements.txt" || return
    mark_installed python requirements.txt
}
missing_python_workers() {
    lacks "Celery, aiosmtpd and clients for RabbitMQ and NATS (Python 3 with venv and pip)"
}

has_bullmq() { has_node && is_installed bullmq package.json package-lock.json; }
packages_for_bullmq() { packages_for_node_examples; }
install_bullmq() { install_npm bullmq; }
missing_bullmq() { missing+=("BullMQ (Node.js 18 or newer with npm)"); }
install_npm() {
    has_node || return
    local name=$1
    say "the npm packages of $receivers_sources/$name/package-lock.json"
    mkdir -p "$received/$name" &&
        cp "$receivers_sources/$name"/package*.json "$received/$name/" || return
    # npm does not follow a link to the folder that it is given.
    (cd -P "$received/$name" &&
        quietly npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) || return
    mark_installed "$name" package.json package-lock.json
}

# --- the browser before the console, and the rules of accessibility that it is asked to check -----

has_browser() { has_chromium && is_installed axe package.json package-lock.json; }
# ChromeDriver drives the browser of its own version, which its package brings along.
has_chromium() {
    local program
    has_command chromedriver || return
    for program in chromium chromium-browser google-chrome google-chrome-stable; do
        has_command "$program" && return
    done
    return 1
}
packages_for_browser() {
    if ! has_chromium; then
        packages+=(chromium chromium-driver fonts-dejavu-core)
        # Does what the tests want of a browser, with less.
        ! apt_offers chromium-headless-shell || packages+=(chromium-headless-shell)
    fi
    packages_for_node_examples
}
install_browser() { install_npm axe; }
missing_browser() {
    lacks "Chromium with ChromeDriver (Debian: chromium chromium-driver), and axe-core" \
        "(Node.js 18 or newer with npm)"
}

# Beside what was installed lies what it was made from: other sources mean to do it again.
is_installed() {
    local name=$1
    shift
    sources_of "$name" "$@" | cmp -s - "$received/$name/installed"
}
mark_installed() {
    local name=$1
    shift
    sources_of "$name" "$@" >"$received/$name/installed"
}
sources_of() {
    local folder=$receivers_sources/$1 file
    shift
    for file in "$@"; do cat "$folder/$file"; done
}
