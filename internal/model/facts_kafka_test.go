//go:build kafka

package model

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/kafka"
)

var real *realkafka.Cluster

func TestMain(m *testing.M) {
	forgetful := map[string]string{ // soon, so that tests need not wait for days
		"transactional.id.expiration.ms": "20000", "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
		"producer.id.expiration.ms": "10000", "producer.id.expiration.check.interval.ms": "1000",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
	}
	os.Exit(realkafka.Run(m, realkafka.Options{Props: forgetful}, func(c *realkafka.Cluster) { real = c }))
}

// wire is one connection to a real broker, one request at a time.
type wire struct {
	t    *testing.T
	conn net.Conn
	sent int32
}

func dial(t *testing.T) *wire {
	conn, err := net.Dial("tcp", real.Addr(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t: t, conn: conn}
}

func (w *wire) pause() { time.Sleep(5 * time.Millisecond) }

func (w *wire) ask(req kmsg.Request) kmsg.Response {
	w.t.Helper()
	w.sent++
	_ = w.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := w.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, w.sent)); err != nil {
		w.t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(w.conn, size[:]); err != nil {
		w.t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.conn, frame); err != nil {
		w.t.Fatal(err)
	}
	body := frame[4:]
	resp := req.ResponseKind()
	if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		w.t.Fatal(err)
	}
	return resp
}

func (w *wire) createTopic(name string) {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 5, 30_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 2, 1
	forever := kmsg.NewCreateTopicsRequestTopicConfig() // the records of the scripts are years old
	forever.Name, forever.Value = "retention.ms", kmsg.StringPtr("-1")
	rt.Configs = append(rt.Configs, forever)
	req.Topics = append(req.Topics, rt)
	if code := w.ask(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		w.t.Fatalf("create topic: code %d", code)
	}
	for range 1000 {
		meta := kmsg.NewPtrMetadataRequest()
		meta.Version = 9
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = &name
		meta.Topics = append(meta.Topics, mt)
		of := w.ask(meta).(*kmsg.MetadataResponse).Topics[0]
		if of.ErrorCode == 0 && len(of.Partitions) == 2 && of.Partitions[0].Leader == 1 && of.Partitions[1].Leader == 1 {
			return
		}
		w.pause()
	}
	w.t.Fatal("the topic has no leaders")
}

func (w *wire) findCoordinator(kind int8, key string) {
	w.t.Helper()
	for range 4000 {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKey = 3, kind, key
		if w.ask(req).(*kmsg.FindCoordinatorResponse).ErrorCode == 0 {
			return
		}
		w.pause()
	}
	w.t.Fatal("no coordinator")
}

func (w *wire) setLevel(level int16) {
	w.t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.Version, req.TimeoutMillis = 1, 30_000
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType = feature, level, 1
	if level < 2 {
		f.UpgradeType = 2
	}
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	resp := w.ask(req).(*kmsg.UpdateFeaturesResponse)
	if resp.ErrorCode != 0 {
		w.t.Fatalf("set %s to %d: code %d", feature, level, resp.ErrorCode)
	}
	for range 4000 {
		versions := kmsg.NewPtrApiVersionsRequest()
		versions.Version, versions.ClientSoftwareName, versions.ClientSoftwareVersion = 3, "test", "1"
		for _, f := range w.ask(versions).(*kmsg.ApiVersionsResponse).FinalizedFeatures {
			if f.Name == feature && f.MaxVersionLevel == level {
				return
			}
		}
		w.pause()
	}
	w.t.Fatal("the level does not change")
}

// TestBrokersDoWhatTheModelDoes holds the model to a real broker: the same
// scripts, at both levels. Kafka before 4.0 has neither.
func TestBrokersDoWhatTheModelDoes(t *testing.T) {
	for _, level := range levels() {
		if level > 0 {
			dial(t).setLevel(level)
		}
		t.Run("facts", func(t *testing.T) {
			everyFact(t, level, level > 0, func(t *testing.T, name string, fact func(s *script)) {
				t.Parallel()
				fact(realScript(t, level))
			})
		})
	}
}

// levels of transaction.version that the broker under test can have; 0 says
// that it does not know the feature.
func levels() []int16 {
	if !strings.HasPrefix(real.Version(), "4.") {
		return []int16{0}
	}
	return []int16{1, 2}
}

// realScript is a script with an id and a topic of its own.
func realScript(t *testing.T, level int16) *script {
	t.Helper()
	w := dial(t)
	id := fmt.Sprintf("facts-%d-%d", level, scripts.Add(1))
	w.createTopic(id)
	w.findCoordinator(0, id)
	w.findCoordinator(1, id)
	return &script{t: t, b: w, level: level, id: id, topic: id, partTwo: level > 0}
}

var scripts atomic.Int32

// longFacts has the facts that take minutes run in full: all epochs of an id,
// and expiry at each level.
func longFacts() bool { return os.Getenv("OTTLA_FACTS") == "long" }

// Scenario 15: after the last epoch of an id comes 0 of another one, and the old
// pair gets 49. Without OTTLA_FACTS=long only the first epochs are taken.
func TestRealScenario15EpochsAreExhausted(t *testing.T) {
	s := realScript(t, levels()[0])
	p, last := s.mint(), kafka.ProducerEpoch(200)
	if longFacts() {
		last = math.MaxInt16 - 1
	}
	for p.epoch < last {
		q := s.mint()
		s.wantPair("mint", q, p.plus(1))
		p = q
	}
	if !longFacts() {
		return
	}
	s.write(p, 0, 0, true)
	q := s.mint()
	if q.id == p.id || q.epoch != 0 {
		t.Fatalf("after %v comes %v", p, q)
	}
	s.want("produce of the old pair", s.produce(11, p, 0, 1), 49)
	s.want("add of the old pair", s.addOnce(3, p, 0), 49)
	_, code := s.end(4, p, true)
	s.want("end of the old pair", code, 49)
	s.write(q, 0, 0, true)
	s.wantCommitted(0, value(p, 0), value(q, 0))
}

