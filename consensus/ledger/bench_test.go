package ledger

import (
	"fmt"
	"testing"
)

// BenchmarkCycle is a request's life of three commands on a worker that holds a thousand others.
func BenchmarkCycle(b *testing.B) {
	s := New()
	must(b, s.Apply(bootstrapped()))
	router := &client{session: must(b, s.Apply(opened("r1", "a"))).GetOpened().Session}
	worker := &client{session: must(b, s.Apply(registered("w1", "x", workerInfo(1<<20, 1<<20, 0)))).GetOpened().Session}
	for range 1000 {
		r := must(b, s.Apply(router.under(reserveCommand("w1", worker.session, "red", 4, 64))))
		must(b, s.Apply(worker.under(claimCommand(r.GetReserved().Reservation))))
	}
	reserve, claim, end := reserveCommand("w1", worker.session, "red", 4, 64), claimCommand(0), endCommand(0, "red", 0)
	b.ReportAllocs()
	cycles := uint64(0)
	for b.Loop() {
		cycles++
		id := must(b, s.Apply(router.under(reserve))).GetReserved().Reservation
		claim.GetClaim().Reservation, end.GetEnd().Reservation = id, id
		end.GetEnd().Accounts[0].Pages = 4 * cycles
		must(b, s.Apply(worker.under(claim)))
		must(b, s.Apply(worker.under(end)))
	}
	b.ReportMetric(3*float64(cycles)/b.Elapsed().Seconds(), "commands/s")
}

func BenchmarkView(b *testing.B) {
	s, router, _ := start(b)
	for i := range 64 {
		must(b, s.Apply(registered(fmt.Sprintf("x%d", i), "x", workerInfo(8, 4, 0))))
	}
	for b.Loop() {
		s.Apply(router.under(reserveCommand("w1", 2, "red", 0, 8)))
		s.View()
	}
}

func BenchmarkDigest(b *testing.B) {
	s := New()
	must(b, s.Apply(bootstrapped()))
	router := &client{session: must(b, s.Apply(opened("r1", "a"))).GetOpened().Session}
	worker := must(b, s.Apply(registered("w1", "x", workerInfo(1<<20, 1<<20, 0)))).GetOpened().Session
	for range 10_000 {
		must(b, s.Apply(router.under(reserveCommand("w1", worker, "red", 4, 64))))
	}
	for b.Loop() {
		s.Digest()
	}
}
