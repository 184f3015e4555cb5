package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ottla/ottla/producer"
)

// durabilities are the values of --acks and of the property of that name.
var durabilities = map[string]producer.Durability{
	"all": producer.Idempotent, "-1": producer.Idempotent, "1": producer.Leader, "0": producer.None,
}

// partitioners are the values of --partitioner.
var partitioners = map[string]producer.Partitioner{
	"murmur2": producer.Murmur2, "uniform": producer.Uniform, "round-robin": producer.RoundRobin,
	"crc32": producer.CRC32, "crc32-consistent": producer.CRC32Consistent,
	"fnv1a": producer.FNV1a, "fnv1a-reference": producer.FNV1aReference,
}

func (p *producerSettings) setAcks(v string) error {
	if _, ok := durabilities[v]; !ok {
		return fmt.Errorf("%q: expected all, 1 or 0", v)
	}
	p.acks = v
	return nil
}

func (p *producerSettings) setIdempotence(v string) error {
	if v = strings.ToLower(v); v != "true" && v != "false" {
		return fmt.Errorf("%q: expected true or false", v)
	}
	p.idempotence = v
	return nil
}

// durability is what --acks, or acks without it, and enable.idempotence come to:
// as with Java's client, fewer than all acks switch idempotence off unless it is
// asked for.
func (p *producerSettings) durability(flag string) (producer.Durability, error) {
	acks := cmp.Or(flag, p.acks, "all")
	d := durabilities[acks]
	switch {
	case d != producer.Idempotent && p.idempotence == "true":
		return 0, usagef("acks=%s and enable.idempotence=true do not go together: idempotence needs all in-sync replicas", acks)
	case d == producer.Idempotent && p.idempotence == "false":
		return producer.All, nil
	}
	return d, nil
}

// apply puts --partitioner and --tx into a configuration.
func (f *produceFlags) apply(cfg *producer.Config) {
	cfg.TransactionalID = f.tx
	switch {
	case f.tx == "":
		cfg.TransactionTimeout = 0
	case cfg.TransactionTimeout == 0:
		cfg.TransactionTimeout = longestInput
	}
	if cfg.Partitioner != producer.Manual {
		cfg.Partitioner = partitioners[f.partitioner]
	}
}

// checkOptions checks --acks and --partitioner.
func (f *produceFlags) checkOptions() error {
	if _, ok := durabilities[f.acks]; !ok && f.acks != "" {
		return usagef("--acks %s: expected all, 1 or 0", f.acks)
	}
	if _, ok := partitioners[f.partitioner]; !ok {
		return usagef("--partitioner %s: expected one of %s", f.partitioner, strings.Join(slices.Sorted(maps.Keys(partitioners)), ", "))
	}
	if f.partition >= 0 && f.partitioner != "murmur2" {
		return usagef("-p and --partitioner do not go together: -p is the partition of all records")
	}
	return nil
}
