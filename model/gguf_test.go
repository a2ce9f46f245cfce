package model

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// one is a file with one good tensor, to be spoilt.
func one() *ggufFile { return newGGUF().tensor("a", F32, 0, 8).size(32) }

// header is bytes as a file that claims the given counts and has nothing else.
func header(version uint32, tensors, keys uint64, tail ...byte) []byte {
	g := newGGUF()
	g.put(uint32(ggufMagic))
	g.put(version)
	g.put(tensors)
	g.put(keys)
	return append(g.buf.Bytes(), tail...)
}

// M1, class GGUF: a file that lies is refused with the place of the lie, before anything large is allocated.
func TestOpenFileRefuses(t *testing.T) {
	long := func(n uint64) []byte {
		return newGGUF().rawKey("k", nil).rawLength(n)
	}
	array := func(k kind, n uint64) []byte {
		g := one()
		return g.rawKey("k", func() { g.put([]kind{kindArray, k}); g.put(n) }).bytes()
	}
	cases := []struct {
		name string
		file []byte
		what string
	}{
		{"empty", nil, "an empty file"},
		{"three bytes", []byte("GGU"), "needs 4 bytes"},
		{"other magic", []byte("GGML\x03\x00\x00\x00"), "not a GGUF file"},
		{"v1, 24 bytes", header(1, 0, 0), "version 1"},
		{"v1 with a zero-length string", header(1, 1, 1, make([]byte, 16)...), "version 1"},
		{"big-endian", []byte("GGUF\x00\x00\x00\x03"), "big-endian"},
		{"version 4", header(4, 1, 0), "version 4"},
		{"no tensors", header(3, 0, 0), "no tensors"},
		{"2^63 tensors", header(3, 1<<63, 0), "tensor count"},
		{"2^40 keys", header(3, 1, 1<<40, make([]byte, 64)...), "key count"},
		{"string of 2^63", long(1 << 63), "length"},
		{"string of 2^31", long(1 << 31), "length"},
		{"string of −1", long(math.MaxUint64), "length"},
		{"array of 2^64−1", array(kindU32, math.MaxUint64), "array length"},
		{"array of 2^62 strings", array(kindString, 1<<62), "array length"},
		{"array of 2^61 u64", array(kindU64, 1<<61), "array length"},
		{"nested array", array(kindArray, 1), "nested"},
		{"array of unknown type", array(99, 1), "nested or unknown"},
		{"unknown value type", rawKind(13), "unknown value type"},
		{"key twice", one().key("k", uint32(1)).key("k", uint32(2)).bytes(), "twice"},
		{"alignment 3", one().key("general.alignment", uint32(3)).bytes(), "alignment"},
		{"alignment 0", one().key("general.alignment", uint32(0)).bytes(), "alignment"},
		{"alignment as a string", one().key("general.alignment", "32").bytes(), "alignment"},
		{"alignment 2^31", one().key("general.alignment", uint32(1<<31)).bytes(), "alignment"},
		{"0 dimensions", newGGUF().tensor("a", F32, 0).size(64).bytes(), "0 dimensions"},
		{"5 dimensions", newGGUF().tensor("a", F32, 0, 1, 1, 1, 1, 1).size(64).bytes(), "5 dimensions"},
		{"10^6 dimensions", millionDims(), "1000000 dimensions"},
		{"dimension 0", newGGUF().tensor("a", F32, 0, 8, 0).size(64).bytes(), "dimension of 0"},
		{"ne = [1152, 2^42+1]", newGGUF().tensor("a", F32, 0, 1152, 1<<42+1).size(64).bytes(), "dimension of"},
		{"product wraps", newGGUF().tensor("a", F32, 0, 256, 256, 256, 256).size(1024).bytes(), "larger than the file"},
		{"unknown tensor type", newGGUF().tensor("a", 4, 0, 32).size(64).bytes(), "type 4"},
		{"type 2^32−1", newGGUF().tensor("a", math.MaxUint32, 0, 32).size(64).bytes(), "not read"},
		{"rows of half a block", newGGUF().tensor("a", Q8_0, 0, 48).size(64).bytes(), "no multiple"},
		{"offset unaligned", newGGUF().tensor("a", F32, 4, 8).size(64).bytes(), "not aligned"},
		{"offset beyond the end", newGGUF().tensor("a", F32, 64, 8).size(64).bytes(), "end after"},
		{"offset 2^64−32", newGGUF().tensor("a", F32, math.MaxUint64-31, 8).size(64).bytes(), "end after"},
		{"data cut short", newGGUF().tensor("a", F32, 32, 9).size(64).bytes(), "end after"},
		{"tensors overlap", newGGUF().tensor("a", F32, 0, 16).tensor("b", F32, 32, 8).size(64).bytes(), "overlap"},
		{"tensors in one place", newGGUF().tensor("a", F32, 0, 8).tensor("b", F32, 0, 8).size(64).bytes(), "overlap"},
		{"name twice", newGGUF().tensor("a", F32, 0, 8).tensor("a", F32, 32, 8).size(64).bytes(), "two tensors"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, c.file)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := OpenFile(path)
			runtime.ReadMemStats(&after)
			checkRefused(t, err, path, c.what)
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("allocated %d bytes for a file of %d", n, len(c.file))
			}
		})
	}
}

