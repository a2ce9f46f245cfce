package cpu

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/berthd/berth/model"
)

// group is the ranks that share a model. The device's goroutine is rank 0's; each other rank has its own. All do the same
// job at a time, and end it together:
//
//	rank 0   agree ▸ embed ▸ { … O ▸ sum ▸ … Down ▸ sum } ▸ its part of the logits, or its best ─┐
//	rank 1   agree ▸ embed ▸ { … O ▸ sum ▸ … Down ▸ sum } ▸ its part of the logits, or its best ─┴▶ head
//	                              └ meet ┘        └ meet ┘
//
// A sum is formed by every rank for itself, in rank order, from what all have written before they met.
type group struct {
	ranks  []*rank
	layout model.KVLayout
	vocab  []model.Span // by rank
	layers barrier      // where sums over ranks are due
	start  gate
	end    barrier
	wg     sync.WaitGroup
	stop   bool
	job    func(rank int) // what all do at a time

	agreeJob, forwardJob, logitsJob, chooseJob, shareJob func(rank int)

	// Arguments of the jobs.
	plan    order
	faults  []error
	batch   *batch
	tokens  []output
	out     []float32
	stride  int
	task    *task
	chunks  int64
	claimed atomic.Int64
	shares  []task // by rank: claims chunks of task
}

// PlanError says that a rank has read another plan than the one that was checked. Nothing of it has run.
type PlanError struct {
	Step      uint64
	Rank      int
	Want, Got uint64 // digests
}

func (e *PlanError) Error() string {
	return fmt.Sprintf("rank %d reads another plan than was submitted as step %d: digest %x, want %x", e.Rank, e.Step,
		e.Got, e.Want)
}

// openGroup starts a rank for each share of m.
func openGroup(m *model.Model, cfg Config) (*group, error) {
	shares, err := m.Shares(cfg.Ranks)
	if err != nil {
		return nil, err
	}
	cfg.Reference = cfg.Reference || !Kernels() || !fits(&m.Decoder)
	g := &group{layout: m.RankLayout(cfg.Ranks), faults: make([]error, cfg.Ranks), shares: make([]task, cfg.Ranks)}
	g.layers.init(cfg.Ranks)
	g.end.init(cfg.Ranks)
	g.start.init()
	g.agreeJob, g.forwardJob, g.logitsJob, g.chooseJob, g.shareJob = g.agreeRank, g.forwardRank, g.logitsRank, g.chooseRank, g.shareRank
	for i, s := range shares {
		g.ranks, g.vocab = append(g.ranks, newRank(s, cfg, &g.layers)), append(g.vocab, s.Vocab)
		g.shares[i].do = func(_, worker int) { g.claim(g.ranks[i].first + worker) }
	}
	var building sync.WaitGroup
	for i, r := range g.ranks {
		building.Go(func() { g.faults[i] = r.build(m.Shard(shares[i]), g.layout) })
	}
	building.Wait()
	if err := errors.Join(g.faults...); err != nil {
		return nil, errors.Join(err, g.close())
	}
	engines := make([]engine, len(g.ranks))
	for i, r := range g.ranks {
		engines[i] = r.engine
	}
	for i, e := range engines {
		e.join(engines)
		if i > 0 {
			g.wg.Go(func() { g.serve(i) })
		}
	}
	return g, nil
}

// serve is the life of a rank other than the first.
func (g *group) serve(rank int) {
	for was := uint32(0); ; was++ {
		g.start.wait(was)
		if g.stop {
			return
		}
		g.job(rank)
		g.end.meet()
	}
}

// all has every rank do a job, the caller as rank 0, and returns when all have.
func (g *group) all(job func(rank int)) {
	g.job = job
	g.start.open()
	job(0)
	g.end.meet()
}

// close ends the ranks.
func (g *group) close() error {
	g.stop = true
	g.start.open()
	g.wg.Wait()
	for i, r := range g.ranks {
		g.faults[i] = r.close()
	}
	return errors.Join(g.faults...)
}

// threads is how many all ranks have together.
func (g *group) threads() int {
	last := g.ranks[len(g.ranks)-1]
	return last.first + last.cfg.Threads
}

func (g *group) numerics() string { return g.ranks[0].engine.numerics() }

// agree has every rank compare the plan that it reads with the one that was checked.
func (g *group) agree(o order) error {
	g.plan = o
	g.all(g.agreeJob)
	return errors.Join(g.faults...)
}

func (g *group) agreeRank(rank int) {
	g.faults[rank] = nil
	if got := g.plan.plan.Digest(); got != g.plan.digest {
		g.faults[rank] = &PlanError{Step: g.plan.plan.Step, Rank: rank, Want: g.plan.digest, Got: got}
	}
}

// forward runs every layer over the batch on every rank.
func (g *group) forward(b *batch) {
	g.batch = b
	g.all(g.forwardJob)
}

func (g *group) forwardRank(rank int) { g.ranks[rank].engine.forward(g.batch) }

// logits writes one row of Vocab logits for each token, at out[i·stride].
func (g *group) logits(tokens []output, out []float32, stride int) {
	g.tokens, g.out, g.stride = tokens, out, stride
	g.all(g.logitsJob)
}

func (g *group) logitsRank(rank int) { g.ranks[rank].engine.logits(g.tokens, g.out, g.stride) }

// chooser is there if every rank has one.
func (g *group) chooser() chooser {
	for _, r := range g.ranks {
		if r.engine.chooser() == nil {
			return nil
		}
	}
	if len(g.ranks) == 1 {
		return g.ranks[0].engine.chooser()
	}
	return g
}

// choose lets every rank choose from its part of the vocabulary, then takes the best of those.
func (g *group) choose(tokens []output, room []float32, ids []int32) {
	g.tokens, g.out = tokens, room
	g.all(g.chooseJob)
	for t := range tokens {
		ids[t] = g.best(t)
	}
}

func (g *group) chooseRank(rank int) {
	r := g.ranks[rank]
	r.engine.chooser().choose(g.tokens, g.out[g.vocab[rank].Lo/8*len(g.tokens):], r.ids)
}

// best is the id of the highest product of token t, the lowest rank's of equal ones: its ids are the lowest. It is −1 if
// one is no number.
func (g *group) best(t int) int32 {
	top, id := float32(math.Inf(-1)), int32(-1)
	for i, r := range g.ranks {
		p := r.engine.chooser().product(t)
		if math.IsNaN(float64(p)) || math.IsInf(float64(p), 1) {
			return -1
		}
		if p > top {
			top, id = p, int32(g.vocab[i].Lo)+r.ids[t]
		}
	}
	return id
}

// run does chunks [0, n) of t on the threads of all ranks.
func (g *group) run(t *task, n int) {
	if n <= 1 || len(g.ranks) == 1 {
		g.ranks[0].pool.run(t, n)
		return
	}
	g.task, g.chunks = t, int64(n)
	g.claimed.Store(0)
	g.all(g.shareJob)
}

func (g *group) shareRank(rank int) {
	p := g.ranks[rank].pool
	p.run(&g.shares[rank], p.threads)
}

// claim does chunks of the task that all ranks share until none is left.
func (g *group) claim(worker int) {
	for {
		c := g.claimed.Add(1) - 1
		if c >= g.chunks {
			return
		}
		g.task.do(int(c), worker)
	}
}
