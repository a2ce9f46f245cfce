package model

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	ggufMagic        = 0x46554747 // "GGUF"
	defaultAlignment = 32
	maxDims          = 4
)

// File is an open GGUF file, version 2 or 3, little-endian, or a folder that says the same: metadata and tensors as
// views of a read-only mapping. Format: ggml/docs/gguf.md. A file on disk must not be cut short while it is open:
// reading a lost page is a SIGBUS.
type File struct {
	path    string
	b       []byte
	unmap   func() error
	keys    map[string]value
	tensors []Tensor // in name order
	natural bool     // rows of q and k stand in the model's order
}

// OpenFile maps and checks a GGUF file, or a folder with config.json, safetensors and tokenizer.json. Everything that
// its header claims is compared with the file's size first; every fault is a *WeightsError.
func OpenFile(path string) (f *File, err error) {
	if fault := Guard(path, func() { f, err = openFile(path) }); fault != nil {
		return nil, fmt.Errorf("open weights: %w", fault)
	}
	return f, err
}

func openFile(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return openFolder(path)
	}
	b, err := mapFile(path)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	f, err := parse(path, b)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", joinUnmap(err, b))
	}
	f.unmap = func() error { return unmapBytes(b) }
	return f, nil
}

// Close unmaps the file: the data of its tensors must not be touched afterwards. Metadata that was read stays valid.
func (f *File) Close() error {
	if f.unmap == nil {
		return nil
	}
	err := f.unmap()
	f.unmap, f.b, f.tensors = nil, nil, nil
	return err
}

// Path is the name that the file was opened by.
func (f *File) Path() string { return f.path }

// Tensors lists all tensors in name order. The slice is the file's own.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor finds a tensor by its name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := slices.BinarySearchFunc(f.tensors, name, func(t Tensor, s string) int { return strings.Compare(t.Name, s) })
	if !ok {
		return nil, false
	}
	return &f.tensors[i], true
}

// parse reads the header of b.
func parse(path string, b []byte) (*File, error) {
	c := &cursor{file: path, b: b}
	f := &File{path: path, b: b}
	tensors, keys := c.header()
	f.keys = c.metadata(keys)
	infos := c.tensorInfos(tensors)
	if c.err == nil {
		f.tensors = c.place(infos, c.alignment(f.keys))
	}
	if c.err != nil {
		return nil, c.err
	}
	return f, nil
}

// header checks magic and version and gives the counts of tensors and keys.
func (c *cursor) header() (tensors, keys int) {
	if m := c.u32("magic"); c.err == nil && m != ggufMagic {
		c.fail(0, "not a GGUF file: it starts with %#08x", m)
	}
	switch v := c.u32("version"); {
	case c.err != nil:
	case v == 1:
		c.fail(4, "GGUF version 1 is not read; convert it to version 3")
	case v != 0 && v&0xffff == 0:
		c.fail(4, "big-endian GGUF is not read")
	case v != 2 && v != 3:
		c.fail(4, "unknown GGUF version %d", v)
	}
	tensors = c.count(minTensorInfo, "tensor count")
	if c.err == nil && tensors == 0 {
		c.fail(8, "no tensors")
	}
	return tensors, c.count(minKey, "key count")
}

func mapFile(path string) ([]byte, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size == 0 {
		return nil, &WeightsError{File: path, Offset: 0, What: "an empty file"}
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return b, nil
}

func unmapBytes(b []byte) error {
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("unmap weights: %w", err)
	}
	return nil
}

// joinUnmap gives err back after the mapping is gone.
func joinUnmap(err error, b []byte) error {
	if e := unmapBytes(b); e != nil {
		return fmt.Errorf("%w (and %w)", err, e)
	}
	return err
}
