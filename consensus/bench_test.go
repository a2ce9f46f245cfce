package consensus

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// benchmarkReserve reserves through Session.Do. Nothing is given back, so the worker is large.
func benchmarkReserve(b *testing.B, proposers int) {
	n := open(b, Config{Dir: b.TempDir()})
	s, err := n.OpenSession("r1", 30*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	w := register(b, n, "w1", 1<<40, 1<<40)
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range proposers {
		all.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(b.N) {
					return
				}
				began := time.Now()
				if r, err := s.Do(b.Context(), reserve("w1", w, 1)); err != nil || r.GetReserved() == nil {
					b.Errorf("%v, %v", r, err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reserves/s")
}

// BenchmarkReserve is the latency that one request sees, and the throughput of many at once.
func BenchmarkReserve(b *testing.B) {
	for _, proposers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("proposers=%d", proposers), func(b *testing.B) { benchmarkReserve(b, proposers) })
	}
}
