package meta

import (
	"testing"

	"github.com/ottla/ottla/kafka"
)

func TestC64OnlyGrowthIsReported(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int32
		grew          bool
	}{
		{"more", 4, 8, true}, {"fewer", 8, 4, false}, {"equal", 4, 4, false},
		{"first sight", 0, 4, false}, {"gone", 4, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := GrowthBetween("t", c.before, c.after)
			if g.Grew != c.grew || c.grew && (g.Before != c.before || g.After != c.after || g.Topic != "t") || !c.grew && g != (Growth{}) {
				t.Errorf("%d to %d: %+v", c.before, c.after, g)
			}
		})
	}
}

func TestK14EventsAreDeliveredOnceAndCoalesced(t *testing.T) {
	var q Queue
	q.Add(Event{Kind: kafka.TopicGrew, Topic: "t", Partition: -1, Before: 1, After: 2})
	q.Add(Event{Kind: kafka.LeaderChanged, Topic: "t", Partition: 0, Epoch: 1})
	q.Add(Event{Kind: kafka.LeaderChanged, Topic: "t", Partition: 1, Epoch: 1})
	for epoch := range 100 {
		q.Add(Event{Kind: kafka.LeaderChanged, Topic: "t", Partition: 0, Epoch: 2 + kafkaEpoch(epoch)})
	}
	q.Add(Event{Kind: kafka.TopicGrew, Topic: "t", Partition: -1, Before: 2, After: 5})
	es := q.Take()
	if len(es) != 3 {
		t.Fatalf("%d events waited, want one for each subject: %+v", len(es), es)
	}
	if es[0].Before != 1 || es[0].After != 5 {
		t.Errorf("growth %d to %d, want the first count and the last", es[0].Before, es[0].After)
	}
	if es[1].Epoch != 101 || es[2].Partition != 1 {
		t.Errorf("the last leader of a partition was not kept: %+v", es)
	}
	if q.Len() != 0 || len(q.Take()) != 0 {
		t.Error("an event was delivered twice")
	}
}

func TestK14TheLastOfSeveralEventsAboutABrokerOrATopicHolds(t *testing.T) {
	var q Queue
	q.Add(Event{Kind: kafka.BrokerAdded, Broker: kafka.Broker{ID: 1, Host: "a"}})
	q.Add(Event{Kind: kafka.TopicRecreated, Topic: "t", OldID: kafka.TopicID{1}, NewID: kafka.TopicID{2}})
	q.Add(Event{Kind: kafka.BrokerGone, Broker: kafka.Broker{ID: 2}})
	q.Add(Event{Kind: kafka.BrokerGone, Broker: kafka.Broker{ID: 1, Host: "a"}})
	q.Add(Event{Kind: kafka.TopicRecreated, Topic: "t", OldID: kafka.TopicID{2}, NewID: kafka.TopicID{3}})
	es := q.Take()
	if len(es) != 3 || es[0].Kind != kafka.BrokerGone || es[0].Broker.ID != 1 || es[2].Broker.ID != 2 {
		t.Errorf("%+v", es)
	}
	if es[1].OldID != (kafka.TopicID{1}) || es[1].NewID != (kafka.TopicID{3}) {
		t.Errorf("recreated from %v to %v, want the first and the last id", es[1].OldID, es[1].NewID)
	}
}
