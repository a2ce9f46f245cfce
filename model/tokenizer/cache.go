package tokenizer

import (
	"hash/maphash"
	"slices"
	"sync/atomic"
)

const (
	cacheSlots = 1 << 15
	maxCached  = 64 // bytes of a run that is worth keeping
)

// cache remembers the ids of short runs. It is a table of single slots, so that it is bounded and takes no lock; a newer
// run replaces an older one of the same slot.
type cache struct {
	slots [cacheSlots]atomic.Pointer[cached]
}

type cached struct {
	text string
	ids  []int32
}

var seed = maphash.MakeSeed()

// get returns the entry of s, nil if it has none, and its slot.
func (c *cache) get(s []byte) (*cached, int) {
	at := int(maphash.Bytes(seed, s) % cacheSlots)
	if e := c.slots[at].Load(); e != nil && e.text == view(s) {
		return e, at
	}
	return nil, at
}

func (c *cache) put(at int, s []byte, ids []int32) {
	c.slots[at].Store(&cached{text: string(s), ids: slices.Clone(ids)})
}
