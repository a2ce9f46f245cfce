package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// mutator changes a file in place and puts it back.
type mutator struct {
	rng  *rand.Rand
	file []byte
	head int // bytes in which changes are made
	undo []edit
}

type edit struct {
	at  int
	was []byte
}

func (m *mutator) set(at int, b []byte) {
	if at+len(b) > len(m.file) {
		return
	}
	m.undo = append(m.undo, edit{at, slices.Clone(m.file[at : at+len(b)])})
	copy(m.file[at:], b)
}

// odd are numbers that lengths, counts and sizes go wrong at.
var odd = []uint64{0, 1, 2, 7, 31, 32, 255, 256, 1 << 15, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 40, 1 << 62, 1 << 63, math.MaxUint64}

// mutate makes one to four changes, and gives the file, which may be cut.
func (m *mutator) mutate() []byte {
	for range 1 + m.rng.IntN(4) {
		at := m.rng.IntN(m.head)
		switch m.rng.IntN(5) {
		case 0:
			m.set(at, []byte{m.file[at] ^ 1<<m.rng.IntN(8)})
		case 1:
			m.set(at, []byte{byte(m.rng.Uint32())})
		case 2:
			m.set(at, binary.LittleEndian.AppendUint64(nil, odd[m.rng.IntN(len(odd))]))
		case 3:
			m.set(at, binary.LittleEndian.AppendUint32(nil, uint32(odd[m.rng.IntN(len(odd))])))
		case 4: // a piece from elsewhere
			from, n := m.rng.IntN(m.head), 1+m.rng.IntN(64)
			m.set(at, slices.Clone(m.file[from:min(from+n, len(m.file))]))
		}
	}
	if m.rng.IntN(50) == 0 {
		return m.file[:m.rng.IntN(len(m.file))]
	}
	return m.file
}

func (m *mutator) restore() {
	for _, e := range slices.Backward(m.undo) {
		copy(m.file[e.at:], e.was)
	}
	m.undo = m.undo[:0]
}

// M1: a mutated file is refused by a *WeightsError or makes a model: no panic, no endless loop, no great allocation. Here
// 40,000 files, in `make soak` ten million.
func TestMutations(t *testing.T) {
	paths, err := filepath.Glob("../testdata/golden/tiny/*/model-*.gguf")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden models: %v", err)
	}
	workers := runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for w := range workers {
		all.Go(func() {
			n := 0
			for i, path := range paths {
				n += mutations(t, path, mutationsTried/workers/len(paths), uint64(w*len(paths)+i))
			}
			mu.Lock()
			defer mu.Unlock()
			accepted += n
		})
	}
	all.Wait()
	t.Logf("%d of %d files were accepted", accepted, mutationsTried)
	if accepted == 0 || accepted == mutationsTried {
		t.Error("the mutations try nothing")
	}
}

func mutations(t *testing.T, path string, n int, seed uint64) (accepted int) {
	file, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return 0
	}
	good, err := parse(path, file)
	if err != nil {
		t.Error(err)
		return 0
	}
	m := &mutator{rng: rand.New(rand.NewPCG(seed, 1)), file: file, head: len(file) - int(good.dataBytes())}
	for i := range n {
		b := m.mutate()
		if err := try(b); err == nil {
			accepted++
		} else if !errors.As(err, new(*WeightsError)) {
			t.Errorf("%s, seed %d, file %d: %v", path, seed, i, err)
		}
		m.restore()
	}
	return accepted
}

// try reads a file as the worker does, up to the weights.
func try(b []byte) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	file, err := parse("mutated", b)
	if err != nil {
		return err
	}
	for i := range file.Tensors() {
		tensor := &file.Tensors()[i]
		_ = tensor.Row(tensor.Rows() - 1)
	}
	_, err = Load(file)
	return err
}

// dataBytes is the length of the tensors' part of the file.
func (f *File) dataBytes() (n int64) {
	for i := range f.Tensors() {
		n += int64(len(f.Tensors()[i].Data))
	}
	return n
}
