package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// A redial or a repetition for a code makes the counts fail.
func TestOnceSendsARequestToACoordinatorOnce(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.coordinates("id", 2)
		c := r.connect()
		end := func() (kmsg.Response, error) {
			return Once(c, TransactionCoordinator, "id", 4).Request(r.within(time.Minute), kmsg.NewPtrEndTxnRequest())
		}
		if _, err := end(); err != nil {
			t.Fatal(err)
		}
		at := r.sim.Broker(2)
		if f := at.FramesOf(26); len(f) != 1 || f[0].Version != 4 {
			t.Fatalf("EndTxn went out as %v", f)
		}
		at.Script(26, sim.Answer{End: sim.Reset})
		if _, err := end(); err == nil || !kafka.MayHaveHappened(err) {
			t.Errorf("a lost answer: %v", err)
		}
		at.Script(26, code26(51))
		if resp, err := end(); err != nil || resp.(*kmsg.EndTxnResponse).ErrorCode != 51 {
			t.Errorf("code 51: %v, %v", resp, err)
		}
		if n := at.Count(26); n != 3 {
			t.Errorf("three calls sent %d requests", n)
		}
		at.Script(26, code26(16))
		r.coordinates("id", 1)
		if _, err := end(); err != nil {
			t.Error(err)
		}
		if _, err := end(); err != nil || r.sim.Broker(1).Count(26) != 1 {
			t.Errorf("after code 16 the coordinator was not looked up anew (%v)", err)
		}
		c.forgetCoordinator(TransactionCoordinator, "id", kafka.NoNode)
		r.everywhere(10, func(*sim.Request) sim.Answer { return sim.Answer{} })
		if _, err := Once(c, TransactionCoordinator, "id", 4).Request(r.within(time.Second), kmsg.NewPtrEndTxnRequest()); err == nil || kafka.MayHaveHappened(err) {
			t.Errorf("a look-up without an answer: %v", err)
		}
	})
}

func code26(code int16) sim.Answer {
	resp := kmsg.NewPtrEndTxnResponse()
	resp.Version, resp.ErrorCode = 4, code
	return sim.Reply(resp)
}

func TestVersionIsTheOneThatARequestWouldHave(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).SetVersions(28, 0, 4)
		r.sim.Broker(1).RemoveVersions(88)
		c := r.connect(func(cfg *Config) { cfg.MaxVersions = map[int16]int16{26: 3} })
		if _, err := c.Coordinator(r.within(time.Minute), TransactionCoordinator, "id"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			req kmsg.Request
			v   int16
		}{{kmsg.NewPtrTxnOffsetCommitRequest(), 4}, {kmsg.NewPtrEndTxnRequest(), 3}, {kmsg.NewPtrAddOffsetsToTxnRequest(), 4}} {
			if v, err := c.Broker(1).Version(r.within(time.Minute), want.req); v != want.v || err != nil {
				t.Errorf("%T: version %d, %v", want.req, v, err)
			}
		}
		var version *kafka.VersionError
		if _, err := c.Broker(1).Version(r.within(time.Minute), kmsg.NewPtrStreamsGroupHeartbeatRequest()); !errors.As(err, &version) {
			t.Errorf("an API that the broker lacks: %v", err)
		}
	})
}
