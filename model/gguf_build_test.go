package model

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// ggufFile writes GGUF files for tests, good and bad: every field is written as it is told.
type ggufFile struct {
	buf     bytes.Buffer
	version uint32
	tensors uint64
	keys    []func()
	infos   []func()
	data    int  // bytes after the header
	fill    byte // bits set in all of them
}

func newGGUF() *ggufFile { return &ggufFile{version: 3} }

func (g *ggufFile) put(v any) {
	if err := binary.Write(&g.buf, binary.LittleEndian, v); err != nil {
		panic(err)
	}
}

func (g *ggufFile) str(s string) {
	g.put(uint64(len(s)))
	g.buf.WriteString(s)
}

// key adds a metadata value; strings, arrays and scalars are told apart by their Go type.
func (g *ggufFile) key(name string, v any) *ggufFile {
	return g.rawKey(name, func() {
		switch x := v.(type) {
		case string:
			g.put(kindString)
			g.str(x)
		case []string:
			g.put([]kind{kindArray, kindString})
			g.put(uint64(len(x)))
			for _, s := range x {
				g.str(s)
			}
		case []uint32:
			g.put([]kind{kindArray, kindU32})
			g.put(uint64(len(x)))
			g.put(x)
		case []float32:
			g.put([]kind{kindArray, kindF32})
			g.put(uint64(len(x)))
			g.put(x)
		case []bool:
			g.put([]kind{kindArray, kindBool})
			g.put(uint64(len(x)))
			g.put(x)
		case uint32:
			g.put(kindU32)
			g.put(x)
		case uint64:
			g.put(kindU64)
			g.put(x)
		case int32:
			g.put(kindI32)
			g.put(x)
		case float32:
			g.put(kindF32)
			g.put(x)
		case bool:
			g.put(kindBool)
			g.put(x)
		default:
			panic("no such metadata type")
		}
	})
}

// rawKey adds a key whose type and value are written by f.
func (g *ggufFile) rawKey(name string, f func()) *ggufFile {
	g.keys = append(g.keys, func() {
		g.str(name)
		f()
	})
	return g
}

func (g *ggufFile) tensor(name string, t Type, offset uint64, dims ...uint64) *ggufFile {
	g.tensors++
	g.infos = append(g.infos, func() {
		g.str(name)
		g.put(uint32(len(dims)))
		g.put(dims)
		g.put(uint32(t))
		g.put(offset)
	})
	return g
}

// add adds an F32 tensor behind the data so far.
func (g *ggufFile) add(name string, dims ...uint64) {
	g.tensor(name, F32, uint64(g.data), dims...)
	n := uint64(4)
	for _, d := range dims {
		n *= d
	}
	g.data += int((n + 31) / 32 * 32)
}

// size is the bytes of data behind the header.
func (g *ggufFile) size(n int) *ggufFile {
	g.data = n
	return g
}

// bytes is the file.
func (g *ggufFile) bytes() []byte {
	g.put(uint32(ggufMagic))
	g.put(g.version)
	g.put(g.tensors)
	g.put(uint64(len(g.keys)))
	for _, f := range append(g.keys, g.infos...) {
		f()
	}
	for g.buf.Len()%defaultAlignment != 0 {
		g.buf.WriteByte(0)
	}
	for i := range g.data {
		g.buf.WriteByte(byte(i) | g.fill)
	}
	return g.buf.Bytes()
}

// save writes bytes to a file of the test's own.
func save(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.gguf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
