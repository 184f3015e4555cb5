package produce

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/transcript"
	"github.com/ottla/ottla/kafka"
)

// TestTranscripts runs the scripts in testdata: a command per line, and under
// it, indented, the actions that the machine asked for and when it wants to be
// asked again. Files are named after the rules they show.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "*.txt", func(t *testing.T) func([]string) string {
		p := player{now: time.Unix(0, 0), m: New(Config{Linger: 5 * time.Millisecond}, nil)}
		return func(cmd []string) string {
			var out bytes.Buffer
			p.do(t, cmd)
			p.drain(t, &out)
			return out.String()
		}
	})
}

type player struct {
	now  time.Time
	m    *Machine
	id   BatchID
	note string
}

func (p *player) do(t *testing.T, f []string) {
	switch f[0] {
	case "config":
		p.config(t, f[1:])
	case "open":
		p.m.OnOpened(p.now, partitionOf(t, f[1]))
	case "batch": // partition, records
		p.id++
		p.m.OnBatch(p.now, Batch{ID: p.id, Partition: partitionOf(t, f[1]), Count: int32(number(t, f[2])), Since: p.now})
	case "sealed": // batch, size
		p.m.OnSealed(p.now, BatchID(number(t, f[1])), number(t, f[2]))
	case "flush":
		p.m.OnFlush(p.now)
	case "leader": // partition, broker or error
		p.leader(t, partitionOf(t, f[1]), f[2])
	case "placed":
		p.m.OnPlaced(p.now, f[1])
	case "identity": // id, epoch or error
		if f[1] == "code" {
			p.m.OnIdentity(p.now, -1, -1, kafka.CodeError(int16(number(t, f[2])), nil))
			return
		}
		p.m.OnIdentity(p.now, kafka.ProducerID(number(t, f[1])), kafka.ProducerEpoch(number(t, f[2])), nil)
	case "answer": // request, then partition:code[:base[:log start[:leader]]]
		var as []Answer
		for _, s := range f[2:] {
			as = append(as, answerOf(t, s))
		}
		p.m.OnAnswer(p.now, RequestID(number(t, f[1])), as)
	case "fail": // request, how
		p.m.OnFailure(p.now, RequestID(number(t, f[1])), failure(t, f[2]))
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			t.Fatal(err)
		}
		p.now = p.now.Add(d)
	case "written": // request
		p.m.OnWritten(p.now, RequestID(number(t, f[1])))
	case "halves": // batch, records of the first half, of the second
		p.halves(t, BatchID(number(t, f[1])), int32(number(t, f[2])), int32(number(t, f[3])))
	case "withdraw": // batch
		how := p.m.OnWithdraw(p.now, BatchID(number(t, f[1])))
		p.note = map[Withdrawal]string{TooLate: "too late\n", IfUnsent: "if it is not sent\n"}[how]
	case "rest": // batch, records that are left
		p.rest(BatchID(number(t, f[1])), int32(number(t, f[2])))
	case "close":
		p.m.OnClose(errors.New("closed"))
	default:
		t.Fatalf("unknown command %q", f)
	}
}

func (p *player) halves(t *testing.T, id BatchID, left, right int32) {
	b := p.m.batches[id]
	if b == nil {
		t.Fatalf("batch %d is settled", id)
	}
	in := b.Batch
	in.ID, in.Count = p.id+1, left
	other := in
	other.ID, other.Count = p.id+2, right
	p.id += 2
	p.m.OnSplit(p.now, id, in, other)
}

func (p *player) rest(id BatchID, count int32) {
	if count == 0 {
		p.m.OnSplit(p.now, id)
		return
	}
	in := p.m.batches[id].Batch
	p.id++
	in.ID, in.Count = p.id, count
	p.m.OnSplit(p.now, id, in)
}

func (p *player) config(t *testing.T, settings []string) {
	for _, s := range settings {
		name, v, _ := strings.Cut(s, "=")
		switch name {
		case "linger":
			p.m.cfg.Linger = time.Duration(number(t, v)) * time.Millisecond
		case "window":
			p.m.cfg.BrokerWindow = number(t, v)
		case "request":
			p.m.cfg.RequestBytes = number(t, v)
		case "inflight":
			p.m.cfg.Window = number(t, v)
		case "codecs":
			p.m.cfg.Codecs = number(t, v)
		case "plain":
			p.m.cfg.Plain, p.m.cfg.Window = true, 1
		case "duplicates":
			p.m.cfg.Duplicates = true
		case "stop":
			p.m.cfg.StopOnDataLoss = true
		default:
			t.Fatalf("unknown setting %q", name)
		}
	}
}

