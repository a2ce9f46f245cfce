package telemetry

import (
	"context"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/metadata"
)

// Inject puts the span of ctx into the metadata of its outgoing gRPC calls.
func Inject(ctx context.Context) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		md = metadata.MD{}
	}
	md = md.Copy()
	otel.GetTextMapPropagator().Inject(ctx, carrier(md))
	return metadata.NewOutgoingContext(ctx, md)
}

// Extract takes the caller's span out of an incoming gRPC call's metadata.
func Extract(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return otel.GetTextMapPropagator().Extract(ctx, carrier(md))
}

// carrier makes gRPC metadata a propagation.TextMapCarrier.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
