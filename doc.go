// Package berth holds the whole of Berth, a serving cluster for large language models; its programs are in cmd. See
// docs/architecture.md for a map.
package berth
