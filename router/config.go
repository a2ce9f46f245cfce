package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/consensus/ledger"
)

// Ledger is the replica of the ledger that the router reads and that workers propose through; *consensus.Node is one.
type Ledger interface {
	Replica
	// Submit proposes without waiting, in the order of the calls; done is called once.
	Submit(p *ledgerv1.Proposal, done func(*ledgerv1.Result, error))
	// View is immutable.
	View() *ledger.View
	// Changed is closed when the view was replaced after the call.
	Changed() <-chan struct{}
	// Renew says that a session was heard from.
	Renew(session uint64)
	// Ready says why nothing can be committed, nil if it can.
	Ready() error
}

// Replica is what operators see of the ledger's replication, and change.
type Replica interface {
	Term() uint64
	Leader() (id string, self bool)
	Digests() []consensus.Digest
	Members() []consensus.Member
	Online(ctx context.Context) []string
	AddMember(ctx context.Context, p consensus.Peer) error
	RemoveMember(ctx context.Context, id string) error
}

// Session is the router's own client of the ledger; *consensus.Session is one.
type Session interface {
	// Do applies a command once. If ctx ends first, a reservation that comes of it is dropped.
	Do(ctx context.Context, command *ledgerv1.Command) (*ledgerv1.Result, error)
	// Drop gives a reservation up that its worker does not have, or may not have, without waiting. A worker that has it
	// after all ends it.
	Drop(reservation uint64)
}

// Config is what a router is made of. Zero values of bounds and times take the default named beside them.
type Config struct {
	ID      string // name of this replica
	Ledger  Ledger
	Session Session
	Dial    []grpc.DialOption // to workers
	Log     *slog.Logger      // zero: nothing
	Metrics http.Handler      // served as /metrics; nil: none

	// Tenants are put into the ledger if it never had any. With them nobody is served without a key, from the start.
	Tenants []*ledgerv1.Tenant

	Origins []string // of pages that may use the API, as scheme://host[:port]; "*": all
	Hosts   []string // names of this machine that requests over loopback may have while no key is asked for, beside localhost

	AdminToken     string // that a change through the admin API needs; empty: none
	AdminTokenFile string // where operators find it
	AdminReads     bool   // the token is needed to look, too
	Version        string // of the program, for /version

	QueueRequests int           // requests that may wait; 4096
	QueueTokens   int           // prompt tokens that may wait; 4194304
	QueueTimeout  time.Duration // longest wait before admission; 60 s
	ResumeTimeout time.Duration // longest wait for another worker once admitted; 60 s
	WriteTimeout  time.Duration // a client that takes nothing for as long is gone; 30 s
	KeepAlive     time.Duration // longest silence of a stream; 15 s
	ReadTimeout   time.Duration // longest wait for more of a body; 30 s
	MaxBodyBytes  int64         // of a request; 32 MiB
	BodiesBytes   int64         // of all bodies above 64 KiB that are being read or parsed; 128 MiB, at least two of MaxBodyBytes
	IndexBytes    int64         // of the prefix index; 64 MiB

	// Now tells the time of durations; zero: time.Now.
	Now func() time.Time
}

// Validate joins everything that is wrong with c.
func (c Config) Validate() error {
	var faults []error
	if c.ID == "" {
		faults = append(faults, errors.New("a router needs an id"))
	}
	if c.Ledger == nil || c.Session == nil {
		faults = append(faults, errors.New("a router needs a ledger and a session in it"))
	}
	for _, bound := range []struct {
		name  string
		value int64
	}{
		{"queue requests", int64(c.QueueRequests)}, {"queue tokens", int64(c.QueueTokens)},
		{"queue timeout", int64(c.QueueTimeout)}, {"resume timeout", int64(c.ResumeTimeout)},
		{"write timeout", int64(c.WriteTimeout)}, {"read timeout", int64(c.ReadTimeout)}, {"keep-alive", int64(c.KeepAlive)},
		{"body bytes", c.MaxBodyBytes}, {"bytes of all bodies", c.BodiesBytes}, {"index bytes", c.IndexBytes},
	} {
		if bound.value < 0 {
			faults = append(faults, fmt.Errorf("%s %d: want 0 for the default, or more", bound.name, bound.value))
		}
	}
	return errors.Join(faults...)
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	orDefault(&c.QueueRequests, 4096)
	orDefault(&c.QueueTokens, 4<<20)
	orDefault(&c.QueueTimeout, time.Minute)
	orDefault(&c.ResumeTimeout, time.Minute)
	orDefault(&c.WriteTimeout, 30*time.Second)
	orDefault(&c.KeepAlive, 15*time.Second)
	orDefault(&c.ReadTimeout, 30*time.Second)
	orDefault(&c.MaxBodyBytes, 32<<20)
	orDefault(&c.BodiesBytes, 128<<20)
	c.BodiesBytes = max(c.BodiesBytes, 2*(c.MaxBodyBytes+1)) // a tenant alone may have half
	orDefault(&c.IndexBytes, 64<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
