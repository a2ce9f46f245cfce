package worker

import (
	"errors"
	"fmt"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// maxFatal is how many fatal steps a request may have been in: then it is taken for their cause.
const maxFatal = 3

// FatalStepError ends a request that was in steps that did not end.
type FatalStepError struct{ Steps int }

func (e *FatalStepError) Error() string {
	return fmt.Sprintf("%d steps with this request did not end in time", e.Steps)
}

// suspicion is what a branch computed in a fatal step: positions [from, upto). It computes them again alone, in chunks
// that begin with one token and stay a part of that step.
type suspicion struct{ from, upto, chunk, most int }

// quarantined says that the branch's next step computes what a fatal one did.
func (b *branch) quarantined(p *kvpool.Pool) bool {
	if b.suspicion == nil {
		return false
	}
	at := 0
	if b.holds {
		at = p.Tokens(b.pool)
	}
	return at >= b.suspicion.from
}

// planAlone gives a suspect a step of its own. If it lacks pages, those before it in order may still take theirs.
func (s *scheduler) planAlone(b *branch) bool {
	if !b.holds && !s.start(b) {
		b.account().short = nil
		return false
	}
	n := min(b.suspicion.chunk, b.remaining(s.pool), s.budget)
	if b.scoresDue() {
		n = min(n, maxScored)
	}
	n, _ = s.chunk(b, n, s.pace.room(0))
	if !s.plan(b, n) {
		b.account().short = nil
		return false
	}
	return true
}

// cleared notes that a step with the branch has ended: the next one may have more of it, and beyond what is suspected it
// is like any other.
func (b *branch) cleared(upto int) {
	if q := b.suspicion; q != nil && upto > q.from {
		q.chunk = min(q.chunk*maxGrowth, q.most)
		if upto >= q.upto {
			b.suspicion = nil
		}
	}
}

// blame makes the branches of a fatal step suspects. It returns the requests that were in one too many.
func blame(planned []*branch, rows []model.Row) (guilty []*request) {
	var seen []*request
	most := 0
	for i := range rows {
		most += len(rows[i].Tokens)
	}
	most = max(1, most/maxGrowth)
	for i, b := range planned {
		from, upto := rows[i].Start, rows[i].Start+b.chunk
		if b.suspicion != nil {
			from, upto = min(from, b.suspicion.from), max(upto, b.suspicion.upto)
		}
		b.suspicion = &suspicion{from: from, upto: upto, chunk: 1, most: most}
		if q := b.request; !slices.Contains(seen, q) {
			seen = append(seen, q)
			if q.fatal++; q.fatal >= maxFatal {
				guilty = append(guilty, q)
			}
		}
	}
	return guilty
}

// recover goes on after a step that did not end, on another device and with an empty pool: the incarnation, its accounts
// and its streams stay (ADR 0021). Every branch computes again what it had; those of the step are suspects. What the device
// that was given up may still read is left to it.
func (e *engine) recover(planned []*branch, stuck error) error {
	guilty := blame(planned, e.plan.Rows)
	e.sched.pace.learn(e.plan.Rows, e.now().Sub(e.began).Seconds())
	quarantined := len(planned) == 1 && e.sched.alone
	d, err := e.reopen(stuck, quarantined)
	if err != nil {
		for _, b := range planned {
			b.request.out.end(&FatalStepError{b.request.fatal})
		}
		return err
	}
	if err := e.renew(d); err != nil {
		return err
	}
	for _, q := range guilty {
		e.endAll(q, ledgerv1.FinishReason_FINISH_REASON_ERROR, &FatalStepError{q.fatal})
	}
	return nil
}

// renew puts a device and an empty pool in the place of those that were given up.
func (e *engine) renew(d Device) error {
	p, err := kvpool.New(e.pool.Geometry(), e.pool.Counts().Total)
	if err != nil {
		return errors.Join(errors.New("renew the pool"), err)
	}
	e.device, e.pool, e.sched.pool = d, p, p
	e.plan = model.Plan{Step: e.plan.Step}
	for _, a := range e.byGroup {
		a.id = noAccount
	}
	for _, a := range e.accounts {
		a.id = p.OpenAccount()
		if err := p.SetGrant(a.id, a.grant()); err != nil {
			return fmt.Errorf("renew the pool: %w", err)
		}
	}
	for _, b := range e.sched.branches {
		b.pool = p.Open(b.account().id, b.account().key, b.request.root)
		b.holds, b.chunk, b.sampling, b.guesses, b.fed, b.table = false, 0, nil, nil, nil, nil
	}
	e.audience.reset(p)
	return nil
}
