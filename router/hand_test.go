package router

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// Words of the wire that plays use often.
type (
	ask    = workerv1.GenerateRequest
	ending = ledgerv1.FinishReason
	sender = func(ids ...int32) error
)

const endLength = ledgerv1.FinishReason_FINISH_REASON_LENGTH

// play is what a hand does with a request: it sends tokens, and says how the request ended.
type play func(ctx context.Context, r *ask, send sender) (ending, error)

// hand is a worker that plays: it keeps to the wire and the ledger's rules, and makes tokens by script.
type hand struct {
	workerv1.UnimplementedWorkerServer
	h       *house
	name    string
	info    *ledgerv1.WorkerInfo
	card    []byte
	play    play
	refuse  func(*ask) error // before it is taken
	unready string
	cached  uint32 // under mu: tokens that it says it has found in its cache; 0: three, if the prompt has as many
	silent  bool   // asked for its card, it says nothing
	score   func(int32, *workerv1.Scoring) *workerv1.Score

	out     chan *workerv1.FromWorker
	told    chan *workerv1.Watched
	lined   context.Context // ends with the line
	mute    atomic.Bool     // it has no heartbeats
	session uint64
	server  *grpc.Server
	stop    context.CancelFunc
	ended   chan struct{}

	mu       sync.Mutex
	sequence uint64
	acked    uint64
	results  map[uint64]chan *ledgerv1.Result
	tombs    map[uint64]bool
	held     map[uint64]bool
	returned map[string]uint64
	asked    []*ask
	stops    []*workerv1.StopRequest
	notices  []*workerv1.Notice
	watches  int      // streams that were begun
	renewals int      // that were answered
	order    []uint64 // sequences in the order of their results
}

func stopAfterMax(_ context.Context, r *ask, send sender) (ending, error) {
	for i := range r.MaxTokens {
		if err := send(700 + int32(i%40)); err != nil {
			return 0, err
		}
	}
	return endLength, nil
}

// says plays ids and then stops, at the end id if the request has one.
func says(ids ...int32) play {
	return func(_ context.Context, r *ask, send sender) (ending, error) {
		for i, id := range ids {
			if uint32(i) == r.MaxTokens {
				return endLength, nil
			}
			if err := send(id); err != nil {
				return 0, err
			}
		}
		if len(r.StopIds) == 0 || len(ids) == int(r.MaxTokens) {
			return endLength, nil
		}
		return ledgerv1.FinishReason_FINISH_REASON_STOP, send(r.StopIds[len(r.StopIds)-1])
	}
}

// hire attaches a worker and waits until it is placed on, unless it says itself that it is unready.
func (h *house) hire(name string, edit func(*hand)) *hand {
	h.t.Helper()
	data, print := marshalCard(h.t, tinyCard())
	w := &hand{
		h: h, name: name, card: data, play: stopAfterMax, score: playedScore, out: make(chan *workerv1.FromWorker, 4096),
		told:    make(chan *workerv1.Watched, 4096),
		results: map[uint64]chan *ledgerv1.Result{}, tombs: map[uint64]bool{}, held: map[uint64]bool{},
		returned: map[string]uint64{},
		info: &ledgerv1.WorkerInfo{
			Address: "passthrough:///" + name, Models: []string{"tiny", "tiny-alias"}, ModelRevision: []byte("rev"),
			Numerics: "num", Layout: "lay", Pages: 9 + 200, Slots: 8, MaxModelLen: 256, Card: print[:], Device: "test", Tp: 1,
			Geometry: &ledgerv1.Geometry{
				BlockSize: 4, Windows: []uint32{0, 10}, StepsInFlight: 1, MaxBatchTokens: 24, PrefillsInStep: 3,
			},
		},
	}
	if edit != nil {
		edit(w)
	}
	w.server = h.listen(name, func(s *grpc.Server) { workerv1.RegisterWorkerServer(s, w) })
	w.attach()
	h.t.Cleanup(w.quit)
	if w.unready == "" {
		h.await(name+" to be served", func() bool {
			m, ok := h.router.members.snapshot()[name]
			return ok && m.card != nil
		})
	}
	return w
}

// attach opens the worker's line anew.
func (w *hand) attach() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.ended = cancel, make(chan struct{})
	conn, err := grpc.NewClient("passthrough:///router", w.h.dial()...)
	if err != nil {
		w.h.t.Fatal(err)
	}
	stream, err := workerv1.NewClusterClient(conn).Attach(ctx)
	if err != nil {
		w.h.t.Fatal(err)
	}
	register := &ledgerv1.Register{Worker: w.name, Nonce: []byte(w.name), LeaseMs: 60_000, Info: w.info}
	if err := stream.Send(&workerv1.FromWorker{Kind: &workerv1.FromWorker_Register{Register: register}}); err != nil {
		w.h.t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil || m.GetRegistered().GetOpened() == nil {
		w.h.t.Fatalf("register: %v, %v", m, err)
	}
	w.mu.Lock()
	w.session, w.lined = m.GetRegistered().GetOpened().Session, ctx
	w.mu.Unlock()
	go func() {
		defer close(w.ended)
		defer conn.Close()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			w.speak(ctx, stream)
		}()
		defer func() { cancel(); <-sent }()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			w.listen(m)
		}
	}()
}

