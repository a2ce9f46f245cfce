// Command check validates the files of deploy/ with the programs' own readers: those of Compose and of the OpenTelemetry
// collector. It is a module of its own, so that none of their code is a dependency of Berth.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: check COMPOSE_FILE COLLECTOR_FILE")
		os.Exit(2)
	}
	for _, err := range []error{compose(os.Args[1]), collector(os.Args[2])} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// compose reads a file as `docker compose config` does, unknown keys and dangling references refused.
func compose(file string) error {
	o, err := cli.NewProjectOptions([]string{file}, cli.WithInterpolation(true), cli.WithResolvedPaths(true))
	if err != nil {
		return err
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	fmt.Printf("%s: %d services\n", file, len(p.Services))
	return nil
}

// collector reads a file as `otelcol validate` does.
func collector(file string) error {
	set := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "check"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{"file:" + file}, ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
		}},
	}
	c, err := otelcol.NewCollector(set)
	if err != nil {
		return err
	}
	if err := c.DryRun(context.Background()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	fmt.Printf("%s: a collector's configuration\n", file)
	return nil
}

func factories() (f otelcol.Factories, err error) {
	f.Telemetry = otelconftelemetry.NewFactory()
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	if f.Processors, err = otelcol.MakeFactoryMap[processor.Factory](memorylimiterprocessor.NewFactory(), batchprocessor.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](debugexporter.NewFactory())
	return f, err
}
