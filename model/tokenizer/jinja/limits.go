package jinja

// What a template may use unless the caller says otherwise.
const (
	// DefaultFuel lets a chat of tens of thousands of messages through, at some hundred steps each, and ends a render
	// that never would in about a second.
	DefaultFuel = 20_000_000
	// DefaultOutput is several times the text of a million tokens.
	DefaultOutput = 32 << 20
	// DefaultValue lets any text that may be output be held as one value too.
	DefaultValue = 32 << 20
	// DefaultMemory lets a text be copied by each of many steps; what lives at once is below it.
	DefaultMemory = 256 << 20
	// DefaultDepth is far above the nesting of any schema, and some megabytes of stack.
	DefaultDepth = 2500
)

const (
	maxSource  = 512 << 10 // bytes; the templates of models have up to some tens of thousands
	maxNesting = 150       // brackets and blocks inside each other, and links of one chain of operators
	maxBits    = 1 << 15   // of a whole number: more than can be printed
	maxDigits  = 4300      // of a whole number that is printed or read, as Python has it
	maxRange   = 100_000   // elements of a range, as the sandbox has it
)

// Limits bound one render; a field that is 0 is its default.
type Limits struct {
	Fuel   int64 // steps: a node evaluated, a pass of a loop, an element looked at, 64 bytes built
	Output int   // bytes of the text
	Value  int   // bytes of any one value: of a string its text, of others 16 an element
	Memory int64 // bytes of all values built, whether still used or not
	Depth  int   // nodes, calls and values inside each other
}

func (l Limits) orDefaults() Limits {
	if l.Fuel <= 0 {
		l.Fuel = DefaultFuel
	}
	if l.Output <= 0 {
		l.Output = DefaultOutput
	}
	if l.Value <= 0 {
		l.Value = DefaultValue
	}
	if l.Memory <= 0 {
		l.Memory = DefaultMemory
	}
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	return l
}

// step pays for n small pieces of work.
func (r *run) step(n int) error {
	r.fuel -= int64(n)
	if r.fuel < 0 {
		return &LimitError{Limit: "fuel", Max: r.limits.Fuel}
	}
	return nil
}

// build pays for a value of n bytes before it is made.
func (r *run) build(n int) error {
	if n < 0 || n > r.limits.Value {
		return &LimitError{Limit: "value", Max: int64(r.limits.Value)}
	}
	if r.built += int64(n); r.built > r.limits.Memory {
		return &LimitError{Limit: "memory", Max: r.limits.Memory}
	}
	return r.step(n>>6 + 1)
}

// times is n×m for build: −1, which it refuses, if the product is beyond all limits.
func times(n, m int) int {
	if n < 0 || m < 0 || m > 0 && n > 1<<40/m {
		return -1
	}
	return n * m
}

// elements pays for a list of n values.
func (r *run) elements(n int) error { return r.build(times(n, 16)) }

// down goes one level deeper; up must follow if it gives no error.
func (r *run) down() error {
	if r.depth >= r.limits.Depth {
		return &LimitError{Limit: "depth", Max: int64(r.limits.Depth)}
	}
	r.depth++
	return r.step(1)
}

func (r *run) up() { r.depth-- }
