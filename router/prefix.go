package router

import (
	"sync"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
)

// entryBytes is what one block of one worker costs in memory: name and state in a map, of which a churn leaves a part empty.
const entryBytes = 56

// blockState says what a worker has of a block.
type blockState uint8

const (
	hasFull   blockState = 1 << iota // every full-attention group has its page
	hasWindow                        // every window group has its page
)

// blocks are those of one worker's stream.
type blocks struct {
	worker  string
	byName  map[kvpool.Hash]blockState
	retired bool // the stream is gone: late events change nothing
}

// prefixes is the index of which worker can serve which block as a hit. A block that several workers have is counted
// for each. When it is full, new blocks are not taken: to expect too little is safe (R6).
type prefixes struct {
	mu       sync.RWMutex
	limit    int // entries
	count    int
	refused  uint64 // entries that were not taken
	byWorker map[string]*blocks
}

func newPrefixes(bytes int64) *prefixes {
	return &prefixes{limit: int(bytes / entryBytes), byWorker: map[string]*blocks{}}
}

// open begins with a worker's new stream, of which nothing is known yet.
func (p *prefixes) open(worker string) *blocks {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.byWorker[worker]; old != nil {
		p.retire(old)
	}
	b := &blocks{worker: worker, byName: map[kvpool.Hash]blockState{}}
	p.byWorker[worker] = b
	return b
}

// forget ends a stream's part.
func (p *prefixes) forget(b *blocks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retire(b)
	if p.byWorker[b.worker] == b {
		delete(p.byWorker, b.worker)
	}
}

func (p *prefixes) retire(b *blocks) {
	p.count -= len(b.byName)
	b.byName, b.retired = nil, true
}

// clear forgets what a stream has said so far.
func (p *prefixes) clear(b *blocks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count -= len(b.byName)
	if !b.retired {
		b.byName = map[kvpool.Hash]blockState{}
	}
}

// apply takes the new states of blocks. False: a name is no name.
func (p *prefixes) apply(b *blocks, events []*workerv1.BlockEvent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.retired {
		return true
	}
	for _, e := range events {
		if len(e.Hash) != len(kvpool.Hash{}) {
			return false
		}
		p.set(b, kvpool.Hash(e.Hash), stateOf(e))
	}
	return true
}

func stateOf(e *workerv1.BlockEvent) (s blockState) {
	if e.Full {
		s |= hasFull
	}
	if e.Window {
		s |= hasWindow
	}
	return s
}

func (p *prefixes) set(b *blocks, name kvpool.Hash, s blockState) {
	_, known := b.byName[name]
	switch {
	case s == 0 && known:
		delete(b.byName, name)
		p.count--
	case s == 0:
	case known:
		b.byName[name] = s
	case p.count >= p.limit:
		p.refused++
	default:
		b.byName[name] = s
		p.count++
	}
}

// hit is how many tokens of a prompt, whose whole blocks have the names in chain, the worker need not compute: the most
// blocks for which every layer group has all pages that the next position reads. Chain leaves the prompt's last token
// out.
func (p *prefixes) hit(worker string, g kvpool.Geometry, chain []kvpool.Hash) int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	b := p.byWorker[worker]
	if b == nil || len(b.byName) == 0 {
		return 0
	}
	full, window := kinds(g)
	best, run := 0, 0 // run: blocks with window pages that end with the current one
	for i, name := range chain {
		s, known := b.byName[name]
		if !known && full || full && s&hasFull == 0 {
			break
		}
		if run++; s&hasWindow == 0 {
			run = 0
		}
		n := i + 1
		if window.Window == 0 || run >= n-g.FirstBlock(window, n*g.BlockSize+1) {
			best = n
		}
	}
	return best * g.BlockSize
}

// kinds says whether there are full-attention groups, and which window group reads farthest back; its window is 0 if
// there is none.
func kinds(g kvpool.Geometry) (full bool, window kvpool.Group) {
	for _, lg := range g.Groups {
		switch {
		case lg.Kind == kvpool.Full:
			full = true
		case lg.Window > window.Window:
			window = lg
		}
	}
	return full, window
}

// size is the number of entries, and of those that were refused for want of room.
func (p *prefixes) size() (entries int, refused uint64) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.count, p.refused
}
