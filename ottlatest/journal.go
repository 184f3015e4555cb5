package ottlatest

import (
	"slices"
	"sync"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request is one request that a broker accepted: it was read whole and
// decoded, and went on to be answered.
type Request struct {
	At           time.Time // when it had been read
	Node         kafka.NodeID
	Conn         int // nth connection that the node accepted, from 1
	ClientID     string
	Key, Version int16
	Body         kmsg.Request // must not be changed
}

// journal keeps the latest requests.
type journal struct {
	limit int

	mu  sync.Mutex
	log []Request
}

func (j *journal) add(r Request) {
	if j.limit <= 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.log) >= 2*j.limit {
		j.log = slices.Delete(j.log, 0, len(j.log)-j.limit)
	}
	j.log = append(j.log, r)
}

// Journal is the latest requests that the brokers accepted from clients,
// oldest first, as many as Config.Journal says. With keys only requests of
// those API keys are given.
func (c *Cluster) Journal(keys ...int16) []Request {
	j := &c.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	out := slices.Clone(j.log[max(0, len(j.log)-j.limit):])
	if len(keys) == 0 {
		return out
	}
	return slices.DeleteFunc(out, func(r Request) bool { return !slices.Contains(keys, r.Key) })
}
