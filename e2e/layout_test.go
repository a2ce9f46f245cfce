//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// layout is the programs of a deployment, as its files start them, on addresses of loopback.
type layout struct {
	t     *testing.T
	dir   string
	hosts map[string]string // address by name
	args  map[string][]string
}

func newLayout(t *testing.T) *layout {
	return &layout{t: t, dir: t.TempDir(), hosts: map[string]string{}, args: map[string][]string{}}
}

// host gives a name an address of its own.
func (l *layout) host(name string) {
	l.hosts[name] = fmt.Sprintf("127.0.53.%d", len(l.hosts)+1)
}

var named = regexp.MustCompile(`[a-z][a-z0-9.-]*:\d`)

// local is a word of a deployment's files with what is here in the place of names, of every address, and of folders.
func (l *layout) local(name, word string) string {
	word = strings.NewReplacer("0.0.0.0:", l.hosts[name]+":", "127.0.0.1:", l.hosts[name]+":",
		"/models/model.gguf", tinyModel, "/srv/models/model.gguf", tinyModel, "/var/lib", filepath.Join(l.dir, name)).Replace(word)
	return named.ReplaceAllStringFunc(word, func(s string) string {
		at, port, _ := strings.Cut(s, ":")
		if address := l.hosts[at]; address != "" {
			at = address
		}
		return at + ":" + port
	})
}

// add is a program that name's host runs.
func (l *layout) add(name string, command ...string) {
	for i := range command {
		command[i] = l.local(name, command[i])
	}
	l.args[name] = command
}

// serves starts everything at once and asks each router.
func (l *layout) serves(routers ...string) {
	l.t.Helper()
	var started sync.WaitGroup
	var mu sync.Mutex
	running := map[string]*process{}
	for name, args := range l.args {
		started.Go(func() {
			p := spawn(l.t, name, args[0], append(args[1:], "--log-format", "text")...)
			mu.Lock()
			running[name] = p
			mu.Unlock()
		})
	}
	started.Wait()
	for _, name := range routers {
		c := &cluster{t: l.t, router: running[name], http: &http.Client{Timeout: time.Minute}}
		c.awaitReady(len(l.args) - len(routers))
		if _, err := c.complete(object{"model": "model-q8_0", "prompt": ids(5, 30), "max_tokens": 8}); err != nil {
			l.t.Errorf("through %s: %v", name, err)
		}
		c.awaitDrained()
		if m, err := c.members(); err != nil || len(m.Replicas) != len(routers) {
			l.t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func readYAML(t *testing.T, path string, each func(*yaml.Node)) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var n yaml.Node
		if d.Decode(&n) != nil {
			return
		}
		each(&n)
	}
}

func TestComposeLayout(t *testing.T) {
	l := newLayout(t)
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
		}
	}
	readYAML(t, "../deploy/compose.yaml", func(n *yaml.Node) {
		if err := n.Decode(&file); err != nil {
			t.Fatal(err)
		}
	})
	for name := range file.Services {
		l.host(name)
	}
	for name, s := range file.Services {
		for key, value := range s.Environment {
			flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(key, "BERTH_"), "_", "-"))
			s.Command = append(s.Command, flag, value)
		}
		for i, word := range s.Command {
			s.Command[i] = strings.ReplaceAll(word, "2GiB", "16MiB") // it is allocated
		}
		l.add(name, s.Command...)
	}
	l.serves("r1", "r2", "r3")
}

// pods are the first container of a workload, once for each of its replicas.
type pods struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Replicas int
		Template struct {
			Spec struct {
				Containers []struct{ Command, Args []string }
			}
		}
	}
}

func TestKubernetesLayout(t *testing.T) {
	l := newLayout(t)
	var all []pods
	for _, file := range []string{"routers.yaml", "workers-cpu.yaml"} {
		readYAML(t, "../deploy/k8s/"+file, func(n *yaml.Node) {
			var p pods
			if err := n.Decode(&p); err != nil {
				t.Fatal(err)
			}
			if p.Spec.Replicas > 0 {
				all = append(all, p)
			}
		})
	}
	var routers []string
	for _, p := range all {
		for i := range p.Spec.Replicas {
			name := fmt.Sprintf("%s-%d", p.Metadata.Name, i)
			l.host(name)
			l.hosts[name+".berth-routers"] = l.hosts[name]
			if p.Kind == "StatefulSet" {
				routers = append(routers, name)
			}
		}
	}
	for _, p := range all {
		c := p.Spec.Template.Spec.Containers[0]
		for i := range p.Spec.Replicas {
			name := fmt.Sprintf("%s-%d", p.Metadata.Name, i)
			var service []string // what the headless service resolves to
			for _, r := range routers {
				service = append(service, l.hosts[r]+":8081")
			}
			words := append(append([]string{}, c.Command...), c.Args...)
			for i := range words {
				words[i] = strings.NewReplacer("$(POD_NAME)", name, "$(POD_IP)", l.hosts[name], "dns:///berth-routers:8081",
					strings.Join(service, ","), "--kv-memory=4GiB", "--kv-memory=16MiB").Replace(words[i])
			}
			l.add(name, words...)
		}
	}
	l.serves(routers...)
}

func TestSystemdLayout(t *testing.T) {
	l := newLayout(t)
	hosts := []string{"r1", "r2", "r3", "w1"}
	for _, h := range hosts {
		l.host(h)
	}
	for _, h := range hosts {
		unit, config := "berth-router.service", "router.yaml"
		if h == "w1" {
			unit, config = "berth-worker@.service", "worker-0.yaml"
		}
		text, err := os.ReadFile("../deploy/systemd/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := os.ReadFile("../deploy/systemd/" + config)
		if err != nil {
			t.Fatal(err)
		}
		_, start, ok := strings.Cut(string(text), "ExecStart=/usr/local/bin/")
		if !ok {
			t.Fatalf("%s starts nothing", unit)
		}
		mine := filepath.Join(l.dir, h+".yaml")
		local := l.local(h, strings.Replace(string(settings), "id: r1", "id: "+h, 1))
		if err := os.WriteFile(mine, []byte(local), 0o600); err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(strings.ReplaceAll(start, "%i", "0"), "\n")
		l.add(h, strings.Fields(strings.ReplaceAll(line, "/etc/berth/"+config, mine))...)
	}
	l.serves("r1", "r2", "r3")
}
