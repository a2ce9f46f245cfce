package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// Config says where telemetry goes.
type Config struct {
	Service  string // berth-router, berth-worker
	Instance string // the process's --id
	Version  string
	OTLP     string // OTLP/gRPC receiver: host:port without TLS, https://host:port with; empty: as the OTEL_* variables say, else none
}

// Telemetry is a process's providers, installed as OpenTelemetry's global ones.
type Telemetry struct {
	registry *prometheus.Registry
	stop     []func(context.Context) error
}

// Setup installs providers and W3C propagation. Without an OTLP endpoint spans cost next to nothing.
func Setup(ctx context.Context, c Config) (*Telemetry, error) {
	t := &Telemetry{registry: prometheus.NewRegistry()}
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", c.Service),
		attribute.String("service.instance.id", c.Instance),
		attribute.String("service.version", c.Version),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	reader, err := otelprom.New(
		otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo(),
	)
	if err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: MetricBuild, Help: help[MetricBuild],
			ConstLabels: prometheus.Labels{"version": c.Version, "service": c.Service}}, func() float64 { return 1 }))
	meters := metric.NewMeterProvider(metric.WithResource(res), metric.WithReader(reader), metric.WithView(described))
	otel.SetMeterProvider(meters)
	t.stop = append(t.stop, meters.Shutdown)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	options, wanted := exporting(c.OTLP)
	if !wanted {
		return t, nil
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("set up the OTLP exporter to %s: %w", c.OTLP, err)
	}
	traces := trace.NewTracerProvider(trace.WithResource(res),
		trace.WithBatcher(exporter, trace.WithBatchTimeout(500*time.Millisecond)))
	otel.SetTracerProvider(traces)
	t.stop = append(t.stop, traces.Shutdown)
	return t, nil
}

// exporting says where spans go, and whether they do.
func exporting(endpoint string) (options []otlptracegrpc.Option, wanted bool) {
	switch {
	case strings.Contains(endpoint, "://"):
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(endpoint)}, true
	case endpoint != "":
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure()}, true
	}
	return nil, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// described gives an instrument its help text.
func described(i metric.Instrument) (metric.Stream, bool) {
	return metric.Stream{Name: i.Name, Description: help[i.Name], Unit: i.Unit}, true
}

// Metrics serves the process's metrics in Prometheus form.
func (t *Telemetry) Metrics() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{})
}

// closeTimeout bounds how long a process that ends waits for its last spans to be taken.
const closeTimeout = 2 * time.Second

// Close sends what is left.
func (t *Telemetry) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for _, stop := range t.stop {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}
