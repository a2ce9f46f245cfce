package cpu

import "github.com/berthd/berth/model"

// batch is a plan laid flat: one entry a token, in the plan's order. Its slices have their full capacity from Open on.
type batch struct {
	plan   *model.Plan
	ids    []int32
	pos    []int32 // absolute positions
	row    []int32 // row of the plan
	output []output
}

// output is a position whose logits are wanted.
type output struct {
	token int // in the batch
	row   int // in the plan
	index int // among the row's outputs
}

func newBatch(c Config) *batch {
	n := c.MaxBatchTokens
	ints := func() []int32 { return make([]int32, 0, n) }
	return &batch{ids: ints(), pos: ints(), row: ints(), output: make([]output, 0, n)}
}

// fill lays p flat.
func (b *batch) fill(p *model.Plan) {
	b.plan, b.ids, b.pos, b.row, b.output = p, b.ids[:0], b.pos[:0], b.row[:0], b.output[:0]
	for r := range p.Rows {
		row := &p.Rows[r]
		for i, id := range row.Tokens {
			if o := i - (len(row.Tokens) - row.Outputs); o >= 0 {
				b.output = append(b.output, output{token: len(b.ids), row: r, index: o})
			}
			b.ids = append(b.ids, id)
			b.pos = append(b.pos, int32(row.Start+i))
			b.row = append(b.row, int32(r))
		}
	}
}

// span is a run of tokens of one row that one chunk of an attention op handles.
type span struct {
	row    int
	lo, hi int // tokens of the batch
}

// spans cuts the batch's rows into runs of at most n tokens, appending to list.
func (b *batch) spans(list []span, n int) []span {
	at := 0
	for r := range b.plan.Rows {
		end := at + len(b.plan.Rows[r].Tokens)
		for ; at < end; at += n {
			list = append(list, span{row: r, lo: at, hi: min(at+n, end)})
		}
		at = end
	}
	return list
}