func (p *player) leader(t *testing.T, tp kafka.TopicPartition, who string) {
	if code, ok := strings.CutPrefix(who, "code"); ok {
		p.m.OnLeader(p.now, tp, kafka.NoNode, kafka.CodeError(int16(number(t, code)), nil))
		return
	}
	if who == "none" {
		p.m.OnLeader(p.now, tp, kafka.NoNode, &kafka.NoLeaderError{TopicPartition: tp})
		return
	}
	p.m.OnLeader(p.now, tp, kafka.NodeID(number(t, who)), nil)
}

func (p *player) drain(t *testing.T, out *bytes.Buffer) {
	out.WriteString(p.note)
	p.note = ""
	for {
		a, ok := p.m.Next(p.now)
		if !ok {
			break
		}
		switch a := a.(type) {
		case Identify:
			fmt.Fprintln(out, "identify")
		case CloseOpen:
			fmt.Fprintln(out, "close the open batch of", a.Partition)
		case Seal:
			fmt.Fprintf(out, "seal %d as %d/%d+%d%s\n", a.Batch, a.Stamp.ProducerID, a.Stamp.ProducerEpoch, a.Stamp.BaseSequence,
				map[int]string{1: " with the second codec", 2: " with the third codec"}[a.Codec])
		case Send:
			fmt.Fprintf(out, "request %d to broker %d%s:", a.Request, a.Broker, map[bool]string{true: " (behind others)"}[a.Behind])
			for _, i := range a.Items {
				fmt.Fprintf(out, " %d as %d/%d+%d", i.Batch, i.Stamp.ProducerID, i.Stamp.ProducerEpoch, i.Stamp.BaseSequence)
			}
			fmt.Fprintln(out)
		case Resolve:
			fmt.Fprintln(out, "resolve", a.Partition, map[bool]string{true: "anew"}[a.Invalid])
		case Split:
			fmt.Fprintln(out, "split", a.Batch)
		case Report:
			fmt.Fprintf(out, "report for %v: %v\n", a.Partition, a.Err)
		case Finish:
			fmt.Fprintf(out, "batch %d: %s\n", a.Batch, told(a.Outcome))
		}
		if err := p.m.check(); err != nil {
			t.Fatal(err)
		}
	}
	if at := p.m.Deadline(); !at.IsZero() {
		fmt.Fprintf(out, "next in %v\n", at.Sub(p.now))
	}
}

func told(o Outcome) string {
	bytes := " (bytes still in use)"
	if o.Free {
		bytes = ""
	}
	switch {
	case o.Err == nil:
		return fmt.Sprintf("done at offset %d%s", o.Offset, bytes)
	case kafka.MayHaveHappened(o.Err):
		return "unknown: " + o.Err.Error() + bytes
	default:
		return "not done: " + o.Err.Error() + bytes
	}
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func partitionOf(t *testing.T, s string) kafka.TopicPartition {
	topic, n, _ := strings.Cut(s, "/")
	return kafka.TopicPartition{Topic: topic, Partition: int32(number(t, n))}
}

func answerOf(t *testing.T, s string) Answer {
	f := strings.Split(s, ":")
	a := Answer{Partition: partitionOf(t, f[0]), Code: int16(number(t, f[1])), Base: -1, AppendTime: -1, LogStart: -1, Leader: kafka.NoNode}
	if len(f) > 2 {
		a.Base = kafka.Offset(number(t, f[2]))
	}
	if len(f) > 3 {
		a.LogStart = kafka.Offset(number(t, f[3]))
	}
	if len(f) > 4 {
		a.Leader = kafka.NodeID(number(t, f[4]))
	}
	return a
}

func failure(t *testing.T, how string) error {
	switch how {
	case "unwritten":
		return &kafka.DialError{Addr: "b:1", Err: errors.New("connection refused")}
	case "lost":
		return &kafka.ConnError{Name: "Produce", Addr: "b:1", Lane: "produce", Written: 9, Err: errors.New("connection reset")}
	case "version":
		return &kafka.VersionError{Name: "Produce"}
	case "final":
		return Final(&kafka.AuthError{Addr: "b:1", Mechanism: "PLAIN"})
	}
	t.Fatalf("unknown failure %q", how)
	return nil
}
