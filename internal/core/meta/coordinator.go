package meta

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// CoordinatorKind is Kafka's coordinator type in FindCoordinator.
type CoordinatorKind = kafka.CoordinatorKind

// CoordinatorKey names one coordinator.
type CoordinatorKey struct {
	Kind CoordinatorKind
	Key  string
}

func (k CoordinatorKey) compare(o CoordinatorKey) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), strings.Compare(k.Key, o.Key))
}

// Lookup is one FindCoordinator request to make. Its keys are sorted and in
// one request where the broker can (version 4), else in one each.
type Lookup struct {
	Kind CoordinatorKind
	Keys []string
}

// Found is the end of the search for one coordinator: where it is, or the
// error that ends it.
type Found struct {
	CoordinatorKey
	Broker kafka.Broker
	Err    error
}

// maxLookupKeys bounds the keys of one request.
const maxLookupKeys = 500

// Coordinators is the cache of coordinators: one lookup for all who wait for
// a key, repeated while somebody waits.
type Coordinators struct {
	backoff retry.Backoff
	rng     *rand.Rand
	known   map[CoordinatorKey]kafka.Broker
	search  map[CoordinatorKey]*search
}

// search is a lookup that somebody waits for.
type search struct {
	waiters  int
	flying   bool
	attempts int
	at       time.Time // when the next attempt is due
	err      error     // of the last attempt
}

// NewCoordinators returns an empty cache.
func NewCoordinators(backoff retry.Backoff, rng *rand.Rand) *Coordinators {
	return &Coordinators{
		backoff: backoff, rng: rng,
		known:  make(map[CoordinatorKey]kafka.Broker),
		search: make(map[CoordinatorKey]*search),
	}
}

// Known is the cached coordinator.
func (c *Coordinators) Known(k CoordinatorKey) (kafka.Broker, bool) {
	b, ok := c.known[k]
	return b, ok
}

// Want adds a waiter for a key that is not known. Each Want is ended by a
// Found for the key, or by Leave.
func (c *Coordinators) Want(now time.Time, k CoordinatorKey) {
	s := c.search[k]
	if s == nil {
		s = &search{at: now}
		c.search[k] = s
	}
	s.waiters++
}

// Leave takes a waiter away. A lookup in flight goes on, and its answer is
// kept; without waiters it is not repeated. It returns why the last attempt
// did not find the coordinator.
func (c *Coordinators) Leave(k CoordinatorKey) error {
	s := c.search[k]
	if s == nil {
		return nil
	}
	s.waiters--
	if s.waiters <= 0 && !s.flying {
		delete(c.search, k)
	}
	return s.err
}

// Forget drops an entry. If node is not kafka.NoNode, only while the entry
// still names it.
func (c *Coordinators) Forget(k CoordinatorKey, node kafka.NodeID) {
	if node == kafka.NoNode || c.known[k].ID == node {
		delete(c.known, k)
	}
}

// Renew looks up an entry that still names node, though nobody waits. The entry
// stays until an answer names another coordinator.
func (c *Coordinators) Renew(now time.Time, k CoordinatorKey, node kafka.NodeID) {
	if b, ok := c.known[k]; ok && b.ID == node && c.search[k] == nil {
		c.search[k] = &search{at: now}
	}
}

// ForgetNode drops every entry that names the node, which left the cluster.
func (c *Coordinators) ForgetNode(node kafka.NodeID) {
	for k, b := range c.known {
		if b.ID == node {
			delete(c.known, k)
		}
	}
}

// Moved drops every entry that has the node at another address than the cluster
// names now.
func (c *Coordinators) Moved(to kafka.Broker) {
	for k, b := range c.known {
		if b.ID == to.ID && b.Addr() != to.Addr() {
			delete(c.known, k)
		}
	}
}

// ForgetAll drops every entry.
func (c *Coordinators) ForgetAll() { clear(c.known) }

// Addrs are the addresses of cached coordinators.
func (c *Coordinators) Addrs() map[string]bool {
	as := make(map[string]bool, len(c.known))
	for _, b := range c.known {
		as[b.Addr()] = true
	}
	return as
}

