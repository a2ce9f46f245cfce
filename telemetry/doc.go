// Package telemetry sets OpenTelemetry up, and has every span, metric and attribute name once.
//
// Packages record through the API in their traced.go files, with names from here; only this package knows the SDK and
// the exporters. Texts of prompts and completions never pass through it unless the operator asks for them.
package telemetry
