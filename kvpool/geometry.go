package kvpool

import (
	"errors"
	"fmt"
)

// Kind is the attention kind of a layer group.
type Kind uint8

const (
	// Full attention reads every earlier position.
	Full Kind = iota
	// Sliding attention reads the last Window positions, the current one included.
	Sliding
)

// Group is a set of layers of one kind that share page ids: one page holds the keys and values of BlockSize tokens for
// all of them.
type Group struct {
	Kind   Kind
	Window int // positions, 0 for Full
}

// Geometry is the shape of a worker's KV memory. It travels with the worker's registration, so that sizing, admission,
// the ledger, allocation and error texts all turn tokens into pages by the one function Demand.
type Geometry struct {
	BlockSize      int // tokens a page, a power of two ≥ 4
	Groups         []Group
	StepsInFlight  int // steps that may be submitted and not retired, ≥ 1
	MaxBatchTokens int // tokens of one step
	PrefillsInStep int // prefill chunks of one step, ≥ 1
}

// Need is an amount of a worker's room: pages over all layer groups, and slots of running branches.
type Need struct {
	Pages int
	Slots int
}

// Validate joins everything that is wrong with g.
func (g Geometry) Validate() error {
	var faults []error
	if g.BlockSize < 4 || g.BlockSize&(g.BlockSize-1) != 0 {
		faults = append(faults, fmt.Errorf("block size %d: want a power of two ≥ 4", g.BlockSize))
	}
	if len(g.Groups) == 0 {
		faults = append(faults, errors.New("no layer groups"))
	}
	for i, lg := range g.Groups {
		if lg.Kind == Sliding && lg.Window < 1 {
			faults = append(faults, fmt.Errorf("layer group %d: sliding window %d: want ≥ 1", i, lg.Window))
		}
		if lg.Kind > Sliding {
			faults = append(faults, fmt.Errorf("layer group %d: unknown kind %d", i, lg.Kind))
		}
	}
	if g.StepsInFlight < 1 || g.MaxBatchTokens < 1 || g.PrefillsInStep < 1 {
		faults = append(faults, fmt.Errorf("steps in flight %d, batch tokens %d, prefills a step %d: want ≥ 1",
			g.StepsInFlight, g.MaxBatchTokens, g.PrefillsInStep))
	}
	return errors.Join(faults...)
}

// Blocks is ⌈tokens / BlockSize⌉.
func (g Geometry) Blocks(tokens int) int { return (tokens + g.BlockSize - 1) / g.BlockSize }

// Demand is the room of one branch of the given length: the pages that it holds between steps, over all layer groups,
// and its slot. It never falls as tokens grow.
func (g Geometry) Demand(tokens int) Need {
	pages := 0
	for _, lg := range g.Groups {
		pages += min(g.Blocks(tokens), g.groupCap(lg))
	}
	return Need{Pages: pages, Slots: 1}
}

// Fork is the room of one more branch beside one that has the same prompt and is as long: the prompt's whole blocks are
// shared in every full group, and in a window as long as no branch has left any behind.
func (g Geometry) Fork(prompt, tokens int) Need {
	shared, blocks, pages := (prompt-1)/g.BlockSize, g.Blocks(tokens), 0
	for _, lg := range g.Groups {
		if most := g.groupCap(lg); blocks > most {
			pages += most
		} else {
			pages += blocks - shared
		}
	}
	return Need{Pages: pages, Slots: 1}
}

// groupCap is the most pages that a branch holds in a group between steps: every block for full attention, and for a
// window those that W positions and the steps in flight can touch.
func (g Geometry) groupCap(lg Group) int {
	if lg.Kind == Full {
		return int(^uint(0) >> 1)
	}
	return g.Blocks(lg.Window+g.StepsInFlight-2) + 1
}

// Overhead is account 0 of the worker: the pages that prefill chunks in flight hold in window groups beyond Demand.
func (g Geometry) Overhead() int {
	windows := 0
	for _, lg := range g.Groups {
		if lg.Kind == Sliding {
			windows++
		}
	}
	return windows * g.StepsInFlight * (g.Blocks(g.MaxBatchTokens) + g.PrefillsInStep)
}

// FirstBlock is the first block that attention of a group still reads when the last computed position is tokens−1.
func (g Geometry) FirstBlock(lg Group, tokens int) int {
	if lg.Kind == Full {
		return 0
	}
	return max(0, tokens-lg.Window) / g.BlockSize
}
