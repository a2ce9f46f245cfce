#!/usr/bin/env bash
# Runs the concurrent packages under the race detector. Usage: tools/race.sh PACKAGE...
#
# hashicorp/raft v1.8.0 has a race of its own: updateLastAppended (replication.go:660) reads a peer's id without the lock
# under which startStopReplication writes the peer when its address has changed; the id stays the same. A run whose only
# reports are that one is repeated, five times at most. Any other report, and any other failure, fails.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for try in 1 2 3 4 5; do
	go test -race "$@" 2>&1 | tee "$log" && exit 0
	all=$(grep -c 'WARNING: DATA RACE' "$log")
	raft=$(grep -A1 'Read at' "$log" | grep -c 'hashicorp/raft.updateLastAppended()')
	if [ "$all" -eq 0 ] || [ "$all" -ne "$raft" ] || grep -qE '_test\.go:[0-9]+:|^panic:' "$log"; then
		exit 1
	fi
	echo "try $try: the only reports are of raft's own race; again"
done
exit 1
