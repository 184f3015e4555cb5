package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// answersOffsets has every broker answer ListOffsets with 1000 × its id plus
// the partition.
func (r *rig) answersOffsets() {
	r.everywhere(2, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.ListOffsetsResponse)
		for _, t := range q.Req.(*kmsg.ListOffsetsRequest).Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset, rp.Timestamp, rp.LeaderEpoch = p.Partition, int64(1000*q.Broker.ID+p.Partition), 77, 5
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return sim.Reply(resp)
	})
}

func TestA1_A2_A13OffsetsComeFromTheLeadersInOrderAndApart(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.sim.SetTopic("b", 2, 3)
		r.sim.SetTopic("a", 3, 1)
		r.answersOffsets()
		a := r.admin()
		r.sim.Broker(3).Handle(2, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.Close} })
		res := a.ListOffsets(r.within(5*time.Second), map[kafka.TopicPartition]OffsetAt{
			tp("b", 0): Latest, tp("a", 1): AtTime(time.UnixMilli(1234)), tp("b", 1): Earliest, tp("a", 0): Latest,
		}, ReadCommitted)
		var items []string
		for _, x := range res {
			items = append(items, x.Item.String())
		}
		if strings.Join(items, " ") != "a-0 a-1 b-0 b-1" {
			t.Fatalf("in the order %v", items)
		}
		for i, want := range map[int]Offset{1: {1001, 77, 5}, 2: {2000, 77, 5}} {
			if res[i].Err != nil || res[i].Value != want {
				t.Errorf("%s: %+v, %v", res[i].Item, res[i].Value, res[i].Err)
			}
		}
		for _, i := range []int{0, 3} { // led by the broker that hangs up
			var lost *kafka.ConnError
			if !errors.As(res[i].Err, &lost) || res[i].Value.Offset != -1 || !strings.Contains(res[i].Err.Error(), res[i].Item.String()) {
				t.Errorf("%+v, %v", res[i].Value, res[i].Err)
			}
		}
		req := sent[*kmsg.ListOffsetsRequest](r.sim.Broker(1))[0]
		if req.IsolationLevel != 1 || req.ReplicaID != -1 || req.Topics[0].Partitions[0].Timestamp != 1234 {
			t.Errorf("%+v", req)
		}
	})
}

// TestA13AnOffsetThatABrokerIsTooOldForTakesNothingFromTheOthers asks a broker
// of Kafka 2.8 for one offset of each kind.
func TestA13AnOffsetThatABrokerIsTooOldForTakesNothingFromTheOthers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1, 1, 1, 1, 1, 1, 1)
		r.old(2, 6)
		r.answersOffsets()
		a := r.admin()
		res := a.ListOffsets(r.within(time.Minute), map[kafka.TopicPartition]OffsetAt{
			tp("t", 0): Latest, tp("t", 1): Earliest, tp("t", 2): AtTime(time.Now()), tp("t", 3): MaxTimestamp,
			tp("t", 4): EarliestLocal, tp("t", 5): LatestTiered, tp("t", 6): EarliestPendingUpload,
		}, ReadUncommitted)
		for i, x := range res {
			var ve *kafka.VersionError
			if i < 3 && x.Err != nil || i >= 3 && !errors.As(x.Err, &ve) {
				t.Errorf("%s: %v", x.Item, x.Err)
			}
		}
		if n := r.sim.Count(2); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestA13EpochEndOffsets(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1, 2, 1)
		r.everywhere(23, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.OffsetForLeaderEpochResponse)
			for _, x := range q.Req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
				rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
				rt.Topic = x.Topic
				for _, p := range x.Partitions {
					rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
					rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, p.LeaderEpoch-1, int64(10*q.Broker.ID)
					if p.Partition == 2 {
						rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		res := a.EpochEndOffsets(r.within(time.Minute), map[kafka.TopicPartition]kafka.LeaderEpoch{tp("t", 0): 4, tp("t", 1): 7, tp("t", 2): 1})
		if res[0].Value != (EpochEnd{3, 10}) || res[1].Value != (EpochEnd{6, 20}) || !errors.Is(res[2].Err, kerr.TopicAuthorizationFailed) {
			t.Errorf("%+v", res)
		}
	})
}