// What is not used for some time is forgotten: how long is in TestMain.
func TestRealExpiry(t *testing.T) {
	ls := levels()
	if !longFacts() {
		ls = ls[len(ls)-1:]
	}
	for _, level := range ls {
		if level > 0 {
			dial(t).setLevel(level)
		}
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			t.Run("Scenario17 the transactional id", func(t *testing.T) {
				t.Parallel()
				s := realScript(t, level)
				p := s.takeOver()
				s.write(p, 0, 0, true)
				s.until("the id is forgotten", func() bool { return s.describe() == 105 })
				s.want("add", s.addOnce(3, p, 0), 49)
				_, code := s.endOnce(4, p, true)
				s.want("end", code, 49)
				s.want("produce", s.produce(11, p, 0, 1), 49)
				q, code := s.init(p)
				s.want("re-init", code, 0) // which is why it is forbidden after a gap
				if q.id == p.id || q.epoch != 0 {
					t.Errorf("a re-init with %v gives %v", p, q)
				}
				_, code = s.init(p)
				s.want("and after that", code, 90)
			})
			t.Run("Scenario18 the producer at a partition", func(t *testing.T) {
				t.Parallel()
				s := realScript(t, level)
				p := s.takeOver()
				for part := range int32(2) {
					s.write(p, part, 0, true)
					s.write(p, part, 1, true)
				}
				s.until("the partitions have forgotten it", func() bool { return !s.knows(p, 0) && !s.knows(p, 1) })
				s.write(p, 0, 2, true) // the holder goes on with its next number
				s.takeOver()
				s.want("the fence is the coordinator's alone", s.produce(11, p, 1, 2), 47)
				s.wantCommitted(0, value(p, 0), value(p, 1), value(p, 2))
				s.wantCommitted(1, value(p, 0), value(p, 1))
			})
			t.Run("Scenario3 a transaction that is open too long", func(t *testing.T) {
				t.Parallel()
				s := realScript(t, level)
				s.timeout = 5000 // what is done before must be done in time
				p := s.takeOver()
				s.want("add", s.add(p, 0), 0)
				s.want("produce", s.produce(11, p, 0, 0), 0)
				s.until("the coordinator has ended it", func() bool { return s.stable(0) > 0 })
				s.want("produce", s.produce(11, p, 0, 1), 47)
				_, code := s.end(4, p, true)
				s.want("commit", code, 90)
				_, code = s.end(4, p, false)
				s.want("abort", code, 90)
				if s.partTwo {
					_, code = s.end(5, p, true)
					s.want("commit 5", code, 48)
				}
				s.wantCommitted(0)
				_, code = s.init(p)
				if level >= 2 {
					s.want("re-init", code, 0)
				} else {
					s.want("re-init", code, 90) // although nobody else minted
				}
			})
		})
	}
}

// T27: without verification a fenced holder's record is taken, and committed
// by its successor's marker.
func TestRealT27WithoutVerification(t *testing.T) {
	w := dial(t)
	for _, level := range levels() {
		if level > 0 {
			w.setLevel(level)
		}
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			s := realScript(t, level)
			p := s.takeOver()
			s.write(p, 0, 0, true)
			w.verify(false)
			t.Cleanup(func() { w.verify(true) })
			s.withoutVerification(p)
		})
	}
}

// until asks again for at most two minutes.
func (s *script) until(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("not after two minutes: ", what)
		}
	}
}

// describe is the code for the transactional id.
func (s *script) describe() int16 {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{s.id}
	return s.b.ask(req).(*kmsg.DescribeTransactionsResponse).TransactionStates[0].ErrorCode
}

// knows reports whether a partition remembers a producer.
func (s *script) knows(p pair, part int32) bool {
	s.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = s.topic, []int32{part}
	req.Topics = append(req.Topics, rt)
	a := s.b.ask(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
	s.want("describe producers", a.ErrorCode, 0)
	for _, r := range a.ActiveProducers {
		if r.ProducerID == int64(p.id) {
			return true
		}
	}
	return false
}

// verify has brokers verify transactions or not, and waits until they do.
func (w *wire) verify(on bool) {
	const name = "transaction.partition.verification.enable"
	value := fmt.Sprint(on)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType = kmsg.ConfigResourceTypeBroker
	rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	rc.Name, rc.Value = name, &value
	rr.Configs = append(rr.Configs, rc)
	req.Resources = append(req.Resources, rr)
	if code := w.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; code != 0 {
		w.t.Errorf("alter %s: code %d", name, code)
		return
	}
	for range 4000 {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 1
		dr := kmsg.NewDescribeConfigsRequestResource()
		dr.ResourceType, dr.ResourceName, dr.ConfigNames = kmsg.ConfigResourceTypeBroker, "1", []string{name}
		req.Resources = append(req.Resources, dr)
		for _, c := range w.ask(req).(*kmsg.DescribeConfigsResponse).Resources[0].Configs {
			if c.Name == name && c.Value != nil && *c.Value == value {
				return
			}
		}
		w.pause()
	}
	w.t.Errorf("%s does not change", name)
}
