package ledger

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// What a client says of itself is bounded, and a refusal names the field.
func TestClientsAreBounded(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for field, edit := range map[string]func(*ledgerv1.Register){
		"worker":            func(m *ledgerv1.Register) { m.Worker = "" },
		"worker: 254":       func(m *ledgerv1.Register) { m.Worker = long(254) },
		"worker: not UTF-8": func(m *ledgerv1.Register) { m.Worker = "w\xff" },
		"worker: U+000A":    func(m *ledgerv1.Register) { m.Worker = "w\n1" },
		"worker: U+009B":    func(m *ledgerv1.Register) { m.Worker = "w\u009b1" },
		"nonce: 0":          func(m *ledgerv1.Register) { m.Nonce = nil },
		"nonce: 65":         func(m *ledgerv1.Register) { m.Nonce = make([]byte, 65) },
		"lease: 0":          func(m *ledgerv1.Register) { m.LeaseMs = 0 },
		"lease: 99":         func(m *ledgerv1.Register) { m.LeaseMs = 99 },
		"lease: 3600001":    func(m *ledgerv1.Register) { m.LeaseMs = 3_600_001 },
		"models: 65":        func(m *ledgerv1.Register) { m.Info.Models = make([]string, 65) },
		"models: 257":       func(m *ledgerv1.Register) { m.Info.Models = []string{"m", long(257)} },
		"models: U+0000":    func(m *ledgerv1.Register) { m.Info.Models = []string{"\x00"} },
		"address: 262":      func(m *ledgerv1.Register) { m.Info.Address = long(262) },
		"numerics: 257":     func(m *ledgerv1.Register) { m.Info.Numerics = long(257) },
		"layout: 257":       func(m *ledgerv1.Register) { m.Info.Layout = long(257) },
		"device: U+007F":    func(m *ledgerv1.Register) { m.Info.Device = "\x7f" },
		"model revision":    func(m *ledgerv1.Register) { m.Info.ModelRevision = make([]byte, 65) },
		"card: 65":          func(m *ledgerv1.Register) { m.Info.Card = make([]byte, 65) },
	} {
		s, _, _ := start(t)
		before := len(s.workers)
		p := registered("w9", "n9", workerInfo(8, 4, 0))
		edit(p.Command.GetRegister())
		r := s.Apply(p)
		if f := r.GetRefusal(); f.GetCode() != invalid || !strings.HasPrefix(f.GetMessage(), "register: "+field) || len(s.workers) != before {
			t.Errorf("%s: %v", field, r)
		}
	}
	for field, edit := range map[string]func(*ledgerv1.OpenRouter){
		"router":      func(m *ledgerv1.OpenRouter) { m.Router = "" },
		"router: 254": func(m *ledgerv1.OpenRouter) { m.Router = long(254) },
		"router: U+0": func(m *ledgerv1.OpenRouter) { m.Router = "\t" },
		"nonce: 65":   func(m *ledgerv1.OpenRouter) { m.Nonce = make([]byte, 65) },
		"lease: 1":    func(m *ledgerv1.OpenRouter) { m.LeaseMs = 1 },
	} {
		s, _, _ := start(t)
		p := opened("r9", "n9")
		edit(p.Command.GetOpenRouter())
		if r := s.Apply(p); !strings.HasPrefix(r.GetRefusal().GetMessage(), "open router: "+field) {
			t.Errorf("%s: %v", field, r)
		}
	}
	s, _, _ := start(t)
	p := registered(long(253), "n", workerInfo(8, 4, 0))
	m := p.Command.GetRegister()
	m.LeaseMs, m.Info.Models, m.Info.Address = 100, []string{"Größe/🙂 x", long(256)}, long(261)
	must(t, s.Apply(p))
}

// I9: of many fenced workers those fenced last are remembered, for 100 leases, and their nonces with them.
func TestFencedAreForgotten(t *testing.T) {
	s := New()
	s.Apply(bootstrapped())
	name := func(i int) string { return fmt.Sprintf("w%04d", i) }
	fence := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			must(t, s.Apply(registered(name(i), name(i), workerInfo(8, 4, 0))))
		}
		s.Apply(ticked(3000))
	}
	kept := func(want ...int) {
		t.Helper()
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		restored, err := Restore(proto.CloneOf(s.Snapshot()))
		if err != nil || restored.Digest() != s.Digest() {
			t.Fatalf("I8: %v", err)
		}
		s = restored
		for i := 0; i+1 < len(want); i += 2 {
			if known := s.worker(name(want[i])) != nil; known != (want[i+1] == 1) {
				t.Errorf("I9: %s is known: %v", name(want[i]), known)
			}
		}
	}
	fence(500, 600)
	fence(0, 500)
	if len(s.workers) != 600 {
		t.Fatalf("%d workers", len(s.workers))
	}
	fence(600, 1100) // 76 too many: of those fenced first, the first names
	kept(500, 0, 575, 0, 576, 1, 599, 1, 0, 1, 1099, 1)
	if len(s.workers) != maxFenced {
		t.Errorf("I9: %d workers are remembered", len(s.workers))
	}
	refused(t, s.Apply(registered(name(0), name(0), workerInfo(8, 4, 0))), fenced)
	must(t, s.Apply(registered(name(500), name(500), workerInfo(8, 4, 0)))) // a new one, for all that is known
	again := must(t, s.Apply(registered(name(700), "another", workerInfo(8, 4, 0)))).GetOpened().Session
	s.Apply(ticked(291_000, again)) // with the two ticks since: 297 s since the first ones, one of which lives again
	kept(576, 1, 0, 1)
	s.Apply(ticked(3000, again))
	kept(576, 0, 599, 0, 0, 1, 700, 1)
	s.Apply(ticked(300_000, again))
	kept(0, 0, 1099, 0, 500, 0, 700, 1)
	if len(s.workers) != 1 {
		t.Errorf("I9: %d workers are remembered", len(s.workers))
	}
	s.Apply(ticked(3000))
	s.Apply(ticked(299_999))
	kept(700, 1)
	refused(t, s.Apply(registered(name(700), "another", workerInfo(8, 4, 0))), fenced)
	s.Apply(ticked(1))
	kept(700, 0)
}
