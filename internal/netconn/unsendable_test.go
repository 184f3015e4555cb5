package netconn

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// huge is a Produce of more than 2 GiB, all in the same memory.
type huge struct{ kmsg.ProduceRequest }

func (*huge) AppendBuffers(b net.Buffers) net.Buffers {
	part := make([]byte, 1<<20)
	for range 1 << 11 {
		b = append(b, part)
	}
	return b
}

// TestC36WhatKafkaCannotEncodeIsNotSent has a length wrap if it is: the frame
// would be read as another request, or as none, and end the socket for all.
func TestC36WhatKafkaCannotEncodeIsNotSent(t *testing.T) {
	const limit = math.MaxInt16
	call := func(req kmsg.Request, version int16) *Call {
		c := NewCall(context.Background(), req)
		c.Min, c.Max = version, version
		return c
	}
	heartbeat := func(group, instance string, version int16) *Call {
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.InstanceID = group, &instance
		return call(r, version)
	}
	long := strings.Repeat("g", limit+1)
	b := newBroker(t, (*brokerConn).echo)
	l := newPeer(t, b.addr(), &Config{}).Lane(General)
	for _, c := range []struct {
		name, field string
		call        *Call
		size, limit int
	}{
		{"a string", "Group", heartbeat(long, "i", 3), limit + 1, limit},
		{"a string in a flexible version", "Group", heartbeat(long, "i", 4), limit + 1, limit},
		{"a length that wraps to a good one", "Group", heartbeat(strings.Repeat(long, 2)+"g", "i", 3), 2*limit + 3, limit},
		{"a string that may be null", "InstanceID", heartbeat("g", long, 3), limit + 1, limit},
		{"a string in an array", "Topics.Topic", metadata(long), limit + 1, limit},
		{"the frame", "", call(&huge{}, 8), 1<<31 + 15, math.MaxInt32},
	} {
		_, err := l.Do(t.Context(), c.call)
		var e *kafka.EncodeError
		if !errors.As(err, &e) || e.Field != c.field || e.Size != c.size || e.Limit != c.limit || kafka.MayHaveHappened(err) || !Permanent(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ask(t, l, "the same socket goes on")
	ask(t, l, strings.Repeat("g", limit))
	if got := b.requests(-1); len(got) != 3 || b.accepted() != 1 || l.Stats().Requests != 2 || l.Stats().InFlight != 0 {
		t.Errorf("the broker saw %d requests on %d sockets, and the lane counts %+v", len(got), b.accepted(), l.Stats())
	}
}
