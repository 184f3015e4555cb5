package cluster

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// topicShape says how the requests and answers of one API hold topics and
// partitions: QT and QP are those of the request, RT and RP of the answer.
type topicShape[QT, QP, RT, RP any] struct {
	name   func(*QT) (string, kafka.TopicID)
	parts  func(*QT) *[]QP
	id     func(*QP) int32
	like   func(*QT) RT // an empty topic of the answer, of the same name
	rname  func(*RT) (string, kafka.TopicID)
	rparts func(*RT) *[]RP
	blank  func(partition int32) RP
	rid    func(*RP) int32
	code   func(*RP) *int16
	text   func(*RP) **string // nil if answers have none
	wrap   func([]QT) kmsg.Request
	unwrap func(kmsg.Response) []RT
	merge  func([]RT) kmsg.Response
}

// topicSplit is a request whose items are partitions.
type topicSplit[QT, QP, RT, RP any] struct {
	topicShape[QT, QP, RT, RP]
	asked []QT
	items []place
	out   []RT // the answer, with the topics and partitions of the request
}

// place is an item's topic and partition, as indexes into the request.
type place struct{ topic, part int }

func newTopicSplit[QT, QP, RT, RP any](shape topicShape[QT, QP, RT, RP], asked []QT) *topicSplit[QT, QP, RT, RP] {
	s := &topicSplit[QT, QP, RT, RP]{topicShape: shape, asked: asked}
	for t := range asked {
		rt := s.like(&asked[t])
		for p := range *s.parts(&asked[t]) {
			s.items = append(s.items, place{t, p})
			*s.rparts(&rt) = append(*s.rparts(&rt), s.blank(s.id(&(*s.parts(&asked[t]))[p])))
		}
		s.out = append(s.out, rt)
	}
	return s
}

func (s *topicSplit[QT, QP, RT, RP]) len() int { return len(s.items) }

func (s *topicSplit[QT, QP, RT, RP]) at(i int) *QP {
	return &(*s.parts(&s.asked[s.items[i].topic]))[s.items[i].part]
}

func (s *topicSplit[QT, QP, RT, RP]) slot(i int) *RP {
	return &(*s.rparts(&s.out[s.items[i].topic]))[s.items[i].part]
}

// partition is the item's topic, by name and id, and partition.
func (s *topicSplit[QT, QP, RT, RP]) partition(i int) (string, kafka.TopicID, int32) {
	name, id := s.topicShape.name(&s.asked[s.items[i].topic])
	return name, id, s.id(s.at(i))
}

func (s *topicSplit[QT, QP, RT, RP]) name(i int) string {
	name, id, p := s.partition(i)
	if name == "" {
		name = id.String()
	}
	return name + "-" + strconv.Itoa(int(p))
}

func (s *topicSplit[QT, QP, RT, RP]) part(at []int) kmsg.Request {
	var ts []QT
	last := -1
	for _, i := range at {
		if t := s.items[i].topic; t != last {
			last = t
			qt := s.asked[t]
			*s.parts(&qt) = nil
			ts = append(ts, qt)
		}
		ps := s.parts(&ts[len(ts)-1])
		*ps = append(*ps, *s.at(i))
	}
	return s.wrap(ts)
}

// key finds the answer of an item among those of one broker.
type partitionKey struct {
	name string
	id   kafka.TopicID
	part int32
}

func (s *topicSplit[QT, QP, RT, RP]) take(at []int, resp kmsg.Response) {
	got := make(map[partitionKey]*RP)
	rts := s.unwrap(resp)
	for t := range rts {
		name, id := s.rname(&rts[t])
		rps := *s.rparts(&rts[t])
		for p := range rps {
			got[partitionKey{name, id, s.rid(&rps[p])}] = &rps[p]
			got[partitionKey{name, kafka.TopicID{}, s.rid(&rps[p])}] = &rps[p]
			got[partitionKey{"", id, s.rid(&rps[p])}] = &rps[p]
		}
	}
	for _, i := range at {
		name, id, p := s.partition(i)
		rp := got[partitionKey{name, kafka.TopicID{}, p}]
		if rp == nil || name == "" {
			rp = got[partitionKey{"", id, p}]
		}
		if rp == nil {
			s.fail(i, kerr.UnknownServerError.Code, "the broker's answer leaves this partition out")
			continue
		}
		*s.slot(i) = *rp
	}
}

func (s *topicSplit[QT, QP, RT, RP]) code(i int) int16 { return *s.topicShape.code(s.slot(i)) }

func (s *topicSplit[QT, QP, RT, RP]) fail(i int, code int16, msg string) {
	*s.topicShape.code(s.slot(i)) = code
	if s.text != nil {
		*s.text(s.slot(i)) = &msg
	}
}

func (s *topicSplit[QT, QP, RT, RP]) merged() kmsg.Response { return s.merge(s.out) }