// Watch implements worker.v1.Worker: while the line is up, what the test tells.
func (w *hand) Watch(r *workerv1.WatchRequest, s grpc.ServerStreamingServer[workerv1.Watched]) error {
	w.mu.Lock()
	lined, ours := w.lined, w.session == r.Incarnation
	w.mu.Unlock()
	if !ours || lined.Err() != nil {
		return status.Error(codes.Unavailable, "not here")
	}
	if err := s.Send(w.heartbeat()); err != nil {
		return err
	}
	w.mu.Lock()
	w.watches++
	w.mu.Unlock()
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		select {
		case m := <-w.told:
			if err := s.Send(m); err != nil {
				return err
			}
		case <-beat.C:
			if w.mute.Load() {
				continue
			}
			if err := s.Send(w.heartbeat()); err != nil {
				return err
			}
		case <-lined.Done():
			return status.Error(codes.Unavailable, "the line is down")
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (w *hand) speak(ctx context.Context, stream workerv1.Cluster_AttachClient) {
	for {
		select {
		case m := <-w.out:
			if stream.Send(m) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *hand) heartbeat() *workerv1.Watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	beat := &workerv1.Heartbeat{Unready: w.unready, ChargedPages: 1}
	return &workerv1.Watched{Kind: &workerv1.Watched_Heartbeat{Heartbeat: beat}}
}

func (w *hand) beat() { w.told <- w.heartbeat() }

// isUnready makes the worker say from now on why it takes no work; "": it does.
func (w *hand) isUnready(why string) {
	w.mu.Lock()
	w.unready = why
	w.mu.Unlock()
	w.beat()
}

// detach breaks the worker's line; the incarnation lives on.
func (w *hand) detach() {
	w.stop()
	<-w.ended
}

func (w *hand) quit() {
	w.detach()
	w.server.Stop()
}

func (w *hand) listen(m *workerv1.ToWorker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch k := m.Kind.(type) {
	case *workerv1.ToWorker_Result:
		w.order = append(w.order, k.Result.Sequence)
		w.acked = k.Result.Sequence
		if done := w.results[k.Result.Sequence]; done != nil {
			done <- k.Result.Result
		}
	case *workerv1.ToWorker_Renewed:
		w.renewals++
	case *workerv1.ToWorker_Notice:
		w.notices = append(w.notices, k.Notice)
		for _, id := range k.Notice.Orphans {
			if !w.held[id] && !w.tombs[id] {
				w.tombs[id] = true
				tomb := &ledgerv1.Tombstone{Reservation: id}
				w.proposeLocked(&ledgerv1.Command{Kind: &ledgerv1.Command_Tombstone{Tombstone: tomb}})
			}
		}
	}
}

func (w *hand) propose(c *ledgerv1.Command) <-chan *ledgerv1.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proposeLocked(c)
}

func (w *hand) proposeLocked(c *ledgerv1.Command) <-chan *ledgerv1.Result {
	w.sequence++
	done := make(chan *ledgerv1.Result, 1)
	w.results[w.sequence] = done
	w.out <- &workerv1.FromWorker{Kind: &workerv1.FromWorker_Proposal{Proposal: &ledgerv1.Proposal{
		Sequence: w.sequence, Acked: w.acked, Command: c,
	}}}
	return done
}

// Card implements worker.v1.Worker.
func (w *hand) Card(_ *workerv1.CardRequest, s grpc.ServerStreamingServer[workerv1.CardPiece]) error {
	if w.silent {
		<-s.Context().Done()
		return s.Context().Err()
	}
	for at := 0; at < len(w.card); at += 1000 {
		if err := s.Send(&workerv1.CardPiece{Data: w.card[at:min(len(w.card), at+1000)]}); err != nil {
			return err
		}
	}
	return nil
}

// Generate implements worker.v1.Worker.
func (w *hand) Generate(r *ask, s grpc.ServerStreamingServer[workerv1.GenerateReply]) error {
	w.mu.Lock()
	w.asked = append(w.asked, r)
	tomb := w.tombs[r.Reservation] || r.Incarnation != w.session
	var err error
	if tomb {
		err = status.Error(codes.FailedPrecondition, "given up")
	} else if w.refuse != nil {
		err = w.refuse(r)
	}
	if err != nil {
		w.mu.Unlock()
		return err
	}
	w.held[r.Reservation] = true
	claim := &ledgerv1.Claim{Reservation: r.Reservation, Attempt: r.Attempt}
	claimed := w.proposeLocked(&ledgerv1.Command{Kind: &ledgerv1.Command_Claim{Claim: claim}})
	w.mu.Unlock()
	<-claimed
	reasons, sent, err := w.run(r, s)
	reason := ledgerv1.FinishReason_FINISH_REASON_CANCELLED
	if err == nil {
		reason = reasons[len(reasons)-1]
	}
	<-w.end(r, reason, sent...)
	if err != nil {
		return err
	}
	for i := range reasons {
		if err := s.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Finished{Finished: &workerv1.Finished{
			Reason: reasons[i], CachedTokens: w.found(r), OutputTokens: sent[i], Branch: uint32(i),
		}}}); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements worker.v1.Worker: a hand goes on, as one that hears of it too late does.
func (w *hand) Stop(_ context.Context, r *workerv1.StopRequest) (*workerv1.StopReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stops = append(w.stops, r)
	return &workerv1.StopReply{}, nil
}

// run plays all branches, one after the other.
func (w *hand) run(r *ask, s grpc.ServerStreamingServer[workerv1.GenerateReply]) (reasons []ending, sent []uint32, err error) {
	started := &workerv1.Started{CachedTokens: w.found(r)}
	if err := s.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Started{Started: started}}); err != nil {
		return nil, nil, err
	}
	if r.PromptScoring != nil {
		m := &workerv1.PromptScores{Position: 1}
		for _, id := range r.Prompt[1:] {
			m.Scores = append(m.Scores, w.score(id, r.PromptScoring))
		}
		if err := s.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_PromptScores{PromptScores: m}}); err != nil {
			return nil, nil, err
		}
	}
	for branch := range r.Branches {
		at := uint32(0)
		reason, err := w.play(context.WithValue(s.Context(), branchKey{}, branch), r, func(ids ...int32) error {
			if err := s.Context().Err(); err != nil {
				return err
			}
			m := &workerv1.Tokens{Attempt: r.Attempt, Position: at, Ids: ids, Branch: branch}
			for _, id := range ids {
				if r.Scoring != nil {
					m.Scores = append(m.Scores, w.score(id, r.Scoring))
				}
			}
			at += uint32(len(ids))
			return s.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Tokens{Tokens: m}})
		})
		if err != nil {
			return nil, nil, err
		}
		reasons, sent = append(reasons, reason), append(sent, at)
	}
	return reasons, sent, nil
}

