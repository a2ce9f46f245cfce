package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/consensus/ledger"
	"github.com/berthd/berth/kvpool"
)

// cluster is a router in one process: the real ledger behind a real gRPC stream, and a client of the worker.
type cluster struct {
	workerv1.UnimplementedClusterServer
	t        *testing.T
	mu       sync.Mutex
	state    *ledger.State
	router   uint64 // session
	seq      uint64
	streams  map[chan struct{}]bool // closed to break one
	changed  chan struct{}
	worker   *Worker
	device   *hashDevice
	client   workerv1.WorkerClient
	blocks   map[string]bool // cached, by worker's events
	cacheSeq uint64
	silent   atomic.Bool // renewals get no answer
	attached atomic.Int64
	renewed  atomic.Int64 // renewals that came
}

type setup struct {
	pages, slots int
	guesses      int
	lease        time.Duration
	stepTimeout  time.Duration
	device       func(*hashDevice) Device // that the worker gets; nil: the hashDevice
	reopen       func() (Device, error)
}

func start(t *testing.T, s setup) *cluster {
	t.Helper()
	g := kvpool.Geometry{
		BlockSize: 4, Groups: []kvpool.Group{{Kind: kvpool.Full}, {Kind: kvpool.Sliding, Window: 10}},
		StepsInFlight: 1, MaxBatchTokens: 24, PrefillsInStep: 3,
	}
	c := &cluster{t: t, state: ledger.New(), streams: map[chan struct{}]bool{}, changed: make(chan struct{}),
		device: newHashDevice(g, s.pages), blocks: map[string]bool{}}
	c.apply(&ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Bootstrap{Bootstrap: &ledgerv1.Bootstrap{
		ClusterId: make([]byte, 16), HashKey: make([]byte, 16)}}}})
	c.openRouter()
	clusterAddr := serveBuf(t, func(r *grpc.Server) { workerv1.RegisterClusterServer(r, c) })
	if s.lease == 0 {
		s.lease = time.Minute
	}
	if s.stepTimeout == 0 {
		s.stepTimeout = time.Minute
	}
	device := Device(c.device)
	if s.device != nil {
		device = s.device(c.device)
	}
	w, err := New(Config{
		ID: "w1", Device: device, Reopen: s.reopen, Vocab: vocab, Routers: []string{"passthrough:router"}, Dial: clusterAddr, Lease: s.lease,
		StepTimeout: s.stepTimeout, Guesses: s.guesses, Log: slog.New(slog.DiscardHandler), Card: &workerv1.Card{ChatTemplate: "x"},
		Info: &ledgerv1.WorkerInfo{
			Address: "w1", Models: []string{"m"}, ModelRevision: []byte("rev"), Numerics: "hash", Layout: "l",
			Pages: uint64(s.pages), Slots: uint64(s.slots), MaxModelLen: 400, Geometry: &ledgerv1.Geometry{
				BlockSize: 4, Windows: []uint32{0, 10}, StepsInFlight: 1, MaxBatchTokens: 24, PrefillsInStep: 3},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.worker = w
	dial := serveBuf(t, func(r *grpc.Server) { workerv1.RegisterWorkerServer(r, w) })
	conn, err := grpc.NewClient("passthrough:worker", dial...)
	if err != nil {
		t.Fatal(err)
	}
	c.client = workerv1.NewWorkerClient(conn)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the worker ended: %v", err)
		}
		conn.Close()
	})
	c.await("registration", func() bool { return w.Ready() == nil })
	watching := make(chan struct{})
	watch, stop := context.WithCancel(context.Background())
	go func() {
		defer close(watching)
		for watch.Err() == nil {
			c.watch(watch)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-watching
	})
	return c
}

// watch hears of the worker's cache until its incarnation ends.
func (c *cluster) watch(ctx context.Context) {
	e := c.worker.engine.Load()
	if e == nil {
		time.Sleep(time.Millisecond)
		return
	}
	s, err := c.client.Watch(ctx, &workerv1.WatchRequest{Incarnation: e.identity.session})
	if err != nil {
		return
	}
	c.mu.Lock()
	c.cacheSeq = 0
	c.mu.Unlock()
	for {
		m, err := s.Recv()
		if err != nil {
			return
		}
		if e := m.GetCache(); e != nil {
			c.hearCache(e)
		}
	}
}

func serveBuf(t *testing.T, register func(*grpc.Server)) []grpc.DialOption {
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	register(s)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
}

