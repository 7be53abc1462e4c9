# Copyright The Kindred Authors.
# SPDX-License-Identifier: Apache-2.0

# The version of Kubernetes whose API is served: what clients are told.
KUBERNETES_VERSION := v1.37.1
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
LDFLAGS := -s -w \
	-X main.version=$(VERSION) \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=37 \
	-X k8s.io/component-base/version.gitTreeState=clean \
	-X k8s.io/component-base/version.gitCommit=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	-X k8s.io/component-base/version.buildDate=$(shell date -u +%Y-%m-%dT%H:%M:%SZ)

.PHONY: build
build: ## build bin/kindred
	@go build -ldflags '$(LDFLAGS)' -o bin/kindred ./cmd/kindred
