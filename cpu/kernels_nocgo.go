//go:build !cgo || !amd64

package cpu

import "github.com/berthd/berth/model"

// Kernels tells whether this build and this processor compute in C kernels; else devices compute in plain Go.
func Kernels() bool { return false }

// newKernels is never called: Kernels is false.
func newKernels(d *rank, m *model.Model) (engine, error) { return newReference(d, m), nil }
