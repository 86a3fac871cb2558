#!/usr/bin/env bash
# Builds the documentation as a book into target/book, with mdBook.
#
# Pages link to files of the repository by relative paths, as a Git host shows them. The book has
# copies of these files in its folder `source`, and its links lead there.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH:$HOME/.cargo/bin"

book=target/book
rm -rf "$book"
told=$(mdbook build docs 2>&1) || { printf '%s\n' "$told" >&2 && exit 1; }
# What looks like an unclosed tag of HTML is lost for readers.
if grep -A 1 WARN <<<"$told" >&2; then exit 1; fi
[ -n "$(find "$book" -maxdepth 1 -name 'searchindex*')" ] ||
    { echo "the book cannot be searched" >&2 && exit 1; }
scripts/links.sh outside | while read -r path; do
    mkdir -p "$book/source/$(dirname "$path")"
    cp -rT "$path" "$book/source/$path"
done
# A link that climbs out of the book climbs as many folders as its page lies deep, and one more.
find "$book" -name '*.html' ! -path "$book/source/*" | while read -r page; do
    inside=${page#"$book/"}
    up=$(dirname "$inside" | sed 's|^\.$||; s|[^/][^/]*|..|g')
    sed -i "s|href=\"${up:+$up/}\.\./|href=\"${up:+$up/}source/|g" "$page"
done
echo "the book: $book/index.html"
