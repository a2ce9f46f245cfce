package cpu

import (
	"math"
	"slices"

	"github.com/berthd/berth/model"
)

// routes is which experts a step's tokens have chosen. A token's choice depends on its own logits alone; its pairs lie in
// the order of experts, and those of one expert in the order of tokens.
type routes struct {
	used    int
	experts int
	chosen  []route // [tokens][used], experts ascending
	pairs   []route // by expert
	starts  []int   // [experts + 1]: where an expert's pairs begin
	place   []int32 // [tokens][used]: where the choice stands among pairs
}

// route is a token and one of its experts.
type route struct {
	token  int
	expert int
	weight float32
}

func newRoutes(tokens int, d *model.Decoder) routes {
	n := tokens * d.ExpertsUsed
	return routes{
		used: d.ExpertsUsed, experts: d.Experts, chosen: make([]route, n), pairs: make([]route, n),
		starts: make([]int, d.Experts+1), place: make([]int32, n),
	}
}

// choose takes token t's experts: those with the highest logits, the lowest number among equals. Weights are the softmax
// of the logits that were taken. Where logits are no numbers, so are the weights.
func (r *routes) choose(t int, logits []float32) {
	list := r.chosen[t*r.used:][:0:r.used]
	for e, x := range logits {
		at := len(list)
		for at > 0 && !(list[at-1].weight >= x) {
			at--
		}
		if at == r.used {
			continue
		}
		if len(list) == r.used {
			list = list[:r.used-1]
		}
		list = slices.Insert(list, at, route{t, e, x})
	}
	top, sum := list[0].weight, float32(0)
	for i := range list {
		list[i].weight = float32(math.Exp(float64(list[i].weight - top)))
		sum += list[i].weight
	}
	for i := range list {
		list[i].weight /= sum
	}
	slices.SortFunc(list, func(a, b route) int { return a.expert - b.expert })
}

// group sorts the choices of n tokens by expert.
func (r *routes) group(n int) {
	clear(r.starts)
	all := r.chosen[:n*r.used]
	for i := range all {
		r.starts[all[i].expert+1]++
	}
	for e := range r.experts {
		r.starts[e+1] += r.starts[e]
	}
	// Each start is moved to its expert's end while pairs are placed, which is the start of the next.
	for i, c := range all {
		r.place[i] = int32(r.starts[c.expert])
		r.pairs[r.starts[c.expert]] = c
		r.starts[c.expert]++
	}
	copy(r.starts[1:], r.starts)
	r.starts[0] = 0
}

// of is the pairs of an expert.
func (r *routes) of(expert int) []route { return r.pairs[r.starts[expert]:r.starts[expert+1]] }
