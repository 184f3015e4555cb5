package cli

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
	"github.com/ottla/ottla/record/compress"
)

// benchWork is the part of a job that is measured. It says how many it did.
type benchWork func(ctx context.Context) (n int64, err error)

// prepare does what is not to be measured.
func (b *benchRun) prepare(ctx context.Context) (benchWork, error) {
	switch b.job.op {
	case "produce":
		return b.produceWork(ctx)
	case "consume":
		return b.consumeWork(ctx)
	}
	return b.requestWork, nil
}

const benchSlice = 256 // records of one append

// produceWork appends slices of records; every slice is waited for beside them.
func (b *benchRun) produceWork(ctx context.Context) (benchWork, error) {
	codec, err := compress.ParseCodec(b.job.codec)
	if err != nil {
		return nil, err
	}
	z, err := producer.CompressionOf(codec)
	if err != nil {
		return nil, err
	}
	p, err := producer.New(b.client.Cluster, producer.Config{Compression: z})
	if err != nil {
		return nil, err
	}
	if b.job.op == "produce" { // so that it has its id and knows the topic
		if _, err := p.Send(ctx, kafka.Record{Topic: b.topic, Value: []byte("first")}); err != nil {
			_ = p.Close()
			return nil, err
		}
	}
	records := make([]kafka.Record, benchmark.Ring)
	for i, v := range benchmark.Values(b.job.size, benchmark.Ring) {
		records[i] = kafka.Record{Topic: b.topic, Value: v}
	}
	return func(ctx context.Context) (int64, error) {
		defer p.Close()
		return b.append(ctx, p, records)
	}, nil
}

// sentSlice is a slice of records that was appended.
type sentSlice struct {
	last producer.Receipt
	at   time.Time
}

func (b *benchRun) append(ctx context.Context, p *producer.Producer, records []kafka.Record) (int64, error) {
	sent := make(chan sentSlice, b.job.records/benchSlice+1)
	failed := make(chan error, 1)
	b.app.tasks.Go(func(context.Context) error {
		for s := range sent {
			if _, err := s.last.Wait(ctx); err != nil {
				failed <- err
				return nil
			}
			b.took = append(b.took, time.Since(s.at))
		}
		failed <- nil
		return nil
	})
	n, err := 0, error(nil)
	for receipts := []producer.Receipt(nil); n < b.job.records && err == nil; {
		at := n % benchmark.Ring
		k := min(benchSlice, b.job.records-n)
		began := time.Now()
		if receipts, err = p.AppendAll(ctx, records[at:at+k], receipts[:0]); err == nil {
			sent <- sentSlice{receipts[k-1], began}
			n += k
		}
	}
	close(sent)
	if waitErr := <-failed; err == nil {
		err = waitErr
	}
	b.bytes = int64(n) * int64(b.job.size)
	return int64(n), err
}

// consumeWork reads batches to the end as it is now, or to as many records as
// were asked for.
func (b *benchRun) consumeWork(ctx context.Context) (benchWork, error) {
	if b.job.topic == "" {
		fill, err := b.produceWork(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := fill(ctx); err != nil {
			return nil, err
		}
		b.took, b.bytes = nil, 0
	}
	t, err := b.client.Topic(ctx, b.topic)
	if err != nil {
		return nil, err
	}
	c, err := consumer.New(b.client.Cluster, consumer.Config{ReuseBuffers: true})
	if err != nil {
		return nil, err
	}
	at, left := map[kafka.TopicPartition]consumer.Start{}, map[kafka.TopicPartition]kafka.Offset{}
	for p := range t.Partitions {
		at[kafka.TopicPartition{Topic: b.topic, Partition: int32(p)}] = consumer.Earliest()
	}
	for tp := range at {
		ends, err := c.End(ctx, tp)
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		left[tp] = ends[tp]
	}
	return func(ctx context.Context) (int64, error) {
		defer c.Close()
		if err := c.Assign(ctx, at); err != nil {
			return 0, err
		}
		return b.read(ctx, c, left)
	}, nil
}

func (b *benchRun) read(ctx context.Context, c *consumer.Consumer, left map[kafka.TopicPartition]kafka.Offset) (n int64, err error) {
	for n < int64(b.job.records) {
		for tp, end := range left {
			if at, err := c.Position(ctx, tp); err == nil && at >= end {
				delete(left, tp)
			}
		}
		if len(left) == 0 {
			return n, nil
		}
		began := time.Now()
		batches, err := c.Poll(ctx)
		b.took = append(b.took, time.Since(began))
		for _, batch := range batches {
			for _, r := range batch.Records() {
				b.bytes += int64(len(r.Value))
				n++
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// requestWork asks for the metadata of the topic.
func (b *benchRun) requestWork(ctx context.Context) (int64, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &b.topic
	req.Topics = append(req.Topics, t)
	broker := b.client.Broker(b.client.Brokers()[0].ID)
	b.took = make([]time.Duration, 0, b.job.records)
	for range b.job.records {
		began := time.Now()
		if _, err := broker.Request(ctx, req); err != nil {
			return int64(len(b.took)), err
		}
		b.took = append(b.took, time.Since(began))
	}
	return int64(len(b.took)), nil
}
