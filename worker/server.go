package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model"
)

// maxBranches is how many branches a request may have.
const maxBranches = 1024

// cardPiece is the bytes of a card in one message.
const cardPiece = 1 << 20

// Card implements worker.v1.Worker.
func (w *Worker) Card(_ *workerv1.CardRequest, stream grpc.ServerStreamingServer[workerv1.CardPiece]) error {
	data, err := marshalCard(w.cfg.Card)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	for len(data) > 0 {
		n := min(cardPiece, len(data))
		if err := stream.Send(&workerv1.CardPiece{Data: data[:n]}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Watch implements worker.v1.Worker.
func (w *Worker) Watch(r *workerv1.WatchRequest, stream grpc.ServerStreamingServer[workerv1.Watched]) error {
	e := w.engine.Load()
	if e == nil || e.identity.session != r.Incarnation {
		return status.Errorf(codes.Unavailable, "incarnation %d does not run here", r.Incarnation)
	}
	began := make(chan *watcher, 1)
	err := e.mail.call(func(e *engine) {
		v := newWatcher(e.pool)
		e.audience = append(e.audience, v)
		began <- v
	})
	if err != nil {
		return rpcError(err)
	}
	var v *watcher
	select {
	case v = <-began:
	case <-e.done:
		return rpcError(ErrFenced)
	}
	defer e.mail.put(func(e *engine) { // or it has ended
		e.audience = slices.DeleteFunc(e.audience, func(x *watcher) bool { return x == v })
	})
	return rpcError(w.narrate(e, v, stream))
}

// narrate sends a router what it watches, until it leaves or the incarnation ends.
func (w *Worker) narrate(e *engine, v *watcher, stream grpc.ServerStreamingServer[workerv1.Watched]) error {
	tick := time.NewTicker(min(w.cfg.Lease/3, time.Second))
	defer tick.Stop()
	for beat := true; ; {
		events, due := v.pending()
		if beat || due {
			if err := stream.Send(&workerv1.Watched{Kind: &workerv1.Watched_Heartbeat{Heartbeat: w.heartbeat()}}); err != nil {
				return err
			}
		}
		for _, c := range events {
			if err := stream.Send(&workerv1.Watched{Kind: &workerv1.Watched_Cache{Cache: c}}); err != nil {
				return err
			}
		}
		beat = false
		select {
		case <-v.wake:
		case <-tick.C:
			beat = true
		case <-e.done:
			return ErrFenced
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Generate implements worker.v1.Worker.
func (w *Worker) Generate(r *workerv1.GenerateRequest, stream grpc.ServerStreamingServer[workerv1.GenerateReply]) error {
	if err := w.validate(r); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	e := w.engine.Load()
	if e == nil {
		return status.Error(codes.Unavailable, "the worker is not registered")
	}
	q := newRequest(r)
	if err := e.take(stream.Context(), q); err != nil {
		return rpcError(err)
	}
	ctx, span := w.traceGenerate(stream.Context(), r)
	err := relay(stream, e, q)
	if err != nil {
		e.mail.put(func(e *engine) { e.cancel(q) })
	}
	w.traceEnd(ctx, span, q, q.out.last(e.done), err)
	return rpcError(err)
}

// Stop implements worker.v1.Worker.
func (w *Worker) Stop(_ context.Context, r *workerv1.StopRequest) (*workerv1.StopReply, error) {
	e := w.engine.Load()
	if e == nil || e.identity.session != r.Incarnation {
		return &workerv1.StopReply{}, nil // what it names has ended with its incarnation
	}
	err := e.mail.call(func(e *engine) { e.stop(r.Reservation, int(r.Branch)) })
	if errors.Is(err, ErrFenced) {
		err = nil
	}
	return &workerv1.StopReply{}, rpcError(err)
}

// take hands the request to the engine and waits for its word.
func (e *engine) take(ctx context.Context, q *request) error {
	answer := make(chan error, 1)
	err := e.mail.call(func(e *engine) {
		if ctx.Err() != nil {
			answer <- ctx.Err() // its router left while a step ran, and gives the reservation up
			return
		}
		answer <- e.admit(q)
	})
	if err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-e.done:
		return ErrFenced
	}
}

// rpcError is the table of the package's errors to gRPC codes.
func rpcError(err error) error {
	var refused *RefusedError
	var fatal *FatalStepError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, ErrFenced):
		return status.Error(codes.Aborted, err.Error())
	case errors.As(err, &fatal):
		s := status.New(codes.Aborted, err.Error())
		if with, e := s.WithDetails(&workerv1.FatalStep{Steps: uint32(fatal.Steps)}); e == nil {
			s = with
		}
		return s.Err()
	case errors.Is(err, errCrowded):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// validate refuses what the engine could not run. Routers have checked all of it for their clients already.
func (w *Worker) validate(r *workerv1.GenerateRequest) error {
	s := r.GetSampling()
	if len(r.Prompt) == 0 || uint64(len(r.Prompt))+uint64(r.MaxTokens) > w.cfg.Info.MaxModelLen {
		return errors.New("the prompt must have a token, and be within the model's length together with max_tokens")
	}
	if r.Pages > w.cfg.Info.Pages || uint64(r.Slots) > w.cfg.Info.Slots {
		return errors.New("the reservation's pages or slots are more than the worker has")
	}
	if r.Branches > maxBranches || max(r.Scoring.GetTop(), r.PromptScoring.GetTop()) > model.MaxTop {
		return fmt.Errorf("at most %d branches and the %d likeliest tokens can be asked for", maxBranches, model.MaxTop)
	}
	bad := func(id int32) bool { return id < 0 || int(id) >= w.cfg.Vocab }
	for _, ids := range [][]int32{r.Prompt, r.StopIds} {
		for _, id := range ids {
			if bad(id) {
				return errors.New("an id is outside the vocabulary")
			}
		}
	}
	for id, v := range s.GetLogitBias() {
		if bad(id) || !finite(v) {
			return errors.New("a logit bias is outside the vocabulary or not finite")
		}
	}
	for _, v := range []float32{s.GetTemperature(), s.GetTopP(), s.GetMinP(), s.GetRepetitionPenalty(),
		s.GetPresencePenalty(), s.GetFrequencyPenalty()} {
		if !finite(v) {
			return errors.New("a sampling parameter is not finite")
		}
	}
	if s.GetTopP() < 0 || s.GetTopP() > 1 || s.GetMinP() < 0 || s.GetMinP() > 1 {
		return errors.New("top_p and min_p must be from 0 to 1")
	}
	if s.GetTemperature() < 0 || s.GetRepetitionPenalty() < 0 || s.GetTopK() < 0 {
		return errors.New("temperature, repetition_penalty and top_k must not be negative")
	}
	return nil
}

func finite(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
