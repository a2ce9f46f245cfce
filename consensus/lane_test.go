package consensus

import (
	"errors"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// laneBench is a lane of a router's session over a ledger whose answers can be held back.
type laneBench struct {
	*lane
	state *ledger.State
	over  chan struct{}                   // the lane's fenced
	hold  func(p *ledgerv1.Proposal) bool // the answer is held back
	held  []func()
}

func newLaneBench(t *testing.T) *laneBench {
	t.Helper()
	b := &laneBench{state: ledger.New(), over: make(chan struct{}, 1), hold: func(*ledgerv1.Proposal) bool { return false }}
	b.state.Apply(&ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Bootstrap{
		Bootstrap: &ledgerv1.Bootstrap{ClusterId: make([]byte, 16), HashKey: make([]byte, 16)},
	}}})
	r := b.state.Apply(&ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_OpenRouter{
		OpenRouter: &ledgerv1.OpenRouter{Router: "r1", Nonce: make([]byte, 16), LeaseMs: 1000},
	}}})
	if r.GetOpened() == nil {
		t.Fatal(r)
	}
	b.lane = &lane{session: r.GetOpened().Session, retry: make(chan struct{}, 1), fenced: b.over}
	b.enqueue = func(p *ledgerv1.Proposal, done func(*ledgerv1.Result, error)) error {
		result := b.state.Apply(p)
		answer := func() { done(result, nil) }
		if b.hold(p) {
			b.held = append(b.held, answer)
		} else {
			go answer() // as the committer does: never within the call
		}
		return nil
	}
	return b
}

func noop() *item {
	return &item{answered: make(chan struct{}), free: func() {}, command: &ledgerv1.Command{
		Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}},
	}}
}

// One answer that comes late, after those of more commands than the ledger keeps results of, costs time and nothing else:
// what is far ahead of it waits, and no refusal is taken for a result.
func TestALateAnswerDoesNotWedgeTheSession(t *testing.T) {
	b := newLaneBench(t)
	b.hold = func(p *ledgerv1.Proposal) bool { return p.Sequence == 1 }
	var all []*item
	for range 3 * ledger.MaxUnacked {
		x := noop()
		b.add(x)
		all = append(all, x)
	}
	for _, x := range all[1:ledger.MaxUnacked] {
		<-x.answered
		if x.err != nil || x.result.GetOk() == nil {
			t.Fatalf("command %d: %v, %v", x.sequence, x.result, x.err)
		}
	}
	select {
	case <-all[ledger.MaxUnacked].answered:
		t.Fatal("a command went further ahead than the ledger keeps results")
	default:
	}
	b.mu.Lock()
	release := b.held
	b.held = nil
	b.mu.Unlock()
	for _, answer := range release {
		answer()
	}
	for _, x := range all {
		<-x.answered
		if x.err != nil || x.result.GetOk() == nil {
			t.Fatalf("after the late answer, command %d: %v, %v", x.sequence, x.result, x.err)
		}
	}
}

// What did not advance the session is no result of a command, whatever the ledger says with it.
func TestRefusalsThatAreNoResults(t *testing.T) {
	for code, ends := range map[ledgerv1.RefusalCode]bool{
		ledgerv1.RefusalCode_REFUSAL_CODE_UNACKNOWLEDGED: false, ledgerv1.RefusalCode_REFUSAL_CODE_FORGOTTEN: true,
		ledgerv1.RefusalCode_REFUSAL_CODE_FENCED: true,
	} {
		b := newLaneBench(t)
		b.hold = func(*ledgerv1.Proposal) bool { return true }
		x := noop()
		b.add(x)
		b.answer(x, &ledgerv1.Result{Kind: &ledgerv1.Result_Refusal{Refusal: &ledgerv1.Refusal{Code: code}}}, nil)
		select {
		case <-x.answered:
			if !ends || !errors.Is(x.err, ErrFenced) {
				t.Errorf("%v was taken for the result: %v, %v", code, x.result, x.err)
			}
			continue
		default:
		}
		if ends {
			t.Errorf("%v does not end the session", code)
			continue
		}
		b.hold = func(*ledgerv1.Proposal) bool { return false }
		b.resend()
		if <-x.answered; x.err != nil || x.result == nil {
			t.Errorf("after %v: %v, %v", code, x.result, x.err)
		}
	}
}

// A ledger that misses what it acknowledged has another past: the session goes no further in it.
func TestAPastThatMissesAcknowledgedResultsEndsTheSession(t *testing.T) {
	b := newLaneBench(t)
	old := b.state.Snapshot() // the disk as a copy kept it
	for range 10 {
		x := noop()
		b.add(x)
		<-x.answered
	}
	back, err := ledger.Restore(old)
	if err != nil {
		t.Fatal(err)
	}
	b.state = back
	x := noop()
	b.add(x)
	<-x.answered
	if !errors.Is(x.err, ErrFenced) {
		t.Errorf("%v, %v, want %v", x.result, x.err, ErrFenced)
	}
	select {
	case <-b.over:
	default:
		t.Error("no new session is opened")
	}
}

// What is given up is given up even while every place is taken by commands that wait for a quorum.
func TestDropNeedsNoPlace(t *testing.T) {
	b := newLaneBench(t)
	b.hold = func(*ledgerv1.Proposal) bool { return true }
	s := &Session{places: make(chan struct{}, windowPlaces)}
	s.lane.Store(b.lane)
	for range windowPlaces {
		s.places <- struct{}{}
		b.add(noop())
	}
	s.Drop(7)
	if n := len(b.window); n != windowPlaces+1 || b.window[n-1].command.GetDrop().GetReservation() != 7 {
		t.Errorf("%d commands are under way, and the drop is not", n)
	}
}
