package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/berthd/berth/cmd/flags"
)

// maxRestarts is how many workers that end by themselves are started again, in all: more have a cause that stays.
const maxRestarts = 10

type upCommand struct {
	Model       string        `help:"A known model (${models}), fetched if it is not here, or a .gguf file." default:"gemma3-270m"`
	Workers     int           `help:"Worker processes." default:"1"`
	KVMemory    flags.Bytes   `name:"kv-memory" help:"Memory for KV pages, all workers together." default:"512MiB"`
	Threads     int           `help:"CPU threads, all workers together. Default: one for each processor."`
	TP          int           `name:"tp" help:"Tensor-parallel ranks of each worker." default:"1"`
	MaxModelLen int           `help:"Tokens of one request, prompt and output. Default: the model's."`
	HTTP        string        `name:"http" help:"Address of the OpenAI API." default:"127.0.0.1:8080"`
	RPC         string        `name:"rpc" help:"Address for workers." default:"127.0.0.1:8081"`
	Admin       string        `help:"Address of the admin API." default:"127.0.0.1:8082"`
	Raft        string        `help:"Address of the ledger's transport." default:"127.0.0.1:8083"`
	Open        bool          `help:"Serve without tenants on an address that is not loopback."`
	Tenants     string        `help:"YAML file of the tenants that the cluster begins with; nobody is served without a key then." type:"existingfile" placeholder:"FILE"`
	CORSOrigins []string      `name:"cors-origins" help:"Origins whose pages may use the API." placeholder:"ORIGIN,..."`
	Traces      string        `help:"Address that berth trace asks." default:"127.0.0.1:8084"`
	Data        string        `help:"Folder for the ledger and the logs." default:"./data/up"`
	ReadyIn     time.Duration `help:"How long to wait for everything to be ready." default:"2m"`
	Pip         string        `help:"The pip to fetch models with." default:"python3 -m pip"`
}

// Run starts everything, waits until it is ready, and stops everything when interrupted.
func (c *upCommand) Run(ctx context.Context, common *flags.Common) (err error) {
	runtime.LockOSThread() // children end with the thread that started them: it must be there as long as the program
	if c.Workers < 1 {
		return &flags.UsageError{Err: errors.New("--workers must be 1 or more")}
	}
	path, name, err := c.model(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Data, 0o755); err != nil {
		return err
	}
	traces, err := serveTraces(c.Traces)
	if err != nil {
		return err
	}
	defer traces.close()
	group := &processes{log: c.Data, level: common.LogLevel.String()}
	children.Store(group)
	defer func() { err = errors.Join(err, c.stop(group)) }()
	if err := group.start("router", "router", c.routerArgs(traces.otlp)...); err != nil {
		return err
	}
	workers := map[string][]string{} // their arguments
	for i := range c.Workers {
		worker := fmt.Sprintf("worker%d", i+1)
		workers[worker] = c.workerArgs(i, path, name, traces.otlp)
		if err := group.start(worker, "worker", workers[worker]...); err != nil {
			return err
		}
	}
	if err := c.await(ctx, group); err != nil {
		return err
	}
	fmt.Printf("ready: %s on %d worker(s) at http://%s/v1 (logs in %s; Ctrl-C stops everything)\n", name, c.Workers, c.HTTP, c.Data)
	if err := common.WriteAddrs(map[string]string{"http": c.HTTP, "admin": c.Admin, "rpc": c.RPC, "traces": c.Traces, "model": name}); err != nil {
		return err
	}
	return c.watch(ctx, group, workers)
}

// watch starts workers that end by themselves again, until it is interrupted or the router ends.
func (c *upCommand) watch(ctx context.Context, group *processes, workers map[string][]string) error {
	for restarts := 0; ; restarts++ {
		select {
		case <-ctx.Done():
			return nil
		case name := <-group.died():
			log := filepath.Join(c.Data, name+".log")
			if workers[name] == nil || restarts == maxRestarts {
				return fmt.Errorf("%s ended by itself; see %s", name, log)
			}
			fmt.Printf("%s ended by itself (see %s) and is started again\n", name, log)
			if err := group.start(name, "worker", workers[name]...); err != nil {
				return err
			}
		}
	}
}

