package sim

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions is the range that a broker offers for one API key.
type Versions struct{ Min, Max int16 }

// DefaultVersions is a table of everything that kmsg knows, from version 0.
func DefaultVersions() map[int16]Versions {
	out := map[int16]Versions{}
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil {
			out[key] = Versions{0, req.MaxVersion()}
		}
	}
	return out
}

// SetVersions offers a range for one key. Keys and ranges that no client knows
// are fine.
func (b *Broker) SetVersions(key, low, high int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.versions[key] = Versions{low, high}
}

// RemoveVersions takes keys out of the broker's table.
func (b *Broker) RemoveVersions(keys ...int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range keys {
		delete(b.versions, k)
	}
}

// SetTable replaces the whole table by a copy of t.
func (b *Broker) SetTable(t map[int16]Versions) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.versions = maps.Clone(t)
}

// ApiVersions is the default answer to r: the table, or above the broker's
// own highest version code 35 in the form of version 0 with the range of
// ApiVersions alone (KIP-511). From version 5 a client that names another
// cluster or node gets code 129 (KIP-1242).
func (b *Broker) ApiVersions(r *Request) *kmsg.ApiVersionsResponse {
	req := r.Req.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.versions[int16(kmsg.ApiVersions)]
	if req.Version > own.Max {
		resp.Version = 0
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{apiKey(int16(kmsg.ApiVersions), own)}
		return resp
	}
	resp.ThrottleMillis = b.cluster.throttle()
	if req.Version >= 5 && req.ClusterID != nil && (*req.ClusterID != b.cluster.id() || req.NodeID != b.ID) {
		resp.ErrorCode = kerr.RebootstrapRequired.Code
		return resp
	}
	for _, key := range slices.Sorted(maps.Keys(b.versions)) {
		resp.ApiKeys = append(resp.ApiKeys, apiKey(key, b.versions[key]))
	}
	resp.FinalizedFeatures = b.cluster.features()
	if len(resp.FinalizedFeatures) > 0 {
		resp.FinalizedFeaturesEpoch = 1
	}
	return resp
}

func (c *Cluster) features() []kmsg.ApiVersionsResponseFinalizedFeature {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []kmsg.ApiVersionsResponseFinalizedFeature
	for _, name := range slices.Sorted(maps.Keys(c.t.Features)) {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, c.t.Features[name], c.t.Features[name]
		out = append(out, f)
	}
	return out
}

func apiKey(key int16, v Versions) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = key, v.Min, v.Max
	return k
}

func (c *Cluster) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t.ClusterID
}

// Default is the answer that the broker gives to r without a handler.
func (b *Broker) Default(r *Request) Answer {
	switch r.Req.(type) {
	case *kmsg.ApiVersionsRequest:
		return Reply(b.ApiVersions(r))
	case *kmsg.MetadataRequest:
		return Reply(b.cluster.Metadata(r))
	case *kmsg.FindCoordinatorRequest:
		return Reply(b.cluster.FindCoordinator(r))
	}
	if p, ok := r.Req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return Answer{}
	}
	resp := r.Response()
	if t, ok := resp.(kmsg.SetThrottleResponse); ok {
		t.SetThrottle(b.cluster.throttle())
	}
	return Reply(resp)
}
