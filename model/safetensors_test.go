package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func asWeights(err error, into **WeightsError) bool { return errors.As(err, into) }

// withHeader is a safetensors file with a header written by hand and n bytes of data.
func withHeader(header string, n int) []byte {
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), []byte(header), make([]byte, n))
}

// M1: every length of a safetensors file is compared with what is there.
func TestSafetensorsRefuses(t *testing.T) {
	entry := func(dtype, shape string, lo, hi uint64) string {
		return fmt.Sprintf(`{"x":{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}}`, dtype, shape, lo, hi)
	}
	for _, c := range []struct {
		raw  []byte
		what string
	}{
		{nil, "0 bytes are no safetensors"},
		{[]byte("1234567"), "7 bytes are no safetensors"},
		{binary.LittleEndian.AppendUint64(nil, 1), "header of 1 bytes, the file has 0 left"},
		{binary.LittleEndian.AppendUint64(nil, 1<<63), "header of"},
		{withHeader(`{`, 0), "unexpected end"},
		{withHeader(`[]`, 0), "cannot unmarshal"},
		{withHeader(`{"x":[]}`, 0), `tensor "x"`},
		{withHeader(entry("F32", "[1]", 0, 5), 4), "bytes [0, 5) of 4"},
		{withHeader(entry("F32", "[1]", 3, 2), 4), "bytes [3, 2) of 4"},
		{withHeader(entry("F32", "[1]", 0, 1<<63), 4), "of 4"},
		{withHeader(entry("F32", "[2]", 0, 4), 4), "F32 [2] in 4 bytes"},
		{withHeader(entry("F32", "[1]", 0, 8), 8), "F32 [1] in 8 bytes"},
		{withHeader(entry("F32", "[0]", 0, 0), 0), "F32 [0] in 0 bytes"},
		{withHeader(entry("F32", "[-1]", 0, 4), 4), "F32 [-1] in 4 bytes"},
		{withHeader(entry("F32", "[4611686018427387904,4]", 0, 4), 4), "in 4 bytes"},
		{withHeader(entry("BF16", "[1,1,1,1,1]", 0, 2), 2), "5 dimensions"},
		{withHeader(entry("BF16", "[]", 0, 2), 2), "0 dimensions"},
		{withHeader(entry("F64", "[1]", 0, 8), 8), `type "F64" is not read`},
		{withHeader(entry("I8", "[1]", 0, 1), 1), `type "I8" is not read`},
		{withHeader(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},`+
			`"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), "overlap"},
	} {
		_, fault := checkSafetensors("test", c.raw)
		if fault == nil || !strings.Contains(fault.What, c.what) || fault.File != "test" {
			t.Errorf("%v, want %q", fault, c.what)
		}
	}
}

// checkSafetensors reads a file as a folder's shard is read.
func checkSafetensors(path string, raw []byte) (list []Tensor, fault *WeightsError) {
	entries, fault := parseSafetensors(path, raw)
	for i := range entries {
		t, fault := entries[i].tensor(path)
		if fault != nil {
			return nil, fault
		}
		list = append(list, t)
	}
	return list, fault
}

// Numbers that do not stand where their type wants them are moved, and keep their values.
func TestSafetensorsUnaligned(t *testing.T) {
	raw := withHeader(`{"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}} `, 8)
	raw[len(raw)-1] = 0x40
	list, fault := checkSafetensors("test", raw)
	if fault != nil || len(list) != 1 || list[0].Cols() != 2 || list[0].Rows() != 1 {
		t.Fatalf("%v %v", list, fault)
	}
	out := make([]float32, 2)
	Dequantise(F32, list[0].Data, out)
	if out[1] != 2 {
		t.Errorf("%v", out)
	}
}

func FuzzSafetensors(f *testing.F) { // M1
	f.Add(withHeader(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8))
	f.Add(withHeader(`{"__metadata__":{},"x":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}`, 4))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, fault := checkSafetensors("test", raw)
		for i := range list {
			if x := &list[i]; fault == nil && len(x.Row(x.Rows()-1)) == 0 {
				t.Errorf("%v %v has empty rows", x.Type, x.Dims)
			}
		}
	})
}

// FuzzFolder changes the texts of a folder. M1: what opens can be used, what does not is a fault of a file.
func FuzzFolder(f *testing.F) {
	for _, name := range []string{"llama", "gemma3", "qwen3", "phi3", "qwen3moe", "gptoss"} {
		for _, config := range []string{"config.json", "config.v5.json"} {
			raw, err := os.ReadFile(filepath.Join(golden, "tiny", name, config))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw, []byte(nil))
		}
		raw, err := os.ReadFile(filepath.Join(golden, "tiny", name, "tokenizer.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(nil), raw)
	}
	dirs := []string{}
	for _, name := range []string{"qwen3", "phi3", "qwen3moe", "gptoss"} {
		dirs = append(dirs, copyFolder(f, name, "config.json", nil))
	}
	f.Fuzz(func(t *testing.T, c, v []byte) {
		dir := dirs[(len(c)+len(v))%len(dirs)]
		read := func(name string, instead []byte) []byte {
			raw, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { write(t, dir, name, raw) })
			if instead != nil {
				return instead
			}
			return raw
		}
		c, v = read("config.json", c), read("tokenizer.json", v)
		write(t, dir, "config.json", c)
		write(t, dir, "tokenizer.json", v)
		m, err := Open(dir)
		var fault *WeightsError
		if err != nil && !asWeights(err, &fault) {
			t.Errorf("%v", err)
		}
		if err != nil {
			return
		}
		if tokens, ok := m.Strings("tokenizer.ggml.tokens"); !ok || len(tokens) != m.Vocab {
			t.Errorf("%d tokens for %d rows", len(tokens), m.Vocab)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// M1: whatever stands in place of a value of a folder's files, it opens or is refused.
func TestFolderMutations(t *testing.T) {
	values := []string{
		"null", "-1", "0", "1e99", "0.5", "9223372036854775807", `""`, `"x"`, "[]", "{}", "[[]]", "true", "", "\xff",
	}
	value := regexp.MustCompile(`[:\[,]\s*("[^"]*"|[-0-9.e]+|true|false|null)`)
	rng := rand.New(rand.NewPCG(2, 9))
	opened := 0
	for _, name := range []string{"llama", "gemma3", "qwen3", "phi3", "qwen3moe", "gptoss"} {
		dir := copyFolder(t, name, "config.json", nil)
		split(t, dir, 2)
		for _, file := range []string{
			"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", indexFile, "shard-0.safetensors",
		} {
			raw, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			places := value.FindAllSubmatchIndex(raw[:min(len(raw), 4<<10)], -1)
			for range 25 {
				at := places[rng.IntN(len(places))]
				write(t, dir, file, slices.Concat(raw[:at[2]], []byte(values[rng.IntN(len(values))]), raw[at[3]:]))
				m, err := Open(dir)
				var fault *WeightsError
				if err != nil && !asWeights(err, &fault) && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v", file, err)
				}
				if err == nil {
					opened++
					if tokens, ok := m.Strings("tokenizer.ggml.tokens"); !ok || len(tokens) != m.Vocab {
						t.Errorf("%s: %d tokens for %d rows", file, len(tokens), m.Vocab)
					}
					_ = m.Close()
				}
			}
			write(t, dir, file, raw)
		}
	}
	if opened < 40 {
		t.Errorf("only %d mutations opened: most are to be harmless", opened)
	}
}
