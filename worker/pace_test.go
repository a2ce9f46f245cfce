package worker

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/model"
)

// machine is what a device's steps cost, in seconds: in full, of each token, and of each position that one attends to.
type machine struct{ step, token, position float64 }

func (m machine) seconds(rows []model.Row) float64 {
	s := m.step
	for _, r := range rows {
		n := float64(len(r.Tokens))
		s += n*m.token + n*(float64(r.Start)+n/2)*m.position
	}
	return s
}

// TestStepsStayBelowTheirTimeout computes a prompt on devices of any speed, from the first step of a cold one on. None of its
// steps comes near the timeout as long as a token alone does not, though the device becomes three times slower on the way.
func TestStepsStayBelowTheirTimeout(t *testing.T) {
	const timeout, prompt, budget = 2.0, 32_000, 2048 // s, tokens
	for name, m := range map[string]machine{
		"fast":                     {1e-3, 1e-5, 1e-9},
		"attention costs most":     {2e-2, 1e-3, 4e-7},
		"a token is a tenth of it": {1e-2, 4e-2, 1e-6},
		"each step costs much":     {2e-1, 1e-3, 1e-8},
		"a token is a half of it":  {1e-2, 2.4e-1, 1e-6},
	} {
		t.Run(name, func(t *testing.T) {
			p, steps, slowest := newPace(timeout), 0, 0.0
			for at := 0; at < prompt; steps++ {
				n, _ := p.fit(min(budget, prompt-at), at, false, p.room(0))
				n = max(1, n)
				rows := []model.Row{{Tokens: make([]int32, n), Start: at}}
				seconds := m.seconds(rows)
				if at > prompt/2 {
					seconds *= 3
				}
				p.learn(rows, seconds)
				slowest = max(slowest, seconds)
				at += n
			}
			alone := 3 * (m.step + m.token + prompt*m.position)
			if slowest > max(0.8*timeout, alone) {
				t.Errorf("a step took %.2f s", slowest)
			}
			t.Logf("%d steps, the slowest of %.2f s", steps, slowest)
			if name == "fast" && steps > prompt/budget+8 {
				t.Errorf("%d steps on a device that could do with %d", steps, prompt/budget)
			}
		})
	}
}

// TestPromptsLeaveRoomForDecodes: the time that branches of one token take is not the prompt's to use, and of too many of
// them a step has some.
func TestPromptsLeaveRoomForDecodes(t *testing.T) {
	p, m := newPace(8), machine{0, 1e-2, 0}
	decodes := func(n int) (rows []model.Row) {
		for range n {
			rows = append(rows, model.Row{Tokens: make([]int32, 1), Start: 100, Outputs: 1})
		}
		return rows
	}
	p.learn(decodes(10), m.seconds(decodes(10)))
	for range 6 {
		n, _ := p.fit(1000, 0, false, p.room(50))
		rows := append(decodes(50), model.Row{Tokens: make([]int32, max(1, n))})
		if s := m.seconds(rows); s > 1.01 {
			t.Errorf("a step of 50 branches and %d tokens of a prompt takes %.2f s", n, s)
		}
		p.learn(rows, m.seconds(rows))
	}
	if n, _ := p.fit(1000, 0, false, p.room(50)); n < 45 {
		t.Errorf("%d tokens of a prompt beside 50 branches, where 50 fit", n)
	}
	if n := fmt.Sprint(p.rows(80), p.rows(1000)); n != "80 100" {
		t.Errorf("of 80 and of 1000 branches %s have a token in a step", n)
	}
}

// TestPaceFallsSlowly: one slow step makes the next ones small, and fast ones make them large again.
func TestPaceFallsSlowly(t *testing.T) {
	p := newPace(1)
	fit := func() int { n, _ := p.fit(256, 0, false, p.room(0)); return max(1, n) }
	run := func(each float64) {
		rows := []model.Row{{Tokens: make([]int32, fit())}}
		p.learn(rows, each*float64(len(rows[0].Tokens)))
	}
	for range 6 {
		run(1e-4)
	}
	if n := fit(); n != 256 {
		t.Fatalf("%d tokens of 256 on a fast device", n)
	}
	run(1e-2)
	if n := fit(); n > 25 {
		t.Errorf("%d tokens after a step in which each took 10 ms", n)
	}
	for range 20 {
		run(1e-4)
	}
	if n := fit(); n < 250 {
		t.Errorf("%d tokens of 256 once it is fast again", n)
	}
}
