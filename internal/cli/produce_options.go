package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/ottla/ottla/producer"
)

// durabilities are the values of --acks.
var durabilities = map[string]producer.Durability{
	"all": producer.Idempotent, "-1": producer.Idempotent, "1": producer.Leader, "0": producer.None,
}

// partitioners are the values of --partitioner.
var partitioners = map[string]producer.Partitioner{
	"murmur2": producer.Murmur2, "uniform": producer.Uniform, "round-robin": producer.RoundRobin,
	"crc32": producer.CRC32, "crc32-consistent": producer.CRC32Consistent,
	"fnv1a": producer.FNV1a, "fnv1a-reference": producer.FNV1aReference,
}

// apply puts --acks, --partitioner and --tx into a configuration.
func (f *produceFlags) apply(cfg *producer.Config) {
	cfg.Durability = durabilities[f.acks]
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
	if _, ok := durabilities[f.acks]; !ok {
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
