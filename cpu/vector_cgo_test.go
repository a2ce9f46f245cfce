//go:build cgo && amd64

package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/berthd/berth/model"
)

func normals(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func near(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	for i := range want {
		if e := math.Abs(float64(got[i]) - float64(want[i])); !(e <= tolerance*(1+math.Abs(float64(want[i])))) {
			t.Fatalf("%s, element %d: %g, want %g", what, i, got[i], want[i])
		}
	}
}

func pointer(x []float32) unsafe.Pointer { return unsafe.Pointer(&x[0]) }

// Vector kernels agree with the plain Go forward pass at every length.
func TestVectorKernels(t *testing.T) {
	needKernels(t)
	r := &reference{m: &model.Model{Decoder: model.Decoder{Epsilon: 1e-6}}}
	for _, n := range []int{8, 16, 24, 32, 40, 64, 640, 2048} {
		x, y, w := normals(n, 1), normals(n, 2), normals(n, 3)
		tensor := &model.Tensor{Type: model.F32, Dims: []int{n}, Data: unsafe.Slice((*byte)(pointer(w)), 4*n)}
		got, want := make([]float32, n), make([]float32, n)

		r.norm(want, x, tensor, 1, n)
		rmsnorm(pointer(x), pointer(w), pointer(got), n, 1e-6)
		near(t, "rmsnorm", got, want, 1e-5)

		sum := append([]float32(nil), y...)
		rmsnormAdd(pointer(sum), pointer(x), pointer(w), n, 1e-6)
		add(want, y, n)
		near(t, "rmsnorm_add", sum, want, 1e-5)

		sum = append([]float32(nil), y...)
		addVector(pointer(sum), pointer(x), n)
		copy(want, y)
		add(want, x, n)
		near(t, "add", sum, want, 0)

		for _, a := range []model.Activation{model.GELUTanh, model.SiLU, model.ClampedSwiGLU} {
			d := &model.Decoder{Activation: a, GateLimit: 7}
			for i := range x { // wide, to reach both ends of the exponential
				got[i], want[i] = 40*x[i], 40*x[i]
			}
			gatedActivation(d, pointer(got), pointer(y), n)
			activate(d, want, y, n)
			near(t, "gated activation", got, want, 2e-6)
		}
	}
}

// Rope turns each pair by its angle, for every size of head.
func TestRopeKernel(t *testing.T) {
	needKernels(t)
	for _, n := range []int{16, 32, 64, 128, 256} {
		cos, sin := make([]float32, n/2), make([]float32, n/2)
		rotation(&model.Layer{RopeBase: 10000, RopeScale: 0.5, RopeGain: 1.5}, n, 1234, cos, sin)
		got := normals(n, 4)
		want := append([]float32(nil), got...)
		rope(pointer(got), pointer(cos), pointer(sin), n)
		rotate(want, cos, sin)
		near(t, "rope", got, want, 1e-6)
	}
}

// Activations round to the nearest step of their block; a block of nothing, or of next to nothing, is zero.
func TestQuantise(t *testing.T) {
	needKernels(t)
	const cols = 256
	for _, kind := range []model.Type{model.Q8_0, model.Q5_0} {
		b := newMatmulBench(t, randomTensor(kind, cols, 8, rand.New(rand.NewPCG(1, 1))), 1)
		x := normals(cols, 5)
		clear(x[32:64])
		for i := range 32 {
			x[64+i] = 1e-38
			x[96+i] *= 1e30
		}
		b.packed.format.write(pointer(x), unsafe.Pointer(&b.act[0]), cols)
		steps := 127.0
		if b.packed.format == int16x32 {
			steps = 32767
		}
		got := b.activation(0)
		for lo := 0; lo < cols; lo += 32 {
			top := 0.0
			for _, v := range x[lo : lo+32] {
				top = max(top, math.Abs(float64(v)))
			}
			for i := lo; i < lo+32; i++ {
				if e := math.Abs(got[i] - float64(x[i])); !(e <= top/steps*0.501+1e-37) {
					t.Fatalf("%v, element %d: %g, want %g ± %g", b.packed.format, i, got[i], x[i], top/steps/2)
				}
			}
		}
	}
}
