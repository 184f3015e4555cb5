//go:build kafka

package model

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/realkafka"
)

var real *realkafka.Cluster

func TestMain(m *testing.M) {
	os.Exit(realkafka.Run(m, realkafka.Options{}, func(c *realkafka.Cluster) { real = c }))
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
// scripts, at both levels. Kafka before 4.0 does not have the feature.
func TestBrokersDoWhatTheModelDoes(t *testing.T) {
	for _, level := range []int16{1, 2} {
		dial(t).setLevel(level)
		for i, name := range slices.Sorted(maps.Keys(facts)) {
			t.Run(fmt.Sprintf("%s/level %d", name, level), func(t *testing.T) {
				w := dial(t)
				id := fmt.Sprintf("facts-%d-%d", level, i)
				w.createTopic(id)
				w.findCoordinator(0, id)
				w.findCoordinator(1, id)
				facts[name](&script{t: t, b: w, level: level, id: id, topic: id})
			})
		}
	}
}
