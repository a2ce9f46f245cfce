//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/backendtest"
)

// TestClients has the official clients of OpenAI's API do what their users do: sdk.py lists models, completes, chats,
// streams with usage, and is refused; sampling.py and openaigo go through the sampling API.
func TestClients(t *testing.T) {
	python := "../.venv/bin/python"
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: run `make setup` first", err)
	}
	openaigo := filepath.Join(t.TempDir(), "openaigo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", openaigo, ".")
	build.Dir = "openaigo"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := startCluster(t)
	c.addWorker("w1", backendtest.RealModelPath(t), "--kv-memory", "256MiB", "--alias", "alias")
	for _, client := range [][]string{{python, "python/sdk.py"}, {python, "python/sampling.py"}, {openaigo}} {
		t.Run(filepath.Base(client[len(client)-1]), func(t *testing.T) {
			args := append(client[1:], "http://"+c.router.addrs["http"]+"/v1", "m")
			out, err := exec.CommandContext(t.Context(), client[0], args...).CombinedOutput()
			if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
			c.awaitDrained()
		})
	}
}
