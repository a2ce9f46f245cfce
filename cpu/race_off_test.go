//go:build !race

package cpu

import "testing"

// needNoRace skips what the race detector disturbs.
func needNoRace(*testing.T) {}
