package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory: 512MiB, 1GiB, 80GB, or plain bytes.
type Bytes uint64

var units = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || v < 0 || math.IsNaN(v) || v*u.size > 1<<62 {
			break
		}
		*b = Bytes(v * u.size)
		return nil
	}
	return fmt.Errorf("%q is no amount of memory: write 512MiB, 1GiB or plain bytes", s)
}

// String is b in the largest binary unit that keeps it short.
func (b Bytes) String() string {
	for i := 3; i >= 0; i-- {
		if v := float64(b) / units[i].size; v >= 1 {
			return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i].name
		}
	}
	return strconv.FormatUint(uint64(b), 10) + " B"
}
