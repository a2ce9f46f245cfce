//go:build !soak

package sim

// seeds is how many random scenarios the test plays.
const seeds = 60
