package main

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/internal/benchmark"
)

func saramaConfig(j load.Job) *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1 // idempotence asks for it
	cfg.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD, "snappy": sarama.CompressionSnappy,
	}[j.Codec]
	return cfg
}

// saramaConsume reads one partition consumer for each partition.
func saramaConsume(_ context.Context, j load.Job) (load.Measured, error) {
	cl, err := sarama.NewConsumer([]string{j.Addr}, saramaConfig(j))
	return func(ctx context.Context, _ *load.Result) (n int, err error) {
		counts := make(chan int, j.Parts)
		for p := range j.Parts {
			pc, err := cl.ConsumePartition(j.Topic, p, 0)
			if err != nil {
				return 0, err
			}
			go func() {
				n := 0
				for m := range pc.Messages() {
					if len(m.Value) != j.Size {
						panic(errSize)
					}
					if n++; n == 1000 {
						counts <- n
						n = 0
					}
				}
			}()
		}
		for n < j.Records {
			select {
			case k := <-counts:
				n += k
			case <-ctx.Done():
				return n, ctx.Err()
			}
		}
		return n, nil
	}, err
}

// saramaProduce produces through the asynchronous producer.
func saramaProduce(_ context.Context, j load.Job) (load.Measured, error) {
	p, err := sarama.NewAsyncProducer([]string{j.Addr}, saramaConfig(j))
	if err != nil {
		return nil, err
	}
	p.Input() <- &sarama.ProducerMessage{Topic: j.Topic, Value: sarama.ByteEncoder(warm)}
	<-p.Successes()
	values := benchmark.Values(j.Size, benchmark.Ring)
	return func(ctx context.Context, _ *load.Result) (done int, err error) {
		go func() {
			for i := range j.Records {
				p.Input() <- &sarama.ProducerMessage{Topic: j.Topic, Value: sarama.ByteEncoder(values[i%benchmark.Ring])}
			}
		}()
		for done < j.Records {
			select {
			case <-p.Successes():
				done++
			case err := <-p.Errors():
				return done, err
			case <-ctx.Done():
				return done, ctx.Err()
			}
		}
		return done, nil
	}, err
}

func saramaRequests(_ context.Context, j load.Job) (load.Measured, error) {
	b := sarama.NewBroker(j.Addr)
	if err := b.Open(saramaConfig(j)); err != nil {
		return nil, err
	}
	_, err := b.Connected()
	return func(ctx context.Context, r *load.Result) (int, error) {
		return load.Requests(ctx, r, j.Records, func(context.Context) error {
			if j.Op == "metadata" {
				_, err := b.GetMetadata(&sarama.MetadataRequest{Version: 7, Topics: []string{j.Topic}})
				return err
			}
			_, err := b.Heartbeat(&sarama.HeartbeatRequest{Version: 3, GroupId: "g", MemberId: "m"})
			return err
		})
	}, err
}
