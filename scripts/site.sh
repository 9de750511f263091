#!/bin/bash
# Builds the documentation site: target/site/book/index.html. The pages are those that the README's table of pages
# links to, at the same paths, so that their links hold; mdBook is built once, into .cache/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
site=${CARGO_TARGET_DIR:-target}/site
export PATH="$PWD/.cache/tools/bin:$PATH"
command -v mdbook >/dev/null || cargo install --locked --quiet --root .cache/tools --no-default-features --features search mdbook

rm -rf "$site"
mkdir -p "$site/src"
# The pages, and what they show or link to.
git ls-files -z -- '*.md' '*.svg' docs LICENSE-APACHE LICENSE-MIT dat.conf | xargs -0 cp --parents -t "$site/src"

# title FILE: prints a page's first heading.
title() { sed -n '/^# /{s/^# //p;q}' "$1"; }

{
    echo "# Summary"
    echo "[$(title README.md)](README.md)"
    sed -n '/^## Documentation/,$p' README.md | grep -oE '\]\([A-Za-z/_-]+\.md\)' | sed 's/^](//; s/)$//' | awk '!seen[$0]++' |
        while read -r page; do
            echo "- [$(title "$page")]($page)"
        done
} >"$site/src/SUMMARY.md"

cat >"$site/book.toml" <<'END'
[book]
title = "DAT in Rust"
src = "src"

[build]
build-dir = "book"
create-missing = false

[output.html]
no-section-label = true
git-repository-url = ""
END
mdbook build "$site"
echo "site: $(grep -c '^- ' "$site/src/SUMMARY.md") pages in $site/book/index.html"
