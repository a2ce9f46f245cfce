#!/usr/bin/env bash
# Measures Berth beside llama.cpp on this machine, turn by turn, and prints a table. Usage: tools/bench.sh [rounds] [threads]
# llama.cpp's programs are looked for in $LLAMA_CPP, else .peers/bin; tools/build-llama-cpp.sh builds them.
set -euo pipefail
cd "$(dirname "$0")/.."
llama=${LLAMA_CPP:-.peers/bin}
[ -x "$llama/llama-batched-bench" ] || tools/build-llama-cpp.sh .peers
model=$(bin/berth pull --json gemma3-270m | sed 's/.*"path":"\([^"]*\)".*/\1/')
go test -c -o bin/backend.test ./backendtest
go run ./tools/bench --rounds "${1:-5}" --threads "${2:-$(nproc)}" --llama "$llama" --model "$model"
