#!/usr/bin/env bash
# Says which links of the documents lead nowhere, which pages docs/SUMMARY.md does not name, and
# which pictures no page shows.
#
#   scripts/links.sh           checks
#   scripts/links.sh outside   lists the files of the repository outside of docs that pages link to
#
# A link may lead to a file or folder of the repository, and to a heading of a page.
set -euo pipefail
cd "$(dirname "$0")/.."

pages() {
    printf '%s\n' README.md CHANGELOG.md CONTRIBUTING.md
    find docs -name '*.md' | LC_ALL=C sort
}

# Two kinds of lines: "anchor FILE NAME" and "link FILE TARGET LINE", both tab-separated.
facts() {
    pages | tr '\n' '\0' | LC_ALL=C xargs -0 awk '
    function anchor(text) {
        while (match(text, /\]\([^)]*\)/))
            text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
        text = tolower(text)
        gsub(/&[a-z]+;/, "", text)
        gsub(/[^a-z0-9 _-]/, "", text)
        gsub(/ /, "-", text)
        return text
    }
    FNR == 1 { fenced = 0; split("", seen) }
    /^ *```/ { fenced = !fenced; next }
    fenced { next }
    /^#+ / {
        text = $0
        sub(/^#+ +/, "", text)
        name = anchor(text)
        printf "anchor\t%s\t%s\n", FILENAME, (name in seen ? name "-" seen[name] : name)
        seen[name]++
    }
    {
        rest = $0
        gsub(/`[^`]*`/, "", rest)
        while (match(rest, /<a id="[^"]*"/)) {
            printf "anchor\t%s\t%s\n", FILENAME, substr(rest, RSTART + 7, RLENGTH - 8)
            rest = substr(rest, RSTART + RLENGTH)
        }
        while (match(rest, /\]\([^)]*\)/)) {
            printf "link\t%s\t%s\t%d\n", FILENAME, substr(rest, RSTART + 2, RLENGTH - 3), FNR
            rest = substr(rest, RSTART + RLENGTH)
        }
    }
    # [name]: target
    match($0, /^ *\[[^]]+\]: /) {
        printf "link\t%s\t%s\t%d\n", FILENAME, substr($0, RSTART + RLENGTH), FNR
        defined[FILENAME, substr($0, RSTART, RLENGTH - 2)] = 1
    }
    # [text][name], which has to be defined.
    {
        rest = $0
        gsub(/`[^`]*`/, "", rest)
        while (match(rest, /\]\[[^]]+\]/)) {
            used[FILENAME, substr(rest, RSTART + 1, RLENGTH - 1)] = FNR
            rest = substr(rest, RSTART + RLENGTH)
        }
        # [name] in a cell
        rest = $0
        gsub(/`[^`]*`/, "", rest)
        if ($0 !~ /^ *\|/) next
        while (match(rest, /\[[a-z][a-z ]*\][^[(]/)) {
            used[FILENAME, substr(rest, RSTART, RLENGTH - 1)] = FNR
            rest = substr(rest, RSTART + RLENGTH)
        }
    }
    END {
        for (one in used) if (!(one in defined)) {
            split(one, of, SUBSEP)
            printf "link\t%s\t%s\t%d\n", of[1], of[2], used[one]
        }
    }'
}

# Links within the repository, as "FILE LINE TARGET PATH ANCHOR", tab-separated, the path from the
# root.
links() {
    awk -F '\t' -v OFS='\t' '$1 == "link" && $3 !~ /^[a-z]+:/ {
        path = $3
        name = ""
        if (at = index(path, "#")) { name = substr(path, at + 1); path = substr(path, 1, at - 1) }
        folder = $2
        if (!sub(/\/[^\/]*$/, "", folder)) folder = ""
        count = split(path == "" ? $2 : (folder == "" ? path : folder "/" path), parts, "/")
        made = 0
        for (at = 1; at <= count; at++) {
            if (parts[at] == "" || parts[at] == ".") continue
            if (parts[at] == ".." && made > 0 && kept[made] != "..") made--
            else kept[++made] = parts[at]
        }
        full = made ? kept[1] : "."
        for (at = 2; at <= made; at++) full = full "/" kept[at]
        print $2, $4, $3, full, name
    }'
}

outside() {
    facts | links | awk -F '\t' '$1 ~ /^docs\// && $4 !~ /^docs\// { print $4 }' | LC_ALL=C sort -u
}

check() {
    local found broken file line target path name
    found=$(facts)
    broken=$(
        while IFS=$'\t' read -r file line target path name; do
            if [ ! -e "$path" ]; then
                echo "$file:$line: ($target): there is no $path"
            elif [ -n "$name" ] && [[ $path == *.md ]] &&
                ! grep -qxF "anchor	$path	$name" <<<"$found"; then
                echo "$file:$line: ($target): $path has no heading of that name"
            fi
        done < <(links <<<"$found")
        links <<<"$found" | awk -F '\t' '$1 == "docs/SUMMARY.md" { print $4 }' | LC_ALL=C sort -u |
            LC_ALL=C comm -13 - <(find docs -name '*.md' ! -path docs/SUMMARY.md | LC_ALL=C sort) |
            sed 's/.*/docs\/SUMMARY.md does not name &/'
        links <<<"$found" | awk -F '\t' '{ print $4 }' | LC_ALL=C sort -u |
            LC_ALL=C comm -13 - <(find docs -name '*.svg' | LC_ALL=C sort) |
            sed 's/.*/no page shows &/'
    )
    [ -z "$broken" ] || { printf '%s\n' "$broken" >&2 && return 1; }
}

case ${1:-} in
'') check ;;
outside) outside ;;
*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
