//go:build cgo && amd64

package cpu

// product is the logit that choose took for token t, for comparison with those of other ranks. No part's choice is a
// number if one is not: all start from the product of row 0.
func (g *greedy) product(t int) float32 {
	top := float32(g.choice(t, 0).product)
	for part := 1; part < greedyParts; part++ {
		top = max(top, float32(g.choice(t, part).product))
	}
	return top
}
