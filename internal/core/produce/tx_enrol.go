package produce

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// enrolment is where a partition stands that has records for the transaction.
// Below part 2 the coordinator has to know of it before the first of them.
type enrolment struct {
	done    bool
	asked   bool
	pace    pace
	unknown time.Time // first "unknown topic"
}

// enrolments is the partitions of the open transaction.
type enrolments struct {
	t     *Transactions
	parts map[kafka.TopicPartition]*enrolment
}

// mayLeave reports whether records for a partition may be sent, and has it
// enrolled if not.
func (s *enrolments) mayLeave(tp kafka.TopicPartition) bool {
	if s.t.state != txOpen || s.t.suspect {
		return false
	}
	if s.t.bumping {
		s.t.of.touched = true
		return true
	}
	e := s.parts[tp]
	if e == nil {
		e = &enrolment{}
		s.parts[tp] = e
	}
	return e.done
}

// ask asks for all partitions that wait.
func (s *enrolments) ask(now time.Time) bool {
	var tps []kafka.TopicPartition
	for _, tp := range slices.SortedFunc(maps.Keys(s.parts), kafka.TopicPartition.Compare) {
		if e := s.parts[tp]; !e.done && !e.pace.at.After(now) {
			e.asked = true
			tps = append(tps, tp)
		}
	}
	if len(tps) == 0 {
		return false
	}
	s.t.of.touched = true
	s.t.ask(Enrol{s.t.who.id, s.t.who.epoch, tps})
	return true
}

// due is when a partition may be asked for again; zero is never.
func (s *enrolments) due() time.Time {
	var at time.Time
	for _, e := range s.parts {
		if !e.done {
			at = retry.Earlier(at, e.pace.at)
		}
	}
	return at
}

func (s *enrolments) onReply(now time.Time, a Enrol, r Reply) {
	codes := map[kafka.TopicPartition]int16{}
	for _, p := range r.Parts {
		codes[p.Partition] = p.Code
	}
	again := false
	for _, tp := range a.Partitions {
		one := r
		if code, there := codes[tp]; r.ok() && there {
			one.Code = code
		} else if r.ok() {
			one.Err = errLeftOut
		}
		again = s.onOne(now, tp, one) || again
		if s.t.over != nil {
			return
		}
	}
	if again {
		s.t.again(now)
	} else {
		s.t.pace = pace{}
	}
}

// onOne handles the answer for one partition, and reports whether the same
// is to be asked again after a while.
func (s *enrolments) onOne(now time.Time, tp kafka.TopicPartition, r Reply) (again bool) {
	e := s.parts[tp]
	switch {
	case r.ok():
		e.done = true
		s.t.m.partition(tp).evaluate(now)
	case r.fenced():
		s.t.m.OnClose(&fencedError{r.err()})
	case r.is(kerr.OperationNotAttempted): // another partition was refused: ask without it
	case r.repeats():
		return true
	case r.Err == nil && retry.Of(r.Code) == retry.RefreshMetadata && !s.outOfPatience(now, e):
		e.pace.tries++
		e.pace.at = now.Add(s.t.m.cfg.Backoff.Delay(e.pace.tries, s.t.m.rng))
	default:
		s.t.suspect = s.t.suspect || r.is(kerr.InvalidProducerIDMapping)
		err := &kafka.OpError{Op: "add to the transaction", Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: r.err()}
		s.t.doom(now, err)
	}
	return false
}

func (s *enrolments) outOfPatience(now time.Time, e *enrolment) bool {
	if e.unknown.IsZero() {
		e.unknown = now
	}
	return now.Sub(e.unknown) >= s.t.m.cfg.TopicPatience
}