// branchKey is where a play finds which branch it plays.
type branchKey struct{}

func branchOf(ctx context.Context) uint32 { return ctx.Value(branchKey{}).(uint32) }

// playedScore is what a hand says of a token: it is −id/1000, and the likeliest are 300, 301, ….
func playedScore(id int32, s *workerv1.Scoring) *workerv1.Score {
	m := &workerv1.Score{Logprob: -float32(id) / 1000, Rank: uint32(id)}
	for k := range s.Top {
		m.TopIds, m.TopLogprobs = append(m.TopIds, 300+int32(k)), append(m.TopLogprobs, -float32(k)/10)
	}
	return m
}

func (w *hand) found(r *ask) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cached > 0 {
		return w.cached
	}
	return min(3, uint32(len(r.Prompt)))
}

func (w *hand) end(r *ask, reason ledgerv1.FinishReason, sent ...uint32) <-chan *ledgerv1.Result {
	output := uint64(0)
	for _, n := range sent {
		output += uint64(n)
	}
	computed := uint64(len(r.Prompt)) - uint64(w.found(r))
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, r.Reservation)
	w.returned[r.ShareGroup] += r.Pages
	return w.proposeLocked(&ledgerv1.Command{Kind: &ledgerv1.Command_End{End: &ledgerv1.End{
		Reservation: r.Reservation, Reason: reason, OutputTokens: output, ComputedTokens: computed,
		Accounts: []*ledgerv1.Returned{{ShareGroup: r.ShareGroup, Pages: w.returned[r.ShareGroup]}},
	}}})
}

// last is the newest request that the worker was asked.
func (w *hand) last(t *testing.T) *ask {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		t.Fatal("the worker was asked nothing")
	}
	return w.asked[len(w.asked)-1]
}

// drained says that nothing is left of any request (R1).
func (h *house) drained() bool {
	requests, tokens := h.router.queue.size()
	running, _ := h.router.flights.running()
	if requests+tokens+running > 0 || h.router.claims.open() || h.node.View().Reservations > 0 {
		return false
	}
	for _, w := range h.node.View().Workers {
		if w.Granted > 0 || w.SlotsUsed > 0 {
			return false
		}
	}
	return true
}
