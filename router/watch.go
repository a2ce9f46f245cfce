package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

const (
	// watchPause is between two tries to reach a worker, at first; it doubles up to maxWatchPause.
	watchPause    = 50 * time.Millisecond
	maxWatchPause = time.Second
	// watchSilence is how long a worker may say nothing: it has a heartbeat at least once a second.
	watchSilence = 5 * time.Second
)

// living is an incarnation that the ledger knows.
type living struct {
	name        string
	incarnation uint64
}

// scout watches every incarnation that lives, whichever router it is attached to, until ctx ends.
func (r *Router) scout(ctx context.Context) {
	watched := map[living]context.CancelFunc{}
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		changed := r.cfg.Ledger.Changed()
		alive := map[living]bool{}
		for _, w := range r.cfg.Ledger.View().Workers {
			at := living{w.Name, w.Incarnation}
			if w.Incarnation == 0 {
				continue
			}
			alive[at] = true
			if watched[at] == nil {
				watch, cancel := context.WithCancel(ctx)
				watched[at] = cancel
				watches.Go(func() { r.watch(watch, at, w.Info) })
			}
		}
		for at, cancel := range watched {
			if !alive[at] || ctx.Err() != nil {
				cancel()
				delete(watched, at)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, cancel := range watched {
				cancel()
			}
			return
		}
	}
}

// watch keeps a stream from one incarnation, until ctx ends.
func (r *Router) watch(ctx context.Context, at living, info *ledgerv1.WorkerInfo) {
	address := info.GetAddress()
	defer r.members.forget(at)
	said := ""
	for pause := watchPause; ctx.Err() == nil; {
		began := r.cfg.Now()
		err := r.watchOnce(ctx, at, info)
		if ctx.Err() != nil {
			return
		}
		why := fmt.Sprintf("no stream from %s: %s", address, status.Convert(err).Message())
		r.members.lost(at, why)
		if r.cfg.Now().Sub(began) > maxWatchPause || why != said { // it was watched meanwhile, or there is another reason
			r.cfg.Log.Warn("worker not watched", "worker", at.name, "incarnation", at.incarnation, "address", address, "error", err.Error())
		}
		said = why
		if r.cfg.Now().Sub(began) > maxWatchPause {
			pause = watchPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxWatchPause)
	}
}

var errSilent = fmt.Errorf("it has said nothing for %v", watchSilence)

// watchOnce is one stream: the worker is a member from its first word on.
func (r *Router) watchOnce(ctx context.Context, at living, info *ledgerv1.WorkerInfo) error {
	conn, release, err := r.conns.use(info.GetAddress())
	if err != nil {
		return err
	}
	defer release()
	conn.ResetConnectBackoff()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(watchSilence, func() { cancel(errSilent) })
	defer silent.Stop()
	stream, err := workerv1.NewWorkerClient(conn).Watch(ctx, &workerv1.WatchRequest{Incarnation: at.incarnation})
	if err != nil {
		return err
	}
	hear := func() (*workerv1.Watched, error) {
		w, err := stream.Recv()
		if err != nil && context.Cause(ctx) == errSilent { //nolint:errorlint // the very same error
			return nil, errSilent
		}
		silent.Reset(watchSilence)
		return w, err
	}
	first, err := hear()
	if err != nil {
		return err
	}
	if first.GetHeartbeat() == nil {
		return errors.New("the worker does not begin with a heartbeat")
	}
	m := &member{name: at.name, incarnation: at.incarnation, info: info, beat: first.GetHeartbeat(), left: make(chan struct{})}
	blocks := r.prefixes.open(m.name)
	r.members.join(m)
	r.cfg.Log.Info("worker watched", "worker", m.name, "incarnation", m.incarnation)
	defer func() {
		r.prefixes.forget(blocks)
		r.members.leave(m)
	}()
	for told := uint64(0); ; {
		w, err := hear()
		if err != nil {
			return err
		}
		switch k := w.Kind.(type) {
		case *workerv1.Watched_Heartbeat:
			r.members.hear(m, k.Heartbeat)
		case *workerv1.Watched_Cache:
			if told, err = r.prefixes.hear(blocks, told, k.Cache); err != nil {
				return err
			}
		}
	}
}

// hear takes cache events, of which those up to told are known, and gives the last one known now. After a gap nothing is
// true any more until the worker has told everything again (R6): the stream ends, and the next begins with that.
func (p *prefixes) hear(b *blocks, told uint64, e *workerv1.CacheEvents) (uint64, error) {
	switch {
	case e.Reset_:
		p.clear(b)
	case e.Sequence <= told:
		return told, nil // a repeat: what came later has been heard
	case told == 0 || e.Sequence != told+1:
		return 0, fmt.Errorf("cache events are missing: %d after %d", e.Sequence, told)
	}
	if !p.apply(b, e.Blocks) {
		return 0, errors.New("a block's name has 16 bytes")
	}
	return e.Sequence, nil
}
