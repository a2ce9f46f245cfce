package berth_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module       = "github.com/berthd/berth/"
	maxFileLines = 600
	maxFuncLines = 70
)

// layers is the import ladder: a package imports only from rungs below its own, or what also names.
var layers = []struct {
	rung     int
	prefixes []string
}{
	{0, []string{"kvpool", "api", "telemetry"}},
	{1, []string{"relief", "consensus/ledger", "model"}},
	{2, []string{"consensus", "cpu", "cuda", "transfer"}},
	{3, []string{"worker", "router"}},
	{4, []string{"sim", "backendtest"}},
	{5, []string{"cmd", "tools", "e2e"}},
}

// inside are imports inside one rung that are allowed.
var inside = map[string][]string{
	"cmd": {"cmd/flags"}, "model/sampler": {"model"}, "model/tokenizer": {"model/tokenizer/jinja"},
}

// never are imports that the ladder would allow.
var never = map[string][]string{
	"router": {"worker"}, "worker": {"router", "consensus"}, "cpu": {"consensus"}, "transfer": {"consensus"},
}

// owners are the packages that alone may import an outside library.
var owners = map[string][]string{
	"github.com/hashicorp/":                        {"consensus"},
	"go.etcd.io/etcd":                              {"consensus"},
	"gorgonia.org/cu":                              {"cuda"},
	"github.com/NVIDIA/go-nvml":                    {"cuda"},
	"github.com/alecthomas/kong":                   {"cmd"},
	"go.yaml.in/yaml":                              {"cmd", "e2e"},
	"go.opentelemetry.io/otel/sdk":                 {"telemetry"},
	"go.opentelemetry.io/otel/exporters":           {"telemetry"},
	"github.com/prometheus/client_golang":          {"telemetry"},
	"github.com/prometheus/common":                 {"cmd"},
	"github.com/bufbuild/protocompile":             {"tools"},
	"github.com/go-json-experiment/json":           {"router"},
	"github.com/schollz/progressbar":               {"cmd"},
	"go.opentelemetry.io/proto/otlp":               {"cmd"},
	"go.opentelemetry.io/otel/trace":               {"telemetry", "traced.go"},
	"go.opentelemetry.io/otel/metric":              {"telemetry", "traced.go"},
	"golang.org/x/sys":                             {"cpu", "model", "cmd"},
	"golang.org/x/term":                            {"cmd"},
	"google.golang.org/grpc":                       {"api", "consensus", "worker", "router", "transfer", "telemetry", "sim", "cmd", "e2e"},
	"go.opentelemetry.io/contrib/instrumentation/": {},
}

// pure packages touch no clock, socket, lock, file or logger.
var (
	pure   = []string{"kvpool", "relief", "consensus/ledger"}
	impure = []string{"time", "net", "os", "sync", "log", "log/slog", "math/rand", "math/rand/v2"}
)

type source struct {
	path, dir string
	raw       []byte
	file      *ast.File
	fset      *token.FileSet
}

// sources are the Go files that are not generated and not test data.
func sources(t *testing.T) (files []source, other []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "data" || nested(path)) {
			return filepath.SkipDir
		}
		switch filepath.Ext(name) {
		case ".c", ".h", ".cu", ".cuh", ".cpp":
			other = append(other, path)
		case ".go":
			if strings.HasSuffix(name, ".pb.go") {
				return nil
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, raw, parser.ParseComments)
			if err != nil {
				return err
			}
			files = append(files, source{path, filepath.ToSlash(filepath.Dir(path)), raw, file, fset})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, other
}

// nested says that a folder is a Go module of its own.
func nested(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func TestSizes(t *testing.T) {
	files, other := sources(t)
	for _, f := range files {
		if n := bytes.Count(f.raw, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d are allowed: is there a second noun in it?", f.path, n, maxFileLines)
		}
		for _, d := range f.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lo, hi := f.fset.Position(fn.Pos()), f.fset.Position(fn.End())
			if n := hi.Line - lo.Line + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, at most %d are allowed", lo, fn.Name.Name, n, maxFuncLines)
			}
		}
	}
	for _, path := range other {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(raw, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d are allowed", path, n, maxFileLines)
		}
	}
}

func TestPackageDocs(t *testing.T) {
	files, _ := sources(t)
	documented, packages := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		if !strings.HasSuffix(f.path, "_test.go") {
			packages[f.dir] = true
			documented[f.dir] = documented[f.dir] || f.file.Doc != nil
		}
	}
	for dir := range packages {
		if !documented[dir] {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

func TestImports(t *testing.T) {
	files, _ := sources(t)
	for _, f := range files {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, spec := range f.file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if ours, ok := strings.CutPrefix(path, module); ok {
				checkLadder(t, f, ours)
			}
			checkOwner(t, f, path)
			if slices.Contains(pure, f.dir) && slices.Contains(impure, path) {
				t.Errorf("%s imports %s, but %s is pure", f.path, path, f.dir)
			}
		}
	}
}

func checkLadder(t *testing.T, f source, ours string) {
	from, to := rung(f.dir), rung(ours)
	switch {
	case from < 0 || to < 0:
		t.Errorf("%s imports %s: one of them has no place on the ladder", f.path, ours)
	case under(ours, never[top(f.dir)]...):
		t.Errorf("%s must never import %s", f.path, ours)
	case to < from, under(ours, inside[f.dir]...), under(ours, inside[top(f.dir)]...):
	default:
		t.Errorf("%s imports %s, which is not below it", f.path, ours)
	}
}

func checkOwner(t *testing.T, f source, path string) {
	for lib, own := range owners {
		if strings.HasPrefix(path, lib) && !under(f.dir, own...) && !slices.Contains(own, filepath.Base(f.path)) {
			t.Errorf("%s imports %s, which belongs to %v", f.path, path, own)
		}
	}
}

func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

func under(dir string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return dir == p || strings.HasPrefix(dir, p+"/") })
}

// rung is a package's place on the ladder by its longest known prefix, −1 if it has none.
func rung(dir string) int {
	at, longest := -1, 0
	for _, l := range layers {
		for _, p := range l.prefixes {
			if under(dir, p) && len(p) > longest {
				at, longest = l.rung, len(p)
			}
		}
	}
	return at
}
