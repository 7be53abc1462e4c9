# Copyright The Kindred Authors.
# SPDX-License-Identifier: Apache-2.0

# The Kubernetes version that the server reports to clients.
KUBERNETES_VERSION := v1.37.1
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BIN ?= bin/kindred
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
LDFLAGS := -s -w \
	-X main.version=$(VERSION) \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=37 \
	-X k8s.io/component-base/version.gitTreeState=clean \
	-X k8s.io/component-base/version.gitCommit=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	-X k8s.io/component-base/version.buildDate=$(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || echo 1970-01-01T00:00:00Z)

# Static binaries are a quarter smaller: with cgo, the linker must keep code that only a plugin could
# call. Only the race detector needs cgo.
export CGO_ENABLED := 0

# What a real node needs besides Go: Debian packages, and the programs in them.
NODE_PACKAGES := containerd runc containernetworking-plugins iptables nftables iproute2
NODE_PROGRAMS := containerd runc iptables nft ip
# What the tests need as well: images are built from busybox. The conformance suite compiles its
# busybox from source, and the race detector needs a C compiler too.
TEST_PACKAGES := busybox-static bzip2 gcc libc6-dev make
TEST_PROGRAMS := busybox bzip2 gcc make

# Concurrent packages, tested with the race detector. It compiles every dependency again, so packages
# that import the whole API server are excluded.
RACE := ./internal/apiserver/inprocess/... ./internal/admission/... ./internal/auth/... ./internal/controllers/... \
	./internal/containerd/... ./internal/datadir/... ./internal/ingress/... ./internal/network/... ./internal/node/... ./internal/ownership/... ./internal/scheduler/...

.DEFAULT_GOAL := help
.PHONY: help up deps test-deps build lint lint-modules lint-suites unit scenarios kindredtest smoke attack attack-quick test crash bench bench-quick parity upstream runtimes vm sidecars capi capi-release conformance gateway-conformance policy-conformance clients faults fuzz generate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: deps build ## install missing packages, build, and run a cluster on this machine
	@bin/kindred up $(ARGS)

# install installs Debian packages ($(1)) unless their programs ($(2)) are installed.
define install
	@missing=; for p in $(2); do PATH=$$PATH:/usr/sbin:/sbin command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	case " $(1) " in *" containernetworking-plugins "*) \
		test -x /usr/lib/cni/bridge -o -x /opt/cni/bin/bridge || missing="$$missing cni-plugins";; esac; \
	test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" != 0 ]; then echo "missing:$$missing; as root: apt-get install $(1)" >&2; exit 1; fi; \
	echo "installing$$missing"; \
	apt-get update -qq >/dev/null && \
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(1) >/dev/null
endef

deps: ## install the Debian packages that a real node needs
	$(call install,$(NODE_PACKAGES),$(NODE_PROGRAMS))

test-deps: deps ## install the Debian packages that the tests need as well
	$(call install,$(TEST_PACKAGES),$(TEST_PROGRAMS))

build: ## build bin/kindred
	@echo "build $(BIN)"; go build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/kindred

# Modules of CI, and those of suites that run on request: their targets check them, because their dependencies take minutes to compile.
# staticcheck reads the sources of all dependencies of a module, which takes 20 minutes of processor time for those of CI.
MODULES := clusterapi kindredtest test/conformance test/policyoracle
SUITE_MODULES := test/clients test/gateway test/policyconformance test/servers/adapter

# check runs go vet in modules ($(1)), and staticcheck ($(2)).
define check
	@test -z "$(1)" || echo "go vet:" $(1); for m in $(1); do (cd $$m && go vet ./...) || exit 1; done
	@echo "staticcheck:" $(2); for m in $(2); do (cd $$m && go run $(STATICCHECK) ./...) || exit 1; done
endef

lint: ## gofmt and go vet, and staticcheck of this module
	@echo "gofmt"; unformatted=$$(git ls-files '*.go' | xargs gofmt -l); test -z "$$unformatted" || { echo "run gofmt -w on:" $$unformatted; exit 1; }
	$(call check,. $(MODULES),.)

