package conn

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// tableOf is a broker's table from triples of key, minimum, maximum.
func tableOf(triples ...[3]int16) Versions {
	r := kmsg.NewPtrApiVersionsResponse()
	for _, t := range triples {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = t[0], t[1], t[2]
		r.ApiKeys = append(r.ApiKeys, k)
	}
	return NewVersions(r)
}

var unbound = Bounds{Min: NoBound, Max: NoBound, Cap: NoBound}

// TestC24TheVersionIsTheLowestOfAllLimits holds it for every API of kmsg.
func TestC24TheVersionIsTheLowestOfAllLimits(t *testing.T) {
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		top := req.MaxVersion()
		for broker := int16(0); broker <= top+2; broker++ {
			for limit := NoBound; limit <= top+1; limit++ {
				want := min(top, broker)
				if limit >= 0 {
					want = min(want, limit)
				}
				v := tableOf([3]int16{key, 0, broker})
				for name, b := range map[string]Bounds{"cap": {NoBound, NoBound, limit}, "caller": {NoBound, limit, NoBound}} {
					got, err := v.Pick(req, b)
					if err != nil || got != want {
						t.Fatalf("%s: broker %d, %s %d: version %d (%v), want %d", APIName(key), broker, name, limit, got, err, want)
					}
				}
			}
		}
	}
}

func TestC24APinIsKept(t *testing.T) {
	v := tableOf([3]int16{3, 0, 13})
	req := kmsg.NewPtrMetadataRequest()
	if got, err := v.Pick(req, Bounds{Min: 7, Max: 7, Cap: NoBound}); got != 7 || err != nil {
		t.Errorf("pinned to 7: %d, %v", got, err)
	}
	_, err := v.Pick(req, Bounds{Min: 14, Max: 14, Cap: NoBound})
	var ve *kafka.VersionError
	if !errors.As(err, &ve) || ve.ClientMin != 14 {
		t.Errorf("pinned to 14: %v", err)
	}
	_, err = v.Pick(req, Bounds{Min: 9, Max: NoBound, Cap: 4})
	if !errors.As(err, &ve) || ve.ClientMin != 9 || ve.ClientMax != 4 || !strings.Contains(err.Error(), "capped by the configuration") {
		t.Errorf("at least 9, capped at 4: %v", err)
	}
}

// TestC25NoCommonVersionNamesBothRanges is client 4-9 against broker 10-12,
// and the reverse.
func TestC25NoCommonVersionNamesBothRanges(t *testing.T) {
	req := kmsg.NewPtrMetadataRequest()
	for _, c := range []struct {
		lo, hi, blo, bhi int16
		old              string
	}{
		{4, 9, 10, 12, "this client is too old"}, {10, 12, 4, 9, "the broker is too old"},
	} {
		_, err := tableOf([3]int16{3, c.blo, c.bhi}).Pick(req, Bounds{Min: c.lo, Max: c.hi, Cap: NoBound})
		var ve *kafka.VersionError
		if !errors.As(err, &ve) || ve.ClientMin != c.lo || ve.ClientMax != c.hi || ve.BrokerMin != c.blo || ve.BrokerMax != c.bhi {
			t.Errorf("client %d-%d, broker %d-%d: %+v", c.lo, c.hi, c.blo, c.bhi, ve)
		} else if !strings.Contains(err.Error(), c.old) {
			t.Errorf("it is not plain who is old: %v", err)
		}
	}
}

