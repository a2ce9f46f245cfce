//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// prometheus scrapes a cluster, with the alerts of deploy/ but without the time that they wait for.
type prometheus struct {
	t  *testing.T
	at string
}

func startPrometheus(t *testing.T, routers, workers []string) *prometheus {
	t.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Fatal("prometheus is missing: apt-get install prometheus")
	}
	dir, at := t.TempDir(), freePorts(t, 1)[0]
	rules, err := os.ReadFile("../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [alerts.yaml]
scrape_configs:
  - {job_name: berth-router, static_configs: [{targets: [%s]}]}
  - {job_name: berth-worker, static_configs: [{targets: [%s]}]}
`, strings.Join(routers, ", "), strings.Join(workers, ", "))
	for name, text := range map[string]string{
		"prometheus.yaml": config, "alerts.yaml": regexp.MustCompile(`for: \w+`).ReplaceAllString(string(rules), "for: 0s"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", dir,
		"--web.listen-address", at, "--log.level", "error")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &prometheus{t, at}
}

// firing are the names of the alerts that fire.
func (p *prometheus) firing() (names []string, err error) {
	resp, err := http.Get("http://" + p.at + "/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (p *prometheus) await(names ...string) {
	p.t.Helper()
	await(p.t, fmt.Sprint(names, " to fire"), time.Minute, func() error {
		got, err := p.firing()
		for _, name := range names {
			if err == nil && !slices.Contains(got, name) {
				err = fmt.Errorf("only %v do", got)
			}
		}
		return err
	})
}

func (p *prometheus) awaitCalm() {
	p.t.Helper()
	await(p.t, "calm", time.Minute, func() error {
		got, err := p.firing()
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("%v fire", got)
		}
		return err
	})
}

// Each alert of deploy/ fires when what it is about happens to real processes, and none in a calm cluster.
func TestAlertsFire(t *testing.T) {
	r := startReplicas(t, 3, "--queue-requests", "4")
	at := freePorts(t, 1)[0]
	var routers, rpcs []string
	for i, p := range r.all {
		routers = append(routers, p.addrs["http"])
		_, addresses, _ := strings.Cut(r.peers[i], "/")
		rpcs = append(rpcs, addresses)
	}
	worker := func() *process {
		return spawn(t, "w1", "worker", "--id", "w1", "--router", strings.Join(rpcs, ","), "--http", at, "--model", tinyModel,
			"--model-name", "m", "--lease", "1s", "--kv-memory", "16MiB", "--max-seqs", "1")
	}
	w := worker()
	r.awaitReady(1)
	p := startPrometheus(t, routers, []string{at})
	await(t, "scrapes", time.Minute, func() error {
		_, err := p.firing()
		return err
	})
	p.awaitCalm()
	checkMetrics(t, routers[0])
	checkMetrics(t, at)

	w.kill()
	p.await("BerthWorkerDown", "BerthNoWorker")
	w = worker()
	r.awaitReady(1)
	p.awaitCalm()

	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range uint64(24) { // into a queue of 4
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.post(t.Context(), "/v1/completions", greedyModel(ids(i, 20), 50))
				}
			}
		})
	}
	p.await("BerthQueueFull")
	close(stop)
	clients.Wait()

	r.all[2].kill()
	p.await("BerthRouterDown", "BerthReplicaBehind")
	r.all[1].kill()
	p.await("BerthNoQuorum")
}

// checkMetrics has promtool look at what a program serves as metrics.
func checkMetrics(t *testing.T, at string) {
	t.Helper()
	resp, err := http.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = resp.Body
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics of %s: %v\n%s", at, err, out)
	}
}

// An operator sees a router that ends and starts again, as one on a disk that fails does.
func TestRestartsAlert(t *testing.T) {
	c := startCluster(t)
	addrs := c.router.addrs
	p := startPrometheus(t, []string{addrs["http"]}, nil)
	for range 5 {
		scraped := time.Now()
		await(t, "two scrapes", time.Minute, func() error {
			resp, err := http.Get("http://" + p.at + "/api/v1/query?query=timestamp(up%7Bjob=%22berth-router%22%7D==1)")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			var answer struct {
				Data struct{ Result []struct{ Value []any } }
			}
			if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
				return err
			}
			if len(answer.Data.Result) == 0 || time.Since(scraped) < 2*time.Second {
				return errors.New("none since the start")
			}
			return nil
		})
		c.restartRouter()
	}
	p.await("BerthRouterRestarts")
}
