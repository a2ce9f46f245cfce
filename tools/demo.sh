#!/usr/bin/env bash
# The whole path once: model, router, two workers, an answer, the cluster's state, the request's trace.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'kill "$up" 2>/dev/null && wait "$up" 2>/dev/null; rm -rf "$dir"' EXIT

bin/berth pull gemma3-270m >/dev/null
echo '$ berth up --workers 2 --kv-memory 512MiB'
bin/berth up --workers 2 --kv-memory 512MiB --data "$dir/up" --addr-file "$dir/addrs" &
up=$!
while [ ! -s "$dir/addrs" ]; do kill -0 "$up"; sleep 0.1; done

echo
echo '$ berth complete --max-tokens 48 "The lighthouse keeper climbed the stairs because"'
bin/berth complete --max-tokens 48 "The lighthouse keeper climbed the stairs because" 2>"$dir/said"
request=$(sed -n 's/^request //p' "$dir/said")

echo
echo '$ berth status'
bin/berth status
echo
echo "\$ berth trace $request"
bin/berth trace "$request"
echo
kill "$up"
wait "$up"
trap 'rm -rf "$dir"' EXIT
