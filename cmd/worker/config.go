package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/model/tokenizer"
)

type config struct {
	flags.Common
	ID             string        `help:"Worker name; another process that registers under it makes this one exit. Default: host name and rpc port."`
	Router         []string      `help:"gRPC addresses of routers, or dns:///name:port." default:"127.0.0.1:8081"`
	RPC            string        `name:"rpc" help:"Address of the gRPC server." default:"127.0.0.1:0"`
	HTTP           string        `name:"http" help:"Address of /healthz, /readyz and /metrics." default:"127.0.0.1:0"`
	Advertise      string        `help:"gRPC address given to others. Default: the bound one."`
	Model          string        `help:"A .gguf file, or a folder with config.json, safetensors and tokenizer.json." required:"" placeholder:"FILE|FOLDER"`
	ModelName      string        `help:"Name in the API. Default: the file's name." aliases:"served-model-name"`
	Alias          []string      `help:"Further names in the API."`
	ChatTemplate   string        `help:"A Jinja file, or the name of a built-in. Default: the model file's, else the built-in of its family." placeholder:"FILE|NAME"`
	Device         string        `help:"cpu (cuda needs a build with the cuda tag)." enum:"cpu,cuda" default:"cpu"`
	TP             int           `name:"tp" help:"Tensor-parallel ranks: parts of the model, each with pages and threads of its own. At most as many as the model has query heads." default:"1" aliases:"tensor-parallel-size"`
	Threads        int           `help:"CPU threads, all ranks together; a rank has one at least. Default: one for each processor."`
	KVMemory       memory        `name:"kv-memory" help:"Memory for KV pages, all ranks together: bytes such as 1GiB, or auto: the need of max-seqs × max-model-len, at most half of the machine's limit." default:"auto"`
	KVDtype        string        `name:"kv-dtype" help:"Element type of KV pages." enum:"f16,f32" default:"f16" aliases:"kv-cache-dtype"`
	WeightsDtype   string        `help:"file: compute with the file's quantised weights. f32: expand them all first, slow and exact." enum:"file,f32" default:"file"`
	BlockSize      int           `help:"Tokens of a page, a power of two ≥ 4." default:"16"`
	MaxBatchTokens int           `help:"Tokens of a step." default:"256" aliases:"max-num-batched-tokens"`
	MaxSeqs        int           `help:"Requests that run at once." default:"256" aliases:"max-num-seqs"`
	MaxModelLen    int           `help:"Tokens of one request, prompt and output. Default: the model's."`
	Speculate      int           `help:"Tokens that a greedy request guesses ahead in a step, from what it has said before, while few requests run: the same text in fewer steps. 0: none." default:"3" aliases:"num-speculative-tokens"`
	StepTimeout    time.Duration `help:"A step that runs longer takes readiness away, and the device is given up and opened anew; steps are planned to take an eighth of it at most." default:"30s"`
	DrainTimeout   time.Duration `help:"How long SIGTERM waits for running requests." default:"25s"`
	Lease          time.Duration `help:"How long the ledger waits for a word from this worker before it fences it." default:"3s"`
	OTLP           string        `name:"otlp" help:"OTLP/gRPC endpoint for traces, host:port."`
}

// memory is an amount, or auto.
type memory struct {
	auto  bool
	bytes flags.Bytes
}

func (m *memory) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		m.auto = true
		return nil
	}
	m.auto = false
	return m.bytes.UnmarshalText(text)
}

// prefillsInStep is how many prompts may be computed in part in one step.
const prefillsInStep = 8

// SizingError is a SIZ error of docs/errors: the worker cannot start with what it was told.
type SizingError struct{ ID, What string }

func (e *SizingError) Error() string { return e.ID + ": " + e.What }

