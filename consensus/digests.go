package consensus

import (
	"crypto/sha256"
	"slices"
	"sync"
)

// keptDigests is how many ticks back Digests goes.
const keptDigests = 64

// Digest is the ledger's digest right after the tick that made a revision.
type Digest struct {
	Revision uint64
	Digest   [sha256.Size]byte
}

// digests are those of the last ticks.
type digests struct {
	mu   sync.Mutex
	kept []Digest // oldest first
}

func (d *digests) keep(x Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = append(slices.Delete(d.kept, 0, max(0, len(d.kept)+1-keptDigests)), x)
}

func (d *digests) list() []Digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.kept)
}