func TestA12RecordsAreDeletedAtTheLeaders(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1, 2)
		lose := true
		r.everywhere(21, func(q *sim.Request) sim.Answer {
			if lose && q.Broker.ID == 2 {
				lose = false
				return sim.Answer{End: sim.Close} // it may be repeated: the offset is absolute
			}
			resp := q.Response().(*kmsg.DeleteRecordsResponse)
			for _, x := range q.Req.(*kmsg.DeleteRecordsRequest).Topics {
				rt := kmsg.NewDeleteRecordsResponseTopic()
				rt.Topic = x.Topic
				for _, p := range x.Partitions {
					rp := kmsg.NewDeleteRecordsResponseTopicPartition()
					rp.Partition, rp.LowWatermark = p.Partition, p.Offset
					if p.Offset == -1 {
						rp.LowWatermark = 99
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		res := a.DeleteRecords(r.within(time.Minute), map[kafka.TopicPartition]kafka.Offset{tp("t", 0): 5, tp("t", 1): AllRecords, tp("t", 7): 1})
		if res[0].Value != 5 || res[1].Value != 99 || res[0].Err != nil || res[1].Err != nil || !errors.Is(res[2].Err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%+v", res)
		}
		if r.sim.Broker(1).Count(21) != 1 || r.sim.Broker(2).Count(21) != 2 {
			t.Errorf("%d and %d requests", r.sim.Broker(1).Count(21), r.sim.Broker(2).Count(21))
		}
	})
}

// describes has a broker answer DescribeConfigs with its id as the only value,
// and a secret.
func (r *rig) describesConfigs() {
	r.everywhere(32, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.DescribeConfigsResponse)
		for _, x := range q.Req.(*kmsg.DescribeConfigsRequest).Resources {
			rr := kmsg.NewDescribeConfigsResponseResource()
			rr.ResourceType, rr.ResourceName = x.ResourceType, x.ResourceName
			if x.ResourceName == "none" {
				rr.ErrorCode, rr.ErrorMessage = 3, kmsg.StringPtr("no such thing")
			} else {
				rr.Configs = []kmsg.DescribeConfigsResponseResourceConfig{
					{
						Name: "secret", Value: kmsg.StringPtr("hush"), IsSensitive: true, Source: kmsg.ConfigSourceDynamicBrokerConfig,
						ConfigSynonyms: []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{{Name: "secret", Value: kmsg.StringPtr("hush")}},
					},
					{Name: "id", Value: kmsg.StringPtr(fmt.Sprint(q.Broker.ID)), Source: kmsg.ConfigSourceDefaultConfig},
				}
			}
			resp.Resources = append(resp.Resources, rr)
		}
		return sim.Reply(resp)
	})
}

func TestA7_A14_A15ConfigsOfABrokerComeFromThatBroker(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.describesConfigs()
		a := r.admin()
		asked := []Resource{BrokerResource(3), TopicResource("none"), LoggerResource(2), BrokerResource(9), TopicResource("t"), GroupResource("g")}
		res := a.DescribeConfigs(r.within(10*time.Second), asked)
		for i, want := range map[int]string{0: "3", 2: "2"} {
			if res[i].Item != asked[i] || res[i].Err != nil || *res[i].Value[0].Value != want || !res[i].Value[0].Default {
				t.Errorf("%s: %+v, %v", asked[i], res[i].Value, res[i].Err)
			}
		}
		if !errors.Is(res[1].Err, kerr.UnknownTopicOrPartition) || !strings.Contains(res[1].Err.Error(), "no such thing") || res[1].Value != nil {
			t.Errorf("%v", res[1].Err)
		}
		if !errors.Is(res[3].Err, cluster.ErrUnknownBroker) || !strings.Contains(res[3].Err.Error(), "broker 9") {
			t.Errorf("a broker that is not there: %v", res[3].Err)
		}
		if res[4].Err != nil || res[5].Err != nil {
			t.Errorf("%v, %v", res[4].Err, res[5].Err)
		}
		secret := res[0].Value[1]
		if secret.Name != "secret" || secret.Value != nil || secret.Synonyms[0].Value != nil || strings.Contains(fmt.Sprintf("%+v", res), "hush") {
			t.Errorf("a secret is told: %+v", secret)
		}
	})
}