// await polls until ok says so; ten seconds are too long for anything here.
func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			c.t.Fatalf("waited too long for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (c *cluster) apply(p *ledgerv1.Proposal) *ledgerv1.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applyLocked(p)
}

func (c *cluster) applyLocked(p *ledgerv1.Proposal) *ledgerv1.Result {
	r := c.state.Apply(p)
	if err := c.state.Check(); err != nil {
		c.t.Error(err)
	}
	if r.GetRefusal() == nil {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	return r
}

func (c *cluster) openRouter() {
	r := c.apply(&ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_OpenRouter{OpenRouter: &ledgerv1.OpenRouter{
		Router: "r1", Nonce: []byte("nonce of router "), LeaseMs: 3_600_000}}}})
	c.router = r.GetOpened().Session
}

func (c *cluster) propose(cmd *ledgerv1.Command) *ledgerv1.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	return c.applyLocked(&ledgerv1.Proposal{Session: c.router, Sequence: c.seq, Acked: c.seq - 1, Command: cmd})
}

func (c *cluster) view() *ledger.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.View()
}

// Attach implements the router's side of a worker's line.
func (c *cluster) Attach(s grpc.BidiStreamingServer[workerv1.FromWorker, workerv1.ToWorker]) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	c.attached.Add(1)
	r := c.apply(&ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Register{Register: m.GetRegister()}}})
	var mu sync.Mutex // of s.Send
	send := func(m *workerv1.ToWorker) error {
		mu.Lock()
		defer mu.Unlock()
		return s.Send(m)
	}
	if err := send(&workerv1.ToWorker{Kind: &workerv1.ToWorker_Registered{Registered: r}}); err != nil || r.GetRefusal() != nil {
		return err
	}
	broken := make(chan struct{})
	c.mu.Lock()
	c.streams[broken] = true
	c.mu.Unlock()
	failed := make(chan error, 2)
	go func() { failed <- c.notify(r.GetOpened().Session, send, broken) }()
	go func() { failed <- c.hear(s, r.GetOpened().Session, send) }()
	select {
	case err := <-failed:
		return err
	case <-broken:
		return errors.New("broken")
	}
}

func (c *cluster) notify(session uint64, send func(*workerv1.ToWorker) error, broken chan struct{}) error {
	for {
		c.mu.Lock()
		n, changed := c.state.View().Notice(session), c.changed
		c.mu.Unlock()
		msg := &workerv1.Notice{Revision: n.Revision, Orphans: n.Orphans, Fenced: n.Fenced}
		for _, b := range n.Waiting {
			msg.Waiting = append(msg.Waiting, &ledgerv1.OrderKey{Index: b.Reservation, Branch: b.Branch})
		}
		for _, g := range n.Accounts {
			msg.Accounts = append(msg.Accounts, &workerv1.Grown{ShareGroup: g.ShareGroup, Pages: g.Pages})
		}
		if err := send(&workerv1.ToWorker{Kind: &workerv1.ToWorker_Notice{Notice: msg}}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-broken:
			return nil
		}
	}
}

func (c *cluster) hear(s grpc.BidiStreamingServer[workerv1.FromWorker, workerv1.ToWorker], session uint64, send func(*workerv1.ToWorker) error) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if m.GetRenewal() != nil {
			c.renewed.Add(1)
		}
		if m.GetRenewal() != nil && !c.silent.Load() {
			if err := send(&workerv1.ToWorker{Kind: &workerv1.ToWorker_Renewed{Renewed: &workerv1.Renewed{}}}); err != nil {
				return err
			}
		}
		if p := m.GetProposal(); p != nil {
			p.Session = session
			r := &workerv1.ProposalResult{Sequence: p.Sequence, Result: c.apply(p)}
			if err := send(&workerv1.ToWorker{Kind: &workerv1.ToWorker_Result{Result: r}}); err != nil {
				return err
			}
		}
	}
}

func (c *cluster) hearCache(e *workerv1.CacheEvents) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.Reset_ && e.Sequence != c.cacheSeq+1 {
		c.t.Errorf("cache events %d after %d", e.Sequence, c.cacheSeq)
	}
	c.cacheSeq = e.Sequence
	if e.Reset_ {
		clear(c.blocks)
	}
	for _, b := range e.Blocks {
		if b.Full {
			c.blocks[string(b.Hash)] = true
		} else {
			delete(c.blocks, string(b.Hash))
		}
	}
}

