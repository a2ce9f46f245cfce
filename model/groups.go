package model

import "github.com/berthd/berth/kvpool"

// Place is where a layer's keys and values lie: its layer group, and its index among the group's layers.
type Place struct {
	Group int
	Index int
}

// KVLayout is how the layers of a decoder share pages. All pages have equal bytes, so that one pool serves every group:
// a group has GroupLayers layers of one attention kind, the smallest layer count of any kind, and the last group of a
// kind is padded.
//
// A page is [layer in group][K, V][key head][token][head_dim], in the page's element type: one key head of one layer is
// one run of memory, which is what attention reads.
type KVLayout struct {
	Groups      []kvpool.Group
	Places      []Place // by layer
	GroupLayers int
	KVHeads     int // on one rank
	HeadDim     int
}

// KVLayout groups the layers, full attention first, each kind in layer order.
func (d *Decoder) KVLayout() KVLayout {
	byKind := [2][]int{}
	for i, l := range d.Layers {
		byKind[l.Kind] = append(byKind[l.Kind], i)
	}
	g := len(d.Layers)
	for _, layers := range byKind {
		if len(layers) > 0 {
			g = min(g, len(layers))
		}
	}
	out := KVLayout{Places: make([]Place, len(d.Layers)), GroupLayers: g, KVHeads: d.KVHeads, HeadDim: d.HeadDim}
	for kind, layers := range byKind {
		for n, i := range layers {
			if n%g == 0 {
				out.Groups = append(out.Groups, kvpool.Group{Kind: kvpool.Kind(kind), Window: d.Layers[i].Window})
			}
			out.Places[i] = Place{Group: len(out.Groups) - 1, Index: n % g}
		}
	}
	return out
}

// PageElements is the elements of a page: block_size × layers × 2 × key heads × head_dim.
func (l *KVLayout) PageElements(blockSize int) int {
	return blockSize * l.GroupLayers * 2 * l.KVHeads * l.HeadDim
}

// PageBytes is a page's size for elements of the given bytes.
func (l *KVLayout) PageBytes(blockSize, elementBytes int) int {
	return l.PageElements(blockSize) * elementBytes
}

// Offset is the element of a page where the keys of one key head of one layer start; its values start
// KVHeads × blockSize × HeadDim elements later.
func (l *KVLayout) Offset(blockSize, index, head int) int {
	return (index*2*l.KVHeads + head) * blockSize * l.HeadDim
}
