//go:build !cgo || !amd64

package cpu

import "github.com/berthd/berth/model"

// kernelsRun tells whether this build and this processor have kernels.
func kernelsRun() bool { return false }

// newKernels is never called: kernelsRun is false.
func newKernels(d *Device, m *model.Model) (engine, error) { return newReference(d, m), nil }
