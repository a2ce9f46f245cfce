package worker

import (
	"cmp"
	"errors"
	"slices"

	"github.com/berthd/berth/kvpool"
)

// scheduler decides what a step computes. It is pure: branches and pool in, chunks and shortages out; no clock, no lock.
//
// There is no prefill and no decode phase, only branches whose computed tokens catch up with those that they have: in
// order, first those one token behind, then as much of the others as the step's budget holds.
type scheduler struct {
	pool     *kvpool.Pool
	budget   int // tokens of a step
	prefills int // chunks of more than one token in a step
	guesses  int // tokens that a branch may guess in a step
	branches []*branch
	planned  []*branch
	short    []*branch // prompts of a step, those with the fewest tokens left first
	pace     *pace
	turn     int  // of branches that decode, the first that runs when not all may in a step
	alone    bool // a suspect has had the last step
}

// maxScored is how many tokens of prompts are scored in a step. Logits of each may cost many times what the token does
// otherwise, and a step must not take so long that others wait for it, or that it is taken for stuck.
const maxScored = 128

func newScheduler(p *kvpool.Pool) *scheduler {
	g := p.Geometry()
	return &scheduler{pool: p, budget: g.MaxBatchTokens, prefills: g.PrefillsInStep, pace: &pace{}}
}

func (s *scheduler) add(b *branch) {
	at, _ := slices.BinarySearchFunc(s.branches, b, func(x, y *branch) int { return x.key.compare(y.key) })
	s.branches = slices.Insert(s.branches, at, b)
}

func (s *scheduler) remove(b *branch) {
	if i := slices.Index(s.branches, b); i >= 0 {
		s.branches = slices.Delete(s.branches, i, i+1)
	}
}

// schedule gives every branch that runs in the next step its chunk and pages, and returns them in order. Pages are taken
// in order: a branch that wants more than its account has room for has short set, and those behind it in its account
// take nothing new, so that what is freed reaches it (W3). Decodes get their token each, prompts what is left of the budget
// and of the time that a step may take. A suspect has every second step to itself.
func (s *scheduler) schedule() []*branch {
	s.planned = s.planned[:0]
	decodes := 0
	var suspect *branch
	for _, b := range s.branches {
		b.chunk, b.short, b.account().short = 0, 0, nil
		b.guesses = b.guesses[:0]
		switch {
		case b.quarantined(s.pool):
			suspect = cmp.Or(suspect, b)
		case b.decodes(s.pool):
			decodes++
		}
	}
	if suspect != nil && !s.alone && s.planAlone(suspect) {
		s.alone = true
		return s.planned
	}
	s.alone = false
	s.together(decodes)
	if suspect != nil && len(s.planned) == 0 && suspect.short == 0 {
		s.alone = s.planAlone(suspect)
	}
	return s.planned
}

// together plans the branches that may share a step. One starts when those before it of its request have computed what it
// will share with them.
func (s *scheduler) together(decodes int) {
	rows := s.pace.rows(min(decodes, s.budget))
	left, prefills, scored := s.budget-rows, s.prefills, maxScored
	time := s.pace.room(rows)
	kept, keptFor := s.keep(left/2, prefills-1)
	nth, first := 0, 0
	if rows < decodes {
		first = s.turn % decodes
		s.turn = first + rows
	}
	var behind *request
	for _, b := range s.branches {
		if b.quarantined(s.pool) {
			behind = b.request
			if b.short > 0 && b.account().short == nil {
				b.account().short = b
			}
			continue
		}
		if b.decodes(s.pool) {
			if (nth-first+decodes)%max(1, decodes) < rows {
				s.plan(b, 1)
			}
			nth++
			continue
		}
		room := time
		if b.kept > 0 {
			kept, keptFor = kept-b.kept, keptFor-1
		} else if keptFor > 0 {
			room /= 2
		}
		if prefills <= keptFor {
			continue
		}
		most := left - kept
		if b.scoresDue() {
			most = min(most, scored)
		}
		runs := most > 0 && prefills > 0 && (b.holds || b.request != behind && s.start(b))
		if !b.holds || s.pool.Tokens(b.pool) < b.shared {
			behind = b.request
		}
		if !runs {
			continue
		}
		n, takes := s.chunk(b, min(most, b.remaining(s.pool)), room)
		if n > 0 && s.plan(b, n) {
			left -= n
			time -= takes
			if b.scoresDue() {
				scored -= n
			}
			if n > 1 {
				prefills--
			}
		}
	}
	s.guessAhead()
}

// keep sets tokens of a step aside for the prompts that have the fewest left, so that a short one does not wait for a long
// one before it: at most so many tokens, for at most so many prompts. Those before them have the rest, and pages are still
// taken in order. It returns what it keeps, and for how many.
func (s *scheduler) keep(most, prompts int) (kept, keptFor int) {
	s.short = s.short[:0]
	for _, b := range s.branches {
		b.kept = 0
		if b.decodes(s.pool) || b.quarantined(s.pool) {
			continue
		}
		if n := len(b.resume.Tokens); b.holds || s.pool.Room(b.account().id) >= s.pool.Geometry().Demand(n).Pages {
			s.short = append(s.short, b)
		}
	}
	if len(s.short) < 2 {
		return 0, 0
	}
	slices.SortStableFunc(s.short, func(a, b *branch) int { return cmp.Compare(a.remaining(s.pool), b.remaining(s.pool)) })
	for _, b := range s.short[:min(len(s.short)-1, max(0, prompts))] {
		if b.kept = min(most-kept, b.remaining(s.pool)); b.kept == 0 {
			break
		}
		kept, keptFor = kept+b.kept, keptFor+1
	}
	return kept, keptFor
}

