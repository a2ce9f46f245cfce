package cpu

import "github.com/berthd/berth/model"

// rank is one of the devices that share a model: pages, memory and threads of its own, and an engine that computes its
// shard. Its forward pass meets the others' wherever a sum over all ranks is due.
type rank struct {
	cfg      Config // Threads: the rank's own
	first    int    // threads of the ranks before it
	memory   *memory
	pages    pages
	pool     *pool
	partners *barrier
	engine   engine

	ids []int32 // of its own vocabulary: what its chooser chose
}

// engine is a way to compute a rank's part of the layers: kernels, or plain Go.
type engine interface {
	// join tells of the engines of all ranks, in their order, itself among them; before the first step.
	join(all []engine)
	// forward runs every layer over the batch, reading and writing pages, and keeps the hidden state of each token.
	forward(b *batch)
	// logits writes the logits of the rank's own part of the vocabulary: token i's logit of id at out[i·stride + id].
	logits(tokens []output, out []float32, stride int)
	// chooser finds highest logits without the others; nil where there is no such way.
	chooser() finalist
	// numerics names the arithmetic: two engines with one name give the same bits.
	numerics() string
}

// chooser writes, for each token, the lowest id of the highest logit: the argmax of the logits. It takes as many tokens
// as the head computes at a time, and room for their logits.
type chooser interface {
	choose(tokens []output, room []float32, ids []int32)
}

// finalist is a rank's chooser. Its ids count from the start of the rank's part of the vocabulary.
type finalist interface {
	chooser
	// product is the logit that was chosen for token t.
	product(t int) float32
}

// newRank starts the threads of rank s.Rank, which has its share of cfg.Threads and at least one.
func newRank(s model.Share, cfg Config, partners *barrier) *rank {
	r := &rank{cfg: cfg, memory: &memory{}, partners: partners, ids: make([]int32, headRows)}
	lo, hi := s.Rank*cfg.Threads/s.Ranks, (s.Rank+1)*cfg.Threads/s.Ranks
	if cfg.Threads < s.Ranks {
		lo, hi = s.Rank, s.Rank+1
	}
	r.first, r.cfg.Threads = lo, hi-lo
	r.pool = newPool(hi - lo)
	return r
}

// build allocates pages and engine for the rank's shard.
func (r *rank) build(shard *model.Model, layout model.KVLayout) (err error) {
	if r.pages, err = newPages(r.memory, layout, r.cfg); err != nil {
		return err
	}
	r.engine, err = newEngine(r, shard)
	return err
}

// newEngine builds what the group has picked for all ranks.
func newEngine(r *rank, shard *model.Model) (engine, error) {
	if r.cfg.Reference {
		return newReference(r, shard), nil
	}
	return newKernels(r, shard)
}

// maxHeadDim is MAX_HEAD in attention.c.
const maxHeadDim = 512

// fits tells whether the vector kernels take a model's sizes: they have no scalar tails (N3).
func fits(d *model.Decoder) bool {
	return d.Hidden%8 == 0 && d.FeedForward%8 == 0 && d.HeadDim%16 == 0 && d.HeadDim <= maxHeadDim
}

// owner is the place in list of the rank that has token id; first gives where the vocabulary of a rank starts.
func owner[E any](list []E, id int, first func(E) int) int {
	i := len(list) - 1
	for first(list[i]) > id {
		i--
	}
	return i
}

// close ends the threads and unmaps the memory.
func (r *rank) close() error {
	r.pool.close()
	return r.memory.close()
}
