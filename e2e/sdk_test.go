//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/berthd/berth/backendtest"
)

// TestPythonClient has the official Python client list models, complete, chat, stream with usage, and be refused.
func TestPythonClient(t *testing.T) {
	python := "../.venv/bin/python"
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: run `make setup` first", err)
	}
	c := startCluster(t)
	c.addWorker("w1", backendtest.RealModelPath(t), "--kv-memory", "256MiB", "--alias", "alias")
	out, err := exec.CommandContext(t.Context(), python, "python/sdk.py", "http://"+c.router.addrs["http"]+"/v1", "m").CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	c.awaitDrained()
}