// Deadline is when Next has something to do, zero for never.
func (c *Coordinators) Deadline() time.Time {
	var at time.Time
	for _, s := range c.search {
		if !s.flying && (at.IsZero() || s.at.Before(at)) {
			at = s.at
		}
	}
	return at
}

// Next returns the lookup to send at now, if one is due.
func (c *Coordinators) Next(now time.Time) (Lookup, bool) {
	var due []CoordinatorKey
	for k, s := range c.search {
		if !s.flying && !s.at.After(now) {
			due = append(due, k)
		}
	}
	if len(due) == 0 {
		return Lookup{}, false
	}
	slices.SortFunc(due, CoordinatorKey.compare)
	l := Lookup{Kind: due[0].Kind}
	for _, k := range due {
		if k.Kind == l.Kind && len(l.Keys) < maxLookupKeys {
			c.search[k].flying = true
			l.Keys = append(l.Keys, k.Key)
		}
	}
	return l, true
}

// OnAnswer ends the lookup of the given keys. Keys that the answer leaves out,
// and those whose code asks for patience, are looked up again while somebody
// waits for them.
func (c *Coordinators) OnAnswer(now time.Time, l Lookup, resp *kmsg.FindCoordinatorResponse) []Found {
	answers := make(map[string]kmsg.FindCoordinatorResponseCoordinator, len(resp.Coordinators)+1)
	for _, rc := range resp.Coordinators {
		answers[rc.Key] = rc
	}
	if resp.Version < 4 && len(l.Keys) == 1 {
		answers[l.Keys[0]] = kmsg.FindCoordinatorResponseCoordinator{
			NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port,
			ErrorCode: resp.ErrorCode, ErrorMessage: resp.ErrorMessage,
		}
	}
	var out []Found
	for _, key := range l.Keys {
		k := CoordinatorKey{Kind: l.Kind, Key: key}
		rc := answers[key] // one that is left out has no host
		if rc.ErrorCode == 0 && (rc.NodeID < 0 || rc.Host == "" || rc.Port <= 0) {
			rc.ErrorCode = kerr.CoordinatorNotAvailable.Code
		}
		if f, over := c.answer(now, k, rc); over {
			out = append(out, f)
		}
	}
	return out
}

func (c *Coordinators) answer(now time.Time, k CoordinatorKey, rc kmsg.FindCoordinatorResponseCoordinator) (Found, bool) {
	f := Found{CoordinatorKey: k, Err: kafka.CodeError(rc.ErrorCode, rc.ErrorMessage)}
	if f.Err == nil {
		f.Broker = kafka.Broker{ID: kafka.NodeID(rc.NodeID), Host: rc.Host, Port: rc.Port}
		c.known[k] = f.Broker
		delete(c.search, k)
		return f, true
	}
	switch retry.ForFindCoordinator(rc.ErrorCode) {
	case retry.Retry, retry.FindCoordinator:
		c.again(now, k, f.Err)
		return f, false
	}
	delete(c.search, k)
	return f, true
}

// OnFailure ends a lookup that no broker answered; it is repeated while
// somebody waits.
func (c *Coordinators) OnFailure(now time.Time, l Lookup, err error) {
	for _, key := range l.Keys {
		c.again(now, CoordinatorKey{Kind: l.Kind, Key: key}, err)
	}
}

// Fail ends the search for the keys of a lookup with err.
func (c *Coordinators) Fail(l Lookup, err error) []Found {
	var out []Found
	for _, key := range l.Keys {
		k := CoordinatorKey{Kind: l.Kind, Key: key}
		delete(c.search, k)
		out = append(out, Found{CoordinatorKey: k, Err: err})
	}
	return out
}

func (c *Coordinators) again(now time.Time, k CoordinatorKey, err error) {
	s := c.search[k]
	if s == nil {
		return
	}
	s.flying = false
	if s.waiters <= 0 {
		delete(c.search, k)
		return
	}
	s.attempts++
	s.err = err
	s.at = now.Add(c.backoff.Delay(s.attempts, c.rng))
}