lint-modules: ## staticcheck of the modules that CI only vets
	$(call check,,$(MODULES))

lint-suites: ## go vet and staticcheck of the modules of the long suites
	$(call check,$(SUITE_MODULES),test/gateway test/policyconformance)

unit: test-deps ## run the unit tests, concurrent packages with the race detector
	@echo "unit tests with the race detector"; CGO_ENABLED=1 go test -race $(RACE)
	@echo "unit tests"; go test $$(go list ./... | grep -v /test/scenarios | grep -vxF "$$(go list $(RACE))")
	@echo "unit tests of the providers of Cluster API"; cd clusterapi && go test ./...
	@echo "unit tests of the conformance runner"; cd test/conformance && go test ./...
	@echo "NetworkPolicies compared with kube-network-policies"; cd test/policyoracle && go test ./...

scenarios: test-deps build ## run the binary as a user would, with real containers
	@echo "scenarios"; KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 50m ./test/scenarios/... ./test/crash

kindredtest: build ## test the test kit, a separate module
	@echo "test kit"; cd kindredtest && KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 ./...

smoke: test-deps build ## run the quick conformance specs that are known to pass
	@echo "conformance: smoke list"; cd test/conformance && go run . -specs smoke.txt -two-nodes=false -record=false $(ARGS)

attack: build ## run the ownership commands on random graphs, with failures (ARGS='-seed 7 -rounds 100')
	@go run ./test/attack $(ARGS)

attack-quick: build
	@echo "attack: a few rounds"; go run ./test/attack -seed 1 -rounds 4

test: test-deps build lint unit scenarios attack-quick kindredtest smoke bench-quick ## everything that must pass

crash: build ## repeat SIGKILL, power loss and damage to the store (ARGS='-seed 7 -rounds 20')
	@KINDRED_CRASH=1 KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 60m -v ./test/crash -args $(ARGS)

bench: build ## measure the figures of docs/performance.md
	@go run ./test/bench -history docs/bench-history.tsv $(ARGS)

bench-quick: build ## print the quick ones of these figures; a slow machine is no failure
	-@go run ./test/bench -run '^(start|memory|scale|collect)$$'

parity: build ## compare the API with upstream's server (ARGS='-kinds pods,jobs')
	@go run ./test/parity $(ARGS)

conformance: test-deps build ## run upstream's conformance specs (SUITE, FOCUS, SKIP, NODES, REPEAT, AGAINST, RUNTIME)
	@cd test/conformance && go run . -suite $${SUITE:-cluster} -focus "$$FOCUS" -skip "$$SKIP" -nodes $${NODES:-4} -repeat $${REPEAT:-1} \
		-against $${AGAINST:-kindred} -runtime $${RUNTIME:-built} $(ARGS)

gateway-conformance: test-deps build lint-suites ## run the conformance suite of the Gateway API, and write its report (GATEWAY_TEST=HTTPRouteWeight)
	@cd test/gateway && KINDRED_BIN=$(CURDIR)/bin/kindred GATEWAY_REPORT=$$(test -n "$$GATEWAY_TEST" || echo $(CURDIR)/docs/gateway-conformance.yaml) go test -count=1 -timeout 40m .

policy-conformance: test-deps build lint-suites ## run the conformance suite of ClusterNetworkPolicies, and write its report
	@cd test/policyconformance && KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 40m -v . \
		-version $$(git rev-parse HEAD) -report $(CURDIR)/docs/policy-conformance.yaml

# What test/runtimes needs besides: crun as a handler, CRI-O's monitor, the tool that loads images into CRI-O, and runc's library.
RUNTIME_PACKAGES := crun conmon skopeo libseccomp-dev pkg-config

# CRI-O mounts the machine's root only if it is shared, as systemd makes it.
runtimes: test-deps build ## run the scenarios of nodes on containerd 1.6, 1.7 and 2, and on CRI-O (ARGS='-runtimes cri-o -run TestExec')
	$(call install,$(RUNTIME_PACKAGES),crun conmon skopeo pkg-config)
	@KINDRED_BIN=$(CURDIR)/bin/kindred unshare --mount --propagation shared go run ./test/runtimes $(ARGS)

