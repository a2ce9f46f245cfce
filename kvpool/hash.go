package kvpool

import (
	"encoding/binary"
	"math/bits"
)

// Key is a SipHash key. The cluster's comes from the ledger, a share group's from DeriveKey.
type Key [16]byte

// Hash names a prefix of whole blocks: equal names mean equal tokens, identity and share group.
type Hash [16]byte

// DeriveKey is a share group's own key, so that no prefix of one group has the name of another's.
func DeriveKey(cluster Key, shareGroup string) Key {
	return Key(sum128(cluster, []byte("share group\x00"+shareGroup)))
}

// Root is the parent of every first block. Its parts are what must agree, besides tokens and share group, for KV to be
// exchangeable: model revision, adapter, numerics, layout, and a request's own salt.
func Root(key Key, parts ...string) Hash {
	var msg []byte
	for _, p := range parts {
		msg = binary.LittleEndian.AppendUint64(msg, uint64(len(p)))
		msg = append(msg, p...)
	}
	return sum128(key, msg)
}

// maxBlock bounds the block that Chain hashes without allocating.
const maxBlock = 256

// Chain is the name of parent extended by one block of tokens.
func Chain(key Key, parent Hash, tokens []int32) Hash {
	var buf [16 + 4*maxBlock]byte
	msg := append(buf[:0], parent[:]...)
	for _, t := range tokens {
		msg = binary.LittleEndian.AppendUint32(msg, uint32(t))
	}
	return sum128(key, msg)
}

// sum128 is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein 2012, reference implementation's double output).
func sum128(key Key, msg []byte) Hash {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	s := sip{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	n := len(msg)
	for ; len(msg) >= 8; msg = msg[8:] {
		s.absorb(binary.LittleEndian.Uint64(msg))
	}
	last := uint64(n) << 56
	for i, b := range msg {
		last |= uint64(b) << (8 * i)
	}
	s.absorb(last)
	var out Hash
	s.v2 ^= 0xee
	binary.LittleEndian.PutUint64(out[:], s.squeeze())
	s.v1 ^= 0xdd
	binary.LittleEndian.PutUint64(out[8:], s.squeeze())
	return out
}

type sip struct{ v0, v1, v2, v3 uint64 }

func (s *sip) absorb(m uint64) {
	s.v3 ^= m
	s.round()
	s.round()
	s.v0 ^= m
}

func (s *sip) squeeze() uint64 {
	for range 4 {
		s.round()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

func (s *sip) round() {
	s.v0 += s.v1
	s.v2 += s.v3
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v1
	s.v0 += s.v3
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 = bits.RotateLeft64(s.v2, 32)
}
