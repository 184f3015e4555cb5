package conn

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// NoBound in [Bounds] is no limit of the caller's own.
const NoBound int16 = -1

// APIVersionsKey is the key of ApiVersions, the one API whose answer always
// has header version 0.
const APIVersionsKey int16 = 18

// Range is a range of versions of one API.
type Range struct{ Min, Max int16 }

// Feature is a finalized feature of the cluster (KIP-584).
type Feature struct {
	Name     string
	Min, Max int16
}

// Versions is what a broker told in its ApiVersions answer: the table of APIs
// and the finalized features. It is immutable and safe for concurrent use. The
// zero value knows nothing, and refuses every API.
type Versions struct {
	apis     []Range // index = API key; Max -1 = the broker does not have it
	features []Feature
	epoch    int64
}

// NewVersions takes the table out of an answer. Keys that this client does not
// know, negative keys and ranges that are no ranges are left out.
func NewVersions(r *kmsg.ApiVersionsResponse) Versions {
	v := Versions{apis: make([]Range, kmsg.MaxKey+1), epoch: r.FinalizedFeaturesEpoch}
	for i := range v.apis {
		v.apis[i] = Range{-1, -1}
	}
	for _, k := range r.ApiKeys {
		if k.ApiKey < 0 || int(k.ApiKey) >= len(v.apis) || k.MinVersion < 0 || k.MaxVersion < k.MinVersion {
			continue
		}
		v.apis[k.ApiKey] = Range{k.MinVersion, k.MaxVersion}
	}
	for _, f := range r.FinalizedFeatures {
		v.features = append(v.features, Feature{Name: f.Name, Min: f.MinVersionLevel, Max: f.MaxVersionLevel})
	}
	slices.SortFunc(v.features, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) })
	return v
}

// Known reports whether a table was received.
func (v Versions) Known() bool { return v.apis != nil }

// Range is the broker's range of an API; ok is false if it does not have it.
func (v Versions) Range(key int16) (r Range, ok bool) {
	if key < 0 || int(key) >= len(v.apis) || v.apis[key].Max < 0 {
		return Range{-1, -1}, false
	}
	return v.apis[key], true
}

// Features are the finalized features by name, with the epoch of the list; -1
// is an unknown epoch, and then the list is empty or not to be relied on. The
// slice is the table's own: do not write to it.
func (v Versions) Features() (fs []Feature, epoch int64) { return v.features, v.epoch }

// Feature is the finalized level of one feature (KIP-584).
func (v Versions) Feature(name string) (level int16, ok bool) {
	for _, f := range v.features {
		if f.Name == name {
			return f.Max, true
		}
	}
	return 0, false
}

// Bounds are the limits that this side puts on the version of one request.
type Bounds struct {
	Min, Max int16 // of the caller; NoBound = none; a pin sets both
	Cap      int16 // of the user, for the API (Config.MaxVersions); NoBound = none
}

// Pick is the version at which req goes to this broker: the highest that the
// client, the broker, the caller, the user and the gates of the request's own
// fields allow. Otherwise it is a [*kafka.VersionError] without an address.
func (v Versions) Pick(req kmsg.Request, b Bounds) (int16, error) {
	key := req.Key()
	lo, hi, why := clientRange(req, b)
	broker, ok := v.Range(key)
	if ok && lo <= hi {
		if pick := min(hi, broker.Max); pick >= max(lo, broker.Min) {
			return pick, nil
		}
	}
	return 0, &kafka.VersionError{
		API: key, Name: APIName(key), ClientMin: lo, ClientMax: hi,
		BrokerMin: broker.Min, BrokerMax: broker.Max, Constraint: why, Controller: v.OfController(),
	}
}

// OfController reports whether the table is that of a controller (KIP-919):
// brokers register with controllers, which have no Metadata.
func (v Versions) OfController() bool {
	const metadata, brokerRegistration = 3, 62
	_, registers := v.Range(brokerRegistration)
	_, maps := v.Range(metadata)
	return registers && !maps
}

// clientRange is the range of versions that this side allows, and what made it
// smaller than what the client knows.
func clientRange(req kmsg.Request, b Bounds) (lo, hi int16, why string) {
	lo, hi = 0, req.MaxVersion()
	lower := func(to int16, reason string) {
		if to >= 0 && to < hi {
			hi, why = to, reason
		}
	}
	lower(b.Cap, "capped by the configuration")
	lower(b.Max, "the caller allows no higher one")
	gate, reason := Gate(req)
	lower(gate, reason)
	raise := func(to int16, reason string) {
		if to > lo {
			lo = to
			if why == "" {
				why = reason
			}
		}
	}
	raise(Need(req))
	raise(b.Min, "the caller allows no lower one")
	return lo, hi, why
}

// Gate is the highest version that the fields of req allow, NoBound if they
// allow all, with the reason (K9): a topic without an id can only be named in
// the versions that still carry names.
func Gate(req kmsg.Request) (limit int16, why string) {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		if slices.ContainsFunc(r.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.TopicID == [16]byte{} }) {
			return 12, "a topic has no id"
		}
	case *kmsg.FetchRequest:
		if fetchNeedsNames(r) {
			return 12, "a topic has no id"
		}
	case *kmsg.OffsetCommitRequest:
		if slices.ContainsFunc(r.Topics, func(t kmsg.OffsetCommitRequestTopic) bool { return t.TopicID == [16]byte{} }) {
			return 9, "a topic has no id"
		}
	case *kmsg.OffsetFetchRequest:
		if offsetFetchNeedsNames(r) {
			return 9, "a topic has no id"
		}
	}
	return NoBound, ""
}

func fetchNeedsNames(r *kmsg.FetchRequest) bool {
	for i := range r.Topics {
		if r.Topics[i].TopicID == [16]byte{} {
			return true
		}
	}
	for i := range r.ForgottenTopics {
		if r.ForgottenTopics[i].TopicID == [16]byte{} {
			return true
		}
	}
	return false
}

func offsetFetchNeedsNames(r *kmsg.OffsetFetchRequest) bool {
	for i := range r.Groups {
		for j := range r.Groups[i].Topics {
			if r.Groups[i].Topics[j].TopicID == [16]byte{} {
				return true
			}
		}
	}
	return false
}

// APIName is Kafka's name of an API, "API 999" for one that is not known.
func APIName(key int16) string {
	if n, ok := kafkaNames[key]; ok {
		return n
	}
	if n := kmsg.NameForKey(key); n != "Unknown" {
		return n
	}
	return "API " + itoa(int64(key))
}

// kafkaNames are the names that kmsg spells in its own way.
var kafkaNames = map[int16]string{
	4: "LeaderAndIsr", 17: "SaslHandshake", 22: "InitProducerId", 29: "DescribeAcls", 30: "CreateAcls", 31: "DeleteAcls",
	36: "SaslAuthenticate", 45: "AlterPartitionReassignments", 50: "DescribeUserScramCredentials", 51: "AlterUserScramCredentials",
	67: "AllocateProducerIds",
}