// check refuses what this build cannot do.
func (c *config) check() error {
	var faults []error
	if c.Device != "cpu" {
		faults = append(faults, errors.New("--device cuda: this build has no CUDA device; use --device cpu"))
	}
	if c.TP < 1 {
		faults = append(faults, fmt.Errorf("--tp %d: want 1 or more", c.TP))
	}
	if c.Speculate < 0 || c.Speculate > 7 {
		faults = append(faults, fmt.Errorf("--speculate %d: want 0 to 7", c.Speculate))
	}
	if c.MaxSeqs < 1 || c.MaxBatchTokens < 1 || c.Lease < 100*time.Millisecond || c.StepTimeout <= 0 {
		faults = append(faults, errors.New("--max-seqs and --max-batch-tokens must be 1 or more, --lease 100ms or more, --step-timeout more than 0"))
	}
	if c.BlockSize < 4 || c.BlockSize&(c.BlockSize-1) != 0 || c.BlockSize > 256 {
		faults = append(faults, &SizingError{"SIZ-004", fmt.Sprintf("--block-size %d: want a power of two from 4 to 256", c.BlockSize)})
	}
	for _, r := range c.Router {
		faults = append(faults, flags.CheckAddress("--router", r, true))
	}
	if c.Advertise != "" {
		faults = append(faults, flags.CheckAddress("--advertise", c.Advertise, false))
	}
	if c.ID != "" {
		faults = append(faults, flags.CheckName("--id", c.ID))
	}
	return errors.Join(faults...)
}

func (c *config) threads() int {
	if c.Threads > 0 {
		return c.Threads
	}
	return runtime.NumCPU()
}

// modelLen is the longest request, of a model that has so many positions.
func (c *config) modelLen(positions int) (int, error) {
	if c.MaxModelLen > positions {
		return 0, &SizingError{"SIZ-003", fmt.Sprintf("--max-model-len %d: the model has %d positions: give that or less", c.MaxModelLen, positions)}
	}
	if c.MaxModelLen < 0 {
		return 0, &SizingError{"SIZ-003", fmt.Sprintf("--max-model-len %d: want 1 or more", c.MaxModelLen)}
	}
	return cmp.Or(c.MaxModelLen, positions), nil
}

// names are the model's in the API, its own first.
func (c *config) names() []string {
	name := c.ModelName
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(c.Model), ".gguf")
	}
	return append([]string{name}, c.Alias...)
}

// template is the source of the operator's chat template, empty for the model file's own.
func (c *config) template(m *model.Model) (string, error) {
	if c.ChatTemplate != "" {
		if source, err := tokenizer.Builtin(c.ChatTemplate); err == nil {
			return source, nil
		}
		raw, err := model.ReadTemplate(c.ChatTemplate)
		if err != nil {
			return "", fmt.Errorf("--chat-template: neither a file nor one of %s: %w", strings.Join(tokenizer.BuiltinNames(), ", "), err)
		}
		return string(raw), nil
	}
	if _, ok := m.String("tokenizer.chat_template"); !ok && strings.HasPrefix(m.Architecture, "gemma") {
		return tokenizer.Builtin("gemma")
	}
	return "", nil
}

// geometry is the shape of the worker's KV memory, without its size.
func (c *config) geometry(layout model.KVLayout) kvpool.Geometry {
	return kvpool.Geometry{
		BlockSize: c.BlockSize, Groups: layout.Groups, StepsInFlight: 1,
		MaxBatchTokens: c.MaxBatchTokens, PrefillsInStep: prefillsInStep,
	}
}

// pages is how many pages the KV memory holds, each on every rank.
func (c *config) pages(g kvpool.Geometry, pageBytes, modelLen int) (int, error) {
	least := g.Overhead() + g.Demand(c.BlockSize).Pages
	want := g.Overhead() + c.MaxSeqs*g.Demand(modelLen).Pages
	limit, err := memoryLimit()
	pages := int(c.KVMemory.bytes) / pageBytes
	switch {
	case c.KVMemory.auto && err != nil:
		return 0, fmt.Errorf("--kv-memory auto: %w; give bytes, such as --kv-memory 1GiB", err)
	case c.KVMemory.auto:
		pages = min(want, int(limit/2)/pageBytes)
	case err == nil && uint64(c.KVMemory.bytes) > limit:
		return 0, &SizingError{"SIZ-001", fmt.Sprintf("--kv-memory %v is more than the %v that this machine has to give",
			c.KVMemory.bytes, flags.Bytes(limit))}
	}
	if pages < least {
		return 0, &SizingError{"SIZ-002", fmt.Sprintf(
			"no room for KV: --kv-memory holds %d pages of %s, at least %d are needed (%d of overhead for steps of %d tokens, %d for one block of one request): give %s or more, or lower --max-batch-tokens",
			pages, flags.Bytes(pageBytes), least, g.Overhead(), c.MaxBatchTokens, least-g.Overhead(), flags.Bytes(least*pageBytes))}
	}
	return pages, nil
}
