package sim

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// flood is more requests than any buffer of a worker holds, one after the other during a step that is longer than the
// lease. A part of the clients leave before they have an answer.
func flood() Scenario {
	g := small
	g.MaxBatchTokens = 64
	s := Scenario{Geometry: g, Slots: 400, Requests: asked(320, 4, 2), Workers: []Worker{{4000, 0.002}}}
	for i := range s.Requests {
		s.Requests[i].At = 8*time.Second + time.Duration(i)*time.Millisecond
		if i%3 == 0 {
			s.Requests[i].Leaves = 2 * time.Second
		}
	}
	long := asked(1, 200, 10)
	s.Requests = append(s.Requests, long...)
	return s
}

// long is prompts whose steps would outlast the step timeout, were they filled, on three slow workers with streams beside.
func long() Scenario {
	g := small
	g.MaxBatchTokens = 128
	s := Scenario{Geometry: g, Slots: 16, Requests: asked(12, 8, 60), StepTimeout: 4 * time.Second}
	s.Requests = append(s.Requests, asked(3, 420, 10)...)
	for range 3 {
		s.Workers = append(s.Workers, Worker{1000, 0.01})
	}
	return s
}

// P1: liveness does not wait for steps.
func TestAFloodInALongStep(t *testing.T) {
	r := whole(t, flood())
	if done, lost := r.count("done"), r.count("lost"); done < 200 || lost != 0 {
		t.Errorf("%d came to their end, %d tries were lost", done, lost)
	}
}

// P1: no step outlasts the step timeout because of what it was filled with.
func TestLongPromptsOnSlowWorkers(t *testing.T) {
	r := whole(t, long())
	if done, lost := r.count("done"), r.count("lost"); done != 15 || lost != 0 {
		t.Errorf("%d came to their end, %d tries were lost", done, lost)
	}
}

// P1: a step that never ends costs time and a device; whoever was in it has its answer.
func TestADeviceHangs(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 8, Requests: asked(8, 8, 200), Workers: []Worker{{200, 1}, {200, 1}},
		Faults: []Fault{{At: 150 * time.Millisecond, For: 31 * time.Second, Host: "w1", Kind: Hang}}}
	r := whole(t, s)
	if done, lost := r.count("done"), r.count("lost"); done != 8 || lost != 0 || r.Took < 30*time.Second {
		t.Errorf("%d came to their end, %d tries were lost, in %v", done, lost, r.Took)
	}
}

// receivesBetweenSteps is a line that waits for the step in flight before it receives.
func receivesBetweenSteps(d *device) grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := next(ctx, desc, cc, method, opts...)
		return &waitingStream{s, d}, err
	})
}

type waitingStream struct {
	grpc.ClientStream
	device *device
}

func (w *waitingStream) RecvMsg(m any) error {
	time.Sleep(time.Duration(w.device.left.Load()))
	return w.ClientStream.RecvMsg(m)
}

func TestSlownessThatIsNotReckonedWithIsFound(t *testing.T) {
	for what, x := range map[string]struct {
		scenario Scenario
		bug      sabotage
	}{
		"P1 receiving waits for steps":      {flood(), sabotage{line: receivesBetweenSteps}},
		"P1 steps are filled at any length": {long(), sabotage{unpaced: true}},
	} {
		t.Run(what, func(t *testing.T) {
			r := play(t, x.scenario, x.bug)
			if r.Broken == nil || !strings.Contains(r.Broken.Error(), what[:2]+":") {
				t.Errorf("want %s, found %v", what[:2], r.Broken)
			}
			t.Log(r.Broken)
		})
	}
}
