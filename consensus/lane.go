package consensus

import (
	"errors"
	"slices"
	"sync"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
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
	owner   *Session
	session uint64

	mu       sync.Mutex
	last     uint64  // highest sequence given
	window   []*item // ascending sequence
	inFlight int
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
	if !l.broken {
		l.send(x)
	}
}

// send hands an item to the committer. Sequences reach it in order because the lock is held.
func (l *lane) send(x *item) {
	done := func(r *ledgerv1.Result, err error) { l.answer(x, r, err) }
	p := &ledgerv1.Proposal{
		Session: l.session, Sequence: x.sequence, Acked: l.window[0].sequence - 1, Command: x.command,
	}
	err := l.owner.node.commits.enqueue(p, done)
	if err != nil && !errors.Is(err, ErrClosed) {
		x.fault = err
		p.Command = &ledgerv1.Command{Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}}
		x.command = p.Command
		err = l.owner.node.commits.enqueue(p, done)
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
	case r.GetGap() != nil:
		l.broken = true
	case r.GetRefusal().GetCode() == ledgerv1.RefusalCode_REFUSAL_CODE_FENCED:
		l.dieLocked(ErrFenced)
		wake(l.owner.fenced)
		return
	default:
		i := slices.Index(l.window, x)
		l.window = slices.Delete(l.window, i, i+1)
		l.settle(x, r, x.fault)
	}
	switch {
	case !l.broken || l.inFlight > 0:
	case l.pause:
		wake(l.owner.retry)
	default:
		l.resendLocked()
	}
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
		l.addLocked(&item{answered: make(chan struct{}), free: func() {}, command: &ledgerv1.Command{
			Kind: &ledgerv1.Command_Drop{Drop: &ledgerv1.Drop{Reservation: reserved.Reservation}},
		}})
	}
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
	for _, x := range slices.Clone(l.window) {
		if l.dead == nil {
			l.send(x)
		}
	}
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
	l.window = nil
}

// wake leaves a note for a goroutine that looks at what changed, not at how often.
func wake(note chan struct{}) {
	select {
	case note <- struct{}{}:
	default:
	}
}
