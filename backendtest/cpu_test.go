package backendtest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berthd/berth/backendtest"
	"github.com/berthd/berth/cpu"
	"github.com/berthd/berth/model"
)

func openCPU(reference bool) backendtest.Opener {
	return func(t testing.TB, m *model.Model, s backendtest.Shape) backendtest.Device {
		d, err := cpu.Open(m, cpu.Config{
			Threads: s.Threads, Pages: s.Pages, BlockSize: s.BlockSize, KV: s.KV,
			MaxBatchTokens: s.MaxBatchTokens, MaxRows: s.MaxRows, Dequantise: s.Exact, Reference: reference, Ranks: s.Ranks,
		})
		var small *model.ShareError
		if errors.As(err, &small) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

func TestCPU(t *testing.T) {
	if !cpu.Kernels() {
		t.Skip("no kernels in this build: TestReference covers plain Go")
	}
	backendtest.Run(t, openCPU(false))
}

func TestReference(t *testing.T) { backendtest.RunTiny(t, openCPU(true)) }

func BenchmarkCPU(b *testing.B) { backendtest.Benchmark(b, openCPU(false)) }

// BenchmarkRanks is BenchmarkCPU on ranks that share the same threads.
func BenchmarkRanks(b *testing.B) {
	for _, ranks := range []int{1, 2} {
		b.Run(fmt.Sprintf("tp%d", ranks), func(b *testing.B) {
			backendtest.Benchmark(b, func(t testing.TB, m *model.Model, s backendtest.Shape) backendtest.Device {
				s.Ranks = ranks
				return openCPU(false)(t, m, s)
			})
		})
	}
}
