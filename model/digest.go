package model

// Digest is a number that two plans share only if they ask the same of a rank: step, tokens, positions, pages, outputs.
// How tokens are chosen is no part of it: that happens once, after the ranks. It is a hash against faults, not against
// attackers: 64 bits by one multiplication a word (the xor-multiply step of FNV-1a over words, with a shift that brings
// the upper bits down).
func (p *Plan) Digest() uint64 {
	d := digest(14695981039346656037)
	d.add(p.Step, uint64(len(p.Rows)))
	for i := range p.Rows {
		r := &p.Rows[i]
		d.add(uint64(r.Start), uint64(r.Outputs), uint64(len(r.Tokens)), uint64(len(r.Pages)))
		for _, id := range r.Tokens {
			d.add(uint64(id))
		}
		for _, table := range r.Pages {
			d.add(uint64(len(table)))
			for _, page := range table {
				d.add(uint64(page))
			}
		}
	}
	return uint64(d)
}

type digest uint64

func (d *digest) add(words ...uint64) {
	for _, w := range words {
		x := (uint64(*d) ^ w) * 1099511628211
		*d = digest(x ^ x>>32)
	}
}
