package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/internal/benchmark"
)

// kafkaGoConsume reads one Reader for each partition.
func kafkaGoConsume(_ context.Context, j load.Job) (load.Measured, error) {
	return func(ctx context.Context, _ *load.Result) (int, error) {
		return kafkaGoEach(ctx, j, func(ctx context.Context, part int, count func()) error {
			r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{j.Addr}, Topic: j.Topic, Partition: part, MaxBytes: 1 << 20})
			for {
				m, err := r.ReadMessage(ctx)
				if err != nil {
					return err
				}
				if len(m.Value) != j.Size {
					return errSize
				}
				count()
			}
		})
	}, nil
}

// kafkaGoBatches reads with Conn.ReadBatch into one buffer for each partition.
func kafkaGoBatches(_ context.Context, j load.Job) (load.Measured, error) {
	return func(ctx context.Context, _ *load.Result) (int, error) {
		return kafkaGoEach(ctx, j, func(ctx context.Context, part int, count func()) error {
			c, err := kafka.DialLeader(ctx, "tcp", j.Addr, j.Topic, part)
			if err != nil {
				return err
			}
			buf := make([]byte, j.Size+1)
			for at := int64(0); ctx.Err() == nil; {
				if _, err := c.Seek(at, kafka.SeekAbsolute|kafka.SeekDontCheck); err != nil {
					return err
				}
				b := c.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: 1 << 20})
				for {
					n, err := b.Read(buf)
					if err != nil {
						break // the end of the batch
					}
					if n != j.Size {
						return errSize
					}
					count()
				}
				at = b.Offset()
				if err := b.Close(); err != nil {
					return err
				}
			}
			return nil
		})
	}, nil
}

// kafkaGoEach runs read for each partition until all have counted enough.
func kafkaGoEach(ctx context.Context, j load.Job, read func(ctx context.Context, part int, count func()) error) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	errs := make(chan error, j.Parts)
	var wg sync.WaitGroup
	for p := range int(j.Parts) {
		wg.Go(func() {
			n := 0
			err := read(ctx, p, func() {
				if n++; n == 1000 {
					if n = 0; done.Add(1000) >= int64(j.Records) {
						cancel()
					}
				}
			})
			if err != nil && ctx.Err() == nil {
				errs <- err
				cancel()
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return int(done.Load()), err
	default:
		return int(done.Load()), nil
	}
}

// kafkaGoProduce writes batches as large as those of the others, which are not
// idempotent: kafka-go has no idempotence. Its own defaults make batches of 100
// records after a second.
func kafkaGoProduce(ctx context.Context, j load.Job) (load.Measured, error) {
	var done atomic.Int64
	var failed atomic.Pointer[error]
	w := &kafka.Writer{
		Addr: kafka.TCP(j.Addr), Topic: j.Topic, Async: true, RequiredAcks: kafka.RequireAll,
		BatchSize: 10_000, BatchBytes: 1_000_012, BatchTimeout: 5 * time.Millisecond,
		Compression: map[string]kafka.Compression{"lz4": kafka.Lz4, "zstd": kafka.Zstd, "snappy": kafka.Snappy}[j.Codec],
		Completion: func(ms []kafka.Message, err error) {
			if err != nil {
				failed.Store(&err)
			}
			done.Add(int64(len(ms)))
		},
	}
	if err := w.WriteMessages(ctx, kafka.Message{Value: warm}); err != nil {
		return nil, err
	}
	values := benchmark.Values(j.Size, benchmark.Ring)
	return func(ctx context.Context, _ *load.Result) (int, error) {
		const step = 512
		for n := 0; n < j.Records; n += step {
			ms := make([]kafka.Message, step)
			for i := range ms {
				ms[i].Value = values[(n+i)%benchmark.Ring]
			}
			if err := w.WriteMessages(ctx, ms...); err != nil {
				return n, err
			}
			for int64(n)-done.Load() > 1<<19 { // it has no bound of its own
				time.Sleep(time.Millisecond)
			}
		}
		err := w.Close() // waits for what is not written
		if f := failed.Load(); f != nil {
			err = *f
		}
		return int(done.Load()), err
	}, nil
}

func kafkaGoRequests(_ context.Context, j load.Job) (load.Measured, error) {
	cl := &kafka.Client{Addr: kafka.TCP(j.Addr)}
	return func(ctx context.Context, r *load.Result) (int, error) {
		return load.Requests(ctx, r, j.Records, func(ctx context.Context) error {
			if j.Op == "metadata" {
				_, err := cl.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{j.Topic}})
				return err
			}
			_, err := cl.Heartbeat(ctx, &kafka.HeartbeatRequest{GroupID: "g", MemberID: "m"})
			return err
		})
	}, nil
}
