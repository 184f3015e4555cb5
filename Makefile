# Everything a change must pass. `make test` is the whole of it and what CI runs;
# `make quick` is the inner loop.

GO         ?= go
FUZZ_TOTAL ?= 180
COMPAT     ?= 3.9.2 4.0.2 4.2.2

.PHONY: test quick check unit all-tests fuzz kafka compat compat-suite bench bench-short

test: check all-tests fuzz

quick:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) test ./...

# Formatting, vet, staticcheck and tidy modules.
check:
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags kafka ./...
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd bench && $(GO) vet ./... && $(GO) mod tidy -diff
	$(GO) tool -modfile=tools/go.mod staticcheck -tags kafka ./...

# Unit and virtual-time tests alone, without a real Kafka.
unit:
	$(GO) test -race -shuffle=on ./...

# Every test there is: unit, virtual time, and the suite on a real Kafka, which
# is fetched and started as needed (see docs/testing.md).
all-tests:
	scripts/kafka fetch --warm
	$(GO) test -race -shuffle=on -count=1 -timeout 20m -tags kafka ./...

# The real-Kafka suite against the version in OTTLA_KAFKA_VERSION (default 4.4.0).
kafka:
	$(GO) test -count=1 -timeout 20m -tags kafka ./...

# Every fuzz target for its share of FUZZ_TOTAL seconds.
fuzz:
	scripts/fuzz $(FUZZ_TOTAL)

# Every feature against Kafka 0.11 to 4.4; writes docs/compatibility.md.
compat:
	$(GO) test -count=1 -timeout 30m -tags kafka -run TestKafkaCompatibility ./internal/compat -write

# The whole suite against other lines of Kafka.
compat-suite:
	@set -e; for v in $(COMPAT); do echo "== Kafka $$v"; \
	  scripts/kafka fetch --warm $$v; \
	  OTTLA_FACTS=long OTTLA_KAFKA_VERSION=$$v $(MAKE) kafka; done

bench:
	cd bench && $(GO) run . -o ../docs/performance.md $(BENCH)
	cd bench && $(GO) test -run '^$$' -bench . -benchtime 1x .

# The same in a minute, to see that it works: its figures mean nothing.
bench-short:
	cd bench && $(GO) run . -short $(BENCH)
