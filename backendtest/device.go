package backendtest

import (
	"testing"

	"github.com/berthd/berth/model"
)

// Device is what a worker needs of one, and all that the suite uses.
type Device interface {
	Submit(*model.Plan) error
	Wait() (*model.Result, error)
	Numerics() string
	Close() error
}

// Shape is how a test wants its device built.
type Shape struct {
	BlockSize      int
	Pages          int
	MaxBatchTokens int
	MaxRows        int
	Threads        int    // of all ranks together; 0: the device's own choice; devices without threads ignore it
	Ranks          int    // tensor-parallel ranks; 0: one
	KV             string // "f16" or "f32"
	Exact          bool   // weights and activations in f32
}

// Opener builds a device for a model; m may be closed when it returned. It fails or skips t when it can't.
// A model that is too small for the ranks is a skip (*model.ShareError).
type Opener func(t testing.TB, m *model.Model, s Shape) Device

// Run runs the whole suite.
func Run(t *testing.T, open Opener) {
	t.Run("tiny", func(t *testing.T) { RunTiny(t, open) })
	t.Run("invariance", func(t *testing.T) { runInvariance(t, open) })
	t.Run("real", func(t *testing.T) { runReal(t, open) })
}
