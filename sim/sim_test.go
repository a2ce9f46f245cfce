package sim

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"
)

var (
	only = flag.Uint64("seed", 0, "play the scenario of this seed alone")
	many = flag.Uint64("seeds", seeds, "play the scenarios of the seeds from 1 to this")
)

// Meters keep what they measure, and a run has many programs.
func TestMain(m *testing.M) {
	flag.Parse()
	otel.SetMeterProvider(noop.NewMeterProvider())
	os.Exit(m.Run())
}

// TestSim plays random scenarios.
func TestSim(t *testing.T) {
	from, to := uint64(1), *many
	if *only > 0 {
		from, to = *only, *only
	}
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			fmt.Fprintln(os.Stderr, "seed", seed) // a panic of a program's goroutine ends the test without a word of which it was
			r := bubble(t, Random(seed), sabotage{})
			if *only > 0 {
				t.Log(r.Draw())
			}
			if r.Broken != nil {
				t.Errorf("go test ./sim -run TestSim -seed %d: %v\n%s", seed, r.Broken, r.Draw())
			}
		})
	}
}

// bubble runs a scenario in a bubble of its own.
func bubble(t *testing.T, s Scenario, x sabotage) (r *Report) {
	t.Helper()
	var log *slog.Logger
	if testing.Verbose() && *only > 0 {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	synctest.Test(t, func(*testing.T) { r = run(s, x, log) })
	return r
}

// play is a bubble whose drawing goes to the test's log.
func play(t *testing.T, s Scenario, x ...sabotage) *Report {
	t.Helper()
	began := time.Now()
	r := bubble(t, s, append(x, sabotage{})[0])
	t.Logf("in %v\n%s", time.Since(began).Round(time.Millisecond), r.Draw())
	return r
}
