// Command bench times Berth and llama.cpp on one model in turn, round by round, so that a machine whose speed drifts
// slows both, and prints medians, their ranges, and ratios as a table. Without --served it times Berth's CPU device
// beside llama.cpp's; with it, whole servers under load.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// cases are what both sides run, in the order of the table.
var cases = []string{"decode/batch=1", "decode/batch=8", "decode/batch=32", "prefill/tokens=512"}

// rates are tokens a second by case, one for each round.
type rates map[string][]float64

func main() {
	rounds := flag.Int("rounds", 5, "rounds; medians are printed")
	threads := flag.Int("threads", 2, "threads of both sides")
	llama := flag.String("llama", ".peers/bin", "folder of llama-bench and llama-batched-bench")
	model := flag.String("model", "", "model file")
	ours := flag.String("ours", "bin/backend.test", "Berth's benchmark, as go test -c ./backendtest makes it")
	served := flag.Bool("served", false, "time servers under load instead: bin/berth up and llama-server")
	only := flag.String("only", "", "with --served: the loads whose name starts with this")
	flag.Parse()
	err := error(nil)
	if *served {
		err = runServed(*rounds, *threads, *llama, *model, *only)
	} else {
		err = run(*rounds, *threads, *llama, *model, *ours)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds, threads int, llama, model, ours string) error {
	a, b := rates{}, rates{}
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
		if err := runOurs(a, ours, model, threads); err != nil {
			return err
		}
		if err := runBatched(b, llama, model, threads); err != nil {
			return err
		}
		if err := runPrefill(b, llama, model, threads); err != nil {
			return err
		}
	}
	fmt.Printf("| tok/s, %d threads, median of %d (least–most) | Berth | llama.cpp | ratio |\n| --- | --- | --- | --- |\n", threads, rounds)
	for _, c := range cases {
		if len(a[c]) != rounds || len(b[c]) != rounds {
			return fmt.Errorf("%s: %d and %d results of %d rounds", c, len(a[c]), len(b[c]), rounds)
		}
		fmt.Printf("| %s | %s | %s | **%.2f** |\n", c, show(a[c]), show(b[c]), median(a[c])/median(b[c]))
	}
	return nil
}

var benchLine = regexp.MustCompile(`(?m)^BenchmarkCPU/(\S+?)(?:-\d+)?\s.*?([0-9.]+) tok/s`)

func runOurs(into rates, bin, model string, threads int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	// The device takes as many threads as it may use processors.
	cmd := exec.Command("taskset", "-c", fmt.Sprintf("0-%d", threads-1), bin, "-test.run", "^$", "-test.bench", "^BenchmarkCPU$", "-test.benchtime", "3s")
	cmd.Dir = "backendtest"
	cmd.Env = append(os.Environ(), "BERTH_TEST_MODEL="+model)
	out, err := output(cmd)
	if err != nil {
		return err
	}
	for _, m := range benchLine.FindAllStringSubmatch(out, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		into[m[1]] = append(into[m[1]], v)
	}
	return nil
}

// runBatched reads the decode rates of llama-batched-bench: rows of a table, batch in column 3, S_TG in column 8.
func runBatched(into rates, llama, model string, threads int) error {
	t := strconv.Itoa(threads)
	out, err := output(exec.Command(filepath.Join(llama, "llama-batched-bench"), "-m", model, "-c", "16640", "-b", "2048", "-ub", "512",
		"-npp", "128", "-ntg", "128", "-npl", "1,8,32", "-t", t, "-tb", t, "-fa", "on"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		cells := strings.Split(line, "|")
		if len(cells) < 9 {
			continue
		}
		rate, err := strconv.ParseFloat(strings.TrimSpace(cells[8]), 64)
		if err != nil {
			continue // the head of the table
		}
		key := "decode/batch=" + strings.TrimSpace(cells[3])
		into[key] = append(into[key], rate)
	}
	return nil
}

func runPrefill(into rates, llama, model string, threads int) error {
	out, err := output(exec.Command(filepath.Join(llama, "llama-bench"), "-m", model, "-p", "512", "-n", "0", "-t", strconv.Itoa(threads),
		"-fa", "1", "-r", "2", "-o", "json"))
	if err != nil {
		return err
	}
	var result []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result) == 0 {
		return fmt.Errorf("llama-bench said %q: %w", out, err)
	}
	into["prefill/tokens=512"] = append(into["prefill/tokens=512"], result[0].Rate)
	return nil
}

func output(cmd *exec.Cmd) (string, error) {
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd.Path, err, errs.String())
	}
	return string(out), nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func show(v []float64) string {
	return fmt.Sprintf("%.1f (%.1f–%.1f)", median(v), slices.Min(v), slices.Max(v))
}