func (c *upCommand) model(ctx context.Context) (path, name string, err error) {
	if _, ok := models[c.Model]; ok {
		path, err = pull(ctx, c.Model, c.Pip, os.Stderr)
		return path, c.Model, err
	}
	if _, err := os.Stat(c.Model); err != nil {
		return "", "", &flags.UsageError{Err: fmt.Errorf("--model: neither a known model (%s) nor a file: %w", modelNames(), err)}
	}
	return c.Model, strings.TrimSuffix(filepath.Base(c.Model), ".gguf"), nil
}

func (c *upCommand) routerArgs(otlp string) []string {
	args := []string{"--id", "r1", "--http", c.HTTP, "--rpc", c.RPC, "--admin", c.Admin, "--raft", c.Raft,
		"--data", filepath.Join(c.Data, "router"), "--otlp", otlp}
	if c.Open {
		args = append(args, "--open")
	}
	if c.Tenants != "" {
		args = append(args, "--tenants", c.Tenants)
	}
	if len(c.CORSOrigins) > 0 {
		args = append(args, "--cors-origins", strings.Join(c.CORSOrigins, ","))
	}
	return args
}

// stop ends everything, and says what it waits for.
func (c *upCommand) stop(group *processes) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var state clusterState
	running := 0
	if getJSON(ctx, "http://"+c.Admin+"/admin/v1/cluster", &state) == nil {
		for _, w := range state.Workers {
			running += w.Running
		}
	}
	if running > 0 {
		fmt.Printf("stopping: waiting for %d running requests (Ctrl-C again ends everything at once)\n", running)
	} else {
		fmt.Println("stopping")
	}
	return group.stop(30 * time.Second)
}

func (c *upCommand) workerArgs(i int, path, name, otlp string) []string {
	threads := c.Threads
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	share := max(1, (threads+c.Workers-1-i)/c.Workers)
	args := []string{"--id", fmt.Sprintf("w%d", i+1), "--router", c.RPC, "--model", path, "--model-name", name,
		"--kv-memory", fmt.Sprint(uint64(c.KVMemory) / uint64(c.Workers)), "--threads", fmt.Sprint(share),
		"--tp", fmt.Sprint(c.TP), "--otlp", otlp}
	if c.MaxModelLen > 0 {
		args = append(args, "--max-model-len", fmt.Sprint(c.MaxModelLen))
	}
	return args
}

// await polls until the router takes work and all workers have registered.
func (c *upCommand) await(ctx context.Context, group *processes) error {
	deadline := time.After(c.ReadyIn)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("the router does not answer")
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case name := <-group.died():
			return fmt.Errorf("%s did not start: %s", name, group.lastWords(name))
		case <-deadline:
			return fmt.Errorf("not ready in %v: %w; logs are in %s", c.ReadyIn, last, c.Data)
		case <-tick.C:
			var state clusterState
			if last = getJSON(ctx, "http://"+c.Admin+"/admin/v1/cluster", &state); last == nil {
				if n := state.ready(); n >= c.Workers {
					return nil
				} else {
					last = fmt.Errorf("%d of %d workers are ready", n, c.Workers)
				}
			}
		}
	}
}

type traceServer struct {
	otlp string
	grpc *grpc.Server
	web  *http.Server
}

// serveTraces starts the OTLP receiver on a free port and its look-up on addr.
func serveTraces(addr string) (*traceServer, error) {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	web, err := net.Listen("tcp", addr)
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("--traces: %w", err)
	}
	r := newReceiver()
	mux := http.NewServeMux()
	mux.Handle("GET /traces/{request}", r)
	s := &traceServer{otlp: in.Addr().String(), grpc: grpc.NewServer(), web: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
	collectorv1.RegisterTraceServiceServer(s.grpc, r)
	go s.grpc.Serve(in)
	go s.web.Serve(web)
	return s, nil
}

func (s *traceServer) close() {
	s.grpc.Stop()
	s.web.Close()
}
