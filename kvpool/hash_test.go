package kvpool

import (
	"encoding/hex"
	"testing"
)

// TestSipHash checks the reference implementation's own vectors: key 00…0f, messages 00, 00 01, … (vectors.h, SipHash-128).
func TestSipHash(t *testing.T) {
	var key Key
	for i := range key {
		key[i] = byte(i)
	}
	for n, want := range map[int]string{
		0:  "a3817f04ba25a8e66df67214c7550293",
		1:  "da87c1d86b99af44347659119b22fc45",
		15: "5493e99933b0a8117e08ec0f97cfc3d9",
	} {
		msg := make([]byte, n)
		for i := range msg {
			msg[i] = byte(i)
		}
		got := sum128(key, msg)
		if hex.EncodeToString(got[:]) != want {
			t.Errorf("%d bytes: %x, want %s", n, got, want)
		}
	}
}

func TestNamesDiffer(t *testing.T) {
	cluster := Key{1}
	a, b := DeriveKey(cluster, "a"), DeriveKey(cluster, "b")
	block := []int32{1, 2, 3, 4}
	names := map[Hash]string{}
	for what, h := range map[string]Hash{
		"group a":        Chain(a, Root(a, "rev", "cpu"), block),
		"group b":        Chain(b, Root(b, "rev", "cpu"), block),
		"parts regroup":  Chain(a, Root(a, "revc", "pu"), block),
		"salted":         Chain(a, Root(a, "rev", "cpu", "salt"), block),
		"other tokens":   Chain(a, Root(a, "rev", "cpu"), []int32{1, 2, 3, 5}),
		"shorter prefix": Root(a, "rev", "cpu"),
	} {
		if other, ok := names[h]; ok {
			t.Errorf("%s and %s have one name", what, other)
		}
		names[h] = what
	}
}

func BenchmarkChain(b *testing.B) {
	block, key, h := make([]int32, 16), Key{1}, Hash{}
	for b.Loop() {
		h = Chain(key, h, block)
	}
}

func BenchmarkDecode(b *testing.B) { // one token of one branch: Extend, Advance
	g := Geometry{BlockSize: 16, Groups: []Group{{Kind: Full}, {Sliding, 512}}, StepsInFlight: 1, MaxBatchTokens: 256, PrefillsInStep: 8}
	p, _ := New(g, 4000)
	a := p.OpenAccount()
	if err := p.SetGrant(a, 3900); err != nil {
		b.Fatal(err)
	}
	id, n, token := p.Open(a, Key{}, Hash{}), 0, []int32{7}
	b.ReportAllocs()
	for b.Loop() {
		if n++; n == 30_000 {
			p.Release(id)
			n = 1
		}
		if err := p.Extend(id, n); err != nil {
			b.Fatal(err)
		}
		p.Advance(id, token)
		p.events = p.events[:0]
	}
}
