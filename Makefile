# Copyright The Kindred Authors.
# SPDX-License-Identifier: Apache-2.0

# The version of Kubernetes whose API is served: what clients are told.
KUBERNETES_VERSION := v1.37.1
STATICCHECK_VERSION := v0.8.2
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
LDFLAGS := -s -w \
	-X main.version=$(VERSION) \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=37 \
	-X k8s.io/component-base/version.gitTreeState=clean \
	-X k8s.io/component-base/version.gitCommit=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	-X k8s.io/component-base/version.buildDate=$(shell date -u +%Y-%m-%dT%H:%M:%SZ)

# What a real node and the scenarios need beside Go, as Debian's packages.
PACKAGES := containerd runc containernetworking-plugins iptables iproute2 busybox-static
PROGRAMS := containerd runc iptables ip busybox

# What has goroutines of its own to race. A race build compiles every dependency
# once more, so packages that pull the whole API server in are left out.
RACE := ./internal/apiserver/inprocess/... ./internal/admission/... ./internal/auth/... ./internal/controllers/... \
	./internal/datadir/... ./internal/node/... ./internal/ownership/... ./internal/scheduler/...

.DEFAULT_GOAL := help
.PHONY: help up deps build lint unit race scenarios kindredtest test bench fuzz generate clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: deps build ## install what is missing, build, and run a cluster on this machine
	@bin/kindred up $(ARGS)

deps: ## install the Debian packages that a real node needs
	@for p in $(PROGRAMS); do PATH=$$PATH:/usr/sbin:/sbin command -v $$p >/dev/null || missing=yes; done; \
	test -x /usr/lib/cni/bridge -o -x /opt/cni/bin/bridge || missing=yes; \
	if [ -n "$$missing" ]; then \
		echo "installing $(PACKAGES)"; \
		apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(PACKAGES) >/dev/null; \
	fi

build: ## build bin/kindred
	@go build -ldflags '$(LDFLAGS)' -o bin/kindred ./cmd/kindred

lint: ## gofmt, go vet and staticcheck
	@echo "gofmt"; unformatted=$$(git ls-files '*.go' | xargs gofmt -l); test -z "$$unformatted" || { echo "run gofmt -w on:" $$unformatted; exit 1; }
	@echo "go vet"; go vet ./...
	@echo "staticcheck"; go run honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION) ./...

unit: ## run the unit tests
	@echo "unit tests"; go test $$(go list ./... | grep -v /test/scenarios)

race: ## run the tests of what runs concurrently under the race detector
	@echo "unit tests under the race detector"; go test -race $(RACE)

scenarios: deps build ## drive the built binary as a user would, with real containers
	@echo "scenarios"; KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 20m ./test/scenarios/...

kindredtest: build ## test the test kit, a module of its own
	@echo "test kit"; cd kindredtest && go vet ./... && KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 ./...

test: deps build lint unit race scenarios kindredtest ## everything that must pass

bench: build ## measure the figures of docs/performance.md
	@go run ./test/bench $(ARGS)

fuzz: ## run each fuzz target for a little while (FUZZTIME=10s)
	@for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -c6-); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-10s} ./$$p || exit 1; done; done

generate: ## write the generated files anew
	@go generate ./...

clean: ## remove what was built
	@rm -rf bin
