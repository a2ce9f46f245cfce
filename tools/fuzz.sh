#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
for file in $(grep -rlE '^func Fuzz' --include='*_test.go' .); do
    for target in $(grep -oE '^func Fuzz\w+' "$file" | cut -d' ' -f2); do
        echo "== $target in $(dirname "$file")"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$(dirname "$file")"
    done
done
