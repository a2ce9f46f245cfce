package router

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model/tokenizer"
)

const (
	// maxCardBytes bounds what a worker can make the router read.
	maxCardBytes = 64 << 20
	// cardTimeout is how long a worker has to send its card.
	cardTimeout = 15 * time.Second
	// cardPatience is how long equal workers wait for one of them to send their card before the next one is asked.
	cardPatience = 2 * time.Second
	// keptCards is how many cards are remembered, those in use not counted.
	keptCards = 2
)

// card is what turns text into a model's tokens and back. It never changes.
type card struct {
	print         string // fingerprint
	tok           *tokenizer.Tokenizer
	template      *tokenizer.Template // nil: chats are refused
	partsAsIs     bool                // the template reads lists of parts itself
	end           []int32             // ids that end a generation
	templateFault string              // why there is no template
}

// fingerprint is what clients know the card by.
func (k *card) fingerprint() string { return fmt.Sprintf("fp_%.10x", k.print) }

// catalog remembers cards by fingerprint.
type catalog struct {
	mu    sync.Mutex
	cards map[string]*card
	order []string         // oldest first
	turns map[string]*turn // by fingerprint, while its card is fetched: equal workers are asked one after the other
}

// turn is a fetch under way.
type turn struct {
	began time.Time
	over  chan struct{} // closed when it has ended, or another one has taken its place
}

// take begins a fetch, unless a younger one than cardPatience is under way: that one is given.
func (c *catalog) take(print string) (t *turn, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.turns[print]; t != nil {
		if time.Since(t.began) < cardPatience {
			return t, false
		}
		close(t.over)
	}
	t = &turn{began: time.Now(), over: make(chan struct{})}
	c.turns[print] = t
	return t, true
}

// end takes a turn back, unless another one has its place.
func (c *catalog) end(print string, t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns[print] == t {
		c.endLocked(print)
	}
}

func (c *catalog) endLocked(print string) {
	if t := c.turns[print]; t != nil {
		delete(c.turns, print)
		close(t.over)
	}
}

func (c *catalog) get(print string) *card {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cards[print]
}

// put remembers a card, ends the wait for it, and forgets the oldest of those that nobody uses.
func (c *catalog) put(k *card, used map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(k.print)
	if c.cards[k.print] == nil {
		c.order = append(c.order, k.print)
	}
	c.cards[k.print] = k
	spare := 0
	for i := len(c.order) - 1; i >= 0; i-- {
		if used[c.order[i]] || c.order[i] == k.print {
			continue
		}
		if spare++; spare > keptCards {
			delete(c.cards, c.order[i])
			c.order = append(c.order[:i], c.order[i+1:]...)
		}
	}
}

// fetchCard asks a worker for its card and checks that it is the one that the worker registered.
func fetchCard(ctx context.Context, client workerv1.WorkerClient, print []byte) (*card, error) {
	ctx, cancel := context.WithTimeout(ctx, cardTimeout)
	defer cancel()
	stream, err := client.Card(ctx, &workerv1.CardRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for the card: %w", err)
	}
	var data []byte
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the card: %w", err)
		}
		if len(data)+len(piece.Data) > maxCardBytes {
			return nil, fmt.Errorf("the card has more than %d bytes", maxCardBytes)
		}
		data = append(data, piece.Data...)
	}
	if sum := sha256.Sum256(data); string(sum[:]) != string(print) {
		return nil, fmt.Errorf("the card's SHA-256 %x is not the registered %x: restart the worker", sum, print)
	}
	return readCard(data)
}

// readCard builds a card from its marshalled form.
func readCard(data []byte) (*card, error) {
	var m workerv1.Card
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("decode the card: %w", err)
	}
	sum := sha256.Sum256(data)
	spec := tokenizer.SpecOf(m.GetTokenizer())
	tok, err := tokenizer.New(spec)
	if err != nil {
		return nil, fmt.Errorf("build the tokenizer: %w", err)
	}
	k := &card{print: string(sum[:]), tok: tok, end: spec.End}
	k.template, err = newTemplate(m.ChatTemplate, tok)
	if err != nil {
		k.templateFault = err.Error()
	}
	k.partsAsIs = readsParts.MatchString(m.ChatTemplate)
	return k, nil
}

// readsParts finds templates that go through the parts of a message's content; the others want a string.
var readsParts = regexp.MustCompile(`in\s+(message|msg|m)(\.content|\[['"]content['"]\])`)

var errNoTemplate = errors.New(
	"the model has no chat template: start its workers with --chat-template, or use /v1/completions")

func newTemplate(source string, tok *tokenizer.Tokenizer) (*tokenizer.Template, error) {
	if source == "" {
		return nil, errNoTemplate
	}
	piece := func(id int32) string {
		if id < 0 {
			return ""
		}
		return tok.Piece(id)
	}
	t, err := tokenizer.NewTemplate(source, piece(tok.Spec().BOS), piece(tok.Spec().EOS))
	if err != nil {
		return nil, fmt.Errorf("the model's chat template cannot be used, start its workers with --chat-template: %w", err)
	}
	return t, nil
}

// librarian gets a card for every member that has none, until ctx ends. It is Run's loop.
func (r *Router) librarian(ctx context.Context) {
	var fetches sync.WaitGroup
	defer fetches.Wait()
	begun := map[*member]bool{}
	for {
		heard := r.bell.heard()
		bare := r.members.bare()
		still := map[*member]bool{}
		for _, m := range bare {
			still[m] = true
			if !begun[m] {
				fetches.Go(func() { r.obtain(ctx, m) })
			}
		}
		begun = still
		select {
		case <-heard:
		case <-ctx.Done():
			return
		}
	}
}

// obtain gets a member its card, trying again until its stream is replaced or gone.
func (r *Router) obtain(ctx context.Context, m *member) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel()
		select {
		case <-m.left:
		case <-ctx.Done():
		}
	})
	defer watch.Wait()
	defer cancel()
	for pause := 50 * time.Millisecond; r.members.holds(m); pause = min(2*pause, 5*time.Second) {
		k, err := r.cardOf(ctx, m)
		if err == nil {
			r.members.change(m, func(m *member) { m.card = k })
			r.cfg.Log.Info("model served", "worker", m.name, "models", m.info.GetModels())
			return
		}
		if ctx.Err() != nil {
			return
		}
		r.cfg.Log.Warn("no card", "worker", m.name, "error", err.Error())
		r.members.change(m, func(m *member) { m.cardFault = err.Error() })
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// cardOf is the card of a member: one that is here, one that an equal worker sends meanwhile, or its own.
func (r *Router) cardOf(ctx context.Context, m *member) (*card, error) {
	print := string(m.info.GetCard())
	for {
		if k := r.catalog.get(print); k != nil {
			return k, nil
		}
		t, mine := r.catalog.take(print)
		if mine {
			defer r.catalog.end(print, t)
			break
		}
		select {
		case <-t.over:
		case <-time.After(cardPatience - time.Since(t.began)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, release, err := r.conns.use(m.info.GetAddress())
	if err != nil {
		return nil, err
	}
	defer release()
	k, err := fetchCard(ctx, workerv1.NewWorkerClient(conn), m.info.GetCard())
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, o := range r.members.snapshot() {
		if o.card != nil {
			used[o.card.print] = true
		}
	}
	r.catalog.put(k, used)
	return k, nil
}