func TestA14_A15ChangesGoToTheBrokerOrTheController(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.everywhere(44, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.IncrementalAlterConfigsResponse)
			for _, x := range q.Req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
				rr := kmsg.NewIncrementalAlterConfigsResponseResource()
				rr.ResourceType, rr.ResourceName = x.ResourceType, x.ResourceName
				if len(x.Configs) == 0 {
					rr.ErrorCode = kerr.InvalidConfig.Code
				}
				resp.Resources = append(resp.Resources, rr)
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		changes := []ConfigChange{
			{Resource: TopicResource("t"), Set: map[string]string{"b": "2", "a": "1"}, Unset: []string{"c"}, Append: map[string]string{"d": "x"}, Subtract: map[string]string{"e": "y"}},
			{Resource: BrokerResource(2), Set: map[string]string{"password": "hush"}},
			{Resource: BrokersResource()},
		}
		res := a.AlterConfigs(r.within(time.Minute), changes, Accepted)
		if res[0].Err != nil || res[1].Err != nil || !errors.Is(res[2].Err, kerr.InvalidConfig) || OutcomeOf(res[2].Err) != NotDone {
			t.Errorf("%+v", res)
		}
		var ops []string
		for _, c := range sent[*kmsg.IncrementalAlterConfigsRequest](r.sim.Broker(1))[0].Resources[0].Configs {
			value := "-"
			if c.Value != nil {
				value = *c.Value
			}
			ops = append(ops, fmt.Sprint(c.Name, c.Op, value))
		}
		if got := strings.Join(ops, " "); got != "aSET1 bSET2 dAPPENDx eSUBTRACTy cDELETE-" {
			t.Errorf("sent %s", got)
		}
		if own := sent[*kmsg.IncrementalAlterConfigsRequest](r.sim.Broker(2)); len(own) != 1 || own[0].Resources[0].ResourceName != "2" || r.sim.Broker(3).Count(44) != 0 {
			t.Errorf("the change of broker 2 went elsewhere: %+v", own)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if s := fmt.Sprintf(verb, changes[1]); strings.Contains(s, "hush") || !strings.Contains(s, "password") {
				t.Errorf("%s prints %s", verb, s)
			}
		}
		r.without(44)
		for _, b := range r.sim.Brokers() {
			b.EndAll(sim.Close)
		}
		time.Sleep(time.Second)
		var ve *kafka.VersionError
		if res := a.AlterConfigs(r.within(time.Minute), changes[:1], Accepted); !errors.As(res[0].Err, &ve) || r.sim.Count(33) != 0 {
			t.Errorf("at brokers that cannot change settings one by one: %v", res[0].Err)
		}
	})
}

func TestA14ConfigResourcesByType(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.everywhere(74, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.ListConfigResourcesResponse)
			for _, x := range []kmsg.ListConfigResourcesResponseConfigResource{{Name: "g", Type: 32}, {Name: "m", Type: 16}} {
				if q.Version > 0 || x.Type == 16 {
					resp.ConfigResources = append(resp.ConfigResources, x)
				}
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		all, err := a.ListConfigResources(r.within(time.Minute))
		groups, err2 := a.ListConfigResources(r.within(time.Minute), kmsg.ConfigResourceTypeGroupConfig)
		if err != nil || err2 != nil || len(all) != 2 || !slices.Equal(groups, []Resource{GroupResource("g")}) {
			t.Errorf("%v, %v; %v, %v", all, err, groups, err2)
		}
		r.old(74, 0) // Kafka 3.7
		r.sim.Broker(1).EndAll(sim.Close)
		time.Sleep(time.Second)
		metrics, err := a.ListConfigResources(r.within(time.Minute), kmsg.ConfigResourceTypeClientMetrics)
		if err != nil || !slices.Equal(metrics, []Resource{ClientMetricsResource("m")}) {
			t.Errorf("%v, %v", metrics, err)
		}
		var ve *kafka.VersionError
		if _, err := a.ListConfigResources(r.within(time.Minute), kmsg.ConfigResourceTypeGroupConfig); !errors.As(err, &ve) {
			t.Errorf("groups at a broker that only knows client metrics: %v", err)
		}
	})
}

