package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// tapped listens to what the router and its workers say of requests.
func (c *cluster) tapped() grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := next(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, err
		}
		return &tap{ClientStream: s, cluster: c, worker: host(strings.TrimPrefix(cc.Target(), "passthrough:///"))}, nil
	})
}

// tap is one stream of the router to a worker.
type tap struct {
	grpc.ClientStream
	cluster *cluster
	worker  string
	request string
	place   *place
}

// SendMsg implements grpc.ClientStream.
func (t *tap) SendMsg(m any) error {
	if r, ok := m.(*workerv1.GenerateRequest); ok {
		t.request = r.RequestId
		if t.cluster.pages != nil {
			r.Pages = t.cluster.pages(r.Pages)
		}
		t.place = t.cluster.order.enter(r)
		t.cluster.story.add(t.cluster.now(), t.request, "to "+t.worker)
	}
	return t.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (t *tap) RecvMsg(m any) error {
	err := t.ClientStream.RecvMsg(m)
	if r, ok := m.(*workerv1.GenerateReply); ok && err == nil && r.GetFinished() != nil {
		f, c := r.GetFinished(), t.cluster
		c.story.count(int(f.Preemptions), int(f.CachedTokens))
		if c.order.finished(t.place, f) && !c.routerDies() {
			c.fail(fmt.Errorf("P2: %s was the first in order on %s, and let go %d times", t.request, t.worker, f.Preemptions))
		}
	}
	return err
}

// routerDies says that a router begins that knows nothing of what workers still have of the one before it.
func (c *cluster) routerDies() bool {
	return slices.ContainsFunc(c.Faults, func(f Fault) bool { return f.Host == routerName && f.Kind == Kill })
}
