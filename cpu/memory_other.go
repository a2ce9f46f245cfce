//go:build !linux

package cpu

// adviseHuge does nothing where the system has no such advice.
func adviseHuge([]byte) {}