# What test/vm needs besides: the emulator, and what builds its machine.
VM_PACKAGES := qemu-system-x86 mmdebstrap e2fsprogs openssh-client busybox-static

vm: build ## test what only a whole machine shows, in QEMU: systemd, cgroup v2, AppArmor, quotas, swap, reboot (ARGS='-run TestMachine/Swap')
	$(call install,$(VM_PACKAGES),qemu-system-x86_64 mmdebstrap mkfs.ext4 ssh busybox)
	@KINDRED_VM=1 KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 90m -v ./test/vm $(ARGS)

faults: test-deps build ## make machines, processes and networks of clusters fail under load (ARGS='-run TestFaults/SIGKILL')
	@KINDRED_FAULTS=1 KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 90m -v ./test/scenarios $(or $(ARGS),-run 'TestFaults|TestMachinesLostForGood')

upstream: test-deps build ## move objects to upstream's control plane and back, and let nodes of each join the other's
	@KINDRED_UPSTREAM=1 KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 40m -run Upstream ./test/scenarios

sidecars: test-deps build ## run a CSI driver with upstream's provisioner, attacher, resizer and snapshotter
	@KINDRED_SIDECARS=1 KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 40m -run Sidecars ./test/scenarios

capi: test-deps build lint-modules ## run Cluster API in the cluster and check its owner references (ARGS='-run TestClusterAPIPlain')
	@KINDRED_CAPI=1 KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 150m -v ./test/scenarios $(or $(ARGS),-run TestClusterAPI)

# Where the release of the providers is written, and the version of the providers.
CAPI_BIN ?= bin
CAPI_RELEASE ?= bin/cluster-api
CAPI_VERSION ?= v0.1.0

capi-release: build ## write Cluster API and Kindred's providers for "kindred up --cluster-api" and clusterctl, and bin/clusterctl
	@echo "build the managers and clusterctl"; cd clusterapi && version=$$(go list -m -f '{{.Version}}' sigs.k8s.io/cluster-api) && \
		ldflags="-s -w -X sigs.k8s.io/cluster-api/version.gitVersion=$$version" && \
		go build -ldflags '-s -w' -o $(abspath $(CAPI_BIN))/manager ./cmd/manager && \
		go build -ldflags "$$ldflags" -o $(abspath $(CAPI_BIN))/core sigs.k8s.io/cluster-api/core && \
		go build -ldflags "$$ldflags" -o $(abspath $(CAPI_BIN))/clusterctl sigs.k8s.io/cluster-api/cmd/clusterctl && \
		go run ./cmd/release --manager $(abspath $(CAPI_BIN))/manager --core $(abspath $(CAPI_BIN))/core --kindred $(abspath $(BIN)) --version $(CAPI_VERSION) \
		--kubernetes-version $(KUBERNETES_VERSION) --out $(abspath $(CAPI_RELEASE))

# kubectl of the served minor version and of the two before it.
KUBECTL_MODULES := v1.35.mod v1.36.mod go.mod

clients: test-deps build lint-suites ## test the binary with Helm, Kustomize, controller-runtime's tests, client-go's examples and three kubectl
	@cd test/clients && KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 40m .
	@for m in $(KUBECTL_MODULES); do \
		kubectl=$(CURDIR)/test/clients/bin/kubectl-$${m%.mod}; echo "scenarios with kubectl of $$m"; \
		version=v1.$$(sed -n 's/.*k8s.io\/kubectl v0\.//p' test/clients/kubectl/$$m) && \
		go build -C test/clients/kubectl -modfile=$$m -ldflags "-X k8s.io/component-base/version.gitVersion=$$version" -o $$kubectl . && \
		KUBECTL=$$kubectl KINDRED_BIN=$(CURDIR)/bin/kindred go test -count=1 -timeout 20m ./test/scenarios || exit 1; done

fuzz: ## run each fuzz target for a short time (FUZZTIME=10s)
	@for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -c6-); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-10s} ./$$p || exit 1; done; done

generate: ## regenerate the generated files
	@go generate ./... && cd clusterapi && go generate ./...

clean: ## remove bin
	@rm -rf bin