// chunk is how many of a prompt's next n tokens the step computes, and the seconds that they take. A step that has nothing
// else has one at least.
func (s *scheduler) chunk(b *branch, n int, room float64) (int, float64) {
	at := s.pool.Tokens(b.pool)
	if q := b.suspicion; q != nil && at < q.from {
		n = min(n, q.from-at)
	}
	fits, takes := s.pace.fit(n, at, b.scoresDue(), room)
	if fits < 1 && len(s.planned) == 0 {
		return 1, takes
	}
	return fits, takes
}

// plan takes the pages of the branch's next n tokens, all or none.
func (s *scheduler) plan(b *branch, n int) bool {
	upto := s.pool.Tokens(b.pool) + n
	if b.account().short != nil {
		if need, _ := s.pool.Need(b.pool, upto); need > 0 {
			return false
		}
	}
	if err := s.pool.Extend(b.pool, upto); err != nil {
		s.lack(b, shortfall(err))
		return false
	}
	b.chunk = n
	s.planned = append(s.planned, b)
	return true
}

// start puts the branch on the longest prefix that the cache has, if its account has room for all of its tokens: what
// starts is not stopped by its own prompt.
func (s *scheduler) start(b *branch) bool {
	account := b.account()
	if account.short != nil {
		return false
	}
	if _, err := s.pool.Match(b.pool, b.known()); err != nil {
		s.lack(b, s.pool.Geometry().Demand(len(b.resume.Tokens)).Pages-s.pool.Room(account.id))
		return false
	}
	if need, _ := s.pool.Need(b.pool, len(b.resume.Tokens)); need > s.pool.Room(account.id) {
		s.lack(b, need-s.pool.Room(account.id))
		s.pool.Release(b.pool)
		return false
	}
	b.holds = true
	return true
}

// lack notes that the branch wants pages that its account has no room for.
func (s *scheduler) lack(b *branch, pages int) { b.short, b.account().short = max(1, pages), b }

// firstShort is the first branch in order that wants pages, nil if none does.
func (s *scheduler) firstShort() *branch {
	for _, b := range s.branches {
		if b.short > 0 {
			return b
		}
	}
	return nil
}

// shortfall is the pages that an allocation lacked. Only the branch's own account may be short: the overhead is sized
// for every step that a plan can be.
func shortfall(err error) int {
	var short *kvpool.ShortfallError
	if !errors.As(err, &short) || short.Account == kvpool.Overhead {
		panic("worker: " + err.Error())
	}
	return short.Need - short.Room
}

// relieve makes room for b, the first that is short, while the ledger has nothing to give: every other account gives back
// what its branches have not taken, since those before b have what they want; then branches behind b let go, the last one
// first, until b's account or the ledger has what b lacks. It returns those that let go, and the pages that come free by
// all of it: of those that a step in flight may touch, once it has retired.
func (s *scheduler) relieve(b *branch, accounts []*account) (victims []*branch, returned int) {
	for _, a := range accounts {
		returned += s.pool.Leaving(a.id)
		if a != b.account() {
			returned += a.giveBack(s.pool, s.pool.Room(a.id))
		}
	}
	for i := len(s.branches) - 1; i >= 0 && returned < b.short; i-- {
		v := s.branches[i]
		if v == b {
			break
		}
		if !v.holds {
			continue
		}
		a := v.account()
		room, leaving := s.pool.Room(a.id), s.pool.Leaving(a.id)
		s.letGo(v)
		victims = append(victims, v)
		freed := s.pool.Room(a.id) - room
		if a != b.account() {
			freed = a.giveBack(s.pool, freed)
		}
		returned += freed + s.pool.Leaving(a.id) - leaving
	}
	return victims, returned
}

// letGo drops everything that a branch holds; its full blocks stay in the cache while nobody needs their pages.
func (s *scheduler) letGo(b *branch) {
	s.pool.Release(b.pool)
	b.holds = false
}

// spare is the room of an account beyond what its branches want soon: their next ahead tokens, and all tokens of those
// that have not started, but for what they will share with one before them. It is at most the room, and below zero by what
// is lacking. While a branch is short there is none: what it lacks is known when it starts.
func (s *scheduler) spare(a *account, ahead int) int {
	spare := s.pool.Room(a.id)
	if a.short != nil && !a.short.over {
		return min(0, spare)
	}
	var before *request
	for _, b := range s.branches {
		if b.account() != a {
			continue
		}
		upto := min(len(b.resume.Tokens)+ahead, b.resume.Prompt+b.limits.maxTokens)
		need := b.demand(s.pool.Geometry(), upto, b.request == before)
		before = b.request
		if b.holds {
			need, _ = s.pool.Need(b.pool, upto)
		}
		spare -= max(0, need)
	}
	return spare
}