// TestB275_A11ATopicThatOneBrokerDoesNotShowYetIsAskedOfAllOthers describes a
// topic while two of three brokers are behind.
func TestB275_A11ATopicThatOneBrokerDoesNotShowYetIsAskedOfAllOthers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.without(75)
		r.sim.SetTopic("new", 1, 2)
		a := r.admin()
		for _, id := range []int32{1, 2} {
			r.sim.Broker(id).Handle(3, func(q *sim.Request) sim.Answer {
				resp := r.sim.Metadata(q)
				for i := range resp.Topics {
					resp.Topics[i].ErrorCode, resp.Topics[i].Partitions = 3, nil
				}
				return sim.Reply(resp)
			})
		}
		for range 5 {
			res := a.DescribeTopics(r.within(time.Minute), Topics("new", "none"))
			if res[0].Err != nil || len(res[0].Value.Partitions) != 2 || res[0].Value.Partitions[1].Leader != 2 {
				t.Fatalf("%+v", res[0])
			}
			if !errors.Is(res[1].Err, kerr.UnknownTopicOrPartition) {
				t.Fatalf("%v", res[1].Err)
			}
		}
	})
}

func TestA11TopicsArePagedWhereThatIsOffered(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.SetTopic("a", slices.Repeat([]int32{1}, 5)...)
		id := kafka.TopicID{}
		r.sim.Update(func(tp *sim.Topology) { id = tp.Topics[0].ID })
		page := func(topic string, code int16, from, to int32) kmsg.DescribeTopicPartitionsResponseTopic {
			rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
			rt.Topic, rt.ErrorCode = &topic, code
			for p := from; p < to; p++ {
				rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
				rp.Partition, rp.LeaderID, rp.Replicas, rp.EligibleLeaderReplicas = p, 1, []int32{1, 2}, []int32{2}
				rt.Partitions = append(rt.Partitions, rp)
			}
			return rt
		}
		endless := false
		r.everywhere(75, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeTopicPartitionsResponse)
			cursor := q.Req.(*kmsg.DescribeTopicPartitionsRequest).Cursor
			switch {
			case cursor == nil || endless:
				resp.Topics = append(resp.Topics, page("a", 0, 0, 3))
				resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: "a", Partition: 3}
			case cursor.Topic == "a" && cursor.Partition == 3:
				resp.Topics = append(resp.Topics, page("a", 0, 3, 5), page("none", 3, 0, 0))
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		res := a.DescribeTopics(r.within(time.Minute), Topics("none", "a"))
		if !errors.Is(res[0].Err, kerr.UnknownTopicOrPartition) || res[1].Err != nil || len(res[1].Value.Partitions) != 5 {
			t.Fatalf("%+v", res)
		}
		if p := res[1].Value.Partitions[4]; p.Partition != 4 || !slices.Equal(p.EligibleLeaders, []kafka.NodeID{2}) || res[1].Value.Replicas() != 2 {
			t.Errorf("%+v", p)
		}
		endless = true
		var pe *kafka.ProtocolError
		if res := a.DescribeTopics(r.within(time.Minute), Topics("a")); !errors.As(res[0].Err, &pe) {
			t.Errorf("pages without end: %v", res[0].Err)
		}
		endless = false
		if res := a.DescribeTopics(r.within(time.Minute), []TopicRef{{ID: id}}); res[0].Err != nil || res[0].Value.Name != "a" {
			t.Errorf("by id: %+v", res)
		}
		r.without(75)
		r.sim.Broker(1).EndAll(sim.Close)
		time.Sleep(time.Second)
		if res := a.DescribeTopics(r.within(time.Minute), Topics("a")); res[0].Err != nil || len(res[0].Value.Partitions) != 5 {
			t.Errorf("at a broker without pages: %+v", res)
		}
		list, err := a.ListTopics(r.within(time.Minute))
		if err != nil || len(list) != 1 || list[0].Name != "a" || len(list[0].Partitions) != 5 {
			t.Errorf("%+v, %v", list, err)
		}
		for _, m := range sent[*kmsg.MetadataRequest](r.sim.Broker(1)) {
			if m.AllowAutoTopicCreation {
				t.Error("a question may create topics")
			}
		}
	})
}

