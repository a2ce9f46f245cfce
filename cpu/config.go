package cpu

import (
	"errors"
	"fmt"
)

// maxRanks is more than any machine has use for.
const maxRanks = 64

// Config says how a device is built. Every buffer that it implies is allocated by Open and none later.
type Config struct {
	Threads        int    // threads that compute, of all ranks together, the device's own included; 0: one for each processor
	Ranks          int    // tensor-parallel ranks, each with at least one thread; 0: one
	Pages          int    // pages of KV memory, shared by all layer groups
	BlockSize      int    // tokens of a page, a power of two ≥ 4
	KV             string // element type of pages: "f16" (also the meaning of "") or "f32"
	MaxBatchTokens int    // tokens of one step
	MaxRows        int    // rows of one step, and logits rows computed at a time
	// Dequantise expands every tensor to f32 at Open and computes in f32: slow, and as exact as the reference.
	Dequantise bool
	// Reference computes in plain Go. It is what a build without cgo, a processor without AVX2, or a model of sizes that
	// kernels do not take gets anyway.
	Reference bool
}

// validate joins everything that is wrong with c.
func (c Config) validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Threads < 0 || c.Threads > maxThreads {
		bad("threads %d: want 0 to %d", c.Threads, maxThreads)
	}
	if c.Ranks < 0 || c.Ranks > maxRanks {
		bad("ranks %d: want 0 to %d", c.Ranks, maxRanks)
	}
	if c.Pages < 1 || int64(c.Pages) > 1<<31-1 {
		bad("pages %d: want 1 to 2^31 − 1", c.Pages)
	}
	if c.BlockSize < 4 || c.BlockSize&(c.BlockSize-1) != 0 {
		bad("block size %d: want a power of two ≥ 4", c.BlockSize)
	}
	if c.KV != "f16" && c.KV != "f32" {
		bad("KV element type %q: want f16 or f32", c.KV)
	}
	if c.MaxBatchTokens < 1 || c.MaxRows < 1 {
		bad("batch tokens %d, rows %d: want ≥ 1", c.MaxBatchTokens, c.MaxRows)
	}
	return errors.Join(faults...)
}
