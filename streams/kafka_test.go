//go:build kafka

package streams

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
)

var broker *realkafka.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(workerMain())
	}
	props := map[string]string{
		"group.streams.session.timeout.ms": "6000", "group.streams.min.session.timeout.ms": "1000",
		"group.streams.heartbeat.interval.ms": "200", "group.streams.min.heartbeat.interval.ms": "100",
		"group.streams.min.task.offset.interval.ms": "1000", "group.streams.task.offset.interval.ms": "1000",
		"group.streams.max.size": fmt.Sprint(fullGroup), "offsets.retention.check.interval.ms": keepEmptyGroups,
	}
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Props: props}, func(c *realkafka.Cluster) { broker = c })
	}))
}

// keepEmptyGroups is between looks at groups, in milliseconds: a broker of these
// tests looks every second else, and forgets groups that are empty before a test
// can delete them.
const keepEmptyGroups = "600000"

var stages atomic.Int64

// minorOf is the minor version of the Kafka 4 under test. On an older one than 4.2,
// which only `make compat-suite` picks, the test is skipped: there is nothing to test.
func minorOf(t *testing.T) int {
	t.Helper()
	parts := strings.Split(broker.Version(), ".")
	minor, _ := strconv.Atoi(parts[1])
	if parts[0] != "4" || minor < 2 {
		t.Skipf("Kafka %s has no streams groups", broker.Version())
	}
	return minor
}

// onKafka is a stage on the real cluster.
func onKafka(t *testing.T) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(broker.Bootstrap(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s := &stage{t: t, ctx: ctx, k: c, minor: minorOf(t), prefix: fmt.Sprintf("s%d-", stages.Add(1))}
	s.topic = func(name string, n int) {
		createTopic(s, name, n, 1)
		// the coordinator knows of it later than Metadata, and a group that joins before has a missing source
		tries := 0
		s.until("the coordinator knows topic "+name, func() bool {
			tries++
			return !lacksSource(s.probes(fmt.Sprintf("probe-%s-%d", name, tries), name))
		})
	}
	s.applied = func(group string, interval int32) { // a moment after they are accepted
		s.until("the coordinator goes by the settings of "+group, func() bool {
			return s.probes(group, s.name("none")).HeartbeatIntervalMillis == interval
		})
	}
	s.grow = func(name string, n int) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = name, int32(n)
		req.Topics = append(req.Topics, rt)
		resp, err := c.Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if code := resp.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode; code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
	}
	return s
}

func createTopic(s *stage, name string, n int, replicas int16) {
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, int32(n), replicas
	req.Topics = append(req.Topics, rt)
	// a broker that is short of time is fenced for a while, and there are too few then
	s.until("topic "+name+" is created", func() bool {
		resp, err := s.k.Request(s.ctx, req)
		if err != nil {
			s.t.Fatal(err)
		}
		code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
		if code != 0 && code != kerr.InvalidReplicationFactor.Code {
			s.t.Fatal(kerr.ErrorForCode(code))
		}
		return code == 0
	})
	// brokers know of it a moment later
	s.until("brokers know topic "+name, func() bool {
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &name
		req.Topics = append(req.Topics, rt)
		resp, err := s.k.Request(s.ctx, req)
		if err != nil {
			s.t.Fatal(err)
		}
		t := resp.(*kmsg.MetadataResponse).Topics[0]
		return t.ErrorCode == 0 && len(t.Partitions) == n
	})
}

// TestKafkaScenarios holds the facts about coordinators against a real one.
func TestKafkaScenarios(t *testing.T) {
	runScenarios(t, func(t *testing.T, run func(s *stage)) { run(onKafka(t)) })
}

// probes is what a member is told that joins a group and leaves it. The group is
// deleted again.
func (s *stage) probes(group, topic string) *kmsg.StreamsGroupHeartbeatResponse {
	s.t.Helper()
	m := s.member(group, "probe", reading(topic))
	r := m.join()
	m.ok(m.request(-1))
	if err := Delete(s.ctx, s.k, m.group, false); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func lacksSource(r *kmsg.StreamsGroupHeartbeatResponse) bool {
	return slices.ContainsFunc(r.Status, func(st kmsg.StreamsGroupHeartbeatResponseStatus) bool { return st.StatusCode == 1 })
}
