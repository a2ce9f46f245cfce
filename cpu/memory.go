package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size from which a block is worth backing with 2 MiB pages.
const hugePage = 2 << 20

// memory holds blocks outside the Go heap: the collector does not scan them, and C may keep addresses into them.
type memory struct {
	blocks [][]byte
	sizes  []Buffer
}

// Buffer is a named part of a device's memory outside the Go heap.
type Buffer struct {
	Name  string // weights, pages, activations or logits
	Bytes int
}

// bytes maps n zero bytes, aligned to a page of the system, and counts them under a name.
func (m *memory) bytes(name string, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	m.blocks = append(m.blocks, b)
	m.count(name, n)
	adviseHuge(b)
	return b, nil
}

func (m *memory) count(name string, n int) {
	for i := range m.sizes {
		if m.sizes[i].Name == name {
			m.sizes[i].Bytes += n
			return
		}
	}
	m.sizes = append(m.sizes, Buffer{Name: name, Bytes: n})
}

// forget gives the memory behind every block back to the system. The addresses stay good: they read as zero.
func (m *memory) forget() {
	for _, b := range m.blocks {
		adviseForget(b)
	}
}

// close unmaps every block.
func (m *memory) close() error {
	var faults []error
	for _, b := range m.blocks {
		if err := unix.Munmap(b); err != nil {
			faults = append(faults, fmt.Errorf("unmap %d bytes: %w", len(b), err))
		}
	}
	m.blocks = nil
	return errors.Join(faults...)
}

// allocator maps typed slices; the first failure sticks and makes later ones nil.
type allocator struct {
	*memory
	name string
	err  error
}

func (a *allocator) block(n int) unsafe.Pointer {
	if a.err != nil || n == 0 {
		return nil
	}
	b, err := a.memory.bytes(a.name, n)
	if err != nil {
		a.err = err
		return nil
	}
	return unsafe.Pointer(&b[0])
}

func (a *allocator) floats(n int) []float32 {
	p := a.block(4 * n)
	if p == nil {
		return nil
	}
	return unsafe.Slice((*float32)(p), n)
}
