//go:build race

package cpu

import "testing"

// needNoRace skips what the race detector disturbs: its own allocations count.
func needNoRace(t *testing.T) { t.Skip("the race detector allocates") }
