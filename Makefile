# Every target is one line of real commands. What is downloaded: Go modules, the model, the Python client, and for
# golangci and bench the linter's and llama.cpp's sources (bench needs cmake, ninja and g++ too).
SHELL := /bin/bash
GO ?= go
VENV := .venv

.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## fetch what tests need: Go modules, the model, the Python client
	$(GO) mod download && $(MAKE) build && bin/berth pull gemma3-270m && (test -x $(VENV)/bin/pip || python3 -m venv --clear $(VENV) || { echo 'python3-venv is missing: apt-get install python3-venv' >&2; exit 1; }) && $(VENV)/bin/pip install -q --disable-pip-version-check -r e2e/python/requirements.txt -r deploy/requirements.txt

build: ## build bin/router, bin/worker, bin/berth
	CGO_ENABLED=0 $(GO) build -o bin/router ./cmd/router && $(GO) build -o bin/worker ./cmd/worker && CGO_ENABLED=0 $(GO) build -o bin/berth ./cmd/berth

demo: build ## fetch the model, start a router and two workers, stream an answer, show status and trace, stop
	tools/demo.sh

up: build ## start a router and two workers until interrupted
	bin/berth up --workers 2

test: setup ## all that CI runs
	$(MAKE) lint gen-check deploy-check && $(GO) test ./... && $(GO) test -tags emulate ./cpu && CGO_ENABLED=0 $(GO) test ./cpu ./model/... ./router ./kvpool ./consensus/... && $(MAKE) race && $(GO) test -count=1 -tags e2e -timeout 15m ./e2e/...

# hashicorp/raft v1.8.0 races with itself: updateLastAppended (replication.go:660) reads a peer's id without the lock under
# which startStopReplication writes the peer. Its own code is left out of the detector; all of ours is in it.
race: ## the concurrent packages under the race detector
	$(GO) test -race -gcflags=github.com/hashicorp/raft=-race=false ./consensus ./worker ./router ./cpu ./model/tokenizer

lint: ## formatting, vet, and the house rules of tidy_test.go
	out=$$(gofmt -l .) && { test -z "$$out" || { echo "run gofmt -w on: $$out"; exit 1; }; } && $(GO) vet ./... && CGO_ENABLED=0 $(GO) vet ./... && $(GO) test -run 'TestSizes|TestPackageDocs|TestImports' .

golangci: ## the wider set of linters (builds golangci-lint once)
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run

gen: ## regenerate protobuf code
	$(GO) run ./tools/protogen . . api/ledger/v1/ledger.proto api/ledger/v1/replica.proto api/worker/v1/worker.proto -- protoc-gen-go:paths=source_relative protoc-gen-go-grpc:paths=source_relative

gen-check: gen ## generated code is what its sources give
	git diff --exit-code --stat -- '*.pb.go'

deploy-check: ## the files of deploy/, by the programs that read them
	deploy/check.sh

fuzz: ## each fuzz target for a while (FUZZTIME=30s)
	tools/fuzz.sh $(or $(FUZZTIME),30s)

bench: build ## benchmarks against llama.cpp on this machine (builds it once into .peers)
	tools/bench.sh

soak: ## the long runs
	$(GO) test -tags soak -timeout 60m -v ./cpu ./backendtest ./model ./kvpool ./consensus/... ./sim

soak-chaos: build ## real processes, killed, paused, cut off, with full and wiped disks, by seed (SEEDS=20); mounts tmpfs, so as root
	$(GO) test -count=1 -tags 'e2e chaos' -timeout 90m -v ./e2e -run TestChaos -seeds $(or $(SEEDS),20)

.PHONY: help setup build demo up test race lint golangci gen gen-check deploy-check fuzz bench soak soak-chaos
