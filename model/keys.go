package model

import (
	"fmt"
	"math"
)

// keyReader reads hyper-parameters under the architecture's prefix. The first fault sticks, with the place of its key.
type keyReader struct {
	file *File
	name string // architecture
	err  *WeightsError
}

func (k *keyReader) key(name string) string { return k.name + "." + name }

func (k *keyReader) has(name string) bool { return k.file.Has(k.key(name)) }

func (k *keyReader) fail(name, format string, args ...any) {
	if k.err != nil {
		return
	}
	at, from := int64(-1), k.key(name)
	if v, ok := k.file.keys[from]; ok {
		at = int64(v.at)
		if v.from != "" {
			from = v.from
		}
	}
	k.err = &WeightsError{File: k.file.path, Offset: at, What: from + ": " + fmt.Sprintf(format, args...)}
}

// architecture finds the description of the file's model.
func (k *keyReader) architecture() architecture {
	name, ok := k.file.String("general.architecture")
	if !ok {
		k.err = &WeightsError{File: k.file.path, Offset: -1, What: "general.architecture is absent or no string"}
		return architecture{}
	}
	arch, ok := architectures[name]
	if !ok {
		k.err = &WeightsError{File: k.file.path, Offset: int64(k.file.keys["general.architecture"].at),
			What: fmt.Sprintf("architecture %.64q is not supported", name)}
	}
	k.name = name
	return arch
}

// size is a required integer between 1 and 2^31 − 1. An array (a value for each layer) is refused.
func (k *keyReader) size(name string) int {
	if !k.has(name) {
		k.fail(name, "is absent")
		return 0
	}
	if k.file.keys[k.key(name)].array {
		k.fail(name, "a value for each layer is not supported")
		return 0
	}
	n, ok := k.file.Uint(k.key(name))
	if !ok {
		k.fail(name, "is no integer ≥ 0")
		return 0
	}
	if n < 1 || n > math.MaxInt32 {
		k.fail(name, "is %d, want 1 to %d", n, math.MaxInt32)
		return 0
	}
	return int(n)
}

// sizeOr is size, or fallback where the key is absent.
func (k *keyReader) sizeOr(name string, fallback int) int {
	if !k.has(name) {
		return fallback
	}
	return k.size(name)
}

// float is a finite number, or fallback where the key is absent.
func (k *keyReader) float(name string, fallback float64) float64 {
	if !k.has(name) {
		return fallback
	}
	x, ok := k.file.Float(k.key(name))
	if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
		k.fail(name, "is no finite number")
		return fallback
	}
	return x
}
