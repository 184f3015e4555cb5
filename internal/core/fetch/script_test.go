package fetch

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
	"github.com/ottla/ottla/record"
)

// Transcripts: a command, and below it what the machine asked for, handed out
// and told.
//
//	assign t-0=earliest t-1=@5       topic t 1 2 epoch=5  leaders
//	topicerr t 3                     wait                 to the deadline
//	fetch 1 t-0 hw=9 lso=9 aborted=7@0 data=0-3,tx7:4-5,abort7@6
//	fetcherr 1                       list 1 t-0=42 code=0
//	seek t-0=latest                  pause t-0            resume t-0
//	remove t-0                       poll
//	epochs 1 t-0=80 code=0           fetch 1 t-0 session=7 also=t-1 replica=2
//	fetch 1 - session=7              fetch 1 - error=70
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "*.txt", func(t *testing.T) func([]string) string {
		s := &script{rig: newRig(t, testConfig()), fetchs: map[string]*FetchAction{}, lists: map[string]*ListAction{}, vets: map[string]*EpochAction{}}
		s.began, s.takeHints = s.now, true
		return func(cmd []string) string {
			s.out.Reset()
			s.command(cmd[0], cmd[1:])
			s.step()
			s.tell()
			return s.out.String()
		}
	})
}

// script is a rig that writes down what happens.
type script struct {
	*rig
	out    bytes.Buffer // of the command
	began  time.Time
	fetchs map[string]*FetchAction // by broker
	lists  map[string]*ListAction
	vets   map[string]*EpochAction
}

func (s *script) command(name string, args []string) {
	switch name {
	case "assign":
		at := map[kafka.TopicPartition]Start{}
		for _, a := range args {
			tp, start, _ := strings.Cut(a, "=")
			at[s.tp(tp)] = s.start(start)
		}
		s.m.Assign(at)
	case "topic":
		var leaders []kafka.NodeID
		for _, a := range args[1:] {
			if !strings.HasPrefix(a, "epoch=") {
				leaders = append(leaders, kafka.NodeID(s.number(a)))
			}
		}
		ti := info(args[0], leaders...)
		for i := range ti.Partitions {
			if e := s.option(args, "epoch"); e > 0 {
				ti.Partitions[i].Epoch = kafka.LeaderEpoch(e)
			}
		}
		s.m.OnTopic(s.now, args[0], ti)
	case "topicerr":
		code := int16(s.number(args[1]))
		s.m.OnTopicError(s.now, args[0], code, kafka.CodeError(code, nil))
	case "fetch", "fetcherr", "list":
		s.answer(name, args[0], args[1:])
	case "epochs":
		tp, end, _ := strings.Cut(args[1], "=")
		s.m.OnEpochs(s.now, s.vets[args[0]].ID, epochResponse(s.tp(tp), kafka.Offset(s.number(end)), int16(s.option(args, "code"))), nil)
	case "seek":
		tp, start, _ := strings.Cut(args[0], "=")
		s.m.Seek(s.tp(tp), s.start(start))
	case "rack":
		s.m.cfg.Rack, s.m.cfg.ReplicaTime = args[0], 5*time.Minute
	case "pause", "resume":
		s.m.Pause(s.tp(args[0]), name == "pause")
	case "remove":
		s.m.Remove([]kafka.TopicPartition{s.tp(args[0])})
	case "poll":
		for _, g := range s.rig.poll() {
			fmt.Fprintf(&s.out, "record %s %d\n", g.tp, g.o)
		}
	case "wait":
		if s.m.Deadline(s.now).IsZero() {
			s.t.Fatalf("nothing to wait for:\n%s", s.out.String())
		}
		s.now = s.m.Deadline(s.now)
		fmt.Fprintf(&s.out, "at %v\n", s.now.Sub(s.began).Round(time.Millisecond))
	default:
		s.t.Fatalf("unknown command %q", name)
	}
}

func (s *script) answer(name, broker string, args []string) {
	if name == "list" && s.lists[broker] == nil || name != "list" && s.fetchs[broker] == nil {
		s.t.Fatalf("broker %s was asked nothing:\n%s", broker, s.out.String())
	}
	switch name {
	case "fetcherr":
		s.m.OnFetch(s.now, s.fetchs[broker].ID, nil, errors.New("connection lost"))
	case "list":
		tp, o, _ := strings.Cut(args[0], "=")
		resp := listResponse(kafka.Offset(s.number(o)), int16(s.option(args, "code")))
		resp.Topics[0].Topic, resp.Topics[0].Partitions[0].Partition = s.tp(tp).Topic, s.tp(tp).Partition
		s.m.OnList(s.now, s.lists[broker].ID, resp, nil)
	case "fetch":
		a := partAnswer{hw: -1, lso: -1}
		var topic string
		if len(args) > 0 && args[0] != "-" {
			tp := s.tp(args[0])
			topic, a.p = tp.Topic, tp.Partition
			a.hw, a.lso = kafka.Offset(s.option(args, "hw")), kafka.Offset(s.option(args, "lso"))
			a.code = int16(s.option(args, "code"))
			a.leader, a.epoch = kafka.NodeID(s.option(args, "leader")), kafka.LeaderEpoch(s.option(args, "epoch"))
			for _, ab := range s.list(args, "aborted") {
				pid, first, _ := strings.Cut(ab, "@")
				a.aborted = append(a.aborted, abortedList(int64(s.number(pid)), int64(s.number(first)))...)
			}
			for _, d := range s.list(args, "data") {
				a.data = append(a.data, s.batch(d)...)
			}
		}
		a.replica = kafka.NodeID(s.option(args, "replica"))
		answers := []partAnswer{a}
		for _, also := range s.list(args, "also") {
			answers = append(answers, partAnswer{p: s.tp(also).Partition, hw: a.hw, lso: a.lso})
		}
		resp := fetchAnswer(topic, answers...)
		if len(args) == 0 || args[0] == "-" {
			resp.Topics = nil
		}
		resp.SessionID, resp.ErrorCode = int32(s.option(args, "session")), int16(s.option(args, "error"))
		s.m.OnFetch(s.now, s.fetchs[broker].ID, resp, nil)
	}
}

