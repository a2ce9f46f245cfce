//go:build !linux

package cpu

// adviseHuge does nothing where the system has no such advice.
func adviseHuge([]byte) {}

// adviseForget does nothing: elsewhere the advice does not promise zeros.
func adviseForget([]byte) {}
