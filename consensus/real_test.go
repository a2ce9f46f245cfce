package consensus

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// realPeers are three replicas' names, with ports of loopback that are free.
func realPeers(t testing.TB) (peers []Peer) {
	for i := range 3 {
		var free [2]string
		for k := range free {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			free[k] = l.Addr().String()
		}
		peers = append(peers, Peer{ID: fmt.Sprintf("n%d", i), Raft: free[0], RPC: free[1]})
	}
	return peers
}

// realNodes runs them on disks; stop ends them.
func realNodes(t testing.TB, peers []Peer, dirs [3]string) (nodes []*Node, stop func()) {
	return realNodesOn(t, peers, dirs, [3]files{realFiles(), realFiles(), realFiles()})
}

func realNodesOn(t testing.TB, peers []Peer, dirs [3]string, disks [3]files) (nodes []*Node, stop func()) {
	var stops []func()
	for i, p := range peers {
		door, err := net.Listen("tcp", p.RPC)
		if err != nil {
			t.Fatal(err)
		}
		n, err := openOn(Config{ID: p.ID, Dir: dirs[i], Bind: p.Raft, Peers: peers,
			Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}}, disks[i])
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		n.RegisterRPC(s)
		var served sync.WaitGroup
		served.Go(func() { _ = s.Serve(door) })
		stops = append(stops, func() {
			if err := n.Close(); err != nil && n.seat.writes.failed() == nil {
				t.Error(err)
			}
			s.Stop()
			served.Wait()
		})
		nodes = append(nodes, n)
	}
	return nodes, sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
	})
}
