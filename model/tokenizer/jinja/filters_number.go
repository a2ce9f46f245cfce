package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

func filterAbs(r *run, v Value, _ []Value) (Value, error) {
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	n, ok := integer(v)
	if !ok {
		return nil, typeError("bad operand type for abs(): '%s'", typeName(v))
	}
	return fromBig(new(big.Int).Abs(n)), r.step(1)
}

// filterInt is a number without its fraction, or what the text says in a base.
func filterInt(r *run, v Value, a []Value) (Value, error) {
	var missing Value = int64(0)
	if a[0] != nil {
		missing = a[0]
	}
	base := 10
	if a[1] != nil {
		var err error
		if base, err = index(a[1]); err != nil {
			return nil, err
		}
	}
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case float64:
		if math.IsNaN(v) {
			return missing, nil
		}
		n, err := truncated(v)
		if err != nil {
			return nil, err
		}
		return fromBig(n), nil
	}
	if n, ok := integer(v); ok {
		return fromBig(n), nil
	}
	s, ok := text(v)
	if !ok {
		return missing, nil
	}
	if err := r.step(len(s)); err != nil {
		return nil, err
	}
	if n, ok := parseInt(s, base); ok {
		return fromBig(n), nil
	}
	if f, ok := parseFloat(s); ok {
		if n, err := truncated(f); err == nil {
			return fromBig(n), nil
		}
	}
	return missing, nil
}

// parseInt reads a whole number as Python's int() does.
func parseInt(s string, base int) (*big.Int, bool) {
	s = strings.TrimFunc(s, isSpace)
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || len(digits) > maxDigits || base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	prefixes := map[int]string{2: "0b", 8: "0o", 16: "0x"}
	if p := prefixes[base]; p != "" && len(digits) > 2 && strings.EqualFold(digits[:2], p) {
		digits = strings.TrimPrefix(digits[2:], "_")
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return nil, false
	}
	if base == 0 && len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0_") != "" && isDigit(digits[1]) {
		return nil, false
	}
	digits = strings.Map(decimal, strings.ReplaceAll(digits, "_", ""))
	if digits == "" || strings.ContainsAny(digits[:1], "+-") {
		return nil, false
	}
	n, ok := new(big.Int).SetString(digits, base)
	if ok && strings.HasPrefix(s, "-") {
		n.Neg(n)
	}
	return n, ok
}

// decimal is the ASCII digit of a decimal digit in any script, and other characters as they are.
func decimal(c rune) rune {
	if c < 0x80 || !isDecimal(c) {
		return c
	}
	zero := c
	for isDecimal(zero-1) && c-zero < 9 {
		zero--
	}
	return '0' + c - zero
}

// parseFloat reads a number as Python's float() does.
func parseFloat(s string) (float64, bool) {
	s = strings.Map(decimal, strings.TrimFunc(s, isSpace))
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	for i := 1; i+1 < len(s); i++ {
		if s[i] == '_' && (!isDigit(s[i-1]) || !isDigit(s[i+1])) {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func filterFloat(r *run, v Value, a []Value) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok, huge := toFloat(v); ok {
		if huge {
			return nil, failure("OverflowError", "int too large to convert to float")
		}
		return f, nil
	}
	if s, ok := text(v); ok {
		if err := r.step(len(s)); err != nil {
			return nil, err
		}
		if f, ok := parseFloat(s); ok {
			return f, nil
		}
	}
	if a[0] != nil {
		return a[0], nil
	}
	return 0.0, nil
}

func filterRound(r *run, v Value, a []Value) (Value, error) {
	how, err := wantText(a[1], "common")
	if err != nil {
		return nil, err
	}
	precision := 0
	if a[0] != nil {
		if precision, err = index(a[0]); err != nil {
			return nil, err
		}
	}
	if how != "common" && how != "ceil" && how != "floor" {
		return nil, failure("FilterArgumentError", "method must be common, ceil or floor")
	}
	if !isNumber(v) {
		return nil, typeError("type %s doesn't define __round__ method", typeName(v))
	}
	if how == "common" {
		if f, ok := v.(float64); ok {
			return roundFloat(f, precision), nil
		}
		return r.roundInt(v, precision)
	}
	scale, err := r.power(int64(10), int64(precision))
	if err != nil {
		return nil, err
	}
	scaled, err := r.numberOp("*", v, scale)
	if err != nil {
		return nil, err
	}
	if f, ok := scaled.(float64); ok {
		if f = math.Floor(f); how == "ceil" {
			f = math.Ceil(scaled.(float64))
		}
		n, err := truncated(f)
		if err != nil {
			return nil, err
		}
		scaled = fromBig(n)
	}
	return divide(scaled, scale)
}

// roundFloat rounds to a decimal place by the number's exact value, halves to even.
func roundFloat(f float64, precision int) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) || precision > 330 {
		return f
	}
	if precision >= 0 {
		out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		return out
	}
	if precision < -310 {
		return math.Copysign(0, f)
	}
	n, _ := new(big.Int).SetString("1"+strings.Repeat("0", -precision), 10)
	q, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
	q.SetFloat64(f)
	whole := roundRat(q.Quo(q, new(big.Rat).SetInt(n)))
	out, _ := new(big.Float).SetInt(whole.Mul(whole, n)).Float64()
	return math.Copysign(math.Abs(out), f)
}

// roundRat is the nearest whole number, the even one of two.
func roundRat(q *big.Rat) *big.Int {
	two := big.NewInt(2)
	twice := new(big.Int).Mul(q.Num(), two)
	twice.Add(twice, q.Denom())
	whole, rest := new(big.Int).DivMod(twice, new(big.Int).Mul(q.Denom(), two), new(big.Int))
	if rest.Sign() == 0 && whole.Bit(0) == 1 {
		whole.Sub(whole, big.NewInt(1))
	}
	return whole
}

func (r *run) roundInt(v Value, precision int) (Value, error) {
	n, _ := integer(v)
	if precision >= 0 {
		return fromBig(n), nil
	}
	if precision < -maxDigits {
		return int64(0), nil
	}
	if err := r.step(-precision); err != nil {
		return nil, err
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-precision)), nil)
	whole := roundRat(new(big.Rat).SetFrac(n, unit))
	return fromBig(whole.Mul(whole, unit)), nil
}

func filterFileSize(r *run, v Value, a []Value) (Value, error) {
	got, err := filterFloat(r, v, []Value{None{}})
	if err != nil {
		return nil, err
	}
	size, ok := got.(float64)
	if !ok {
		return nil, valueError("could not convert to float: %s", brief(v))
	}
	base, unit := 1000.0, "B"
	if a[0] != nil && truth(a[0]) {
		base, unit = 1024, "iB"
	}
	switch {
	case size == 1:
		return "1 Byte", nil
	case size < base:
		return strconv.FormatInt(int64(size), 10) + " Bytes", nil
	}
	letters := "kMGTPEZY"
	if unit == "iB" {
		letters = "KMGTPEZY"
	}
	limit := base
	for i := range len(letters) {
		if limit *= base; size < limit || i == len(letters)-1 {
			return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(base*size/limit, 'f', 1, 64), "+")) + " " + letters[i:i+1] + unit, nil
		}
	}
	return nil, nil
}
