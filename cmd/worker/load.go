package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/cpu"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/worker"
)

// loaded is a model on its device, and what the cluster is told of it.
type loaded struct {
	device *cpu.Device
	config cpu.Config
	path   string
	vocab  int
	card   *workerv1.Card
	info   *ledgerv1.WorkerInfo
}

// loadUntil loads the model unless ctx ends first: nothing in between looks at it, and the process may end at any time.
func loadUntil(ctx context.Context, c *config, log *slog.Logger) (l *loaded, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if fault := model.Guard(c.Model, func() { l, err = load(c, log) }); fault != nil {
			err = startUp(fault)
		}
	}()
	select {
	case <-done:
		return l, err
	case <-ctx.Done():
		return nil, errStopped
	}
}

// errStopped says that the worker was told to stop before it served.
var errStopped = errors.New("stopped while the model was loaded")

// load opens the model file, sizes the KV memory, and moves the weights to the device; the file is closed again.
func load(c *config, log *slog.Logger) (*loaded, error) {
	began := time.Now()
	m, err := model.Open(c.Model)
	if err != nil {
		return nil, startUp(err)
	}
	defer m.Close()
	modelLen, err := c.modelLen(m.Context)
	if err != nil {
		return nil, startUp(err)
	}
	if _, err := m.Shares(c.TP); err != nil {
		return nil, startUp(&SizingError{"SIZ-003", fmt.Sprintf("--tp %d: %v", c.TP, err)})
	}
	layout := m.RankLayout(c.TP)
	g := c.geometry(layout)
	pageBytes := c.TP * layout.PageBytes(c.BlockSize, map[string]int{"f16": 2, "f32": 4}[c.KVDtype])
	pages, err := c.pages(g, pageBytes, modelLen)
	if err != nil {
		return nil, startUp(err)
	}
	template, err := c.template(m)
	if err != nil {
		return nil, &flags.UsageError{Err: err}
	}
	card := worker.NewCard(m.File, template)
	if err := worker.CheckCard(card); err != nil {
		return nil, &flags.UsageError{Err: fmt.Errorf("WGT-001: %s: %w", c.Model, err)}
	}
	fingerprint, err := worker.Fingerprint(card)
	if err != nil {
		return nil, &flags.UsageError{Err: fmt.Errorf("WGT-001: %s: tokenizer or chat template: %w", c.Model, err)}
	}
	config := cpu.Config{
		Threads: c.threads(), Pages: pages, BlockSize: c.BlockSize, KV: c.KVDtype, MaxBatchTokens: c.MaxBatchTokens,
		MaxRows: min(c.MaxSeqs, c.MaxBatchTokens), Dequantise: c.WeightsDtype == "f32", Ranks: c.TP,
	}
	device, err := cpu.Open(m, config)
	if err != nil {
		return nil, startUp(err)
	}
	if err := probe(device, len(layout.Groups), c.Model); err != nil {
		return nil, startUp(errors.Join(err, device.Close()))
	}
	revision := m.Revision()
	log.Info("model loaded", "seconds", time.Since(began).Seconds(), "numerics", device.Numerics(),
		"pages", pages, "page_bytes", pageBytes, "max_model_len", modelLen)
	return &loaded{device: device, config: config, path: c.Model, vocab: m.Vocab, card: card, info: &ledgerv1.WorkerInfo{
		Address: c.Advertise, Models: c.names(), ModelRevision: revision[:], Numerics: device.Numerics(),
		Layout: fmt.Sprintf("%s block %d", c.KVDtype, c.BlockSize), Geometry: geometryMessage(g), Pages: uint64(pages),
		Slots: uint64(min(c.MaxSeqs, c.MaxBatchTokens)), MaxModelLen: uint64(modelLen), Card: fingerprint, Device: c.Device, Tp: uint32(c.TP),
	}}, nil
}

// reopen gives up the device, which has a step that does not end, and opens another on the same weights.
func (l *loaded) reopen() (d worker.Device, err error) {
	l.device.Abandon()
	if fault := model.Guard(l.path, func() { d, err = l.open() }); fault != nil {
		return nil, fault
	}
	return d, err
}

func (l *loaded) open() (worker.Device, error) {
	m, err := model.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if revision := m.Revision(); !bytes.Equal(revision[:], l.info.ModelRevision) {
		return nil, fmt.Errorf("WGT-001: %s: holds other weights than when the worker started", l.path)
	}
	device, err := cpu.Open(m, l.config)
	if err != nil {
		return nil, err
	}
	l.device = device
	return device, nil
}

// probe runs a first step of one token, on the first pages: a model whose logits are no numbers would answer nothing.
func probe(d worker.Device, groups int, path string) error {
	tables := make([][]kvpool.PageID, groups)
	for g := range tables {
		tables[g] = []kvpool.PageID{kvpool.PageID(g)}
	}
	row := model.Row{Tokens: []int32{0}, Pages: tables, Outputs: 1, Sampling: &model.Sampling{}}
	if err := d.Submit(&model.Plan{Rows: []model.Row{row}}); err != nil {
		return fmt.Errorf("a first step: %w", err)
	}
	r, err := d.Wait()
	if err != nil {
		return fmt.Errorf("a first step: %w", err)
	}
	if r.IDs[0] < 0 {
		return &model.WeightsError{File: path, Offset: -1, What: "the model's logits are no numbers: some of its weights are none"}
	}
	return nil
}

// startUp makes what is wrong with the file or the sizes a matter of usage.
func startUp(err error) error {
	var weights *model.WeightsError
	var sizing *SizingError
	if errors.As(err, &weights) {
		return &flags.UsageError{Err: fmt.Errorf("WGT-001: %w", err)}
	}
	if errors.As(err, &sizing) || errors.Is(err, fs.ErrNotExist) {
		return &flags.UsageError{Err: err}
	}
	return err
}

func geometryMessage(g kvpool.Geometry) *ledgerv1.Geometry {
	out := &ledgerv1.Geometry{
		BlockSize: uint32(g.BlockSize), StepsInFlight: uint32(g.StepsInFlight),
		MaxBatchTokens: uint32(g.MaxBatchTokens), PrefillsInStep: uint32(g.PrefillsInStep),
	}
	for _, lg := range g.Groups {
		out.Windows = append(out.Windows, uint32(lg.Window))
	}
	return out
}
