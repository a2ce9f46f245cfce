//go:build !soak

package backendtest

// soak runs the long forms of the tests on the real model: minutes instead of seconds.
const soak = false
