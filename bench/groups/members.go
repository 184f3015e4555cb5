package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
)

func joinOttla(s setting) (member, error)    { return ottla(s, kafka.ClassicGroup) }
func joinOttla848(s setting) (member, error) { return ottla(s, kafka.ConsumerGroup) }

func ottla(s setting, protocol kafka.GroupKind) (m member, err error) {
	w := new(wires)
	client, err := cluster.Connect(context.Background(), cluster.Config{Bootstrap: strings.Split(s.addr, ","), Dial: w.dial})
	if err != nil {
		return m, err
	}
	c, err := consumer.New(client, consumer.Config{Group: consumer.GroupConfig{
		ID: s.group, Topics: []string{s.topic}, Protocol: protocol, SessionTimeout: s.session, HeartbeatInterval: s.heartbeat, CommitInterval: time.Second,
	}})
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx, func(_ context.Context, b consumer.Batch) error {
			for o := range b.Records() {
				s.handle(b.Partition, o)
			}
			return nil
		})
	}()
	end := func() {
		cancel()
		<-done
		_ = client.Close()
	}
	return member{close: end, kill: func() {
		w.cut()
		go end()
	}}, nil
}

// joinKgo commits what a poll brought with the next one, and what is finished when
// partitions go, as its documentation has it.
func joinKgo(s setting) (member, error) {
	w := new(wires)
	cl, err := kgo.NewClient(
		kgo.Dialer(w.dial),
		kgo.SeedBrokers(strings.Split(s.addr, ",")...), kgo.ConsumerGroup(s.group), kgo.ConsumeTopics(s.topic),
		kgo.SessionTimeout(s.session), kgo.HeartbeatInterval(s.heartbeat), kgo.AutoCommitInterval(time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		return member{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			fs.EachRecord(func(r *kgo.Record) { s.handle(r.Partition, r.Offset) })
			cl.AllowRebalance()
		}
	}()
	end := func() {
		cancel()
		<-done
		_ = cl.CommitUncommittedOffsets(context.Background())
		cl.Close()
	}
	return member{close: end, kill: func() {
		w.cut()
		cancel()
		go cl.Close()
	}}, nil
}

// saramaHandler marks each record when it is handled.
type saramaHandler struct{ s setting }

func (saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			h.s.handle(m.Partition, m.Offset)
			session.MarkMessage(m, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func joinSarama(s setting) (member, error) {
	w := new(wires)
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, w
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.Session.Timeout = s.session
	cfg.Consumer.Group.Heartbeat.Interval = s.heartbeat
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	g, err := sarama.NewConsumerGroup(strings.Split(s.addr, ","), s.group, cfg)
	if err != nil {
		return member{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if g.Consume(ctx, []string{s.topic}, saramaHandler{s}) != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	end := func() {
		cancel()
		wg.Wait()
		_ = g.Close()
	}
	return member{close: end, kill: func() {
		w.cut()
		go end()
	}}, nil
}

// joinConfluent starts the program bin as a member, which a crash kills.
func joinConfluent(bin string) func(setting) (member, error) {
	return func(s setting) (member, error) {
		told, err := json.Marshal(load.Member{Addr: s.addr, Group: s.group, Topic: s.topic, Session: s.session, Heartbeat: s.heartbeat, Count: s.count})
		if err != nil {
			return member{}, err
		}
		cmd := exec.Command(bin, "member", string(told))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return member{}, err
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				partition, offset, each := strings.Cut(lines.Text(), " ")
				first, _ := strconv.ParseInt(partition, 10, 64)
				second, _ := strconv.ParseInt(offset, 10, 64)
				if each {
					s.handle(int32(first), second)
				} else {
					s.counted(time.Duration(first))
				}
			}
		}()
		end := func(sig os.Signal) {
			_ = cmd.Process.Signal(sig)
			<-read
			_ = cmd.Wait()
		}
		return member{close: func() { end(syscall.SIGTERM) }, kill: func() { end(syscall.SIGKILL) }}, nil
	}
}
