package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// ErrFenced ends the requests of an incarnation that the ledger has ended.
var ErrFenced = errors.New("the worker's incarnation was fenced")

// errNoToken ends a branch whose logits are no numbers, or all of whose tokens are banned.
var errNoToken = errors.New("the model's logits leave no token to choose: they are no numbers, or all tokens are banned")

// growAhead is how many tokens of each branch an account keeps room for, in blocks: growth is asked before it is needed.
const growAhead = 2

// engine is one incarnation at work: its goroutine owns branches, accounts and pool (W1).
type engine struct {
	device   Device
	pool     *kvpool.Pool
	sched    *scheduler
	line     *line
	audience audience
	identity identity
	now      func() time.Time

	mail      *mailbox
	accounts  []*account          // those that do not rest
	byGroup   map[string]*account // all
	byID      map[uint64]*request // by reservation
	spent     *spent              // reservations that are over here
	notice    *workerv1.Notice    // the newest
	returning bool                // pages for a waiter are on their way back to the ledger
	returnRev uint64              // revision of their return
	done      chan struct{}       // closed when the engine has ended
	plan      model.Plan
	events    []kvpool.Event
	began     time.Time // of the step in flight
	stats     func(Stats)
	reopen    func(stuck error, quarantined bool) (Device, error)
	inspect   func(*kvpool.Pool) error // nil: nobody does
	slots     int                      // of requests
	maxSlots  int
	fault     error // what ends the incarnation
}

// identity is what a prefix name says of this incarnation, and whose keys it uses.
type identity struct {
	session  uint64
	hashKey  kvpool.Key
	revision string
	numerics string
	layout   string
}

// Stats is the worker's state in numbers.
type Stats struct {
	Pages            kvpool.Counts
	Granted          int
	Running, Waiting int
	StepSeconds      float64 // of the last step, 0 when idle
	StepTokens       int
	StepChunks       int // of its rows, those of more than one token
}

func newEngine(d Device, g kvpool.Geometry, pages int, id identity, l *line, stats func(Stats)) (*engine, error) {
	p, err := kvpool.New(g, pages)
	if err != nil {
		return nil, err
	}
	return &engine{
		device: d, pool: p, sched: newScheduler(p), line: l, identity: id, now: time.Now, stats: stats,
		mail: newMailbox(0), byID: map[uint64]*request{}, byGroup: map[string]*account{}, spent: newSpent(),
		notice: &workerv1.Notice{}, maxSlots: math.MaxInt, done: make(chan struct{}),
	}, nil
}

// run works until ctx ends, the incarnation is fenced, or the device fails; every branch has ended then. If the device is
// stuck, branches end with the incarnation, as those of a fenced one do.
func (e *engine) run(ctx context.Context) (err error) {
	defer func() {
		if !errors.Is(err, ErrStuck) { // a stuck device may still read what branches and pool hold
			e.failAll(err)
		}
		e.mail.end()
		close(e.done)
	}()
	for {
		if err := e.hear(ctx); err != nil {
			return err
		}
		if e.inspect != nil {
			if err := e.inspect(e.pool); err != nil {
				return fmt.Errorf("inspect the pool: %w", err)
			}
		}
		planned := e.sched.schedule()
		e.askGrowth()
		if len(planned) > 0 {
			if err := e.step(planned); err != nil {
				return err
			}
		}
		if freed := e.relieve(); freed || len(planned) > 0 {
			continue
		}
		e.report(Stats{})
		e.audience.beat()
		if err := e.wait(ctx); err != nil {
			return err
		}
	}
}

