package streams

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/transcript"
)

// Transcripts of members:
//
//	new instance=i version=0 poll=10s     begins; look-ups are answered with the version
//	answer 3 A=0_0,0_1 5:delayed          epoch, lists (A=, L() for empty ones), statuses
//	error 110 text                        an error code
//	lost                                  no answer
//	ack [0_0 …]                           the owner acknowledges the newest snapshot
//	wait [5s]                             to the next heartbeat, or so long
//	leave, touch, shutdown, describe A=…  what they say
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "member/*.txt", func(t *testing.T) func([]string) string {
		var r *rig
		return func(cmd []string) string {
			if cmd[0] == "new" {
				r = scriptRig(t, cmd[1:])
			} else {
				r.command(cmd[0], cmd[1:])
			}
			out := strings.Join(r.lines, "\n")
			r.lines = nil
			return out
		}
	})
}

func scriptRig(t *testing.T, args []string) *rig {
	version := int16(1)
	r := newRig(t, func(c *Config) {
		for _, a := range args {
			k, v, _ := strings.Cut(a, "=")
			switch k {
			case "instance":
				c.InstanceID = v
			case "poll":
				c.PollInterval, _ = time.ParseDuration(v)
			case "version":
				n, _ := strconv.Atoi(v)
				version = int16(n)
			default:
				t.Fatalf("unknown setting %q", a)
			}
		}
	})
	r.version = version
	return r
}

func (r *rig) command(name string, args []string) {
	switch name {
	case "answer":
		r.reply(r.scriptAnswer(args))
	case "error":
		n, _ := strconv.Atoi(args[0])
		r.code(int16(n), strings.Join(args[1:], " "))
	case "lost":
		r.lose()
	case "ack":
		if len(args) == 0 {
			r.ack()
		} else {
			r.ack(args...)
		}
	case "wait":
		if len(args) == 0 {
			r.await()
			return
		}
		d, err := time.ParseDuration(args[0])
		if err != nil {
			r.t.Fatal(err)
		}
		r.pass(d)
	case "leave":
		r.m.OnLeave(r.now)
		r.step()
	case "touch":
		r.m.OnTouch(r.now)
		r.step()
	case "shutdown":
		r.m.OnShutdown()
		r.step()
	case "describe":
		r.described(tasksOf(r.t, strings.Split(strings.TrimPrefix(args[0], "A="), ",")...), true, nil)
	default:
		r.t.Fatalf("unknown command %q", name)
	}
}

func (r *rig) scriptAnswer(args []string) *kmsg.StreamsGroupHeartbeatResponse {
	epoch, err := strconv.Atoi(args[0])
	if err != nil {
		r.t.Fatal(err)
	}
	resp := answerOf(int32(epoch))
	for _, a := range args[1:] {
		if a == "L()" {
			resp = withTarget(resp, Tasks{})
		} else if l, ok := strings.CutPrefix(a, "A="); ok {
			resp = withTarget(resp, tasksOf(r.t, strings.Split(l, ",")...))
		} else if code, text, ok := strings.Cut(a, ":"); ok {
			n, _ := strconv.Atoi(code)
			resp = withStatus(resp, int8(n), text)
		} else {
			r.t.Fatalf("what is %q", a)
		}
	}
	return resp
}

// described answers the describe that is due or on its way.
func (r *rig) described(t Tasks, found bool, err error) {
	r.t.Helper()
	for i := 0; r.describe == nil; i++ {
		at := r.m.Deadline()
		if at.IsZero() || i > 10 {
			r.t.Fatalf("no describe comes\n%s", strings.Join(r.lines, "\n"))
		}
		if r.out != nil {
			r.now = r.now.Add(100 * time.Millisecond)
		} else if at.After(r.now) {
			r.now = at
		}
		r.step()
	}
	id := r.describe.ID
	r.describe = nil
	r.m.OnDescribed(r.now, id, t, found, err)
	r.step()
}
