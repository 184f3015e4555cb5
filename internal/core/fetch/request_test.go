package fetch

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// javaRequests are bodies that Java's consumers sent to a broker.
var javaRequests = []struct {
	who     string
	version int16
	fetch   bool
	body    string
}{
	{"kafka-clients 2.8.2", 12, true, "ffffffff000000640000000103200000010000000000000000020a6f6c642d322e382e320200000000000000000000000000000001ffffffffffffffffffffffff001000000000010100"},
	{"kafka-clients 3.9.1", 17, true, "000000640000000103200000010000000000000000022b535840fd4c4a9bb5f535d9bc8cadc80200000000000000000000000000000001ffffffffffffffffffffffff001000000000010100"},
	{"kafka-clients 4.4.0", 18, true, "00000064000000010320000000000000000000000002e1828bb605684d3cb3d6415a635931c80400000000000000000000000000000001ffffffffffffffffffffffff001000000000000001000000000000000000000000ffffffffffffffffffffffff001000000000000002000000000000000000000000ffffffffffffffffffffffff0010000000000103723100"},
	{"kafka-clients 2.8.2", 6, false, "ffffffff01020a6f6c642d322e382e32020000000100000000fffffffffffffffe000000"},
	{"kafka-clients 3.9.1", 9, false, "ffffffff01020a6f6c642d332e392e31020000000100000000fffffffffffffffe000000"},
	{"kafka-clients 4.4.0", 11, false, "ffffffff0002067265712d61040000000100000000fffffffffffffffe000000000000000000fffffffffffffffe000000000200000000fffffffffffffffe00000000753000"},
}

// likeJava is a rig whose settings and assignment are those of a request.
func likeJava(t *testing.T, iso int8, topics map[string]map[int32]Start, ids map[string]kafka.TopicID) *rig {
	cfg := testConfig()
	cfg.MaxWait, cfg.MaxBytes, cfg.Budget = 100*time.Millisecond, 50<<20, 1<<30
	if iso == 0 {
		cfg.Isolation = ReadUncommitted
	}
	r := newRig(t, cfg)
	return r.assignAll(topics, ids)
}

func (r *rig) assignAll(topics map[string]map[int32]Start, ids map[string]kafka.TopicID) *rig {
	starts, infos := map[kafka.TopicPartition]Start{}, map[string]TopicInfo{}
	for name, parts := range topics {
		ti := TopicInfo{ID: ids[name], Partitions: []PartitionInfo{{Leader: 1}, {Leader: 1}, {Leader: 1}}}
		for p, s := range parts {
			starts[tp(name, p)] = s
		}
		infos[name] = ti
	}
	r.m.Assign(starts)
	r.step()
	r.settleLookups(infos)
	return r
}

func TestK19RequestBodiesAreJavasAtEqualFieldValues(t *testing.T) {
	for _, c := range javaRequests {
		body, err := hex.DecodeString(c.body)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		if c.fetch {
			got = fetchLike(t, c.version, body)
		} else {
			got = listLike(t, c.version, body)
		}
		if hex.EncodeToString(got) != c.body {
			t.Errorf("%s, version %d:\n ours %x\n Java %s", c.who, c.version, got, c.body)
		}
	}
}

func fetchLike(t *testing.T, version int16, body []byte) []byte {
	java := kmsg.NewPtrFetchRequest()
	java.Version = version
	if err := java.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	topics, ids := map[string]map[int32]Start{}, map[string]kafka.TopicID{}
	for _, rt := range java.Topics {
		name := rt.Topic
		if version >= 13 {
			name = "by id"
			ids[name] = rt.TopicID
		}
		topics[name] = map[int32]Start{}
		for _, rp := range rt.Partitions {
			topics[name][rp.Partition] = AtOffset(kafka.Offset(rp.FetchOffset))
		}
	}
	r := likeJava(t, java.IsolationLevel, topics, ids)
	req := take[*FetchAction](r).Req
	// Java's have a rack, one is of a session that goes on, and its answers are large from the first.
	req.MaxBytes = java.MaxBytes
	req.SessionID, req.SessionEpoch, req.Rack = java.SessionID, java.SessionEpoch, java.Rack
	req.Version = version
	return req.AppendTo(nil)
}

func listLike(t *testing.T, version int16, body []byte) []byte {
	java := kmsg.NewPtrListOffsetsRequest()
	java.Version = version
	if err := java.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	topics := map[string]map[int32]Start{}
	for _, rt := range java.Topics {
		topics[rt.Topic] = map[int32]Start{}
		for _, rp := range rt.Partitions {
			topics[rt.Topic][rp.Partition] = Earliest()
		}
	}
	r := likeJava(t, java.IsolationLevel, topics, nil)
	req := take[*ListAction](r).Req
	// Java's order within a topic is that of a hash map.
	byID := map[int32]kmsg.ListOffsetsRequestTopicPartition{}
	for _, rp := range req.Topics[0].Partitions {
		byID[rp.Partition] = rp
	}
	for i, rp := range java.Topics[0].Partitions {
		req.Topics[0].Partitions[i] = byID[rp.Partition]
	}
	req.Version = version
	return req.AppendTo(nil)
}

func TestK19EveryFieldOfTheRequestsIsSet(t *testing.T) {
	r := newRig(t, testConfig()).assignAll(map[string]map[int32]Start{"t": {0: AtOffset(5), 1: Latest()}},
		map[string]kafka.TopicID{"t": topicID("t")})
	f := take[*FetchAction](r).Req
	p := f.Topics[0].Partitions[0]
	if f.ReplicaID != -1 || f.MinBytes != 1 || f.IsolationLevel != 1 || f.Rack != "" || f.ClusterID != nil ||
		f.MaxBytes != leastPortion || len(f.ForgottenTopics) != 0 || f.SessionID != 0 || f.SessionEpoch != 0 {
		t.Errorf("%+v", f)
	}
	if p.FetchOffset != 5 || p.LastFetchedEpoch != -1 || p.LogStartOffset != -1 || p.PartitionMaxBytes != 1<<20 || p.CurrentLeaderEpoch != 0 {
		t.Errorf("%+v", p)
	}
	if f.MaxWaitMillis != 1 { // partition 1 is being looked up and wants in soon
		t.Errorf("wait %d ms", f.MaxWaitMillis)
	}
	l := take[*ListAction](r).Req
	lp := l.Topics[0].Partitions[0]
	if l.ReplicaID != -1 || l.IsolationLevel != 1 || l.TimeoutMillis != 30_000 || lp.Timestamp != -1 || lp.Partition != 1 || lp.CurrentLeaderEpoch != 0 {
		t.Errorf("%+v", l)
	}
}