// breakStreams ends the worker's line; it comes back by itself.
func (c *cluster) breakStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		close(s)
		delete(c.streams, s)
	}
}

type ask struct {
	group  string
	prompt []int32
	max    int
}

// choices is an ask for several branches.
type choices struct {
	ask
	n int
}

// reserve admits a request as a router does: it waits while the ledger is busy.
func (c *cluster) reserve(a ask) *workerv1.GenerateRequest { return c.reserveAll(choices{a, 1}) }

// reserveAll admits a request with a branch for each choice.
func (c *cluster) reserveAll(a choices) *workerv1.GenerateRequest {
	for {
		c.mu.Lock()
		w, changed := c.state.View().Worker("w1"), c.changed
		c.mu.Unlock()
		slots, soon := min(a.n, int(w.Info.Slots)), len(a.prompt)+min(4, a.max)
		now := min(w.Geometry.Demand(soon).Pages+(slots-1)*w.Geometry.Fork(len(a.prompt), soon).Pages, int(w.Capacity))
		r := c.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Reserve{Reserve: &ledgerv1.Reserve{
			Worker: "w1", Incarnation: w.Incarnation, ShareGroup: a.group, Tenant: a.group, Pages: uint64(now), Slots: uint64(slots),
			Branches: uint32(a.n),
			PagesMax: uint64(w.Geometry.Demand(len(a.prompt) + a.max).Pages), PromptTokens: uint64(len(a.prompt)), MaxTokens: uint64(a.max),
		}}})
		if ok := r.GetReserved(); ok != nil {
			return &workerv1.GenerateRequest{
				Reservation: ok.Reservation, Incarnation: w.Incarnation, Attempt: 1, Key: ok.Key, ShareGroup: a.group,
				Pages: uint64(now), Prompt: a.prompt, MaxTokens: uint32(a.max), Sampling: &workerv1.Sampling{},
				Branches: uint32(a.n), Slots: uint32(slots),
			}
		}
		if r.GetRefusal().GetCode() != ledgerv1.RefusalCode_REFUSAL_CODE_BUSY {
			c.t.Errorf("reserve: %v", r)
			return nil
		}
		<-changed
	}
}

// answer is what a branch came to.
type answer struct {
	ids    []int32
	scores []*workerv1.Score
	finish *workerv1.Finished
}

// generate runs a request of one branch.
func (c *cluster) generate(ctx context.Context, r *workerv1.GenerateRequest, stopAfter int) (answer, error) {
	all, _, err := c.generateAll(ctx, r, stopAfter)
	return all[0], err
}

// generateAll runs a request, until its first branch has said stopAfter tokens if that is set.
func (c *cluster) generateAll(ctx context.Context, r *workerv1.GenerateRequest, stopAfter int) (all []answer, prompt []*workerv1.Score, err error) {
	all = make([]answer, max(1, r.Branches))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.client.Generate(ctx, r)
	if err != nil {
		return all, nil, err
	}
	for {
		m, err := s.Recv()
		if err == io.EOF {
			return all, prompt, nil
		}
		if err != nil {
			return all, prompt, err
		}
		if p := m.GetPromptScores(); p != nil {
			if int(p.Position) != len(prompt)+1 {
				c.t.Errorf("scores of the prompt at %d after %d", p.Position, len(prompt))
			}
			prompt = append(prompt, p.Scores...)
		}
		if tokens := m.GetTokens(); tokens != nil {
			a := &all[tokens.Branch]
			if int(tokens.Position) != len(a.ids) {
				c.t.Errorf("tokens at position %d after %d", tokens.Position, len(a.ids))
			}
			a.ids, a.scores = append(a.ids, tokens.Ids...), append(a.scores, tokens.Scores...)
			if stopAfter > 0 && tokens.Branch == 0 && len(a.ids) >= stopAfter {
				return all, prompt, nil
			}
		}
		if f := m.GetFinished(); f != nil {
			if all[f.Branch].finish != nil {
				c.t.Errorf("W6: branch %d has ended twice", f.Branch)
			}
			all[f.Branch].finish = f
		}
	}
}

// drained says that nothing is charged on the worker and nothing granted in the ledger.
func (c *cluster) drained() bool {
	w := c.view().Worker("w1")
	s := c.worker.Stats()
	return w.Granted == 0 && w.Reservations == 0 && len(w.Waiters) == 0 && s.Pages.Charged == 0 && s.Pages.Overhead == 0 && s.Granted == 0
}
