#!/usr/bin/env bash
# Measures Berth on this machine: its CPU device beside llama.cpp, turn by turn; whole servers under load; what the ledger
# adds to an admission; how long a cluster takes to be ready, and what it holds in memory.
# Usage: tools/bench.sh [rounds] [threads]
# llama.cpp's programs are looked for in $LLAMA_CPP, else .peers/bin; tools/build-llama-cpp.sh builds them.
set -euo pipefail
cd "$(dirname "$0")/.."
llama=${LLAMA_CPP:-.peers/bin}
[ -x "$llama/llama-batched-bench" ] || tools/build-llama-cpp.sh .peers
model=$(bin/berth pull --json gemma3-270m | sed 's/.*"path":"\([^"]*\)".*/\1/')
go test -c -o bin/backend.test ./backendtest
go build -o bin/bench ./tools/bench

echo "machine: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) processors; commit $(git rev-parse --short HEAD)"
echo
bin/bench --rounds "${1:-5}" --threads "${2:-$(nproc)}" --llama "$llama" --model "$model"
echo
bin/bench --served --rounds 1 --threads "${2:-$(nproc)}" --llama "$llama" --model "$model"

echo
echo "ledger, one node on this disk:"
go test -run '^$' -bench Reserve -benchtime 2s ./consensus | grep '^Benchmark'
go test -run '^$' -bench . ./consensus/ledger | grep '^Benchmark'

dir=$(mktemp -d)
trap 'kill "$up" 2>/dev/null || true; rm -rf "$dir"' EXIT
began=$(date +%s%N)
bin/berth up --workers 1 --data "$dir/up" --addr-file "$dir/addrs" >/dev/null &
up=$!
while [ ! -s "$dir/addrs" ]; do sleep 0.01; done
ready=$(date +%s%N)
bin/berth complete --max-tokens 64 "Once upon a time" >/dev/null 2>&1
echo
echo "from start to ready, one router and one worker, warm file cache: $(((ready - began) / 1000000)) ms"
for child in $(pgrep -P "$up"); do
    echo "resident after a request: $(tr -d '\0' <"/proc/$child/comm") $(awk '/VmRSS/ {print $2, $3}' "/proc/$child/status")"
done
kill "$up"
wait "$up"
