package router

import (
	"fmt"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berthd/berth/consensus"
)

// replicas are three nodes of one ledger on loopback; ready, a follower first.
func replicas(t *testing.T) (nodes []*consensus.Node) {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	dial := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	var peers []consensus.Peer
	var doors []net.Listener
	for i := range 3 {
		raft, rpc := listen(), listen()
		peers = append(peers, consensus.Peer{ID: fmt.Sprint("r", i), Raft: raft.Addr().String(), RPC: rpc.Addr().String()})
		raft.Close() // the node binds it
		doors = append(doors, rpc)
	}
	for i, p := range peers {
		n, err := consensus.Open(consensus.Config{ID: p.ID, Dir: t.TempDir(), Bind: p.Raft, Peers: peers, Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		n.RegisterRPC(s)
		go s.Serve(doors[i])
		t.Cleanup(func() {
			n.Close()
			s.Stop()
		})
		nodes = append(nodes, n)
	}
	h := &house{t: t}
	h.await("a quorum", func() bool { return nodes[0].Ready() == nil && nodes[1].Ready() == nil && nodes[2].Ready() == nil })
	if _, leads := nodes[0].Leader(); leads {
		nodes[0], nodes[1] = nodes[1], nodes[0]
	}
	return nodes
}

// What operators change at a router whose replica follows is carried out by the leader, and holds at every router.
func TestTenantsThroughAFollower(t *testing.T) {
	var houses []*house
	for i, n := range replicas(t)[:2] {
		session, err := n.OpenSession(fmt.Sprint("r", i), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(session.Close)
		h := &house{t: t, node: n}
		if h.router, err = New(Config{ID: fmt.Sprint("r", i), Ledger: n, Session: session}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.router.Close() })
		h.http, h.admin = httptest.NewServer(h.router.Handler()), httptest.NewServer(h.router.AdminHandler())
		t.Cleanup(h.http.Close)
		t.Cleanup(h.admin.Close)
		houses = append(houses, h)
	}
	follower, other := houses[0], houses[1]
	follower.tenant("red", `,"weight":2`)
	other.await("the tenant at the leader", func() bool { return other.node.View().Tenant("red") != nil })
	for _, h := range houses {
		if r := h.do("GET", "/v1/models", "", bearer("red")...); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := h.do("GET", "/v1/models", ""); r.status != 401 {
			t.Errorf("without a key: %d", r.status)
		}
	}
	other.tenant("red", `,"weight":5`)
	if r := follower.manage("DELETE", "/admin/v1/tenants/red", ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	other.await("its end at the leader", func() bool { return other.node.View().Tenant("red") == nil })
}