// checkRefused wants a *WeightsError that names the file and the fault.
func checkRefused(t *testing.T, err error, path, what string) {
	t.Helper()
	var bad *WeightsError
	if !errors.As(err, &bad) {
		t.Fatalf("got %v, want a *WeightsError", err)
	}
	if bad.File != path || !strings.Contains(bad.What, what) || !strings.Contains(err.Error(), "WGT-001") {
		t.Errorf("got %v, want %q", err, what)
	}
}

// rawLength is a file whose first key's name claims n bytes.
func (g *ggufFile) rawLength(n uint64) []byte {
	b := header(3, 1, 1)
	g.buf.Reset()
	g.put(n)
	return append(append(b, g.buf.Bytes()...), make([]byte, 64)...)
}

func rawKind(k kind) []byte {
	g := one()
	return g.rawKey("k", func() { g.put(k); g.put(uint64(0)) }).bytes()
}

func millionDims() []byte {
	g := newGGUF()
	g.tensors = 1
	g.infos = append(g.infos, func() {
		g.str("a")
		g.put(uint32(1_000_000))
		g.put(make([]uint64, 8))
	})
	return g.bytes()
}

// M1: every prefix of a good file is refused: no cut is read past.
func TestOpenFileTruncated(t *testing.T) {
	good := one().key("s", "text").key("l", []string{"a", "", "bc"}).key("n", []uint32{1, 2}).bytes()
	for n := range good {
		if _, err := parse("cut", good[:n]); err == nil && n < len(good) {
			t.Fatalf("%d of %d bytes were accepted", n, len(good))
		}
	}
	if _, err := parse("whole", good); err != nil {
		t.Fatal(err)
	}
}

// Getters give what was written and refuse other types.
func TestGetters(t *testing.T) {
	f, err := parse("test", one().
		key("s", "text").key("empty", "").key("ss", []string{"a", "", "bc"}).key("us", []uint32{1, 2, 1 << 31}).
		key("fs", []float32{1.5}).key("bs", []bool{true, false}).key("u", uint32(7)).key("u64", uint64(math.MaxUint64)).
		key("i", int32(-1)).key("f", float32(0.5)).key("b", true).bytes())
	if err != nil {
		t.Fatal(err)
	}
	s, ok := f.String("s")
	empty, okEmpty := f.String("empty")
	if s != "text" || !ok || empty != "" || !okEmpty {
		t.Errorf("String: %q %v, %q %v", s, ok, empty, okEmpty)
	}
	if ss, ok := f.Strings("ss"); !ok || !slices.Equal(ss, []string{"a", "", "bc"}) {
		t.Errorf("Strings: %q %v", ss, ok)
	}
	if fs, ok := f.Floats("fs"); !ok || !slices.Equal(fs, []float32{1.5}) {
		t.Errorf("Floats: %v %v", fs, ok)
	}
	if bs, ok := f.Bools("bs"); !ok || !slices.Equal(bs, []bool{true, false}) {
		t.Errorf("Bools: %v %v", bs, ok)
	}
	if _, ok := f.Ints("us"); ok {
		t.Error("Ints took 2^31")
	}
	if u, ok := f.Uint("u64"); !ok || u != math.MaxUint64 {
		t.Errorf("Uint: %d %v", u, ok)
	}
	if _, ok := f.Uint("i"); ok {
		t.Error("Uint took −1")
	}
	if x, ok := f.Float("f"); !ok || x != 0.5 {
		t.Errorf("Float: %v %v", x, ok)
	}
	if b, ok := f.Bool("b"); !ok || !b {
		t.Errorf("Bool: %v %v", b, ok)
	}
	for _, key := range []string{"u", "f", "b", "ss", "none"} {
		if _, ok := f.String(key); ok {
			t.Errorf("String took %q", key)
		}
	}
}

// M1: the reader neither panics nor hangs, whatever the bytes, and what it accepts can be read.
func FuzzOpenFile(f *testing.F) {
	f.Add(one().bytes())
	f.Add(one().key("s", "text").key("l", []string{"a", "b"}).key("general.alignment", uint32(64)).bytes())
	f.Add(newGGUF().tensor("a", Q4_K, 0, 256, 2).tensor("b", Q8_0, 288, 32).size(352).bytes())
	f.Add(gemmaFile(nil).bytes())
	f.Add(header(1, 0, 0))
	f.Add(header(3, 1<<63, 1<<40))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := parse("fuzz", b)
		if err != nil {
			var bad *WeightsError
			if !errors.As(err, &bad) {
				t.Fatalf("%v is no *WeightsError", err)
			}
			return
		}
		for i := range file.Tensors() {
			tensor := &file.Tensors()[i]
			_ = tensor.Row(tensor.Rows() - 1)
		}
		for key := range file.keys {
			file.String(key)
			file.Strings(key)
			file.Ints(key)
			file.Floats(key)
			file.Bools(key)
			file.Uint(key)
		}
		_ = file.Revision()
		if _, err := Load(file); err != nil && !errors.As(err, new(*WeightsError)) {
			t.Fatalf("%v is no *WeightsError", err)
		}
	})
}