func TestC26AnAPIMissingFromTheTableIsRefused(t *testing.T) {
	for name, v := range map[string]Versions{"a table without it": tableOf([3]int16{18, 0, 3}), "no table": {}} {
		_, err := v.Pick(kmsg.NewPtrMetadataRequest(), unbound)
		var ve *kafka.VersionError
		if !errors.As(err, &ve) || ve.BrokerMax != -1 || kafka.MayHaveHappened(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestC13UnknownAndNegativeKeysDoNoHarm(t *testing.T) {
	v := tableOf([3]int16{32767, 0, 1}, [3]int16{-1, 0, 1}, [3]int16{3, 1, 9}, [3]int16{4, 5, 2}, [3]int16{5, -1, 2}, [3]int16{kmsg.MaxKey + 1, 0, 1})
	if r, ok := v.Range(3); !ok || r != (Range{1, 9}) {
		t.Errorf("Metadata: %v %v", r, ok)
	}
	for _, k := range []int16{32767, -1, 4, 5, 6, kmsg.MaxKey + 1} {
		if r, ok := v.Range(k); ok {
			t.Errorf("key %d has the range %v", k, r)
		}
	}
	if !v.Known() || (Versions{}).Known() {
		t.Error("known is wrong")
	}
}

func TestC13FinalizedFeaturesAreKeptWithTheirEpoch(t *testing.T) {
	r := kmsg.NewPtrApiVersionsResponse()
	r.FinalizedFeaturesEpoch = 42
	for _, n := range []string{"transaction.version", "group.version"} {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = n, 1, 2
		r.FinalizedFeatures = append(r.FinalizedFeatures, f)
	}
	v := NewVersions(r)
	if level, ok := v.Feature("transaction.version"); !ok || level != 2 {
		t.Errorf("transaction.version: %d %v", level, ok)
	}
	if _, ok := v.Feature("streams.version"); ok {
		t.Error("a feature that is not there")
	}
	if fs, epoch := v.Features(); epoch != 42 || len(fs) != 2 || fs[0].Name != "group.version" {
		t.Errorf("features %v, epoch %d", fs, epoch)
	}
}

// TestK9WithoutAnIDARequestStaysWithNames also is the part of R6 about high
// versions without topic ids.
func TestK9WithoutAnIDARequestStaysWithNames(t *testing.T) {
	id := [16]byte{1}
	produce := func(ids ...[16]byte) kmsg.Request {
		r := kmsg.NewPtrProduceRequest()
		for _, id := range ids {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = "t", id
			r.Topics = append(r.Topics, t)
		}
		return r
	}
	fetch := func(forgotten bool, ids ...[16]byte) kmsg.Request {
		r := kmsg.NewPtrFetchRequest()
		for _, id := range ids {
			if forgotten {
				t := kmsg.NewFetchRequestForgottenTopic()
				t.Topic, t.TopicID = "t", id
				r.ForgottenTopics = append(r.ForgottenTopics, t)
				continue
			}
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = "t", id
			r.Topics = append(r.Topics, t)
		}
		return r
	}
	commit := func(id [16]byte) kmsg.Request {
		r := kmsg.NewPtrOffsetCommitRequest()
		tp := kmsg.NewOffsetCommitRequestTopic()
		tp.Topic, tp.TopicID = "t", id
		r.Topics = append(r.Topics, tp)
		return r
	}
	offsets := func(id [16]byte) kmsg.Request {
		r := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		tp := kmsg.NewOffsetFetchRequestGroupTopic()
		tp.Topic, tp.TopicID = "t", id
		g.Topics = append(g.Topics, tp)
		r.Groups = append(r.Groups, g)
		return r
	}
	none := [16]byte{}
	for _, c := range []struct {
		name string
		req  kmsg.Request
		want int16
	}{
		{"produce with ids", produce(id, id), 13}, {"produce, one without", produce(id, none), 12}, {"produce of nothing", produce(), 13},
		{"fetch with ids", fetch(false, id), 18}, {"fetch without", fetch(false, none), 12}, {"fetch of a known session", fetch(false), 18},
		{"fetch that forgets by name", fetch(true, none), 12}, {"fetch that forgets by id", fetch(true, id), 18},
		{"commit with id", commit(id), 10}, {"commit without", commit(none), 9},
		{"offset fetch with id", offsets(id), 10}, {"offset fetch without", offsets(none), 9},
	} {
		v := tableOf([3]int16{c.req.Key(), 0, 99})
		got, err := v.Pick(c.req, unbound)
		if err != nil || got != c.want {
			t.Errorf("%s: version %d (%v), want %d", c.name, got, err, c.want)
		}
		if c.want == 12 || c.want == 9 {
			_, err := tableOf([3]int16{c.req.Key(), c.want + 1, 99}).Pick(c.req, unbound)
			if err == nil || !strings.Contains(err.Error(), "a topic has no id") {
				t.Errorf("%s, broker without such versions: %v", c.name, err)
			}
		}
	}
}

func TestAPIsHaveKafkasNames(t *testing.T) {
	for key, want := range map[int16]string{0: "Produce", 17: "SaslHandshake", 22: "InitProducerId", 30: "CreateAcls", 45: "AlterPartitionReassignments", 999: "API 999"} {
		if got := APIName(key); got != want {
			t.Errorf("%d: %s, want %s", key, got, want)
		}
	}
}
