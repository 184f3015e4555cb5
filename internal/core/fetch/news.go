package fetch

import (
	"errors"

	"github.com/ottla/ottla/kafka"
)

// Position is a position that was moved by the reset policy (F34).
type Position struct {
	kafka.TopicPartition
	Old, New kafka.Offset
	Reason   error
}

// News is what has to be told to the user.
type News struct {
	Err      error      // a [*kafka.OpError] for each partition that failed, joined if several
	Resets   []Position // what the reset policy did
	failures []Failure
	errs     []error
}

func (n *News) report(p *part, op string, err error) {
	n.errs = append(n.errs, &kafka.OpError{
		Op: op, Broker: p.leader, Topic: p.tp.Topic, Partition: p.tp.Partition, Err: err,
	})
}

// desk is where news are kept until they are asked for.
type desk struct{ news News }

// Tell adds an error that the driver has for the user.
func (d *desk) Tell(err error) { d.news.errs = append(d.news.errs, err) }

// empty reports whether the user would be told nothing.
func (n *News) empty() bool { return len(n.errs) == 0 && len(n.Resets) == 0 }

// Failure is a request to a broker that failed as a whole. Of a broker that
// goes on failing the first is told; its partitions are asked for again, with
// backoff, wherever they are led.
type Failure struct {
	Broker kafka.NodeID
	Err    error
}

// News hands out what has to be told, oldest first, and forgets it.
func (d *desk) News() News {
	n := d.news
	d.news = News{failures: n.failures}
	switch len(n.errs) {
	case 0:
	case 1:
		n.Err = n.errs[0]
	default:
		n.Err = errors.Join(n.errs...)
	}
	n.errs, n.failures = nil, nil
	return n
}

// Failures hands out the failures of brokers since the last call.
func (d *desk) Failures() []Failure {
	fs := d.news.failures
	d.news.failures = nil
	return fs
}
