package jinja

import (
	"math"
	"math/big"
)

func fromBig(v *big.Int) Value {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

// integer is a whole number of any size.
func integer(v Value) (*big.Int, bool) {
	if b, ok := v.(*big.Int); ok {
		return b, true
	}
	n, ok := whole(v)
	if !ok {
		return nil, false
	}
	return big.NewInt(n), true
}

// toFloat is a number as a fraction; huge says that it is too large for one.
func toFloat(v Value) (f float64, ok, huge bool) {
	switch v := v.(type) {
	case float64:
		return v, true, false
	case *big.Int:
		f, _ = new(big.Float).SetInt(v).Float64()
		return f, true, math.IsInf(f, 0)
	}
	n, ok := whole(v)
	return float64(n), ok, false
}

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// ordered compares two numbers: −1, 0 or 1, and 2 if one of them is not a number.
func ordered(a, b Value) int {
	x, xf := a.(float64)
	y, yf := b.(float64)
	switch {
	case !xf && !yf:
		m, okM := whole(a)
		n, okN := whole(b)
		if okM && okN {
			return compareInts(m, n)
		}
		p, _ := integer(a)
		q, _ := integer(b)
		return p.Cmp(q)
	case xf && yf:
		return compareFloats(x, y)
	case xf:
		return exactly(x, b)
	}
	if c := exactly(y, a); c != 2 {
		return -c
	}
	return 2
}

func compareInts(m, n int64) int {
	switch {
	case m < n:
		return -1
	case m > n:
		return 1
	}
	return 0
}

func compareFloats(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	case x == y:
		return 0
	}
	return 2
}

// exactly compares a fraction with a whole number.
func exactly(x float64, b Value) int {
	if n, ok := whole(b); ok && n < 1<<53 && n > -1<<53 {
		return compareFloats(x, float64(n))
	}
	switch {
	case math.IsNaN(x):
		return 2
	case math.IsInf(x, 1):
		return 1
	case math.IsInf(x, -1):
		return -1
	}
	n, _ := integer(b)
	return big.NewFloat(x).Cmp(new(big.Float).SetInt(n))
}

// bits refuses whole numbers that nothing can print.
func (r *run) bits(n int) error {
	if n > maxBits {
		return &LimitError{Limit: "value", Max: maxBits / 8}
	}
	words := n/64 + 1
	return r.step(words*words/32 + 1)
}

// bigOp computes with whole numbers that may not fit 64 bits.
func (r *run) bigOp(op string, a, b *big.Int) (Value, error) {
	size := max(a.BitLen(), b.BitLen()) + 1
	if op == "*" {
		size = a.BitLen() + b.BitLen()
	}
	if err := r.bits(size); err != nil {
		return nil, err
	}
	if b.Sign() == 0 && (op == "//" || op == "%") {
		return nil, failure("ZeroDivisionError", "integer division or modulo by zero")
	}
	v := new(big.Int)
	switch op {
	case "+":
		v.Add(a, b)
	case "-":
		v.Sub(a, b)
	case "*":
		v.Mul(a, b)
	case "//", "%":
		m := new(big.Int)
		v.QuoRem(a, b, m)
		if m.Sign() != 0 && m.Sign() != b.Sign() { // toward minus infinity
			v.Sub(v, big.NewInt(1))
			m.Add(m, b)
		}
		if op == "%" {
			v = m
		}
	}
	return fromBig(v), nil
}

// intOp computes with whole numbers of 64 bits; ok is false if the result does not fit them.
func intOp(op string, a, b int64) (v int64, ok bool) {
	switch op {
	case "+":
		v = a + b
		return v, (v > a) == (b > 0)
	case "-":
		v = a - b
		return v, (v < a) == (b > 0)
	case "*":
		if a == 0 || b == 0 {
			return 0, true
		}
		v = a * b
		return v, v/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
	case "//":
		if b == 0 || a == math.MinInt64 && b == -1 {
			return 0, false
		}
		v = a / b
		if a%b != 0 && (a < 0) != (b < 0) {
			v--
		}
		return v, true
	case "%":
		if b == 0 || b == -1 {
			return 0, b != 0
		}
		v = a % b
		if v != 0 && (v < 0) != (b < 0) {
			v += b
		}
		return v, true
	}
	return 0, false
}

