package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/kvpool"
)

var small = kvpool.Geometry{
	BlockSize: 4, Groups: []kvpool.Group{{Kind: kvpool.Full}, {Kind: kvpool.Sliding, Window: 10}},
	StepsInFlight: 1, MaxBatchTokens: 24, PrefillsInStep: 3,
}

func TestOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Run(Scenario{Geometry: small, Slots: 8, Workers: []Worker{{100, 1}},
			Requests: []Request{{At: time.Second, Group: "g", Prompt: []int32{3, 4, 5}, Max: 20, N: 1, Seed: 1, Stream: true}}}, nil)
		t.Log(r.Draw())
		for _, e := range r.Events {
			t.Log(e)
		}
		if r.Broken != nil {
			t.Error(r.Broken)
		}
	})
}
