#!/usr/bin/env bash
# Prints docs/evidence.md: which tests hold which sentence, from the comments in the pages.
#
#   scripts/evidence.sh > docs/evidence.md
#
# A comment `<!-- held by: file::test file::other_test -->` stands behind the paragraph, list item
# or table that the tests hold. Readers of the pages do not see it. A long name may be broken behind
# its `::`.
set -euo pipefail
cd "$(dirname "$0")/../docs"

cat <<'HEAD'
# Evidence

Which tests hold which paragraph. Each entry has the first words of the paragraph, then files of
tests, each with its functions. `scripts/evidence.sh` makes this page from comments in the others.

Files lie below `tests` of `crates/posthaste`, `crates/posthaste-relay` (`relay::`, `mail::`,
`outage::`, some of `trace::`) and `crates/posthaste-sync` (`sync::`). `cli::`, `capture::`,
`elastic::`, `testkit::` and `torture::` in front name the other crates. What ends in `_on_15` has a
twin that ends in `_on_18`.
HEAD

find . -name '*.md' ! -path ./evidence.md ! -path ./SUMMARY.md ! -path ./why/benchmarks.md |
    sed 's|^\./||' | LC_ALL=C sort | tr '\n' '\0' | LC_ALL=C xargs -0 -r awk '
    function plain(text) {
        while (match(text, /\]\([^)]*\)/))
            text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
        gsub(/\]\[[^]]*\]/, "", text)
        gsub(/!\[/, "", text)
        gsub(/[][*`]/, "", text)
        gsub(/[ \t|]+/, " ", text)
        sub(/^ *(- |[0-9]+\. )?/, "", text)
        sub(/ $/, "", text)
        return text
    }
    function anchor(text) {
        text = tolower(plain("x " text))
        sub(/^x /, "", text)
        gsub(/&[a-z]+;/, "", text)
        gsub(/[^a-z0-9 _-]/, "", text)
        gsub(/ /, "-", text)
        return text
    }
    # What looks like a tag of HTML would be one without its back-ticks.
    function shown_as(text) { gsub(/</, "\\&lt;", text); return text }
    # A title keeps its number.
    function title(text) { text = plain("x " text); sub(/^x /, "", text); return shown_as(text) }
    function first_words(text,   words, count, made, at) {
        count = split(shown_as(plain(text)), words, " ")
        for (at = 1; at <= count && at <= 4 && length(made words[at]) < 90; at++)
            made = made (at > 1 ? " " : "") words[at]
        return at <= count ? made " …" : made
    }
    # Words on lines of at most 100 columns.
    function put(text) {
        if (line != "" && length(line " " text) > 100) { print line; line = "    " text }
        else line = line == "" ? text : line " " text
    }
    function told(names,   each, count, at, file, test, before) {
        if (page != FILENAME) {
            page = FILENAME; printf "\n## [%s](%s)\n", top, FILENAME; told_of = ""
        }
        if (told_of != heading) {
            told_of = heading
            if (heading != "") printf "\n[%s][%d]\n", title(heading), ++sections
            if (heading != "") targets[sections] = FILENAME "#" anchor(heading)
            print ""
        }
        else if (page_begun != FILENAME) print ""
        page_begun = FILENAME
        printf "- %s\n", first_words(block)
        gsub(/::[ \t]+/, "::", names)
        count = split(names, each, " ")
        before = ""
        for (at = 1; at <= count; at++) {
            file = test = each[at]
            sub(/::[^:]*$/, "", file)
            sub(/.*::/, "", test)
            if (file != before) {
                if (line != "") print line
                line = ""
                put("  - " file ":")
            }
            before = file
            put("`" test "`")
        }
        print line
        line = ""
    }
    END { print ""; for (at = 1; at <= sections; at++) printf "[%d]: %s\n", at, targets[at] }
    FNR == 1 { heading = ""; block = ""; top = FILENAME; fenced = 0; inside = 0; ended = 1 }
    /^ *```/ { fenced = !fenced; next }
    fenced { next }
    /^# / { top = title(substr($0, 3)); next }
    /^##+ / { heading = $0; sub(/^#+ /, "", heading); ended = 1; next }
    /<!-- held by:/ {
        before = $0
        sub(/<!-- held by:.*/, "", before)
        if (before !~ /^ *$/) { block = ended ? before : block " " before; ended = 0 }
        names = $0
        sub(/.*<!-- held by:/, "", names)
        inside = 1
    }
    inside {
        if ($0 !~ /<!-- held by:/) names = names " " $0
        if ($0 ~ /-->/) { inside = 0; sub(/ *-->.*/, "", names); told(names) }
        next
    }
    /^ *$/ { ended = 1; next }
    # Where a reference leads, and a mark for the tests.
    /^\[[^]]+\]: / || /^<!-- / { next }
    ended || /^ *(- |[0-9]+\. )/ { block = ""; ended = 0 }
    # Of a table its head.
    /^ *\|/ && block ~ /^ *\|/ { next }
    { block = block " " $0 }
'
