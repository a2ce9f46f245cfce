package ledger

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

const (
	fenced        = ledgerv1.RefusalCode_REFUSAL_CODE_FENCED
	noWorker      = ledgerv1.RefusalCode_REFUSAL_CODE_NO_WORKER
	invalid       = ledgerv1.RefusalCode_REFUSAL_CODE_INVALID
	busy          = ledgerv1.RefusalCode_REFUSAL_CODE_BUSY
	neverFits     = ledgerv1.RefusalCode_REFUSAL_CODE_NEVER_FITS
	noReservation = ledgerv1.RefusalCode_REFUSAL_CODE_NO_RESERVATION
)

// I7: a repeat answers what it answered, even where doing it again would answer otherwise, and changes nothing.
func TestRepeat(t *testing.T) {
	s, router, _ := start(t)
	p := router.under(reserveCommand("w1", 2, "red", 5, 5))
	first := must(t, s.Apply(p))
	digest := s.Digest()
	if again := s.Apply(p); !proto.Equal(again, first) || s.Digest() != digest {
		t.Errorf("I7: %v, then %v", first, again)
	}
	abandoned := proto.CloneOf(p)
	abandoned.Command = noopCommand()
	if again := s.Apply(abandoned); !proto.Equal(again, first) || s.Digest() != digest {
		t.Errorf("I7: the abandoned command answers %v, want %v", again, first)
	}
	if r := s.Apply(router.under(reserveCommand("w1", 2, "red", 5, 5))); r.GetRefusal().GetCode() != busy {
		t.Errorf("the next one: %v", r)
	}
}

func TestGapChangesNothing(t *testing.T) {
	s, router, _ := start(t)
	digest := s.Digest()
	router.last = 3
	if r := s.Apply(router.under(noopCommand())); r.GetGap() == nil || s.Digest() != digest {
		t.Errorf("I7: %v", r)
	}
}

