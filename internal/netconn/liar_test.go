package netconn

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// liar is one connection of a broker that answers for a while and then as the dice fall: wrong
// ids, lengths and versions, cut and doubled frames, flipped bits, foreign
// bytes, throttles, silence, the end.
type liar struct {
	rng    *rand.Rand
	honest int // in a hundred answers
}

func (l *liar) serve(c *brokerConn) {
	for g, ok := c.next(); ok; g, ok = c.next() {
		raw := frameOf(g, l.truth(g))
		if l.rng.IntN(100) >= l.honest {
			var end bool
			if raw, end = l.lie(raw); end {
				c.Write(raw)
				return
			}
		}
		if _, err := c.Write(raw); err != nil {
			return
		}
	}
}

// truth is an answer in its right form.
func (l *liar) truth(g gotRequest) kmsg.Response {
	resp := reply(g)
	switch r := resp.(type) {
	case *kmsg.SASLAuthenticateResponse:
		r.SessionLifetimeMillis = int64(l.rng.IntN(3)) * 1000
		r.SASLAuthBytes = []byte([]string{"", "r=x,s=c2FsdA==,i=4096", "v=c2ln", "{}"}[l.rng.IntN(4)])
	case *kmsg.SASLHandshakeResponse:
		if r.SupportedMechanisms = []string{"PLAIN"}; l.rng.IntN(4) == 0 {
			r.ErrorCode = 33
		}
	case kmsg.SetThrottleResponse:
		if l.rng.IntN(10) == 0 {
			r.SetThrottle(int32(l.rng.IntN(3000)))
		}
	}
	return resp
}

func (l *liar) lie(raw []byte) (out []byte, end bool) {
	at := l.rng.IntN(len(raw))
	switch l.rng.IntN(9) {
	case 0: // another id
		binary.BigEndian.PutUint32(raw[4:], l.rng.Uint32())
	case 1: // another length
		binary.BigEndian.PutUint32(raw, l.rng.Uint32()>>l.rng.IntN(32))
	case 2: // cut, and the end
		return raw[:at], true
	case 3: // twice
		raw = append(raw, raw...)
	case 4: // some bits
		for range 1 + l.rng.IntN(4) {
			raw[l.rng.IntN(len(raw))] ^= 1 << l.rng.IntN(8)
		}
	case 5: // foreign bytes
		raw = make([]byte, 1+l.rng.IntN(200))
		for i := range raw {
			raw[i] = byte(l.rng.Uint32())
		}
	case 6: // shorter, with the right length
		raw = raw[:8+l.rng.IntN(len(raw)-7)]
		binary.BigEndian.PutUint32(raw, uint32(len(raw)-4))
	case 7:
		time.Sleep(time.Duration(l.rng.IntN(40)) * time.Second)
	case 8:
		return nil, true
	}
	return raw, false
}

// TestALiarHangsNobody has lanes of every kind, with and without a login, whose
// broker lies more and more: every call is over once and in time, and nothing
// is left. What is said is not asserted: a flipped bit may be in a name.
func TestALiarHangsNobody(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		for _, honest := range []int{30, 80, 97} {
			for name, mechs := range map[string][]sasl.Mechanism{"": nil, "SASL": {scram.Auth{User: "u", Pass: "p"}.AsSha256Mechanism(), plainOf("u", "p")}} {
				t.Run(fmt.Sprint(seed, honest, name), func(t *testing.T) {
					serve := func(c *brokerConn) { (&liar{rand.New(rand.NewPCG(seed, uint64(c.n))), honest}).serve(c) }
					inWorld(t, &Config{SASL: mechs}, serve, func(t *testing.T, w *world) { lieTo(t, w, rand.New(rand.NewPCG(seed, 0))) })
				})
			}
		}
	}
}

// lieTo sends requests of every kind for a while.
func lieTo(t *testing.T, w *world, rng *rand.Rand) {
	w.net.SetLatency(time.Millisecond, 4*time.Millisecond)
	var calls []chan outcome
	for i := range 120 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(60))*time.Second)
		defer cancel()
		c := metadata(fmt.Sprint(i))
		switch rng.IntN(4) {
		case 0:
			c = NewCall(ctx, kmsg.NewPtrDeleteGroupsRequest())
		case 1:
			c = NewCall(ctx, kmsg.NewPtrFetchRequest())
		}
		c.Ctx, c.OneWay, c.NoRedial = ctx, rng.IntN(10) == 0, rng.IntN(5) == 0
		calls = append(calls, start(w.lane(Kind(rng.IntN(kinds))), c))
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
	}
	time.Sleep(time.Minute + fast)
	for i, ch := range calls {
		if len(ch) != 1 {
			t.Errorf("call %d is over %d times", i, len(ch))
		}
	}
	if n := w.b.accepted(); n > 4000 {
		t.Errorf("%d sockets in two minutes", n)
	}
	w.b.outOfRange.Store(0) // a table with flipped bits allows what it allows
	w.peer.Close(errTestOver)
	w.b.ln.Close()
	time.Sleep(time.Minute)
	if n := w.net.Open(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}
