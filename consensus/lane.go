package consensus

import (
	"errors"
	"slices"
	"sync"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// lane is the window of one session: what was numbered and has no answer yet.
//
//	         add                 answer
//	Do ────────────▶ in flight ─────────▶ settled
//	  └─ broken ▶ waits ▲
//	                    └── resend: all of the window, in order, once nothing is in flight
//
// A lost answer or a gap breaks the lane, so that what comes meanwhile does not run into gaps of its own.
type lane struct {
	session uint64
	enqueue func(*ledgerv1.Proposal, func(*ledgerv1.Result, error)) error // to the committer
	retry   chan<- struct{}                                               // the window is to be resent after a pause
	fenced  chan<- struct{}                                               // the session has ended

	mu       sync.Mutex
	last     uint64  // highest sequence given
	window   []*item // ascending sequence
	inFlight int
	unsent   int   // of the window, at its end
	broken   bool  // nothing is sent until inFlight is 0
	pause    bool  // and then not at once
	dead     error // why nothing more will be sent
}

// item is a command and its answer.
type item struct {
	command   *ledgerv1.Command
	free      func()        // gives its place back
	answered  chan struct{} // closed after result and err are set
	sequence  uint64
	abandoned bool
	fault     error // the command cannot be encoded; a Noop goes in its place

	result *ledgerv1.Result
	err    error
}

// add numbers a command and sends it, unless the lane is broken; then resend will.
func (l *lane) add(x *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(x)
}

func (l *lane) addLocked(x *item) {
	if l.dead != nil {
		l.settle(x, nil, l.dead)
		return
	}
	l.last++
	x.sequence = l.last
	l.window = append(l.window, x)
	l.unsent++
	if !l.broken {
		l.advance()
	}
}

// advance sends what has not been sent, as far as the ledger keeps results: beyond that it would refuse.
func (l *lane) advance() {
	for _, x := range slices.Clone(l.window[len(l.window)-l.unsent:]) {
		if l.dead != nil || x.sequence >= l.window[0].sequence+ledger.MaxUnacked {
			return
		}
		l.unsent--
		l.send(x)
	}
}

// send hands an item to the committer. Sequences reach it in order because the lock is held.
func (l *lane) send(x *item) {
	done := func(r *ledgerv1.Result, err error) { l.answer(x, r, err) }
	p := &ledgerv1.Proposal{
		Session: l.session, Sequence: x.sequence, Acked: l.window[0].sequence - 1, Command: x.command,
	}
	err := l.enqueue(p, done)
	if err != nil && !errors.Is(err, ErrClosed) {
		x.fault = err
		p.Command = &ledgerv1.Command{Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}}
		x.command = p.Command
		err = l.enqueue(p, done)
	}
	if err != nil {
		l.dieLocked(err)
		return
	}
	l.inFlight++
}

// answer takes what the committer says about an item.
func (l *lane) answer(x *item, r *ledgerv1.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	switch {
	case l.dead != nil:
		return
	case errors.Is(err, ErrClosed):
		l.dieLocked(err)
		return
	case err != nil:
		l.broken, l.pause = true, true
	case l.over(r):
		l.dieLocked(ErrFenced)
		wake(l.fenced)
		return
	case !ledger.IsResult(r):
		l.broken, l.pause = true, r.GetGap() == nil
	default:
		i := slices.Index(l.window, x)
		l.window = slices.Delete(l.window, i, i+1)
		l.settle(x, r, x.fault)
	}
	switch {
	case !l.broken:
		l.advance()
	case l.inFlight > 0:
	case l.pause:
		wake(l.retry)
	default:
		l.resendLocked()
	}
}

// over says that the session does not go on: it has ended, or the ledger has lost what it acknowledged, and numbers of
// another past would be taken for repeats.
func (l *lane) over(r *ledgerv1.Result) bool {
	switch r.GetRefusal().GetCode() {
	case ledgerv1.RefusalCode_REFUSAL_CODE_FENCED, ledgerv1.RefusalCode_REFUSAL_CODE_FORGOTTEN:
		return true
	}
	return r.GetGap() != nil && len(l.window) > 0 && r.GetGap().LastSequence+1 < l.window[0].sequence
}

// settle gives an item its answer. Nobody waits for a reservation that comes too late: it is dropped.
func (l *lane) settle(x *item, r *ledgerv1.Result, err error) {
	x.result, x.err = r, err
	if err != nil {
		x.result = nil
	}
	close(x.answered)
	x.free()
	if x.abandoned {
		l.dropLate(x)
	}
}

// abandon says that nobody waits for x any more.
func (l *lane) abandon(x *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.abandoned = true
	select {
	case <-x.answered:
		l.dropLate(x)
	default:
	}
}

func (l *lane) dropLate(x *item) {
	if reserved := x.result.GetReserved(); reserved != nil && l.dead == nil {
		l.addLocked(dropItem(reserved.Reservation))
	}
}

// dropItem needs no place: what is given up has had one, and is given up however many wait.
func dropItem(reservation uint64) *item {
	return &item{answered: make(chan struct{}), free: func() {}, command: &ledgerv1.Command{
		Kind: &ledgerv1.Command_Drop{Drop: &ledgerv1.Drop{Reservation: reservation}},
	}}
}

// resend sends the whole window again, in order.
func (l *lane) resend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken && l.inFlight == 0 && l.dead == nil {
		l.resendLocked()
	}
}

func (l *lane) resendLocked() {
	l.broken, l.pause = false, false
	l.unsent = len(l.window)
	l.advance()
}

// die answers the whole window with why.
func (l *lane) die(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dieLocked(why)
}

func (l *lane) dieLocked(why error) {
	if l.dead == nil || errors.Is(why, ErrClosed) {
		l.dead = why
	}
	for _, x := range l.window {
		l.settle(x, nil, why)
	}
	l.window, l.unsent = nil, 0
}

// wake leaves a note for a goroutine that looks at what changed, not at how often.
func wake(note chan<- struct{}) {
	select {
	case note <- struct{}{}:
	default:
	}
}