// numberOp is arithmetic between two numbers.
func (r *run) numberOp(op string, a, b Value) (Value, error) {
	switch op {
	case "/":
		return divide(a, b)
	case "**":
		return r.power(a, b)
	}
	m, okM := whole(a)
	n, okN := whole(b)
	if okM && okN {
		if v, ok := intOp(op, m, n); ok {
			return v, nil
		}
	}
	p, okP := integer(a)
	q, okQ := integer(b)
	if okP && okQ {
		return r.bigOp(op, p, q)
	}
	x, _, hugeX := toFloat(a)
	y, _, hugeY := toFloat(b)
	if hugeX || hugeY {
		return nil, failure("OverflowError", "int too large to convert to float")
	}
	return floatOp(op, x, y)
}

func floatOp(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	}
	if y == 0 {
		return nil, failure("ZeroDivisionError", "float floor division by zero")
	}
	mod := math.Mod(x, y)
	div := (x - mod) / y
	if mod != 0 {
		if (y < 0) != (mod < 0) {
			mod += y
			div--
		}
	} else {
		mod = math.Copysign(0, y)
	}
	if op == "%" {
		return mod, nil
	}
	if div == 0 {
		return math.Copysign(0, x/y), nil
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor, nil
}

func divide(a, b Value) (Value, error) {
	y, _, hugeY := toFloat(b)
	if y == 0 {
		return nil, failure("ZeroDivisionError", "division by zero")
	}
	p, okP := integer(a)
	q, okQ := integer(b)
	if okP && okQ && (p.BitLen() > 53 || q.BitLen() > 53) {
		f, _ := new(big.Rat).SetFrac(p, q).Float64()
		if math.IsInf(f, 0) {
			return nil, failure("OverflowError", "integer division result too large for a float")
		}
		return f, nil
	}
	x, _, hugeX := toFloat(a)
	if hugeX || hugeY {
		return nil, failure("OverflowError", "int too large to convert to float")
	}
	return x / y, nil
}

func (r *run) power(a, b Value) (Value, error) {
	p, okP := integer(a)
	q, okQ := integer(b)
	if okP && okQ && q.Sign() >= 0 {
		return r.intPower(p, q)
	}
	x, _, hugeX := toFloat(a)
	y, _, hugeY := toFloat(b)
	switch {
	case hugeX || hugeY:
		return nil, failure("OverflowError", "int too large to convert to float")
	case x == 0 && y < 0:
		return nil, failure("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	case x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0):
		return nil, valueError("complex numbers are not supported")
	}
	v := raise64(x, y)
	if math.IsInf(v, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nil, failure("OverflowError", "(34, 'Numerical result out of range')")
	}
	return v, nil
}

// raise64 is x to the power of y, to the last bit for powers that are whole or end in a half.
func raise64(x, y float64) float64 {
	twice := math.Abs(2 * y)
	if twice != math.Trunc(twice) || twice > 2048 || x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return math.Pow(x, y)
	}
	n, base := int(twice), new(big.Float).SetPrec(256).SetFloat64(math.Abs(x))
	if n%2 == 1 {
		base.Sqrt(base)
	} else {
		n /= 2
	}
	v := new(big.Float).SetPrec(256).SetInt64(1)
	for left := n; left > 0; left >>= 1 {
		if left&1 == 1 {
			v.Mul(v, base)
		}
		base.Mul(base, base)
	}
	if y < 0 {
		v.Quo(new(big.Float).SetPrec(256).SetInt64(1), v)
	}
	if x < 0 && n%2 == 1 {
		v.Neg(v)
	}
	f, _ := v.Float64()
	return f
}

func (r *run) intPower(p, q *big.Int) (Value, error) {
	if p.BitLen() <= 1 || q.Sign() == 0 { // −1, 0 and 1, or to the power of 0
		if p.Sign() < 0 && q.Bit(0) == 0 {
			return int64(1), nil
		}
		if q.Sign() == 0 {
			return int64(1), nil
		}
		return fromBig(p), nil
	}
	if !q.IsInt64() || q.Int64() > maxBits {
		return nil, &LimitError{Limit: "value", Max: maxBits / 8}
	}
	if err := r.bits(times(p.BitLen()-1, int(q.Int64()))); err != nil {
		return nil, err
	}
	return fromBig(new(big.Int).Exp(p, q, nil)), nil
}
