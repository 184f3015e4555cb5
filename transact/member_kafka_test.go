//go:build kafka

package transact

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// part says what a member of ottla does in a process of its own: the program is
// this test binary.
type part struct {
	Bootstrap, Group, Topic string
	Protocol                kafka.GroupKind
	Assignors               []consumer.Assignor
	Session                 time.Duration // classic
	Out, TransactionalID    string        // it copies records to Out exactly once, if given
}

// partVariable holds a part in the environment of such a process.
const partVariable = "OTTLA_TEST_MEMBER"

// report is a line that a member writes, in the form of Kafka's
// VerifiableConsumer.
type report struct {
	Timestamp  int64     `json:"timestamp"` // ms
	Name       string    `json:"name"`
	Partitions []stretch `json:"partitions,omitempty"`
	Error      string    `json:"error,omitempty"`
}

// stretch is a partition, with what was read of it.
type stretch struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	MinOffset kafka.Offset `json:"minOffset"`
	MaxOffset kafka.Offset `json:"maxOffset"`
}

// transactionTimeout of all copiers: above the pauses, as brokers without the
// second protocol fence whose transaction took too long.
const transactionTimeout = 20 * time.Second

// revocation is how long a callback is waited for, at the default of
// RebalanceTimeout.
const revocation = 54 * time.Second

const (
	assigned = "partitions_assigned"
	revoked  = "partitions_revoked"
	lost     = "partitions_lost"
	handled  = "records_consumed"
	finished = "shutdown_complete"

	listening   = "listening" // to signals; this and the next two are ottla's alone
	rebalancing = "rebalancing"
	joined      = "joined"
)

// performer is the member.
type performer struct {
	part
	mu sync.Mutex // one line at a time
}

func (p *performer) say(name string, err error, ps ...stretch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := report{Timestamp: time.Now().UnixMilli(), Name: name, Partitions: ps}
	if err != nil {
		r.Error = err.Error()
	}
	line, _ := json.Marshal(r)
	fmt.Println(string(line))
}

func stretches(tps []kafka.TopicPartition) (ps []stretch) {
	for _, tp := range tps {
		ps = append(ps, stretch{Topic: tp.Topic, Partition: tp.Partition})
	}
	return ps
}

// perform is the whole process of a member, and gives its exit status.
func perform(text string) int {
	var p performer
	if err := json.Unmarshal([]byte(text), &p.part); err != nil {
		panic(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	p.say(listening, nil)
	err := p.run(ctx)
	p.say(finished, err)
	if err != nil {
		return 1
	}
	return 0
}

func (p *performer) run(ctx context.Context) error {
	client, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(p.Bootstrap, ","), MetadataMaxAge: 5 * time.Second})
	if ctx.Err() != nil && err != nil {
		return nil // asked to end before it was connected
	} else if err != nil {
		return err
	}
	defer client.Close()
	in := consumer.Config{MaxPollRecords: 100, Group: p.group()}
	if p.Out != "" {
		r, err := New(client, Config{
			Consumer: in, Producer: producer.Config{TransactionalID: p.TransactionalID, TransactionTimeout: transactionTimeout}, Interval: 50 * time.Millisecond,
		}, copying(p.Out))
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	c, err := consumer.New(client, in)
	if err != nil {
		return err
	}
	return c.Run(ctx, func(_ context.Context, b consumer.Batch) error {
		p.say(handled, nil, stretch{b.TopicPartition().Topic, b.TopicPartition().Partition, b.First(), b.Next() - 1})
		return nil
	})
}

func (p *performer) group() consumer.GroupConfig {
	return consumer.GroupConfig{
		ID: p.Group, Topics: []string{p.Topic}, Protocol: p.Protocol, Assignors: p.Assignors,
		SessionTimeout: p.Session, CommitInterval: time.Second,
		OnAssigned: func(_ *consumer.Consumer, at map[kafka.TopicPartition]kafka.Commit) {
			var tps []kafka.TopicPartition
			for tp := range at {
				tps = append(tps, tp)
			}
			p.say(assigned, nil, stretches(tps)...)
		},
		OnRevoked: func(_ *consumer.Consumer, tps []kafka.TopicPartition) { p.say(revoked, nil, stretches(tps)...) },
		OnLost: func(_ *consumer.Consumer, tps []kafka.TopicPartition, err error) {
			p.say(lost, err, stretches(tps)...)
		},
		OnEvent: func(_ *consumer.Consumer, e consumer.GroupEvent) {
			fmt.Fprintln(os.Stderr, time.Now().UnixMilli(), e.Kind, e.Cause, e.Err)
			if e.Kind == consumer.GroupRebalancing || e.Kind == consumer.GroupJoined {
				p.say(e.Kind.String(), nil)
			}
		},
	}
}