func TestA11TheClusterIsDescribedByBrokersOfAnyAge(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.everywhere(60, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeClusterResponse)
			resp.ClusterID, resp.ControllerID = "sim", 2
			resp.Brokers = []kmsg.DescribeClusterResponseBroker{{NodeID: 1, Host: "b1", Port: 9092, Rack: kmsg.StringPtr("r")}, {NodeID: 2, Host: "b2", Port: 9092}}
			return sim.Reply(resp)
		})
		a := r.admin()
		got, err := a.DescribeCluster(r.within(time.Minute))
		if err != nil || got.ID != "sim" || got.Controller != 2 || len(got.Brokers) != 2 || got.Brokers[0].Rack != "r" {
			t.Errorf("%+v, %v", got, err)
		}
		r.without(60) // before Kafka 2.8
		for _, b := range r.sim.Brokers() {
			b.EndAll(sim.Close)
		}
		time.Sleep(time.Second)
		got, err = a.DescribeCluster(r.within(time.Minute))
		if err != nil || got.ID != "sim" || got.Controller != 1 || len(got.Brokers) != 2 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestA9AnyRequestAndItsRawAnswer pins a version and gets the answer as sent.
func TestA9AnyRequestAndItsRawAnswer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).Handle(55, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeQuorumResponse)
			resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			return sim.Reply(resp)
		})
		a := r.admin()
		resp, err := a.Request(r.within(time.Minute), kmsg.NewPtrDescribeQuorumRequest())
		if err != nil || resp.(*kmsg.DescribeQuorumResponse).ErrorCode != kerr.ClusterAuthorizationFailed.Code {
			t.Errorf("%+v, %v", resp, err)
		}
		resp, err = a.RequestAt(r.within(time.Minute), 0, kmsg.NewPtrDescribeQuorumRequest())
		if err != nil || resp.GetVersion() != 0 || r.sim.Broker(1).FramesOf(55)[1].Version != 0 {
			t.Errorf("%+v, %v", resp, err)
		}
	})
}

