package worker

import "testing"

// firstTokens runs the engine until its branches have their first tokens, and says how many tokens the device had computed
// by then, for the last of the short ones and for the long one.
func firstTokens(t *testing.T, long int, shorts int) (short, last int) {
	t.Helper()
	e := alone(t, 2000)
	d := e.device.(*hashDevice)
	var all []*branch
	if long > 0 {
		all = append(all, take(t, e, 1, 1200, prompt(1, long), 1))
		if err := e.step(e.sched.schedule()); err != nil { // it is at work when the others come
			t.Fatal(err)
		}
		d.computed = 0
	}
	for i := range shorts {
		all = append(all, take(t, e, 2+uint64(i), 10, prompt(uint64(2+i), 5), 1))
	}
	for planned := e.sched.schedule(); len(planned) > 0; planned = e.sched.schedule() {
		if err := e.step(planned); err != nil {
			t.Fatal(err)
		}
		for i, b := range all {
			switch {
			case b.history.first.IsZero():
			case long > 0 && i == 0 && last == 0:
				last = d.computed
			case long == 0 || i > 0:
				if b.resume.Prompt == 5 && b.over && b.kept >= 0 {
					b.kept = -1
					short = d.computed
				}
			}
		}
	}
	return short, last
}

// TestShortPromptsDoNotWaitForALongOne: eight short prompts behind one of thousands of tokens have their first tokens after
// at most five times the work that they need alone, and the long one after little more than its own.
func TestShortPromptsDoNotWaitForALongOne(t *testing.T) {
	calm, _ := firstTokens(t, 0, 8)
	_, alone := firstTokens(t, 4000, 0)
	busy, long := firstTokens(t, 4000, 8)
	t.Logf("short ones: %d tokens of work alone, %d behind the long one, which has %d alone and %d before them", calm, busy, alone, long)
	if calm == 0 || busy > 5*calm || float64(long) > 1.3*float64(alone) {
		t.Errorf("short ones: %d tokens of work alone, %d behind the long one, which has %d alone and %d before them", calm, busy, alone, long)
	}
}

// TestALongPromptHasHalfOfAStep: however many short ones come, the one before them goes on.
func TestALongPromptHasHalfOfAStep(t *testing.T) {
	e := alone(t, 20000)
	b := take(t, e, 1, 1200, prompt(1, 3000), 1)
	for i := range uint64(400) {
		if i%4 == 0 {
			for j := range uint64(4) {
				take(t, e, 2+4*i+j, 10, prompt(2+4*i+j, 30), 1)
			}
		}
		left := b.remaining(e.pool)
		planned := e.sched.schedule()
		if b.chunk < min(32, left) {
			t.Fatalf("%d tokens of the long prompt in step %d", b.chunk, i)
		}
		if err := e.step(planned); err != nil {
			t.Fatal(err)
		}
		if b.over {
			return
		}
	}
	t.Error("it has not come to its end")
}
