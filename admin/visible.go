package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// NotVisibleError is a change that was made, but that not every live broker
// showed when the call had to end.
type NotVisibleError struct {
	Topic   string
	Brokers []kafka.NodeID // those that answered without it; empty if none answered
	Err     error          // what ended the wait
}

func (e *NotVisibleError) Error() string {
	who := "no broker answered whether it shows it"
	if len(e.Brokers) > 0 {
		who = fmt.Sprintf("not shown yet by broker %s", strings.Trim(fmt.Sprint(e.Brokers), "[]"))
	}
	return fmt.Sprintf("ottla: topic %s: the change is made, but %s: %v", e.Topic, who, e.Err)
}

func (e *NotVisibleError) Unwrap() error { return e.Err }

// MayHaveHappened is true: it has.
func (*NotVisibleError) MayHaveHappened() bool { return true }

// wanted is what the metadata of a topic shall show.
type wanted struct {
	topic TopicRef
	shows func(*kmsg.MetadataResponseTopic) bool
}

// hasPartitions is true for a topic of so many partitions, all with a leader.
func hasPartitions(n int32) func(*kmsg.MetadataResponseTopic) bool {
	return func(t *kmsg.MetadataResponseTopic) bool {
		if t.ErrorCode != 0 || len(t.Partitions) < max(int(n), 1) {
			return false
		}
		return !slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader < 0 })
	}
}

// live is how long a broker may take to say what it shows. One that takes
// longer is not waited for: it serves nobody at the moment.
const live = 3 * time.Second

// look paces the questions whether a change is shown.
var look = retry.Backoff{Base: 20 * time.Millisecond, Cap: 500 * time.Millisecond}

// await asks all brokers about topics until every one that answers shows what
// is wanted of each, or ctx ends: then it tells what is missing. A client of
// controllers has no broker to ask.
func (a *client) await(ctx context.Context, want []wanted) map[TopicRef]error {
	if len(want) == 0 || cluster.AtControllers(a.c) {
		return nil
	}
	for attempt := 1; ; attempt++ {
		views, _, err := a.views(ctx, want)
		missing := make(map[TopicRef]error)
		for _, w := range want {
			without := lacking(views, w)
			if len(without) > 0 || len(views) == 0 {
				missing[w.topic] = &NotVisibleError{Topic: w.topic.String(), Brokers: without, Err: err}
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if err := a.pause(ctx, look, attempt); err != nil {
			for _, m := range missing {
				m.(*NotVisibleError).Err = err
			}
			return missing
		}
	}
}

// view is what one broker shows of some topics.
type view struct {
	broker kafka.NodeID
	topics []kmsg.MetadataResponseTopic
}

// of is what the broker shows of one topic, nil if nothing.
func (v view) of(ref TopicRef) *kmsg.MetadataResponseTopic {
	for i := range v.topics {
		if t := &v.topics[i]; ref.is(t.Topic, t.TopicID) {
			return t
		}
	}
	return nil
}

// views asks all brokers what they show of topics. all is how many brokers the
// cluster names; those that do not answer within live are left out.
func (a *client) views(ctx context.Context, want []wanted) (vs []view, all int, err error) {
	now, err := a.clusterFromMetadata(ctx)
	if err != nil {
		return nil, 0, err
	}
	refs := make([]TopicRef, len(want))
	for i := range want {
		refs[i] = want[i].topic
	}
	var qs []cluster.Question
	for _, b := range now.Brokers {
		for _, req := range metadataRequests(refs) {
			qs = append(qs, cluster.Question{Broker: b.ID, Req: req})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, live)
	defer cancel()
	shown := make(map[kafka.NodeID][]kmsg.MetadataResponseTopic)
	silent := make(map[kafka.NodeID]bool)
	for _, r := range a.c.Collect(ctx, qs, cluster.Dial) {
		resp, ok := r.Resp.(*kmsg.MetadataResponse)
		if !ok || r.Err != nil || refused(resp) != nil {
			silent[r.Broker] = true
			continue
		}
		shown[r.Broker] = append(shown[r.Broker], resp.Topics...)
	}
	for _, b := range now.Brokers {
		if !silent[b.ID] {
			vs = append(vs, view{b.ID, shown[b.ID]})
		}
	}
	return vs, len(now.Brokers), nil
}

// lacking are the brokers of views that do not show what is wanted.
func lacking(views []view, w wanted) []kafka.NodeID {
	var out []kafka.NodeID
	for _, v := range views {
		if t := v.of(w.topic); t == nil || !w.shows(t) {
			out = append(out, v.broker)
		}
	}
	return out
}

// madeOf reads whether some broker shows what was made: one proves it.
func (a *client) madeOf(w wanted) func(context.Context) reading { return a.reads(w, 1) }

// goneOf reads whether all brokers show that something is gone: one that does
// not may be behind, and while they differ nothing is proven.
func (a *client) goneOf(w wanted) func(context.Context) reading { return a.reads(w, 0) }

// reads reads what brokers show of a change; enough of them prove it, 0 is all
// that answer.
func (a *client) reads(w wanted, enough int) func(context.Context) reading {
	return func(ctx context.Context) reading {
		views, all, err := a.views(ctx, []wanted{w})
		showing := len(views) - len(lacking(views, w))
		switch {
		case err != nil || len(views) == 0:
			return unreadable
		case showing == len(views) || enough > 0 && showing >= enough:
			return shown
		case showing > 0 || len(views) < all:
			return unreadable
		}
		return notShown
	}
}
