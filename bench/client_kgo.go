package main

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/internal/benchmark"
)

func kgoPartitions(j load.Job) kgo.Opt {
	at := map[int32]kgo.Offset{}
	for p := range j.Parts {
		at[p] = kgo.NewOffset().At(0)
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.Topic: at})
}

// kgoConsume reads with kgo's own defaults.
func kgoConsume(ctx context.Context, j load.Job) (load.Measured, error) {
	return kgoPoll(j, false)
}

// kgoConsumeBest reads with what makes kgo cheapest: pools for records and
// decompressed bytes, partitions of 128 KiB, and less garbage collection.
func kgoConsumeBest(ctx context.Context, j load.Job) (load.Measured, error) {
	debug.SetGCPercent(400)
	return kgoPoll(j, true, kgo.WithPools(new(kgoPool)), kgo.FetchMaxPartitionBytes(128<<10))
}

func kgoPoll(j load.Job, recycle bool, opts ...kgo.Opt) (load.Measured, error) {
	return func(ctx context.Context, _ *load.Result) (n int, err error) {
		// A kgo client fetches from the moment it is made.
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(j.Addr), kgoPartitions(j)}, opts...)...)
		if err != nil {
			return 0, err
		}
		for n < j.Records {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return n, err
			}
			bad := false
			fetches.EachRecord(func(r *kgo.Record) {
				bad = bad || len(r.Value) != j.Size
				n++
				if recycle {
					r.Recycle()
				}
			})
			if bad {
				return n, errSize
			}
		}
		return n, nil
	}, nil
}

// kgoPool pools decompressed bytes and slices of records.
type kgoPool struct{ bytes, records sync.Pool }

func (p *kgoPool) GetDecompressBytes(src []byte, _ kgo.CompressionCodecType) []byte {
	if b, ok := p.bytes.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, 4*len(src))
}

func (p *kgoPool) PutDecompressBytes(b []byte) { p.bytes.Put(&b) }

func (p *kgoPool) GetRecords(n int) []kgo.Record {
	if rs, ok := p.records.Get().(*[]kgo.Record); ok && cap(*rs) >= n {
		return *rs
	}
	return make([]kgo.Record, 0, n)
}

func (p *kgoPool) PutRecords(rs []kgo.Record) { p.records.Put(&rs) }

func kgoCodec(j load.Job) kgo.Opt {
	return kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(), "snappy": kgo.SnappyCompression(),
	}[j.Codec])
}

// kgoProduce produces with kgo's own defaults, which are idempotent.
func kgoProduce(ctx context.Context, j load.Job) (load.Measured, error) {
	return kgoProduceWith(ctx, j, func() *kgo.Record { return new(kgo.Record) }, func(*kgo.Record) {})
}

// kgoProduceBest takes its records from a pool, buffers as many bytes as ottla
// does, and collects less garbage.
func kgoProduceBest(ctx context.Context, j load.Job) (load.Measured, error) {
	debug.SetGCPercent(400)
	pool := sync.Pool{New: func() any { return new(kgo.Record) }}
	return kgoProduceWith(ctx, j,
		func() *kgo.Record { return pool.Get().(*kgo.Record) },
		func(r *kgo.Record) { *r = kgo.Record{}; pool.Put(r) },
		kgo.MaxBufferedRecords(1<<20), kgo.MaxBufferedBytes(64<<20))
}

func kgoProduceWith(ctx context.Context, j load.Job, get func() *kgo.Record, put func(*kgo.Record), opts ...kgo.Opt) (load.Measured, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(j.Addr), kgo.DefaultProduceTopic(j.Topic), kgoCodec(j)}, opts...)...)
	if err != nil {
		return nil, err
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Value: warm}).FirstErr(); err != nil {
		return nil, err
	}
	values := benchmark.Values(j.Size, benchmark.Ring)
	return func(ctx context.Context, _ *load.Result) (int, error) {
		var done atomic.Int64
		var failed atomic.Pointer[error]
		promise := func(r *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			} else {
				done.Add(1)
			}
			put(r)
		}
		for i := range j.Records {
			r := get()
			r.Value = values[i%benchmark.Ring]
			cl.Produce(ctx, r, promise)
		}
		if err := cl.Flush(ctx); err != nil {
			return int(done.Load()), err
		}
		if err := failed.Load(); err != nil {
			return int(done.Load()), *err
		}
		return int(done.Load()), nil
	}, nil
}

func kgoRequests(ctx context.Context, j load.Job) (load.Measured, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(j.Addr))
	if err != nil {
		return nil, err
	}
	return requests(j, cl.Broker(node).Request), cl.Ping(ctx)
}
