#!/usr/bin/env bash
# Validates what is in deploy/ with the programs that will read it, or with their own code. Needs bin/ (make build), the
# Python environment of make setup, and systemd-analyze.
set -euo pipefail
cd "$(dirname "$0")/.."

go -C deploy/check run . ../compose.yaml ../otel/collector.yaml

.venv/bin/kubernetes-validate --strict deploy/k8s/*.yaml

command -v promtool >/dev/null || { echo 'promtool is missing: apt-get install prometheus' >&2; exit 1; }
promtool check rules deploy/prometheus/alerts.yaml

command -v systemd-analyze >/dev/null || { echo 'systemd-analyze is missing: apt-get install systemd' >&2; exit 1; }
units=$(mktemp -d)
trap 'rm -rf "$units"' EXIT
for unit in deploy/systemd/*.service; do # it looks whether the programs are there
    sed "s#/usr/local/bin/#$PWD/bin/#" "$unit" >"$units/$(basename "$unit")"
done
said=$(systemd-analyze verify "$units"/*.service 2>&1) # which ends well even where it complains
[ -z "$said" ] || { echo "$said" >&2; exit 1; }
echo "deploy/systemd: $(ls deploy/systemd/*.service | wc -l) units"