// hear does what has come in meanwhile.
func (e *engine) hear(ctx context.Context) error {
	queue, notice := e.mail.take()
	for _, f := range queue {
		f(e)
	}
	if notice != nil {
		e.hearNotice(notice)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.fault
}

// wait sleeps until something comes in.
func (e *engine) wait(ctx context.Context) error {
	select {
	case <-e.mail.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// step runs one plan on the device and gives each branch what came of it.
func (e *engine) step(planned []*branch) error {
	e.began = e.now()
	began := e.began
	e.plan.Step++
	e.plan.Rows = e.plan.Rows[:0]
	for _, b := range planned {
		if b.history.started.IsZero() {
			e.started(b, began)
		}
		e.plan.Rows = append(e.plan.Rows, b.row(e.pool))
	}
	e.pool.Begin(e.plan.Step)
	if err := e.device.Submit(&e.plan); err != nil {
		return fmt.Errorf("submit step %d: %w", e.plan.Step, err)
	}
	result, err := e.device.Wait()
	if errors.Is(err, ErrStuck) {
		return e.recover(planned, fmt.Errorf("step %d: %w", e.plan.Step, err))
	}
	if err != nil {
		return fmt.Errorf("step %d: %w", e.plan.Step, err)
	}
	e.pool.Retire(e.plan.Step)
	ended := e.now()
	s := Stats{StepSeconds: ended.Sub(began).Seconds()}
	e.sched.pace.learn(e.plan.Rows, s.StepSeconds)
	for i, b := range planned {
		s.StepTokens += b.chunk + len(b.guesses)
		if b.chunk > 1 {
			s.StepChunks++
		}
		e.settle(b, &e.plan.Rows[i], result, i, ended)
	}
	e.events = e.audience.tell(e.pool, e.events)
	e.report(s)
	return nil
}

// settle enters a branch's computed chunk, row i of the step, and the tokens that it chose: the next one, and those after
// guesses that were right.
func (e *engine) settle(b *branch, row *model.Row, result *model.Result, i int, at time.Time) {
	if b.over {
		return // another branch of its request has failed in this very step
	}
	b.history.steps++
	last := row.Start+b.chunk == len(b.resume.Tokens)
	if unreadable(row, result, i) { // what the step wrote is not named: nobody finds it in the cache
		e.noToken(b, row)
		return
	}
	e.pool.Advance(b.pool, row.Tokens[:b.chunk])
	b.cleared(row.Start + b.chunk)
	var score *workerv1.Score
	if row.Scored {
		score = b.score(row, result.Scores[i])
	}
	switch {
	case !last:
		b.history.chunks++
		return
	case b.history.first.IsZero():
		b.history.first = at
	}
	if b.limits.maxTokens == 0 { // only its prompt was asked about
		e.end(b, ledgerv1.FinishReason_FINISH_REASON_LENGTH)
		return
	}
	guesses := row.Tokens[b.chunk:]
	for id, right := result.IDs[i], 0; ; right++ {
		if !e.next(b, id, score) {
			return
		}
		if right == len(guesses) || guesses[right] != id {
			b.judge(right)
			return
		}
		e.pool.Advance(b.pool, guesses[right:right+1])
		id = result.Guessed[i][right]
	}
}

// next enters a branch's next token. It says whether the branch goes on.
func (e *engine) next(b *branch, id int32, score *workerv1.Score) bool {
	if id < 0 {
		e.noToken(b, nil)
		return false
	}
	reason, end := b.accept(id)
	b.request.out.put(b.number(), id, score)
	if end {
		e.end(b, reason)
	}
	return !end
}

// unreadable says that a row chose no token, or that a score of it is no number.
func unreadable(row *model.Row, result *model.Result, i int) bool {
	if row.Sampling != nil && result.IDs[i] < 0 {
		return true
	}
	return row.Scored && slices.ContainsFunc(result.Scores[i], func(s model.Score) bool { return s.Logprob != s.Logprob })
}

// noToken ends a request whose branch has no next token, and logs where.
func (e *engine) noToken(b *branch, row *model.Row) {
	at, banned := len(b.resume.Tokens), 0
	if row != nil && row.Sampling != nil {
		at, banned = row.Start+len(row.Tokens), len(row.Sampling.Banned)
	}
	e.line.log.Error("logits without a token to choose", "request_id", b.request.ask.RequestId, "branch", b.number(),
		"position", at, "prompt_tokens", b.resume.Prompt, "banned", banned, "step", e.plan.Step, "error", errNoToken.Error())
	e.endAll(b.request, ledgerv1.FinishReason_FINISH_REASON_ERROR, errNoToken)
}

// started notes a branch's first step, and what the cache spared it.
func (e *engine) started(b *branch, at time.Time) {
	b.history.started, b.history.cached = at, e.pool.Tokens(b.pool)
	b.request.out.update(b.number(), func(o *outcome) { o.started, o.cached = true, b.history.cached })
	e.trim(b.account())
}

// trim gives back what an account has beyond its branches' near wants, when it is worth a command: anything, if no
// branch is left.
func (e *engine) trim(a *account) {
	g := e.pool.Geometry()
	worth := 1
	if slices.ContainsFunc(e.sched.branches, func(b *branch) bool { return b.account() == a }) {
		worth = len(g.Groups) * growAhead
	}
	if spare := e.sched.spare(a, growAhead*g.BlockSize); spare >= worth {
		if a.giveBack(e.pool, spare) > 0 {
			e.line.propose(returnPages(untold(e.accounts)), nil)
		}
	}
}

func returnPages(r []*ledgerv1.Returned) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_ReturnPages{ReturnPages: &ledgerv1.Return{Accounts: r}}}
}

// report completes what is known of the last step by what the worker holds after it.
func (e *engine) report(s Stats) {
	e.rest()
	s.Pages = e.pool.Counts()
	for _, b := range e.sched.branches {
		if b.holds {
			s.Running++
		} else {
			s.Waiting++
		}
	}
	for _, a := range e.accounts {
		s.Granted += a.grant()
	}
	e.stats(s)
}

// failAll ends every branch with an error.
func (e *engine) failAll(err error) {
	for _, b := range slices.Clone(e.sched.branches) {
		if !b.over {
			e.endAll(b.request, ledgerv1.FinishReason_FINISH_REASON_ERROR, err)
		}
	}
}
