# gbatch. `make` builds, `make demo` shows a job's whole way, `make help` lists everything.

VERSION     ?= 0.1.0-dev$(shell git describe --always --dirty 2>/dev/null | sed 's/^/+/')
PREFIX      ?= /usr/local
DESTDIR     ?=
SLURM_NAMES ?=
FUZZTIME    ?= $(if $(FUZZTOTAL),-,30s)
FUZZKEEP    ?= 12
FUZZTOTAL   ?=
SOAKTIME    ?= 10m

# Only gnoded links NVML, which needs cgo; without a C compiler it is built without and finds no GPUs by itself.
CC_THERE  := $(shell command -v $${CC:-cc} 2>/dev/null || command -v gcc 2>/dev/null)
NODED_CGO := $(if $(CC_THERE),1,0)
GO        ?= go
GOFLAGS   := $(GOFLAGS) -buildvcs=false
LDFLAGS   := -s -w -X gbatch/internal/version.Version=$(VERSION)
export GOFLAGS
export CGO_CFLAGS := -Wno-deprecated-declarations

PURE     := gctld gdbd gshim gcli gbatch
# Our names and Slurm's, in the same order.
GNAMES   := gsubmit gqueue gcancel gacct ginfo gcontrol grun galloc gshare gprio gacctmgr gdiag gstat gseff greport gbcast gattach gcrontab gtrigger
SNAMES   := sbatch squeue scancel sacct sinfo scontrol srun salloc sshare sprio sacctmgr sdiag sstat seff sreport sbcast sattach scrontab strigger
EXAMPLES := gbatch.conf gres.conf cgroup.conf topology.conf topology.yaml job_container.conf

.DEFAULT_GOAL := build

.PHONY: build
build: ## build everything into bin/, with links for every command's names
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ $(PURE:%=./cmd/%)
	CGO_ENABLED=$(NODED_CGO) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/gnoded
	@mkdir -p bin/compat
	@for n in $(GNAMES); do ln -sfn gcli bin/$$n; done
	@for n in $(SNAMES); do ln -sfn ../gcli bin/compat/$$n; done

.PHONY: deps
deps: ## fetch all modules that the build and the tests need
	$(GO) mod download
	GOFLAGS= $(GO) mod verify

.PHONY: proto
proto: ## nothing: messages are Go structs (internal/proto, internal/wire), and no code is generated
	@echo "There is nothing to generate: internal/proto has the messages, CONTRIBUTING.md says how to add a field."

.PHONY: demo
demo: build ## build, then show the main job on a real cluster on this machine
	@scripts/demo.sh

.PHONY: test
test: ## run the tests, those that take longest first; three packages at once, as these wait much
	$(GO) test -p 3 -timeout 19m ./internal/up ./internal/devcluster ./internal/sim ./...

.PHONY: test-coverage
test-coverage: ## run the tests, and write what they cover to coverage.html in dist/
	@mkdir -p dist
	$(GO) test -timeout 30m -coverpkg=./... -coverprofile=dist/coverage.out ./...
	$(GO) tool cover -html=dist/coverage.out -o dist/coverage.html
	@$(GO) tool cover -func=dist/coverage.out | tail -n 1

.PHONY: fmt
fmt: ## gofmt all Go files
	gofmt -l -w $$(git ls-files --cached --others --exclude-standard '*.go' | grep -v /testdata/)

.PHONY: race
race: ## run the tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 30m ./...

.PHONY: vm
vm: ## run the tests of control groups on kernels with v2 alone and v1 alone, in QEMU
	scripts/cgroups-vm.sh

.PHONY: lint
lint: check staticcheck ## vet, gofmt, staticcheck, go.mod and the rules of the tree

.PHONY: check
check: ## lint without staticcheck
	$(GO) vet ./...
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet ./noded/shim ./cmd/gshim
	@if ! diff=$$(GOFLAGS= $(GO) mod tidy -diff); then echo "go mod tidy is due:"; echo "$$diff"; exit 1; fi
	GOFLAGS= $(GO) mod verify
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go' | grep -v /testdata/)); \
	if [ -n "$$bad" ]; then echo "gofmt -w is due on:"; echo "$$bad"; exit 1; fi
	$(GO) test -count=1 ./internal/archtest

.PHONY: staticcheck
staticcheck: ## staticcheck alone
	$(GO) tool staticcheck ./...

.PHONY: bench
bench: build ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...
	@if [ -x scripts/bench.sh ]; then scripts/bench.sh; fi

.PHONY: compare
compare: build ## compare with real Slurm, where it is installed, what every command prints
	scripts/compare.sh

FUZZLINES ?= 300
.PHONY: compare-fuzz
compare-fuzz: build ## compare with real Slurm what FUZZLINES (300) random command lines of each sort do
	scripts/compare.sh --fuzz $(FUZZLINES) --seed $$(date +%s)

.PHONY: soak
soak: ## for SOAKTIME (10m) each: faults of daemons, hosts and disks under load; end jobs with steps at random (the storm)
	GBATCH_SOAK=$(SOAKTIME) $(GO) test -count=1 -run 'Soak|NodeDaemonKilled' -timeout 0 -v ./internal/up
	GBATCH_STORM=$(SOAKTIME) $(GO) test -count=1 -run Storm -timeout 0 -v ./internal/devcluster

