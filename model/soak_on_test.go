//go:build soak

package model

const mutationsTried = 10_000_000
