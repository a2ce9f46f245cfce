//go:build cgo && amd64

package cpu

/*
#include "kernels.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/berthd/berth/model"
)

// greedy finds the highest logit of a token without all the others: see scan.c. It is there for Q8_0 outputs, beside
// the output matrix.
//
//	norm, activations ▸ bounds of all groups ▸ a first choice ▸ groups whose bound reaches it, in parts
type greedy struct {
	kernels *kernels
	w       *packed
	scan    unsafe.Pointer // [groups] of scan_group
	square  []int          // by worker: the largest Σ q² of a block
	reach   float32        // its root, over all

	act    unsafe.Pointer // [tokens], stride bytes apart
	stride int
	best   unsafe.Pointer // choice [tokens][greedyParts]
	bound  []float32      // [tokens][groups]
	tokens int

	packOp, enterOp, scanOp, leadOp, settleOp task
}

const (
	greedyParts = 8  // that a token's groups are settled in
	scanGroups  = 64 // in a chunk of the scan: its weights stay in the second-level cache
)

// newGreedy packs the scan's weights; nil where the output is of another type.
func newGreedy(k *kernels, p *packer, a *allocator) *greedy {
	w := &k.output
	if w.kind != model.Q8_0 {
		return nil
	}
	g := &greedy{kernels: k, w: w, square: make([]int, k.device.cfg.Threads)}
	g.scan = p.block(w.groups * g.groupBytes())
	g.stride = w.cols / 32 * C.sizeof_act_scan
	g.act = a.block(headRows * g.stride)
	g.best = a.block(headRows * greedyParts * C.sizeof_choice)
	if p.err != nil || a.err != nil {
		return nil
	}
	g.packOp.do, g.enterOp.do, g.scanOp.do, g.leadOp.do, g.settleOp.do = g.pack, g.enter, g.bounds, g.lead, g.settle
	k.device.pool.run(&g.packOp, (w.groups+groupsAtATime-1)/groupsAtATime)
	for _, s := range g.square {
		g.reach = max(g.reach, float32(math.Sqrt(float64(s))))
	}
	return g
}

func (g *greedy) groupBytes() int { return g.w.cols / 32 * C.sizeof_scan_group }

func (g *greedy) pack(chunk, worker int) {
	for i := chunk * groupsAtATime; i < min((chunk+1)*groupsAtATime, g.w.groups); i++ {
		s := C.pack_scan_q8_0(unsafe.Add(g.w.w, i*g.w.group), unsafe.Add(g.scan, i*g.groupBytes()), C.int(g.w.cols))
		g.square[worker] = max(g.square[worker], int(s))
	}
}

// choose writes the highest logit's id for each token; room is for headRows · groups bounds.
func (g *greedy) choose(tokens []output, room []float32, ids []int32) {
	run, n := g.kernels.device.pool.run, len(tokens)
	g.kernels.outputs, g.bound, g.tokens = tokens, room, n
	run(&g.enterOp, n)
	run(&g.scanOp, (g.w.groups+scanGroups-1)/scanGroups)
	run(&g.leadOp, n)
	run(&g.settleOp, n*greedyParts)
	for t := range tokens {
		ids[t] = g.chosen(t)
	}
}

// chosen is the best of token t's parts, −1 if its products are no numbers.
func (g *greedy) chosen(t int) int32 {
	best := *g.choice(t, 0)
	for part := 1; part < greedyParts; part++ {
		c := *g.choice(t, part)
		if c.product > best.product || c.product == best.product && c.row < best.row {
			best = c
		}
	}
	if v := float64(best.product); math.IsNaN(v) || math.IsInf(v, 0) {
		return -1
	}
	return int32(best.row)
}

func (g *greedy) choice(t, part int) *C.choice {
	return &unsafe.Slice((*C.choice)(g.best), headRows*greedyParts)[t*greedyParts+part]
}

// input is token t's activations, as the full product reads them.
func (g *greedy) input(t int) *C.act_i16 {
	return (*C.act_i16)(unsafe.Add(g.kernels.act[int16x32], t*g.kernels.stride[int16x32]))
}

func (g *greedy) enter(t, worker int) {
	g.kernels.collect(t, worker)
	g.look(t)
}

// look writes token t's activations as the scan reads them.
func (g *greedy) look(t int) {
	C.scan_vector(g.input(t), (*C.act_scan)(unsafe.Add(g.act, t*g.stride)), C.int(g.w.cols), C.float(g.reach))
}

func (g *greedy) bounds(chunk, _ int) {
	lo := chunk * scanGroups
	C.scan(C.int(g.w.level), g.scan, g.act, C.size_t(g.stride), (*C.float)(&g.bound[0]), C.size_t(g.w.groups), C.int(g.w.cols),
		C.int(lo), C.int(min(lo+scanGroups, g.w.groups)), C.int(g.tokens))
}

// lead makes the choice that every part starts from.
func (g *greedy) lead(t, _ int) {
	C.scan_lead(g.w.w, g.input(t), C.int(g.w.cols), C.int(g.w.rows), (*C.float)(&g.bound[t*g.w.groups]), greedyParts,
		g.choice(t, 0))
	for part := 1; part < greedyParts; part++ {
		*g.choice(t, part) = *g.choice(t, 0)
	}
}

func (g *greedy) settle(chunk, _ int) {
	t, part := chunk/greedyParts, chunk%greedyParts
	lo, hi := part*g.w.groups/greedyParts, (part+1)*g.w.groups/greedyParts
	C.scan_settle(g.w.w, g.input(t), C.int(g.w.cols), C.int(g.w.rows), (*C.float)(&g.bound[t*g.w.groups]), C.int(lo),
		C.int(hi), g.choice(t, part))
}
