package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A folder is a checkpoint as Hugging Face's transformers writes it: config.json, model.safetensors or its shards,
// tokenizer.json, and beside them tokenizer_config.json, generation_config.json and chat_template.jinja where there
// are.
//
//	config.json, tokenizer.json ─▶ keys under GGUF's names ─┐
//	*.safetensors, mapped ─▶ tensors under GGUF's names ────┴▶ File, as from a GGUF file of the same weights
//
// Where GGUF stores weights otherwise than transformers (1 added to Gemma's norms, Llama 3's rope factors as a tensor),
// the folder's tensors are brought to the same form; the rows of q and k already stand in the model's order.
type folder struct {
	dir  string
	file *File
	maps [][]byte
	err  *WeightsError // the first fault sticks
}

// openFolder maps and checks a folder. Faults of its files are *WeightsError.
func openFolder(dir string) (*File, error) {
	f := &folder{dir: dir, file: &File{path: dir, keys: map[string]value{}, natural: true}}
	f.file.unmap = f.unmap
	err := f.read()
	if err == nil && f.err != nil {
		err = f.err
	}
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", errors.Join(err, f.unmap()))
	}
	return f.file, nil
}

func (f *folder) unmap() error {
	var faults []error
	for _, b := range f.maps {
		faults = append(faults, unmapBytes(b))
	}
	f.maps = nil
	return errors.Join(faults...)
}

// read fills the File. What it returns itself are faults of the system: a file that is absent, or cannot be read.
func (f *folder) read() error {
	var config map[string]json.RawMessage
	if err := f.json("config.json", &config); err != nil {
		return err
	}
	c := &configReader{folder: f, fields: config}
	kind := c.checkpoint()
	if f.err != nil {
		return nil
	}
	if err := f.weights(kind); err != nil {
		return err
	}
	if f.err == nil {
		c.translate(kind)
	}
	if f.err == nil {
		return f.tokenizer(config)
	}
	return nil
}

func (f *folder) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = &WeightsError{File: filepath.Join(f.dir, name), Offset: -1, What: fmt.Sprintf(format, args...)}
	}
}

// json reads a file of the folder. A fault of its text is f.err.
func (f *folder) json(name string, into any) error {
	path := filepath.Join(f.dir, name)
	raw, err := readRegular(path, maxText)
	if fault := (*WeightsError)(nil); errors.As(err, &fault) {
		f.err = cmp.Or(f.err, fault)
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil && f.err == nil {
		f.err = jsonFault(path, 0, err)
	}
	return nil
}

// optional is json for a file that may be absent.
func (f *folder) optional(name string, into any) error {
	err := f.json(name, into)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// jsonFault is a fault of a text that starts at a byte of the file.
func jsonFault(path string, at int64, err error) *WeightsError {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at += syntax.Offset
	case errors.As(err, &typ):
		at += typ.Offset
	}
	return &WeightsError{File: path, Offset: at, What: err.Error()}
}

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// weights maps the tensors, names them as GGUF does, and puts them in name order.
func (f *folder) weights(kind checkpoint) error {
	_, err := os.Stat(filepath.Join(f.dir, singleFile))
	if err == nil {
		if _, err = f.shard(singleFile); err != nil {
			return err
		}
	} else if err := f.shards(); err != nil {
		return err
	}
	f.rename(kind)
	return nil
}

// shards maps every file of the index, and checks that each has what the index says of it.
func (f *folder) shards() error {
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := f.json(indexFile, &index); err != nil || f.err != nil {
		return err
	}
	found := map[string]map[string]bool{}
	for _, name := range slices.Sorted(maps.Values(index.Files)) {
		if found[name] != nil {
			continue
		}
		if filepath.Base(name) != name || !filepath.IsLocal(name) {
			f.fail(indexFile, "weight_map names %.64q, which is no file beside it", name)
			return nil
		}
		list, err := f.shard(name)
		if errors.Is(err, fs.ErrNotExist) {
			f.fail(indexFile, "weight_map names %.64q: no such file", name)
			return nil
		}
		if err != nil || f.err != nil {
			return err
		}
		found[name] = list
	}
	for tensor, name := range index.Files {
		if !found[name][tensor] {
			f.fail(indexFile, "tensor %.64q is not in %.64q", tensor, name)
		}
	}
	if len(index.Files) == 0 {
		f.fail(indexFile, "weight_map is absent or empty")
	}
	return nil
}

// shard maps one file and takes its tensors; it returns their names.
func (f *folder) shard(name string) (map[string]bool, error) {
	path := filepath.Join(f.dir, name)
	b, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f.maps = append(f.maps, b)
	entries, fault := parseSafetensors(path, b)
	names := map[string]bool{}
	for i := range entries {
		if fault != nil {
			break
		}
		names[entries[i].name] = true
		var t Tensor
		t, fault = entries[i].tensor(path)
		f.file.tensors = append(f.file.tensors, t)
	}
	if f.err == nil {
		f.err = fault
	}
	return names, nil
}

// order sorts the tensors by name and refuses two of one name.
func (f *folder) order() {
	list := f.file.tensors
	slices.SortFunc(list, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(list); i++ {
		if list[i-1].Name == list[i].Name {
			f.fail("", "two tensors are named %.64q", list[i].Name)
		}
	}
}
