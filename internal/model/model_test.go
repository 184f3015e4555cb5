package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// inModel is a model with a clock that each request moves a little.
type inModel struct {
	c   *Cluster
	now time.Time
}

func (m *inModel) pause() { m.now = m.now.Add(5 * time.Millisecond) }

func (m *inModel) ask(req kmsg.Request) kmsg.Response {
	m.now = m.now.Add(100 * time.Microsecond)
	return m.c.Handle(m.now, AnyBroker, req)
}

func newModel(cfg Config) *inModel {
	return &inModel{New(cfg), time.Unix(1_700_000_000, 0)}
}

// The mutations that make one or the other fail: any code of 4.4 replaced by
// the one that the fake cluster gives, a fence at level 2 that forgets the pair
// before, EndTxn 5 that checks whether the last end moved the epoch.
func TestTheModelDoesWhatBrokersDo(t *testing.T) {
	for _, level := range []int16{1, 2} {
		everyFact(t, level, true, func(t *testing.T, name string, fact func(s *script)) {
			m := newModel(Config{TransactionVersion: level, MarkerDelay: 20 * time.Millisecond, Rand: rand.New(rand.NewPCG(1, 2))})
			m.c.CreateTopic("facts", 2)
			fact(&script{t: t, b: m, level: level, id: "id", topic: "facts", partTwo: true})
		})
	}
}

// everyFact gives run each fact that a broker of a level has, as a subtest.
func everyFact(t *testing.T, level int16, partTwo bool, run func(t *testing.T, name string, fact func(s *script))) {
	t.Helper()
	all := maps.Clone(facts)
	maps.Copy(all, fenceFacts)
	if partTwo {
		maps.Copy(all, partTwoFacts)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(fmt.Sprintf("level %d/%s", level, name), func(t *testing.T) { run(t, name, all[name]) })
	}
}
