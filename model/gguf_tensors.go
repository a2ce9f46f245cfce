package model

import (
	"math/bits"
	"slices"
	"strings"
)

// minTensorInfo is the smallest entry: name length, dimension count, one dimension, type, offset.
const minTensorInfo = 8 + 4 + 8 + 4 + 8

// tensorInfo is what the header says of a tensor, with its data still unplaced.
type tensorInfo struct {
	Tensor
	at     int    // where in the header, for faults
	offset uint64 // from the start of the data
	size   uint64 // bytes
}

// tensorInfos reads n entries. Sizes are formed without wrapping; types and dimensions are refused here.
func (c *cursor) tensorInfos(n int) []tensorInfo {
	var infos []tensorInfo
	for i := 0; i < n && c.err == nil; i++ {
		t := tensorInfo{at: c.at}
		t.Name = c.str("tensor name")
		dims := c.u32("dimension count")
		if c.err == nil && (dims < 1 || dims > maxDims) {
			c.fail(t.at, "tensor %.64q has %d dimensions, want 1 to %d", t.Name, dims, maxDims)
		}
		for d := uint32(0); d < dims && c.err == nil; d++ {
			t.Dims = append(t.Dims, c.dimension(&t))
		}
		t.Type = Type(c.u32("tensor type"))
		t.offset = c.u64("tensor offset")
		if c.err == nil {
			c.measure(&t)
			infos = append(infos, t)
		}
	}
	return infos
}

// dimension is one extent: at least 1, and no more than a file could hold at 8 elements a byte.
func (c *cursor) dimension(t *tensorInfo) int {
	d := c.u64("dimension")
	if c.err == nil && (d == 0 || d > uint64(len(c.b))*8) {
		c.fail(t.at, "tensor %.64q has a dimension of %d", t.Name, d)
	}
	return int(d)
}

// measure sets the size in bytes from type and dimensions.
func (c *cursor) measure(t *tensorInfo) {
	elements, bytes := t.Type.Block()
	if elements == 0 {
		c.fail(t.at, "tensor %.64q has type %d, which is not read", t.Name, uint32(t.Type))
		return
	}
	if t.Dims[0]%elements != 0 {
		c.fail(t.at, "tensor %.64q: rows of %d elements are no multiple of the %v block of %d", t.Name, t.Dims[0],
			t.Type, elements)
		return
	}
	n := uint64(t.Dims[0]/elements) * uint64(bytes)
	for _, d := range t.Dims[1:] {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > uint64(len(c.b)) {
			c.fail(t.at, "tensor %.64q of %v %v is larger than the file", t.Name, t.Type, t.Dims)
			return
		}
		n = lo
	}
	t.size = n
}

// place turns offsets into views: aligned, inside the file, disjoint, names unique. It returns them in name order.
func (c *cursor) place(infos []tensorInfo, alignment int) []Tensor {
	start := (c.at + alignment - 1) / alignment * alignment
	if start > len(c.b) {
		c.fail(c.at, "tensor data would start at byte %d, after the end of the file at %d", start, len(c.b))
		return nil
	}
	room := uint64(len(c.b) - start)
	for i := range infos {
		t := &infos[i]
		switch {
		case t.offset%uint64(alignment) != 0:
			c.fail(t.at, "tensor %.64q at offset %d is not aligned to %d", t.Name, t.offset, alignment)
		case t.offset > room || t.size > room-t.offset:
			c.fail(t.at, "tensor %.64q: %d bytes at offset %d end after the file's %d bytes of data", t.Name, t.size,
				t.offset, room)
		default:
			lo := start + int(t.offset)
			t.Data = c.b[lo : lo+int(t.size) : lo+int(t.size)]
		}
	}
	c.checkDisjoint(infos)
	return c.byName(infos)
}

func (c *cursor) checkDisjoint(infos []tensorInfo) {
	slices.SortFunc(infos, func(a, b tensorInfo) int {
		if a.offset < b.offset {
			return -1
		}
		return 1
	})
	for i := 1; i < len(infos); i++ {
		if p, t := &infos[i-1], &infos[i]; t.offset < p.offset+p.size {
			c.fail(t.at, "tensors %.64q and %.64q overlap", p.Name, t.Name)
		}
	}
}

func (c *cursor) byName(infos []tensorInfo) []Tensor {
	slices.SortFunc(infos, func(a, b tensorInfo) int { return strings.Compare(a.Name, b.Name) })
	tensors := make([]Tensor, len(infos))
	for i := range infos {
		if i > 0 && infos[i-1].Name == infos[i].Name {
			c.fail(infos[i].at, "two tensors are named %.64q", infos[i].Name)
		}
		tensors[i] = infos[i].Tensor
	}
	return tensors
}
