package router

import (
	"github.com/berthd/berth/consensus/ledger"
	"github.com/berthd/berth/kvpool"
)

// chains are the names of a prompt's whole blocks, made once for each way in which workers name them.
type chains struct {
	key    kvpool.Key // of the share group
	salt   string
	prompt []int32
	made   map[naming][]kvpool.Hash
}

// naming is what block names depend on besides tokens and share group: what must agree for KV to be exchangeable.
type naming struct {
	revision, numerics, layout string
	block                      int
}

// newChains prepares the names of a prompt in a share group of the ledger's cluster.
func newChains(hashKey []byte, group, salt string, prompt []int32) *chains {
	var cluster kvpool.Key
	copy(cluster[:], hashKey)
	return &chains{key: kvpool.DeriveKey(cluster, group), salt: salt, prompt: prompt, made: map[naming][]kvpool.Hash{}}
}

// of returns the names as the worker has them. The prompt's last token is always computed, so its block is left out.
func (c *chains) of(w *ledger.WorkerView) []kvpool.Hash {
	n := naming{string(w.Info.GetModelRevision()), w.Info.GetNumerics(), w.Info.GetLayout(), w.Geometry.BlockSize}
	if names, ok := c.made[n]; ok {
		return names
	}
	names := make([]kvpool.Hash, 0, (len(c.prompt)-1)/n.block)
	parent := kvpool.Root(c.key, n.revision, n.numerics, n.layout, c.salt)
	for at := 0; at+n.block < len(c.prompt); at += n.block {
		parent = kvpool.Chain(c.key, parent, c.prompt[at:at+n.block])
		names = append(names, parent)
	}
	c.made[n] = names
	return names
}
