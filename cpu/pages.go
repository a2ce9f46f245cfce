package cpu

import (
	"unsafe"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// pages is the device's KV memory: Config.Pages pages of model.KVLayout's shape, in f16 or f32.
type pages struct {
	mem       []byte
	layout    model.KVLayout
	blockSize int
	elem      int // bytes of an element
	page      int // bytes of a page
}

func (c Config) elementBytes() int {
	if c.KV == "f32" {
		return 4
	}
	return 2
}

func newPages(m *memory, layout model.KVLayout, c Config) (pages, error) {
	p := pages{layout: layout, blockSize: c.BlockSize, elem: c.elementBytes()}
	p.page = layout.PageBytes(c.BlockSize, p.elem)
	var err error
	p.mem, err = m.bytes("pages", p.page*c.Pages)
	return p, err
}

// key is the address of position pos of a key head; the values of the position lie valueOffset bytes further.
func (p *pages) key(table []kvpool.PageID, place model.Place, head, pos int) unsafe.Pointer {
	page := int(table[pos/p.blockSize])
	element := p.layout.Offset(p.blockSize, place.Index, head) + pos%p.blockSize*p.layout.HeadDim
	return unsafe.Pointer(&p.mem[page*p.page+element*p.elem])
}

// valueOffset is the distance in bytes from a position's key to its value.
func (p *pages) valueOffset() int { return p.layout.KVHeads * p.blockSize * p.layout.HeadDim * p.elem }
