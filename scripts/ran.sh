#!/bin/sh
# Sums up the ledger that the tests wrote: scripts/ran.sh LEDGER [DEMAND…]
# Prints "not run: …" for each test that its machine could not run, then "ran: pg15 pg18 kills=20";
# fails where a demanded part did not run, or fewer times than demanded.
set -eu
ledger=$1
shift
sed -n '/^not run: /p' "$ledger" | sort -u
awk -F= '
    /^not run: / { next }
    NF == 1 { facts[$1] = 1; next }
    { counts[$1] += $2 }
    END {
        for (fact in facts) print "1 " fact
        for (fact in counts) print "2 " fact "=" counts[fact]
    }' "$ledger" | sort | awk -v demand="$*" '
    { line = line " " $2; split($2, part, "="); ran[part[1]] = (part[2] == "" ? 1 : part[2]) }
    END {
        print "ran:" (line == "" ? " nothing" : line)
        count = split(demand, demanded, " ")
        for (i = 1; i <= count; i++) {
            split(demanded[i], part, "=")
            if (ran[part[1]] + 0 < (part[2] == "" ? 1 : part[2] + 0))
                absent = absent " " demanded[i]
        }
        if (absent != "") { print "absent, though demanded:" absent; exit 1 }
    }'
