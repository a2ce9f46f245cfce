package consensus

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestVictim is the process that TestKill kills: it reserves for ever and prints each tick's digest once it is out.
func TestVictim(t *testing.T) {
	dir := os.Getenv("BERTH_VICTIM_DIR")
	if dir == "" {
		t.Skip("runs inside TestKill")
	}
	n := open(t, Config{Dir: dir, TickInterval: 5 * time.Millisecond, SnapshotThreshold: 1 << 20})
	s, err := n.OpenSession("r1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1<<30, 1<<30)
	printed := uint64(0)
	for {
		granted := do(t, s, reserve("w1", w, 1)).Revision
		for _, d := range n.Digests() {
			if d.Revision > printed {
				fmt.Printf("digest %d %x\n", d.Revision, d.Digest)
				printed = d.Revision
			}
		}
		fmt.Printf("granted %d\n", granted)
	}
}

// N2, N4: after kill -9, what was answered is there, and the replayed state is the same at each tick.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	victim := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.v")
	victim.Env = append(os.Environ(), "BERTH_VICTIM_DIR="+dir)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	digests := map[uint64]string{}
	answered := uint64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var revision uint64
		var digest string
		if k, _ := fmt.Sscanf(lines.Text(), "digest %d %s", &revision, &digest); k == 2 {
			digests[revision] = digest
		} else if k, _ := fmt.Sscanf(lines.Text(), "granted %d", &revision); k == 1 {
			answered = revision
		} else if strings.Contains(lines.Text(), "FAIL") {
			t.Fatal(lines.Text())
		}
		if len(digests) == 30 { // then what is still in the pipe
			_ = victim.Process.Kill()
		}
	}
	_ = victim.Wait() // killed
	n := open(t, Config{Dir: dir, TickInterval: time.Hour})
	if n.Revision() < answered {
		t.Errorf("N2: revision %d, %d was answered", n.Revision(), answered)
	}
	same := 0
	for _, d := range n.Digests() {
		want, known := digests[d.Revision]
		if known && want != hex.EncodeToString(d.Digest[:]) {
			t.Errorf("N4: another state at revision %d", d.Revision)
		}
		if known {
			same++
		}
	}
	if same < 20 {
		t.Errorf("%d digests could be compared", same)
	}
}
