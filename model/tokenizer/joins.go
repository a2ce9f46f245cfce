package tokenizer

// symbolLen is the length of the character that begins with b, by its first four bits alone, as llama.cpp counts it.
var symbolLen = [16]uint8{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4}

// symbol is the first character of s, as its bytes in one number, and its length. s is not empty.
func symbol(s []byte) (sym uint32, n int) {
	n = min(int(symbolLen[s[0]>>4]), len(s))
	for _, b := range s[:n] {
		sym = sym<<8 | uint32(b)
	}
	return sym, n
}

// joins knows which characters stand side by side in some token. No merge spans two that never do, so that a text may be
// cut there without changing its tokens.
type joins struct {
	ascii [128][2]uint64
	table []uint64 // open addressing; 0 is empty
	used  int
}

func (j *joins) learn(token string) {
	s := []byte(token)
	if len(s) == 0 {
		return
	}
	prev, n := symbol(s)
	for s = s[n:]; len(s) > 0; s = s[n:] {
		var next uint32
		next, n = symbol(s)
		j.add(prev, next)
		prev = next
	}
}

func (j *joins) add(a, b uint32) {
	if a < 128 && b < 128 {
		j.ascii[a][b/64] |= 1 << (b % 64)
		return
	}
	if 2*j.used >= len(j.table) {
		j.grow()
	}
	key := uint64(a)<<32 | uint64(b)
	if at, found := j.slot(key); !found {
		j.table[at] = key
		j.used++
	}
}

func (j *joins) grow() {
	old := j.table
	j.table = make([]uint64, max(1<<12, 2*len(old)))
	for _, key := range old {
		if key != 0 {
			at, _ := j.slot(key)
			j.table[at] = key
		}
	}
}

func (j *joins) slot(key uint64) (at int, found bool) {
	mask := len(j.table) - 1
	for at = int(key * 0x9e3779b97f4a7c15 >> 32); ; at++ {
		switch j.table[at&mask] {
		case key:
			return at & mask, true
		case 0:
			return at & mask, false
		}
	}
}

// has says that b may follow a inside a token.
func (j *joins) has(a, b uint32) bool {
	if a < 128 && b < 128 {
		return j.ascii[a][b/64]&(1<<(b%64)) != 0
	}
	if len(j.table) == 0 {
		return false
	}
	_, found := j.slot(uint64(a)<<32 | uint64(b))
	return found
}
