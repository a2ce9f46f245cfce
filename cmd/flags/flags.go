// Package flags reads what Berth's programs are told: --flag on the command line, else BERTH_FLAG in the environment,
// else the flag's name as a key of --config file.yaml, else the default.
package flags

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v4"
)

// Common are the flags that every program has.
type Common struct {
	Config    string           `help:"YAML file with flags by name." type:"existingfile" placeholder:"FILE"`
	LogFormat string           `help:"Form of the log on stderr: json or text." enum:"json,text" default:"json"`
	LogLevel  slog.Level       `help:"Least level that is logged: debug, info, warn or error." default:"info"`
	AddrFile  string           `help:"Write the bound addresses to this file, as JSON, once ready." placeholder:"FILE"`
	Version   kong.VersionFlag `help:"Print the version."`
}

// Exit codes of all programs.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// UsageError ends a program with exit code 2: what it was told cannot be.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Parse fills cli from args, environment and file. It exits on --help, --version and wrong usage.
func Parse(cli any, description string, args []string, vars kong.Vars) *kong.Context {
	file, err := fromFile(configFile(args), flagNames(cli, vars))
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(ExitUsage)
	}
	description += "\n\nEvery flag may also come from the environment as BERTH_FLAG (BERTH_LOG_LEVEL) or by its name from --config; " +
		"flag wins over environment, environment over file. Exit codes: 0 done, 1 failed, 2 wrong usage."
	parser, err := kong.New(cli, kong.Description(description), kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"version": Version()}, vars, kong.Resolvers(file, fromEnvironment()))
	if err != nil {
		panic(err)
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		parser.Errorf("%v", err)
		fmt.Fprintf(os.Stderr, "Run \"%s --help\" for all flags.\n", filepath.Base(os.Args[0]))
		os.Exit(ExitUsage)
	}
	return ctx
}

// flagNames are all flags that cli has, with those of its commands.
func flagNames(cli any, vars kong.Vars) map[string]bool {
	parser, err := kong.New(cli, vars, kong.Vars{"version": ""})
	if err != nil {
		panic(err)
	}
	known := map[string]bool{}
	groups := parser.Model.AllFlags(false)
	for _, leaf := range parser.Model.Leaves(false) {
		groups = append(groups, leaf.Flags)
	}
	for _, group := range groups {
		for _, f := range group {
			known[f.Name] = true
		}
	}
	return known
}

// configFile finds --config ahead of parsing, since the file's keys stand in for flags.
func configFile(args []string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--config="); ok {
			return v
		}
		if a == "--config" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return os.Getenv("BERTH_CONFIG")
}

func fromEnvironment() kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if v := os.Getenv("BERTH_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))); v != "" { // empty is unset
			return v, nil
		}
		return nil, nil
	})
}

// fromFile reads flags by name from a YAML file, which may name only those that are known.
func fromFile(path string, known map[string]bool) (kong.Resolver, error) {
	var keys map[string]any
	if path != "" {
		raw, err := os.ReadFile(path)
		if err == nil {
			err = yaml.Unmarshal(raw, &keys)
		}
		if err != nil {
			return nil, fmt.Errorf("--config %s: %w", path, err)
		}
	}
	for key := range keys {
		if !known[key] {
			return nil, fmt.Errorf("--config %s: there is no flag %q", path, key)
		}
	}
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		v, ok := keys[flag.Name]
		if !ok {
			return nil, nil
		}
		if list, ok := v.([]any); ok {
			parts := make([]string, len(list))
			for i, part := range list {
				parts[i] = fmt.Sprint(part)
			}
			return strings.Join(parts, ","), nil
		}
		return fmt.Sprint(v), nil
	}), nil
}

// Logger is the program's log.
func (c Common) Logger() *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, opts))
}

// WriteAddrs writes the bound addresses, by flag, if asked to. The file appears whole or not at all.
func (c Common) WriteAddrs(addrs map[string]string) error {
	if c.AddrFile == "" {
		return nil
	}
	raw, err := json.Marshal(addrs)
	if err != nil {
		return err
	}
	tmp := c.AddrFile + ".tmp"
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write addresses: %w", err)
	}
	return os.Rename(tmp, c.AddrFile)
}

// Finish turns a program's error into its exit code, said once on w.
func Finish(w io.Writer, err error) int {
	var usage *UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(w, "error:", err)
		return ExitUsage
	}
	fmt.Fprintln(w, "error:", err)
	return ExitFailed
}

// Version is the module's version and commit.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			version += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return version
}
