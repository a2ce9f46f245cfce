package router

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/consensus/ledger"
)

// pipelined is how many proposals of a worker may wait for their results; a worker sends at most as many.
const pipelined = ledger.MaxUnacked

// attachStream is the router's end of a worker's line.
type attachStream = grpc.BidiStreamingServer[workerv1.FromWorker, workerv1.ToWorker]

// cluster serves workers.
type cluster struct {
	workerv1.UnimplementedClusterServer
	*Router
}

// Attach implements worker.v1.Cluster: a registration, then the worker's line into the ledger until it breaks.
func (c cluster) Attach(stream attachStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	register := first.GetRegister()
	if register == nil {
		return status.Error(codes.InvalidArgument, "the first message of a worker's stream must be a registration")
	}
	ctx, cancel := c.owned(stream.Context())
	defer cancel()
	answer, err := c.register(ctx, register)
	if err != nil {
		return rpcError(err)
	}
	if err := stream.Send(&workerv1.ToWorker{Kind: &workerv1.ToWorker_Registered{Registered: answer}}); err != nil {
		return err
	}
	opened := answer.GetOpened()
	if opened == nil {
		c.cfg.Log.Warn("registration refused", "worker", register.Worker, "reason", answer.GetRefusal().GetMessage())
		return nil
	}
	c.cfg.Log.Info("worker attached", "worker", register.Worker, "incarnation", opened.Session, "address", register.Info.GetAddress())
	err = rpcError(c.serveLine(ctx, stream, opened.Session))
	c.cfg.Log.Info("worker detached", "worker", register.Worker, "incarnation", opened.Session, "reason", err)
	return err
}

func (c cluster) register(ctx context.Context, r *ledgerv1.Register) (*ledgerv1.Result, error) {
	p := &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Register{Register: r}}}
	a := c.submit(p)
	select {
	case <-a.done:
		return a.result, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// line is one worker's stream while it is up.
type line struct {
	cluster
	stream      attachStream
	incarnation uint64
	answers     chan *answer  // in the order of the proposals
	renewed     chan struct{} // a renewal is to be answered
}

// answer is the result of a proposal, once done is closed.
type answer struct {
	sequence uint64
	done     chan struct{}
	result   *ledgerv1.Result
	err      error
}

func (c cluster) submit(p *ledgerv1.Proposal) *answer {
	a := &answer{sequence: p.Sequence, done: make(chan struct{})}
	c.cfg.Ledger.Submit(p, func(r *ledgerv1.Result, err error) {
		a.result, a.err = r, err
		close(a.done)
	})
	return a
}

// serveLine runs the stream's two directions: this goroutine sends, another receives and ends with the stream.
func (c cluster) serveLine(ctx context.Context, stream attachStream, incarnation uint64) error {
	l := &line{cluster: c, stream: stream, incarnation: incarnation, answers: make(chan *answer, pipelined), renewed: make(chan struct{}, 1)}
	heard := make(chan error, 1)
	go func() { heard <- l.hear(ctx) }() // returns when gRPC ends the stream, which the return of Attach makes it do
	return l.tell(ctx, heard)
}

// hear takes what the worker says.
func (l *line) hear(ctx context.Context) error {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return err
		}
		switch k := m.Kind.(type) {
		case *workerv1.FromWorker_Renewal:
			l.cfg.Ledger.Renew(l.incarnation)
			select {
			case l.renewed <- struct{}{}:
			default:
			}
		case *workerv1.FromWorker_Proposal:
			k.Proposal.Session = l.incarnation
			if err := ledger.Validate(k.Proposal); err != nil {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			select {
			case l.answers <- l.submit(k.Proposal):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		default:
			return status.Error(codes.InvalidArgument, "want a renewal or a proposal")
		}
	}
}

// tell sends results in order (R8), and notices when they say something new or the worker has a result that is newer.
func (l *line) tell(ctx context.Context, heard <-chan error) error {
	var told ledger.Notice
	newest, first := uint64(0), true
	deaf := 0 // renewals in a row that could not be passed on
	var next *answer
	for {
		changed := l.cfg.Ledger.Changed()
		notice := l.cfg.Ledger.View().Notice(l.incarnation)
		if first || notice.Revision >= newest && (newest > told.Revision || !sameNotice(told, notice)) {
			if err := l.stream.Send(noticeMessage(notice)); err != nil {
				return err
			}
			told, first = notice, false
		}
		if told.Fenced {
			return status.Error(codes.Aborted, errFenced.Error())
		}
		var answers <-chan *answer
		var done <-chan struct{}
		if next == nil {
			answers = l.answers
		} else {
			done = next.done
		}
		select {
		case next = <-answers:
		case <-done:
			if next.err != nil {
				return next.err // the worker comes back and sends again what has no result
			}
			if err := l.stream.Send(resultMessage(next)); err != nil {
				return err
			}
			newest, next = max(newest, next.result.GetRevision()), nil
		case <-changed:
		case <-l.renewed:
			if err := l.cfg.Ledger.Ready(); err != nil {
				if deaf++; deaf >= maxDeaf {
					return err // notices may still come, so that the worker would not leave by itself
				}
				continue // who cannot pass it on has not taken it
			}
			deaf = 0
			if err := l.stream.Send(renewedMessage); err != nil {
				return err
			}
		case err := <-heard:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// maxDeaf is how many renewals in a row a router may not pass on before the worker goes elsewhere: the election of a leader
// takes less than the time between two.
const maxDeaf = 2

var renewedMessage = &workerv1.ToWorker{Kind: &workerv1.ToWorker_Renewed{Renewed: &workerv1.Renewed{}}}

func resultMessage(a *answer) *workerv1.ToWorker {
	return &workerv1.ToWorker{Kind: &workerv1.ToWorker_Result{Result: &workerv1.ProposalResult{
		Sequence: a.sequence, Result: a.result,
	}}}
}

func noticeMessage(n ledger.Notice) *workerv1.ToWorker {
	m := &workerv1.Notice{Revision: n.Revision, Orphans: n.Orphans, Fenced: n.Fenced}
	for _, b := range n.Waiting {
		m.Waiting = append(m.Waiting, &ledgerv1.OrderKey{Index: b.Reservation, Branch: b.Branch})
	}
	for _, g := range n.Accounts {
		m.Accounts = append(m.Accounts, &workerv1.Grown{ShareGroup: g.ShareGroup, Pages: g.Pages})
	}
	return &workerv1.ToWorker{Kind: &workerv1.ToWorker_Notice{Notice: m}}
}

// sameNotice compares all but the revision.
func sameNotice(a, b ledger.Notice) bool {
	return a.Fenced == b.Fenced && slices.Equal(a.Accounts, b.Accounts) && slices.Equal(a.Waiting, b.Waiting) &&
		slices.Equal(a.Orphans, b.Orphans)
}

// rpcError is the table of the package's errors to gRPC codes.
func rpcError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, consensus.ErrNoQuorum), errors.Is(err, consensus.ErrClosed), errors.Is(err, errClosed):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return err
}