// batch reads 0-3, tx7:0-3, abort7@4, commit7@4 and cut:0-3.
func (s *script) batch(d string) []byte {
	for kind, marker := range map[string]record.ControlType{"abort": record.Abort, "commit": record.Commit} {
		if rest, ok := strings.CutPrefix(d, kind); ok {
			pid, at, _ := strings.Cut(rest, "@")
			return mark(marker, kafka.ProducerID(s.number(pid)), kafka.Offset(s.number(at))).build()
		}
	}
	var pid int
	what, span, ok := strings.Cut(d, ":")
	if !ok {
		span = what
	}
	if rest, isTx := strings.CutPrefix(what, "tx"); isTx {
		pid = s.number(rest)
	}
	lo, hi, _ := strings.Cut(span, "-")
	b := tx(kafka.ProducerID(pid), kafka.Offset(s.number(lo)), kafka.Offset(s.number(hi))).build()
	switch what {
	case "cut":
		b = b[:len(b)-1]
	case "bad":
		b[len(b)-1] ^= 1
	}
	return b
}

func (s *script) tp(text string) kafka.TopicPartition {
	i := strings.LastIndex(text, "-")
	return tp(text[:i], int32(s.number(text[i+1:])))
}

func (s *script) start(text string) Start {
	switch {
	case text == "latest":
		return Latest()
	case strings.HasPrefix(text, "@"):
		return AtOffset(kafka.Offset(s.number(text[1:])))
	case strings.HasPrefix(text, "time"):
		return AtTime(kafka.Timestamp(s.number(text[4:])))
	}
	return Earliest()
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) text(args []string, key string) (string, bool) {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

func (s *script) option(args []string, key string) int {
	if v, ok := s.text(args, key); ok {
		return s.number(v)
	}
	return 0
}

func (s *script) list(args []string, key string) []string {
	v, ok := s.text(args, key)
	if !ok {
		return nil
	}
	return strings.Split(v, ",")
}

// tell writes down what the machine wants and says.
func (s *script) tell() {
	for _, a := range s.rig.out {
		switch a := a.(type) {
		case *LookupAction:
			fmt.Fprintf(&s.out, "lookup %s stale %v\n", a.Topic, a.Stale)
		case *HintAction:
			fmt.Fprintf(&s.out, "hint %s leader %d epoch %d\n", a.TopicPartition, a.Leader, a.Epoch)
		case *ListAction:
			s.lists[fmt.Sprint(a.Broker)] = a
			fmt.Fprintf(&s.out, "list at %d, isolation %d:", a.Broker, a.Req.IsolationLevel)
			for _, rt := range a.Req.Topics {
				for _, rp := range rt.Partitions {
					fmt.Fprintf(&s.out, " %s-%d=%d", rt.Topic, rp.Partition, rp.Timestamp)
				}
			}
			fmt.Fprintln(&s.out)
		case *EpochAction:
			s.vets[fmt.Sprint(a.Broker)] = a
			fmt.Fprintf(&s.out, "end of epochs at %d:", a.Broker)
			for _, rt := range a.Req.Topics {
				for _, rp := range rt.Partitions {
					fmt.Fprintf(&s.out, " %s-%d=%d", rt.Topic, rp.Partition, rp.LeaderEpoch)
				}
			}
			fmt.Fprintln(&s.out)
		case *FetchAction:
			if a.ID == 0 {
				fmt.Fprintf(&s.out, "close session %d at %d, epoch %d\n", a.Req.SessionID, a.Broker, a.Req.SessionEpoch)
				continue
			}
			s.fetchs[fmt.Sprint(a.Broker)] = a
			fmt.Fprintf(&s.out, "fetch at %d, wait %d ms:", a.Broker, a.Req.MaxWaitMillis)
			if a.Req.SessionID != 0 {
				fmt.Fprintf(&s.out, " session %d epoch %d", a.Req.SessionID, a.Req.SessionEpoch)
			}
			for _, ft := range a.Req.ForgottenTopics {
				fmt.Fprintf(&s.out, " without %s %v", ft.Topic, ft.Partitions)
			}
			for _, rt := range a.Req.Topics {
				for _, rp := range rt.Partitions {
					fmt.Fprintf(&s.out, " %s-%d@%d", rt.Topic, rp.Partition, rp.FetchOffset)
				}
			}
			fmt.Fprintln(&s.out)
		}
	}
	s.rig.out = nil
	n := s.m.News()
	for _, r := range n.Resets {
		fmt.Fprintf(&s.out, "reset %s from %d to %d\n", r.TopicPartition, r.Old, r.New)
	}
	if n.Err != nil {
		fmt.Fprintf(&s.out, "error %v\n", n.Err)
	}
	for _, f := range s.m.Failures() {
		fmt.Fprintf(&s.out, "broker %d failed: %v\n", f.Broker, f.Err)
	}
}
