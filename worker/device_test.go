package worker

import (
	"fmt"
	"hash/fnv"
	"math"
	"sync/atomic"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

const vocab = 1000

// hashDevice is a device whose next token is a hash of all tokens before it, which it reads from its pages alone: a page
// that was lost, shared wrongly or overwritten changes what it says.
type hashDevice struct {
	geometry kvpool.Geometry
	memory   [][]uint64 // by page, by slot: hash of the prefix that ends there
	pending  *model.Result
	steps    int
	computed int           // tokens
	ids      uint64        // that it chooses from; 0: the vocabulary
	guesses  int           // that it was given
	broken   atomic.Bool   // its logits are no numbers
	hold     chan struct{} // if there is one, steps past the tenth wait for its end
	held     atomic.Bool   // one has begun to
}

func newHashDevice(g kvpool.Geometry, pages int) *hashDevice {
	d := &hashDevice{geometry: g, memory: make([][]uint64, pages)}
	for i := range d.memory {
		d.memory[i] = make([]uint64, g.BlockSize)
	}
	return d
}

func (d *hashDevice) Submit(p *model.Plan) error {
	r := &model.Result{Step: p.Step}
	for _, row := range p.Rows {
		id := int32(-1)
		var scores []model.Score
		var chosen []int32 // after each output
		for i, token := range row.Tokens {
			h, err := d.compute(row, row.Start+i, token)
			if err != nil {
				return err
			}
			id = d.next(h, row.Sampling)
			if i >= len(row.Tokens)-row.Outputs {
				chosen = append(chosen, id)
			}
			if o := i - (len(row.Tokens) - row.Outputs); row.Scored && o >= 0 {
				next := id
				if o < len(row.Next) {
					next = row.Next[o]
				}
				scores = append(scores, scoreOf(h, next, row.Top))
				if d.broken.Load() {
					scores[len(scores)-1].Logprob = float32(math.NaN())
				}
			}
			d.computed++
		}
		if row.Outputs == 0 || d.broken.Load() {
			id = -1
		}
		if row.Guesses > 0 {
			id, chosen = chosen[0], chosen[1:]
			r.Guessed = append(r.Guessed, chosen)
			d.guesses += row.Guesses
		} else {
			r.Guessed = append(r.Guessed, nil)
		}
		r.IDs = append(r.IDs, id)
		r.Logprobs = append(r.Logprobs, 0)
		r.Scores = append(r.Scores, scores)
	}
	d.pending = r
	d.steps++
	return nil
}

// next is the token after a prefix: the prefix's hash, and for branches with other seeds than 0 that of the seed too.
func (d *hashDevice) next(h uint64, s *model.Sampling) int32 {
	if s != nil && s.Seed != 0 {
		h = chain(h^s.Seed, int32(s.Counter))
	}
	if d.ids > 0 {
		return int32(h % d.ids)
	}
	return int32(h % vocab)
}

// scoreOf is what the device says of a token after a prefix.
func scoreOf(h uint64, id int32, top int) model.Score {
	s := model.Score{Logprob: -float32(chain(h, id)%1000) / 100, Rank: 1 + int(id)}
	for i := range top {
		s.Top = append(s.Top, model.Likely{ID: int32(i), Logprob: -float32(i)})
	}
	return s
}

// compute extends the chain of every group by one position. A group's window is checked to agree with the first group's
// chain.
func (d *hashDevice) compute(row model.Row, pos int, token int32) (uint64, error) {
	bs := d.geometry.BlockSize
	var h uint64
	for g, lg := range d.geometry.Groups {
		at := func(i int) (*uint64, error) {
			page := row.Pages[g][i/bs]
			if page == kvpool.NoPage {
				return nil, fmt.Errorf("group %d: position %d reads position %d, whose page is gone", g, pos, i)
			}
			return &d.memory[page][i%bs], nil
		}
		if pos > 0 && (lg.Kind == kvpool.Full || lg.Window > 1) {
			prev, err := at(pos - 1)
			if err != nil {
				return 0, err
			}
			if g > 0 && chain(*prev, token) != h {
				return 0, fmt.Errorf("group %d: position %d holds another prefix than group 0", g, pos-1)
			}
			h = chain(*prev, token)
		} else if pos == 0 {
			h = chain(0, token)
		}
		slot, err := at(pos)
		if err != nil {
			return 0, err
		}
		*slot = h
	}
	return h, nil
}

func chain(prev uint64, token int32) uint64 {
	f := fnv.New64a()
	fmt.Fprintf(f, "%d %d", prev, token)
	return f.Sum64() | 1
}

func (d *hashDevice) Wait() (*model.Result, error) {
	if d.hold != nil && d.steps > 10 {
		d.held.Store(true)
		<-d.hold
	}
	return d.pending, nil
}

// say is what the device answers to a prompt: n tokens.
func say(prompt []int32, n int) []int32 { return sayOf(vocab, prompt, n) }

// sayOf is the same of a device that chooses from so many ids.
func sayOf(ids uint64, prompt []int32, n int) []int32 {
	h := uint64(0)
	for _, t := range prompt {
		h = chain(h, t)
	}
	var out []int32
	for range n {
		id := int32(h % ids)
		out = append(out, id)
		h = chain(h, id)
	}
	return out
}
