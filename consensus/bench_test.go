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
func benchmarkReserve(b *testing.B, n *Node, proposers int) {
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

// threeNodes are replicas on loopback, on disks of their own that are one disk; ready, the leader first.
func threeNodes(b *testing.B) []*Node {
	peers := realPeers(b)
	nodes, stop := realNodes(b, peers, [3]string{b.TempDir(), b.TempDir(), b.TempDir()})
	b.Cleanup(stop)
	for _, n := range nodes {
		eventually(b, n, func() bool { return n.Ready() == nil })
	}
	slices.SortStableFunc(nodes, func(x, y *Node) int {
		if x.leads() {
			return -1
		}
		return 1
	})
	return nodes
}

// BenchmarkReserve is the latency that one request sees, and the throughput of many at once.
func BenchmarkReserve(b *testing.B) {
	for _, at := range []struct {
		name string
		node func(*testing.B) *Node
	}{
		{"alone", func(b *testing.B) *Node { return open(b, Config{Dir: b.TempDir()}) }},
		{"leader of three", func(b *testing.B) *Node { return threeNodes(b)[0] }},
		{"follower of three", func(b *testing.B) *Node { return threeNodes(b)[1] }},
	} {
		for _, proposers := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/proposers=%d", at.name, proposers), func(b *testing.B) { benchmarkReserve(b, at.node(b), proposers) })
		}
	}
}
