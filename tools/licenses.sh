#!/usr/bin/env bash
# Copies the licence and notice files of every module that the programs are built from. Usage: tools/licenses.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
mkdir -p "$out"
cp LICENSE "$out/berth-LICENSE"
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/... | sort -u | while read -r path dir; do
	[ -n "$dir" ] || continue
	find "$dir" -maxdepth 1 -type f \( -iname 'licen[sc]e*' -o -iname 'notice*' -o -iname 'copying*' \) | while read -r file; do
		mkdir -p "$out/$path"
		install -m 0644 "$file" "$out/$path/"
	done
	[ -d "$out/$path" ] || { echo "$path has no licence file" >&2; exit 1; }
done
echo "licences of $(find "$out" -type f | wc -l) files are in $out"