func TestA1EveryCallEndsWithItsContext(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1)
		a := r.admin()
		for _, key := range []int16{2, 3, 19, 20, 21, 23, 32, 37, 44, 60, 61, 65, 66, 74, 75} {
			r.sim.Broker(1).Handle(key, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.StopReading} })
		}
		one := map[kafka.TopicPartition]kafka.Offset{tp("t", 0): 1}
		for name, call := range map[string]func(context.Context) error{
			"create": func(ctx context.Context) error { return a.CreateTopics(ctx, []NewTopic{{Name: "x"}}, Visible).Err() },
			"delete": func(ctx context.Context) error { return a.DeleteTopics(ctx, Topics("t"), Visible).Err() },
			"grow": func(ctx context.Context) error {
				return a.CreatePartitions(ctx, map[string]MorePartitions{"t": {Total: 2}}, Visible).Err()
			},
			"records": func(ctx context.Context) error { return a.DeleteRecords(ctx, one).Err() },
			"offsets": func(ctx context.Context) error {
				return a.ListOffsets(ctx, map[kafka.TopicPartition]OffsetAt{tp("t", 0): Latest}, ReadCommitted).Err()
			},
			"epochs": func(ctx context.Context) error {
				return a.EpochEndOffsets(ctx, map[kafka.TopicPartition]kafka.LeaderEpoch{tp("t", 0): 1}).Err()
			},
			"describe": func(ctx context.Context) error { return a.DescribeTopics(ctx, Topics("t")).Err() },
			"list":     func(ctx context.Context) error { _, err := a.ListTopics(ctx); return err },
			"cluster":  func(ctx context.Context) error { _, err := a.DescribeCluster(ctx); return err },
			"configs":  func(ctx context.Context) error { return a.DescribeConfigs(ctx, []Resource{TopicResource("t")}).Err() },
			"alter": func(ctx context.Context) error {
				return a.AlterConfigs(ctx, []ConfigChange{{Resource: TopicResource("t")}}, Accepted).Err()
			},
			"resources":    func(ctx context.Context) error { _, err := a.ListConfigResources(ctx); return err },
			"transactions": func(ctx context.Context) error { _, err := a.ListTransactions(ctx, TransactionFilter{}); return err },
			"transaction":  func(ctx context.Context) error { return a.DescribeTransactions(ctx, []string{"x"}).Err() },
			"producers": func(ctx context.Context) error {
				return a.DescribeProducers(ctx, []kafka.TopicPartition{tp("t", 0)}).Err()
			},
			"hanging": func(ctx context.Context) error {
				_, err := a.HangingTransactions(ctx, []kafka.TopicPartition{tp("t", 0)}, 0)
				return err
			},
		} {
			cause := errors.New("no more")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				time.Sleep(2 * time.Second)
				cancel(cause)
			}()
			start := time.Now()
			err := call(ctx)
			if took := time.Since(start); took > 2010*time.Millisecond || !errors.Is(err, cause) {
				t.Errorf("%s ended after %v: %v", name, took, err)
			}
			r.sim.Broker(1).EndAll(sim.Reset)
			time.Sleep(5 * time.Second)
		}
	})
}

// TestA11ARefusedAnswerIsNoEmptyList has brokers refuse Metadata as a whole (version
// 13 has a code for that), or answer it without a broker: an empty list would say
// that there is no topic, and one that is being deleted would seem gone.
func TestA11ARefusedAnswerIsNoEmptyList(t *testing.T) {
	for name, spoil := range map[string]func(*kmsg.MetadataResponse){
		"code":       func(r *kmsg.MetadataResponse) { r.Topics, r.ErrorCode = nil, kerr.ClusterAuthorizationFailed.Code },
		"no brokers": func(r *kmsg.MetadataResponse) { r.Topics, r.Brokers = nil, nil },
	} {
		inBubble(t, 2, func(t *testing.T, r *rig) {
			r.sim.SetTopic("t", 1)
			r.without(75)
			a := r.admin()
			r.everywhere(3, func(q *sim.Request) sim.Answer {
				resp := r.sim.Metadata(q)
				spoil(resp)
				return sim.Reply(resp)
			})
			wrong := func(what string, err error) {
				if err == nil || name == "code" && !errors.Is(err, kerr.ClusterAuthorizationFailed) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			}
			_, err := a.ListTopics(r.within(time.Minute))
			wrong("list", err)
			_, err = a.clusterFromMetadata(r.within(time.Minute))
			wrong("cluster", err)
			wrong("describe", a.DescribeTopics(r.within(time.Minute), Topics("t")).Err())
			r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer { return sim.Reply(r.sim.Metadata(q)) })
			for range 20 { // whichever broker is asked for the others first
				vs, _, err := a.views(r.within(time.Minute), []wanted{{topic: TopicRef{Name: "t"}}})
				if err == nil && (len(vs) != 1 || vs[0].broker != 1) {
					t.Errorf("%s: a broker that refuses is taken for one that shows nothing: %v", name, vs)
					break
				}
			}
		})
	}
}
