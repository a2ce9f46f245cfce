//go:build !soak

package model

const mutationsTried = 40_000
