#!/bin/bash
# Two tenants with weights 1 and 3 load a running cluster, both with more than it can take, and should be served 1 : 3.
# The cluster asks for keys from then on. Usage: tools/tenants.sh [SECONDS] [URL] [ADMIN]; wants bin/berth.
set -euo pipefail
seconds=${1:-60} url=${2:-http://127.0.0.1:8080} admin=${3:-http://127.0.0.1:8082}
berth=${BERTH:-bin/berth}

put() { "$berth" tenants --admin "$admin" --json put "$1" --weight "$2" --new-key | sed -n 's/.*"new_key":"\([^"]*\)".*/\1/p'; }
served() { "$berth" tenants --admin "$admin" --json show "$1" | sed -n 's/.*"service":\([0-9]*\).*/\1/p'; }

for t in red:1 blue:3; do
	key=$(put "${t%:*}" "${t#*:}")
	"$berth" bench --url "$url" --key "${t%:*}=$key" --workload unique --requests 100000 --concurrency 32 --max-tokens 32 >/dev/null 2>&1 &
	loads+=($!)
done
trap 'kill "${loads[@]}" 2>/dev/null || true' EXIT
sleep 10
red=$(served red) blue=$(served blue)
sleep "$seconds"
red=$(($(served red) - red)) blue=$(($(served blue) - blue)) # by weight: equal is fair
awk -v r="$red" -v b="$blue" 'BEGIN { printf "red %.0f, blue %.0f weighted tokens: 1 : %.3f\n", r/4096, 3*b/4096, 3*b/r; exit !(b/r > 0.95 && b/r < 1.05) }'