GUARDS ?= all
.PHONY: guards
guards: ## take each guard against a measured fault out (GUARDS=1c,4f: those of rows), and see its test fail
	GBATCH_GUARDS=$(GUARDS) $(GO) test -count=1 -run TestGuards -timeout 0 -v ./internal/archtest

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s) each, or FUZZTOTAL seconds in all, of which scripts/fuzzed.txt is told
	@GO='$(GO)' scripts/fuzz.sh $(if $(FUZZTOTAL),--record scripts/fuzzed.txt) $(FUZZTIME) $(FUZZTOTAL)

.PHONY: corpus
corpus: ## keep FUZZKEEP (12) inputs a target of what make fuzz has found here: the repository's corpus grows
	@GO='$(GO)' scripts/fuzz.sh --keep $(FUZZKEEP)

.PHONY: vuln
vuln: ## look for known vulnerabilities in what is linked (needs https://vuln.go.dev)
	GO='$(GO)' scripts/vuln.sh

.PHONY: install
install: build bin/NOTICES bin/completion ## install below PREFIX (/usr/local); SLURM_NAMES=1 adds sbatch, squeue and the others
	@$(MAKE) --no-print-directory install-files

bin/NOTICES: go.mod scripts/notices.sh
	@mkdir -p bin
	GO='$(GO)' scripts/notices.sh >$@.new && mv $@.new $@

.PHONY: bin/completion
bin/completion: build
	@mkdir -p $@
	@for s in bash fish zsh; do bin/gbatch completion $$s >$@/$$s; done

BIN        ?= bin
NOTICES    ?= bin/NOTICES
COMPLETION ?= bin/completion

.PHONY: install-files
install-files:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/gbatch/examples $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/share/doc/gbatch
	install -m 755 $(PURE:%=$(BIN)/%) $(BIN)/gnoded $(DESTDIR)$(PREFIX)/bin
	install -m 644 LICENSE $(NOTICES) $(DESTDIR)$(PREFIX)/share/doc/gbatch
	for n in $(GNAMES) $(if $(SLURM_NAMES),$(SNAMES)); do ln -sfn gcli $(DESTDIR)$(PREFIX)/bin/$$n; done
	install -m 755 etc/examples/*.sh etc/examples/*.py $(DESTDIR)$(PREFIX)/share/gbatch/examples
	install -m 644 etc/examples/*.conf $(DESTDIR)$(PREFIX)/share/gbatch/examples
	install -m 644 $(EXAMPLES:%=etc/%.example) $(DESTDIR)$(PREFIX)/share/gbatch
	for f in prometheus/gbatch.rules.yml grafana/gbatch.json; do \
	  install -D -m 644 etc/$$f $(DESTDIR)$(PREFIX)/share/gbatch/$$f; done
	install -D -m 644 etc/debian/logrotate $(DESTDIR)$(PREFIX)/share/gbatch/logrotate.example
	for u in etc/systemd/*.service; do \
	  sed 's,@bindir@,$(PREFIX)/bin,g' $$u > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$(basename $$u); done
	for m in man/*.[1578]; do [ -e "$$m" ] || continue; \
	  d=$(DESTDIR)$(PREFIX)/share/man/man$${m##*.}; install -d $$d && install -m 644 $$m $$d; done
	for n in $(GNAMES) $(if $(SLURM_NAMES),$(SNAMES)); do \
	  install -D -m 644 etc/completion/gcli.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$n && \
	  install -D -m 644 etc/completion/gcli.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$n.fish; done
	install -D -m 644 $(COMPLETION)/bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/gbatch
	install -D -m 644 $(COMPLETION)/fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/gbatch.fish
	install -D -m 644 $(COMPLETION)/zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_gbatch
	install -m 644 etc/completion/_gcli $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(if $(SLURM_NAMES),@set -- $(SNAMES); for g in $(GNAMES); do \
	  if [ -e man/$$g.1 ]; then echo ".so man1/$$g.1" > $(DESTDIR)$(PREFIX)/share/man/man1/$$1.1; fi; shift; done)

.PHONY: dist
dist: ## archives for amd64 and arm64 with notices and checksums, in dist/
	@GO='$(GO)' scripts/dist.sh '$(VERSION)'

.PHONY: deb
deb: build bin/NOTICES bin/completion ## Debian packages of this machine's architecture, in dist/deb (needs dpkg-deb)
	@MAKE='$(MAKE)' scripts/deb.sh '$(VERSION)'

IMAGE  ?= gbatch:latest
DOCKER ?= $(shell command -v docker 2>/dev/null || command -v podman 2>/dev/null || echo docker)

.PHONY: docker-build
docker-build: ## the container image IMAGE (gbatch:latest), by docker or podman
	$(DOCKER) build -f etc/container/Dockerfile --build-arg VERSION='$(VERSION)' -t $(IMAGE) .

.PHONY: print-snames
print-snames:
	@echo $(SNAMES)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
