package cluster

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// keyShape says how the requests and answers of one API hold items with a key:
// QI is an item of the request, RI of the answer.
type keyShape[QI, RI any] struct {
	key  func(*QI) string
	like func(*QI) RI // an empty answer for the item
	rkey func(*RI) string
	code func(*RI) *int16
	text func(*RI) **string // nil if answers have none
	// adopt names an answer of a version that does not name its item. With it
	// each item has a request of its own.
	adopt  func(version int16, answer *RI, item *QI)
	wrap   func([]QI) kmsg.Request
	unwrap func(kmsg.Response) []RI
	merge  func([]RI) kmsg.Response
}

// keySplit is a request whose items are groups, transactional ids or config
// resources.
type keySplit[QI, RI any] struct {
	keyShape[QI, RI]
	asked []QI
	out   []RI
}

func newKeySplit[QI, RI any](shape keyShape[QI, RI], asked []QI) *keySplit[QI, RI] {
	s := &keySplit[QI, RI]{keyShape: shape, asked: asked}
	for i := range asked {
		s.out = append(s.out, s.like(&asked[i]))
	}
	return s
}

func (s *keySplit[QI, RI]) len() int          { return len(s.asked) }
func (s *keySplit[QI, RI]) name(i int) string { return s.key(&s.asked[i]) }

func (s *keySplit[QI, RI]) alone() bool { return s.adopt != nil }

func (s *keySplit[QI, RI]) part(at []int) kmsg.Request {
	items := make([]QI, 0, len(at))
	for _, i := range at {
		items = append(items, s.asked[i])
	}
	return s.wrap(items)
}

func (s *keySplit[QI, RI]) take(at []int, resp kmsg.Response) {
	rs := s.unwrap(resp)
	if s.adopt != nil && len(rs) == 1 && len(at) == 1 {
		s.adopt(resp.GetVersion(), &rs[0], &s.asked[at[0]])
	}
	got := make(map[string][]*RI, len(rs))
	for i := range rs {
		k := s.rkey(&rs[i])
		got[k] = append(got[k], &rs[i])
	}
	for _, i := range at {
		k := s.key(&s.asked[i])
		if len(got[k]) == 0 {
			s.fail(i, kerr.UnknownServerError.Code, "the broker's answer leaves this item out")
			continue
		}
		s.out[i] = *got[k][0]
		if len(got[k]) > 1 { // the item was asked for twice
			got[k] = got[k][1:]
		}
	}
}

func (s *keySplit[QI, RI]) code(i int) int16 { return *s.keyShape.code(&s.out[i]) }

func (s *keySplit[QI, RI]) fail(i int, code int16, msg string) {
	*s.keyShape.code(&s.out[i]) = code
	if s.text != nil {
		*s.text(&s.out[i]) = &msg
	}
}

func (s *keySplit[QI, RI]) merged() kmsg.Response { return s.merge(s.out) }
