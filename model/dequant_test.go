package model

import (
	"math"
	"path/filepath"
	"testing"
)

const golden = "../testdata/golden"

// M3: every stored block format gives the gguf package's values bit for bit, through the reader's own view of the file.
func TestDequantiseMatchesGGUF(t *testing.T) {
	f, err := OpenFile(filepath.Join(golden, "dequant/dequant.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := ReadSafetensors(filepath.Join(golden, "dequant/dequant.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.Tensors()); n != 15 {
		t.Fatalf("%d tensors, want 15", n)
	}
	for _, tensor := range f.Tensors() {
		name := tensor.Type.String()
		t.Run(name, func(t *testing.T) {
			if string(tensor.Data) != string(want.Tensors[name+".raw"].Data) {
				t.Fatal("raw blocks differ")
			}
			values, err := want.Tensors[name+".f32"].Float32s()
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, len(values))
			for r, n := 0, tensor.Cols(); r < tensor.Rows(); r++ {
				Dequantise(tensor.Type, tensor.Row(r), got[r*n:(r+1)*n])
			}
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(values[i]) && !(got[i] == 0 && values[i] == 0) {
					t.Fatalf("element %d is %g (%#08x), want %g", i, got[i], math.Float32bits(got[i]), values[i])
				}
			}
		})
	}
}

// A half survives the way to f32 and back, and f32 rounds to nearest even.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		x := HalfToFloat(uint16(h))
		if back := FloatToHalf(x); back != uint16(h) && x == x {
			t.Fatalf("%#04x → %g → %#04x", h, x, back)
		}
	}
	for _, c := range []struct {
		x float32
		h uint16
	}{{65519, 0x7bff}, {65520, 0x7c00}, {1e9, 0x7c00}, {-1e9, 0xfc00}, {1 + 1.0/2048, 0x3c00}, {1 + 3.0/2048, 0x3c02},
		{1 + 1.01/2048, 0x3c01}, {2.9e-8, 0}, {3.1e-8, 1}, {6.1033e-5, 0x0400}, {1e-45, 0}} {
		if got := FloatToHalf(c.x); got != c.h {
			t.Errorf("%g → %#04x, want %#04x", c.x, got, c.h)
		}
	}
}
