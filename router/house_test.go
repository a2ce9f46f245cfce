package router

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/model/tokenizer"
)

const tinyModel = "../testdata/golden/tiny/gemma3/model-q8_0.gguf"

// tinyCard is the card of the tiny model, with the built-in template.
var tinyCard = sync.OnceValue(func() *workerv1.Card {
	f, err := model.OpenFile(tinyModel)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	t := &workerv1.Tokenizer{Bos: -1, Eos: -1, Unknown: -1, Padding: -1}
	t.Kind, _ = f.String("tokenizer.ggml.model")
	t.Tokens, _ = f.Strings("tokenizer.ggml.tokens")
	t.Scores, _ = f.Floats("tokenizer.ggml.scores")
	types, _ := f.Ints("tokenizer.ggml.token_type")
	for _, v := range types {
		t.Types = append(t.Types, byte(v))
	}
	for key, id := range map[string]*int32{"bos": &t.Bos, "eos": &t.Eos, "unknown": &t.Unknown} {
		if v, ok := f.Uint("tokenizer.ggml." + key + "_token_id"); ok {
			*id = int32(v)
		}
	}
	t.AddBos, _ = f.Bool("tokenizer.ggml.add_bos_token")
	t.AddSpacePrefix, _ = f.Bool("tokenizer.ggml.add_space_prefix")
	t.End = []int32{t.Eos}
	template, err := tokenizer.Builtin("gemma")
	if err != nil {
		panic(err)
	}
	return &workerv1.Card{Tokenizer: t, ChatTemplate: template}
})

func marshalCard(t testing.TB, c *workerv1.Card) ([]byte, [32]byte) {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data, sha256.Sum256(data)
}

var testCard = sync.OnceValue(func() *card {
	data, err := proto.Marshal(tinyCard())
	if err != nil {
		panic(err)
	}
	k, err := readCard(data)
	if err != nil {
		panic(err)
	}
	return k
})

// house is a router with a ledger on disk, and the network between it and its workers.
type house struct {
	t      *testing.T
	node   *consensus.Node
	router *Router
	http   *httptest.Server
	admin  *httptest.Server

	mu   sync.Mutex
	nets map[string]*bufconn.Listener
}

// listen opens an address of the test's network.
func (h *house) listen(address string, register func(*grpc.Server)) *grpc.Server {
	l := bufconn.Listen(1 << 20)
	h.mu.Lock()
	h.nets[address] = l
	h.mu.Unlock()
	s := grpc.NewServer()
	register(s)
	go s.Serve(l)
	return s
}

func (h *house) dial() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			h.mu.Lock()
			l := h.nets[address]
			h.mu.Unlock()
			if l == nil {
				return nil, &net.OpError{Op: "dial", Err: os.ErrNotExist}
			}
			return l.DialContext(ctx)
		}),
	}
}

// open starts a house without workers.
func open(t *testing.T, edit func(*Config)) *house {
	t.Helper()
	h := &house{t: t, nets: map[string]*bufconn.Listener{}}
	var err error
	h.node, err = consensus.Open(consensus.Config{ID: "r1", Dir: t.TempDir(), TickInterval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	session, err := h.node.OpenSession("r1", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		ID: "r1", Ledger: h.node, Session: session, Dial: h.dial(),
		QueueTimeout: 20 * time.Second, ResumeTimeout: 5 * time.Second,
	}
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if edit != nil {
		edit(&c)
	}
	if h.router, err = New(c); err != nil {
		t.Fatal(err)
	}
	rpc := h.listen("router", func(s *grpc.Server) { h.router.RegisterRPC(s) })
	h.http = httptest.NewServer(h.router.Handler())
	h.admin = httptest.NewServer(h.router.AdminHandler())
	ran := make(chan error, 1)
	go func() { ran <- h.router.Run(context.Background()) }()
	h.await("the ledger", func() bool { return h.node.Ready() == nil })
	t.Cleanup(func() {
		h.http.Close()
		h.admin.Close()
		if err := h.router.Close(); err != nil {
			t.Error(err)
		}
		<-ran
		rpc.Stop()
		session.Close()
		if err := h.node.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// await polls until ok says so; ten seconds are too long for anything here.
func (h *house) await(what string, ok func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("waited too long for %s", what)
		}
	}
}

// response is an HTTP answer.
type response struct {
	status int
	header http.Header
	body   string
}

func (r response) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		t.Fatalf("%v in %q", err, r.body)
	}
	return m
}

// fault is the error's id and param.
func (r response) fault(t *testing.T) (id, param string) {
	t.Helper()
	e, _ := r.json(t)["error"].(map[string]any)
	b, _ := e["berth"].(map[string]any)
	id, _ = b["id"].(string)
	param, _ = e["param"].(string)
	return id, param
}

func (h *house) do(method, path, body string, header ...string) response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.http.URL+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := h.http.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Errorf("%s %s: %v after %q", method, path, err, data)
	}
	return response{res.StatusCode, res.Header, string(data)}
}

func (h *house) post(path, body string) response { h.t.Helper(); return h.do("POST", path, body) }

// sse are the events of a stream.
func (r response) sse(t *testing.T) (events []map[string]any, done bool) {
	t.Helper()
	for part := range strings.SplitSeq(strings.TrimSuffix(r.body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(part, "data: ")
		if !ok || done {
			t.Fatalf("%q is no event, or comes after the end", part)
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var m map[string]any
		if err := json.NewDecoder(bytes.NewReader([]byte(data))).Decode(&m); err != nil {
			t.Fatalf("%v in %q", err, data)
		}
		events = append(events, m)
	}
	return events, done
}

func copyAll(to *strings.Builder, from io.Reader) (int64, error) { return io.Copy(to, from) }

func itoa(n int) string { return strconv.Itoa(n) }
