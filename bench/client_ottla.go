package main

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
	"github.com/ottla/ottla/record/compress"
)

func ottlaCluster(ctx context.Context, j load.Job) (*cluster.Cluster, error) {
	return cluster.Connect(ctx, cluster.Config{Bootstrap: []string{j.Addr}})
}

func ottlaConsumer(ctx context.Context, j load.Job, cfg consumer.Config) (*consumer.Consumer, func() error, *cluster.Cluster, error) {
	c, err := ottlaCluster(ctx, j)
	if err != nil {
		return nil, nil, nil, err
	}
	cons, err := consumer.New(c, cfg)
	at := map[kafka.TopicPartition]consumer.Start{}
	for p := range j.Parts {
		at[kafka.TopicPartition{Topic: j.Topic, Partition: p}] = consumer.AtOffset(0)
	}
	return cons, func() error { return cons.Assign(ctx, at) }, c, err
}

// ottlaBatches reads through Poll and the batch view.
func ottlaBatches(ctx context.Context, j load.Job) (load.Measured, error) {
	return ottlaPoll(ctx, j, consumer.Config{})
}

// ottlaReuse is ottlaBatches with memory that is used again.
func ottlaReuse(ctx context.Context, j load.Job) (load.Measured, error) {
	return ottlaPoll(ctx, j, consumer.Config{ReuseBuffers: true})
}

func ottlaPoll(ctx context.Context, j load.Job, cfg consumer.Config) (load.Measured, error) {
	cons, assign, c, err := ottlaConsumer(ctx, j, cfg)
	return func(ctx context.Context, r *load.Result) (n int, err error) {
		if err := assign(); err != nil {
			return 0, err
		}
		for n < j.Records {
			batches, err := cons.Poll(ctx)
			if err != nil {
				return n, err
			}
			for _, b := range batches {
				for _, rec := range b.Records() {
					if len(rec.Value) != j.Size {
						return n, errSize
					}
					n++
				}
			}
		}
		r.Wire = received(c)
		return n, nil
	}, err
}

// ottlaRecords reads through the record API.
func ottlaRecords(ctx context.Context, j load.Job) (load.Measured, error) {
	cons, assign, c, err := ottlaConsumer(ctx, j, consumer.Config{})
	return func(ctx context.Context, r *load.Result) (n int, err error) {
		if err := assign(); err != nil {
			return 0, err
		}
		for rec, err := range cons.Records(ctx) {
			if err != nil {
				return n, err
			}
			if len(rec.Value) != j.Size {
				return n, errSize
			}
			if n++; n >= j.Records {
				break
			}
		}
		r.Wire = received(c)
		return n, nil
	}, err
}

// received is how many bytes came over all sockets.
func received(c *cluster.Cluster) (n int64) {
	for _, conn := range c.Stats().Connections {
		n += conn.BytesIn
	}
	return n
}

func ottlaProducer(ctx context.Context, j load.Job, batch int) (*producer.Producer, error) {
	c, err := ottlaCluster(ctx, j)
	if err != nil {
		return nil, err
	}
	codec, err := compress.ParseCodec(j.Codec)
	if err != nil {
		return nil, err
	}
	z, err := producer.CompressionOf(codec)
	if err != nil {
		return nil, err
	}
	p, err := producer.New(c, producer.Config{Compression: z, BatchBytes: batch})
	if err == nil && j.Op != "fill" { // a topic that is read has nothing else in it
		_, err = p.Send(ctx, kafka.Record{Topic: j.Topic, Value: warm})
	}
	return p, err
}

// ottlaSlices appends slices of 500 records.
func ottlaSlices(ctx context.Context, j load.Job) (load.Measured, error) {
	return ottlaAppendAll(ctx, j, 0)
}

// ottlaFill is ottlaSlices with batches of the size that consumers are measured
// with.
func ottlaFill(ctx context.Context, j load.Job) (load.Measured, error) {
	return ottlaAppendAll(ctx, j, 64<<10)
}

func ottlaAppendAll(ctx context.Context, j load.Job, batch int) (load.Measured, error) {
	p, err := ottlaProducer(ctx, j, batch)
	if err != nil {
		return nil, err
	}
	recs := make([]kafka.Record, benchmark.Ring)
	for i, v := range benchmark.Values(j.Size, benchmark.Ring) {
		recs[i] = kafka.Record{Topic: j.Topic, Value: v}
	}
	return func(ctx context.Context, _ *load.Result) (n int, err error) {
		const step = 512
		var last producer.Receipt
		receipts := make([]producer.Receipt, 0, step)
		for ; n < j.Records; n += step {
			at := n % benchmark.Ring
			if receipts, err = p.AppendAll(ctx, recs[at:at+step], receipts[:0]); err != nil {
				return n, err
			}
			last = receipts[step-1]
		}
		if err := p.Flush(ctx); err != nil {
			return n, err
		}
		_, err = last.Wait(ctx)
		return n, err
	}, nil
}

// ottlaSingles appends one record a call, from 8 goroutines.
func ottlaSingles(ctx context.Context, j load.Job) (load.Measured, error) {
	p, err := ottlaProducer(ctx, j, 0)
	if err != nil {
		return nil, err
	}
	values := benchmark.Values(j.Size, benchmark.Ring)
	return func(ctx context.Context, _ *load.Result) (int, error) {
		const workers = 8
		each := j.Records / workers
		var wg sync.WaitGroup
		errs := make([]error, workers)
		for w := range workers {
			wg.Go(func() {
				var last producer.Receipt
				for i := range each {
					r, err := p.Append(ctx, kafka.Record{Topic: j.Topic, Value: values[i%benchmark.Ring]})
					if err != nil {
						errs[w] = err
						return
					}
					last = r
				}
				if errs[w] = p.Flush(ctx); errs[w] == nil {
					_, errs[w] = last.Wait(ctx)
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return 0, err
			}
		}
		return workers * each, nil
	}, nil
}

func ottlaRequests(ctx context.Context, j load.Job) (load.Measured, error) {
	c, err := ottlaCluster(ctx, j)
	if err != nil {
		return nil, err
	}
	if _, err := c.Request(ctx, kmsg.NewPtrMetadataRequest()); err != nil { // now it knows the broker
		return nil, err
	}
	return requests(j, c.Broker(node).Request), nil
}

// node is the only broker of either kind.
const node = 1

// requests sends the requests of a job through one function.
func requests(j load.Job, send func(context.Context, kmsg.Request) (kmsg.Response, error)) load.Measured {
	var req kmsg.Request
	switch j.Op {
	case "metadata":
		m := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(j.Topic)
		m.Topics = append(m.Topics, t)
		req = m
	case "heartbeat":
		h := kmsg.NewPtrHeartbeatRequest()
		h.Group, h.MemberID = "g", "m"
		req = h
	}
	one := func(ctx context.Context) error {
		_, err := send(ctx, req)
		return err
	}
	return func(ctx context.Context, r *load.Result) (int, error) { return load.Requests(ctx, r, j.Records, one) }
}