// I6: results are kept for who has not acknowledged them, up to a bound; beyond it nothing is applied.
func TestUnacknowledged(t *testing.T) {
	s, router, _ := start(t)
	for i := uint64(1); i <= MaxUnacked; i++ {
		must(t, s.Apply(&ledgerv1.Proposal{Session: router.session, Sequence: i, Command: noopCommand()}))
	}
	digest := s.Digest()
	next := &ledgerv1.Proposal{Session: router.session, Sequence: MaxUnacked + 1, Command: noopCommand()}
	refused(t, s.Apply(next), ledgerv1.RefusalCode_REFUSAL_CODE_UNACKNOWLEDGED)
	if s.Digest() != digest {
		t.Error("I6: the refused proposal changed the state")
	}
	next.Acked = 1
	must(t, s.Apply(next))
	refused(t, s.Apply(&ledgerv1.Proposal{Session: router.session, Sequence: 1, Command: noopCommand()}), ledgerv1.RefusalCode_REFUSAL_CODE_FORGOTTEN)
	must(t, s.Apply(&ledgerv1.Proposal{Session: router.session, Sequence: 2, Command: noopCommand()}))
	next = &ledgerv1.Proposal{Session: router.session, Sequence: MaxUnacked + 2, Acked: 1 << 60, Command: noopCommand()}
	must(t, s.Apply(next))
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func slotsCommand(slots uint64) *ledgerv1.Command {
	c := reserveCommand("w1", 2, "red", 1, 1)
	c.GetReserve().Slots = slots
	return c
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		by      string
		command *ledgerv1.Command
		code    ledgerv1.RefusalCode
	}{
		{"reserve by a worker", "worker", reserveCommand("w1", 2, "red", 1, 1), invalid},
		{"reserve more than pages_max", "router", reserveCommand("w1", 2, "red", 2, 1), invalid},
		{"reserve without a slot", "router", slotsCommand(0), invalid},
		{"reserve on nobody", "router", reserveCommand("w9", 2, "red", 1, 1), noWorker},
		{"reserve on another incarnation", "router", reserveCommand("w1", 1, "red", 1, 1), noWorker},
		{"reserve too much alone", "router", reserveCommand("w1", 2, "red", 1, 9), neverFits},
		{"reserve too many slots alone", "router", slotsCommand(5), neverFits},
		{"reserve too many slots now", "router", slotsCommand(3), busy},
		{"reserve too much now", "router", reserveCommand("w1", 2, "red", 7, 7), busy},
		{"drop of nothing", "router", dropCommand(99), noReservation},
		{"claim by a router", "router", claimCommand(4), noReservation},
		{"tombstone of a claimed one", "worker", tombstoneCommand(5), noReservation},
		{"grow of an unclaimed one", "worker", growCommand(4, 1, 0), noReservation},
		{"grow by nothing", "worker", growCommand(5, 0, 1), invalid},
		{"grow past the worker", "worker", growCommand(5, 9, 0), neverFits},
		{"withdraw of an unclaimed one", "worker", withdrawCommand(4), noReservation},
		{"return by a router", "router", returnCommand("red", 1), invalid},
		{"return of unclaimed pages", "worker", returnCommand("red", 2), invalid},
		{"return to no account", "worker", returnCommand("grey", 1), invalid},
		{"end of an unclaimed one", "worker", endCommand(4, "red", 0), noReservation},
		{"end with too much returned", "worker", endCommand(5, "red", 2), invalid},
		{"bootstrap under a session", "router", bootstrapped().Command, invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, router, worker := start(t)
			must(t, s.Apply(router.under(reserveCommand("w1", 2, "red", 1, 8)))) // 4
			must(t, s.Apply(router.under(reserveCommand("w1", 2, "red", 1, 8)))) // 5
			must(t, s.Apply(worker.under(claimCommand(5))))
			before := s.View().Worker("w1")
			by := router
			if c.by == "worker" {
				by = worker
			}
			refused(t, s.Apply(by.under(c.command)), c.code)
			if s.View().Worker("w1") != before {
				t.Error("the refused command changed the worker")
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWithoutSession(t *testing.T) {
	s := New()
	refused(t, s.Apply(opened("r1", "a")), invalid) // before bootstrap
	refused(t, s.Apply(registered("w1", "a", workerInfo(8, 1, 0))), invalid)
	must(t, s.Apply(bootstrapped()))
	refused(t, s.Apply(bootstrapped()), invalid)
	refused(t, s.Apply(opened("", "a")), invalid)
	refused(t, s.Apply(opened("r1", strings.Repeat("n", 65))), invalid)
	refused(t, s.Apply(registered("w1", "a", nil)), invalid)
	refused(t, s.Apply(registered("w1", "a", workerInfo(1<<41, 1, 0))), invalid)
	refused(t, s.Apply(&ledgerv1.Proposal{Command: noopCommand()}), fenced)
	refused(t, s.Apply(&ledgerv1.Proposal{Session: 7, Sequence: 1, Command: noopCommand()}), fenced)
}

// An unknown command stops the replica: to go on would make it differ from one that knows the command.
func TestUnknownCommandPanics(t *testing.T) {
	empty := &ledgerv1.Command{}
	for _, p := range []*ledgerv1.Proposal{{}, {Command: empty}, {Session: 1, Command: empty}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was applied", p)
				}
			}()
			New().Apply(p)
		}()
	}
}

// A nonce is remembered for a while, so that a late registration does not end a younger incarnation.
func TestFencedNonces(t *testing.T) {
	s := New()
	must(t, s.Apply(bootstrapped()))
	for i := range maxFencedNonces + 2 {
		must(t, s.Apply(registered("w1", string(rune('a'+i)), workerInfo(8, 1, 0))))
	}
	refused(t, s.Apply(registered("w1", "c", workerInfo(8, 1, 0))), ledgerv1.RefusalCode_REFUSAL_CODE_SUPERSEDED)
	must(t, s.Apply(ticked(3000)))
	refused(t, s.Apply(registered("w1", "d", workerInfo(8, 1, 0))), fenced)
	if got := len(s.worker("w1").fenced); got != maxFencedNonces {
		t.Errorf("%d nonces are remembered", got)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// I8: a snapshot that does not restore to itself is refused.
func TestRestoreRefuses(t *testing.T) {
	s, router, worker := start(t)
	id := must(t, s.Apply(router.under(reserveCommand("w1", 2, "red", 2, 8)))).GetReserved().Reservation
	must(t, s.Apply(worker.under(claimCommand(id))))
	must(t, s.Apply(worker.under(growCommand(id, 7, 0))))
	for name, spoil := range map[string]func(*ledgerv1.Snapshot){
		"over-committed":       func(m *ledgerv1.Snapshot) { m.Workers[0].Accounts[0].Grown = 7 },
		"no such account":      func(m *ledgerv1.Snapshot) { m.Workers[0].Accounts = nil },
		"dead incarnation":     func(m *ledgerv1.Snapshot) { m.Reservations[0].Incarnation = 9 },
		"session of nobody":    func(m *ledgerv1.Snapshot) { m.Sessions[1].Worker = "w9" },
		"session out of order": func(m *ledgerv1.Snapshot) { m.NextSession = 1 },
		"waiter that fits":     func(m *ledgerv1.Snapshot) { m.Workers[0].Waiters[0].Need = 1 },
		"waiter of nobody":     func(m *ledgerv1.Snapshot) { m.Workers[0].Waiters[0].Reservation = 9 },
		"key of another":       func(m *ledgerv1.Snapshot) { m.Workers[0].Waiters[0].Key.Index = 9 },
		"no geometry":          func(m *ledgerv1.Snapshot) { m.Workers[0].Info = nil },
		"unknown state":        func(m *ledgerv1.Snapshot) { m.Reservations[0].State = 9 },
	} {
		m := proto.CloneOf(s.Snapshot())
		spoil(m)
		if _, err := Restore(m); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
	if _, err := Restore(proto.CloneOf(s.Snapshot())); err != nil {
		t.Error(err)
	}
}

// A view does not change under its reader, and shares what did not change between two.
func TestView(t *testing.T) {
	s, router, _ := start(t)
	must(t, s.Apply(registered("w2", "y", workerInfo(8, 4, 0))))
	before := s.View()
	must(t, s.Apply(router.under(reserveCommand("w1", 2, "red", 2, 8))))
	after := s.View()
	if before.Worker("w1").Granted != 0 || after.Worker("w1").Granted != 2 || after.Worker("w1").Room() != 6 {
		t.Errorf("granted %d, then %d", before.Worker("w1").Granted, after.Worker("w1").Granted)
	}
	if before.Worker("w2") != after.Worker("w2") || after.Worker("w3") != nil {
		t.Error("the entry of w2 is not shared")
	}
	if n := after.Notice(after.NextSession); n.Fenced {
		t.Error("an incarnation that is not known yet is called fenced")
	}
	if after.ShortestLeaseMs != 3000 || after.Sessions != 3 || after.Reservations != 1 {
		t.Errorf("%+v", after)
	}
}
