package sim

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/worker"
)

// What a step of the device takes: stepCost, and what each of its tokens and each position that they attend to adds, over
// the worker's speed. They are of the order of a small model on a few cores.
const (
	stepCost     = 2 * time.Millisecond
	tokenCost    = 100 * time.Microsecond
	positionCost = time.Microsecond
)

// The ids of the vocabulary: those of ordinary tokens come after the end.
const (
	vocabulary = 2000
	endToken   = 2
	firstToken = 3
)

// device is a cost model in place of kernels. A page holds, for each of its positions, a hash of all tokens up to there;
// the next token is a function of the hash that the last position's pages give. So a page that was lost, shared wrongly
// or overwritten changes what is said, and says that it did.
type device struct {
	geometry kvpool.Geometry
	speed    float64
	memory   [][]uint64 // by page, by slot
	pending  *model.Result
	ready    time.Time
	before   func()              // each step
	during   func(time.Duration) // each step, with what it takes
	timeout  time.Duration       // after which the device itself gives a step up; 0: never
	hangs    atomic.Bool
	left     atomic.Int64    // of the step in flight when it began, nanoseconds; 0 between steps
	over     <-chan struct{} // closed when nobody waits any more
}

func newDevice(g kvpool.Geometry, pages int, speed float64) *device {
	d := &device{geometry: g, speed: speed, memory: make([][]uint64, pages)}
	for i := range d.memory {
		d.memory[i] = make([]uint64, g.BlockSize)
	}
	return d
}

// Submit implements worker.Device.
func (d *device) Submit(p *model.Plan) error {
	d.before()
	r, tokens, positions := &model.Result{Step: p.Step}, 0, 0
	for i := range p.Rows {
		row := &p.Rows[i]
		var chosen []int32 // after each of the last positions
		for j, token := range row.Tokens {
			h, err := d.compute(row, row.Start+j, token)
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
			if at := j - len(row.Tokens) + row.Outputs; at >= 0 {
				chosen = append(chosen, choose(h, row.Sampling, at))
			}
			positions += row.Start + j
		}
		tokens += len(row.Tokens)
		if len(chosen) == 0 {
			chosen = []int32{-1}
		}
		r.IDs, r.Guessed = append(r.IDs, chosen[0]), append(r.Guessed, chosen[1:])
		r.Logprobs, r.Scores = append(r.Logprobs, 0), append(r.Scores, nil)
	}
	cost := stepCost + time.Duration(tokens)*tokenCost + time.Duration(positions)*positionCost
	takes := time.Duration(float64(cost) / d.speed)
	d.during(takes)
	d.left.Store(int64(takes))
	d.pending, d.ready = r, time.Now().Add(takes)
	return nil
}

// Wait implements worker.Device.
func (d *device) Wait() (*model.Result, error) {
	defer d.left.Store(0)
	if d.hangs.Load() {
		<-d.over
	}
	if left := time.Until(d.ready); d.timeout > 0 && left > d.timeout {
		time.Sleep(d.timeout)
		return nil, worker.ErrStuck
	}
	time.Sleep(time.Until(d.ready))
	return d.pending, nil
}

// compute writes a position to the page of every group, after reading the position before it, and in a window the first
// one that the window still sees.
func (d *device) compute(row *model.Row, pos int, token int32) (h uint64, err error) {
	for g, lg := range d.geometry.Groups {
		prev, seen := root, pos > 0
		if lg.Kind == kvpool.Sliding && seen {
			if _, err := d.at(row, g, max(0, pos-lg.Window+1)); err != nil {
				return 0, err
			}
			seen = lg.Window > 1
		}
		if seen {
			slot, err := d.at(row, g, pos-1)
			if err != nil {
				return 0, err
			}
			prev = *slot
		}
		switch is := chain(prev, token); {
		case g == 0:
			h = is
		case seen && is != h:
			return 0, fmt.Errorf("P6: position %d of group %d holds another prefix than group 0", pos-1, g)
		}
		slot, err := d.at(row, g, pos)
		if err != nil {
			return 0, err
		}
		*slot = h
	}
	return h, nil
}

func (d *device) at(row *model.Row, group, pos int) (*uint64, error) {
	page := row.Pages[group][pos/d.geometry.BlockSize]
	if page == kvpool.NoPage {
		return nil, fmt.Errorf("P6: position %d of group %d is read, and its page is gone", pos, group)
	}
	return &d.memory[page][pos%d.geometry.BlockSize], nil
}

// root is the hash of no tokens.
const root uint64 = 0x9e3779b97f4a7c15

// chain is the hash of a prefix and one token more, by the finaliser of SplitMix64.
func chain(prev uint64, token int32) uint64 {
	x := prev ^ (uint64(uint32(token))+1)*0xd6e8feb86659fd93
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// choose is the token after a prefix, for a row that chooses after that many guesses more.
func choose(h uint64, s *model.Sampling, guesses int) int32 {
	if s.Temperature < model.GreedyBelow {
		return likeliest(h)
	}
	return next(h, s.Seed, s.Counter+uint64(guesses))
}

// likeliest is the token of greedy branches after a prefix: one of three.
func likeliest(h uint64) int32 { return firstToken + int32(h%3) }

// next is the token after a prefix, for a branch of that seed that has said counter tokens.
func next(h, seed, counter uint64) int32 {
	h = chain(h^seed, int32(counter))
	return endToken + int32(h%(vocabulary-endToken))
}

// say is what any device answers to one of a request's choices: tokens until the end token, or as many as asked for. It
// is all that P6 leaves to be said.
func (q *Request) say(choice int) (ids []int32, ended bool) {
	h := root
	for _, t := range q.Prompts[choice/q.N] {
		h = chain(h, t)
	}
	stream := model.Stream(q.Seed, uint32(choice%q.N))
	for i := range q.Max {
		id := likeliest(h)
		if !q.Greedy {
			id = next(h, stream, uint64(i))
		}
		ids = append(ids, id)
		if id == endToken {
			return ids, true
		}
		h = chain(h, id)
	}
	return ids, false
}
