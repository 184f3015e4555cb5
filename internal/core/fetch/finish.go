package fetch

import "github.com/ottla/ottla/kafka"

// Progress says how far the user has finished with a partition. It is what a
// group commits.
type Progress struct {
	Offset kafka.Offset      // of the first record that is not finished
	Epoch  kafka.LeaderEpoch // of the last batch before it, kafka.NoEpoch if none
}

// ledger is what the user has and has not finished with.
type ledger struct {
	owing []*part // those that may have owes set
}

// owe notes that the user has records of p that are not finished.
func (l *ledger) owe(p *part, from Progress) {
	if !p.owes {
		p.owes, p.done = true, from
		l.owing = append(l.owing, p)
	}
}

// Finish tells that the user is done with everything that was handed out, but
// for what is lent: it came back for more. It reports whether there was
// anything.
func (l *ledger) Finish() bool {
	some := false
	for i, p := range l.owing {
		some = some || p.owes
		p.owes = false
		l.owing[i] = nil
	}
	l.owing = l.owing[:0]
	return some
}

// Finished tells how far the user has finished with a partition; ok is false if
// it is not assigned, or its position is being asked for.
func (r *roster) Finished(tp kafka.TopicPartition) (at Progress, ok bool) {
	p := r.part(tp)
	switch {
	case p == nil || p.position < 0:
		return Progress{Offset: -1, Epoch: kafka.NoEpoch}, false
	case p.owes:
		return p.done, true
	default:
		return Progress{Offset: p.position, Epoch: p.last}, true
	}
}

// Withhold ends the handing out and the fetching of a partition, until it is
// removed. It reports whether the user has nothing of it that is not finished.
func (r *roster) Withhold(tp kafka.TopicPartition) (idle bool) {
	p := r.part(tp)
	if p == nil {
		return true
	}
	p.withheld = true
	return !p.lent && p.held == 0 && !p.owes
}
