package streams

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
)

// wide is a topology with everything in it.
func wide() Topology {
	conf := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	return Topology{Subtopologies: []Subtopology{
		{
			ID: "2", Sources: []string{"s3", "s1", "s2"}, RepartitionSinks: []string{"r9", "r1"},
			Repartitions: []InternalTopic{{Name: "r5", Partitions: 3}, {Name: "r4", Configs: conf("b", "1", "a", "2")}},
			Changelogs:   []InternalTopic{{Name: "c2", Configs: conf("x", "1")}, {Name: "c1"}},
			CopartitionGroups: [][]string{
				{"s3", "r4"}, {"s2", "s1"}, {"r5", "s1", "s3"},
			},
		},
		{ID: "10", Sources: []string{"t"}}, {ID: "1", Repartitions: []InternalTopic{{Name: "r1"}, {Name: "r9"}}},
	}}
}

func shuffled(t Topology, rng *rand.Rand) Topology {
	mix := func(s []string) []string {
		s = slices.Clone(s)
		rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		return s
	}
	out := t
	out.Subtopologies = nil
	for _, i := range rng.Perm(len(t.Subtopologies)) {
		s := t.Subtopologies[i]
		s.Sources, s.RepartitionSinks = mix(s.Sources), mix(s.RepartitionSinks)
		s.Repartitions, s.Changelogs = slices.Clone(s.Repartitions), slices.Clone(s.Changelogs)
		rng.Shuffle(len(s.Repartitions), func(i, j int) { s.Repartitions[i], s.Repartitions[j] = s.Repartitions[j], s.Repartitions[i] })
		rng.Shuffle(len(s.Changelogs), func(i, j int) { s.Changelogs[i], s.Changelogs[j] = s.Changelogs[j], s.Changelogs[i] })
		var groups [][]string
		for _, g := range rng.Perm(len(s.CopartitionGroups)) {
			groups = append(groups, mix(s.CopartitionGroups[g]))
		}
		s.CopartitionGroups = groups
		out.Subtopologies = append(out.Subtopologies, s)
	}
	return out
}

func TestP16ATopologyHasOneFormWhateverTheOrderItWasBuiltIn(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var first []byte
	for i := range 1000 {
		c, err := shuffled(wide(), rng).Canonical()
		if err != nil {
			t.Fatal(err)
		}
		b := wireBytes(c.Wire())
		if i == 0 {
			first = b
		}
		if !bytes.Equal(b, first) {
			t.Fatalf("build %d has other bytes", i)
		}
		again, err := c.Canonical()
		if err != nil || !bytes.Equal(wireBytes(again.Wire()), b) {
			t.Fatal("the canonical form has another canonical form")
		}
	}
	c, _ := wide().Canonical()
	want(t, c.Subtopologies[0].ID+c.Subtopologies[1].ID+c.Subtopologies[2].ID, "1102")
	w := c.Wire().Subtopologies[2]
	want(t, fmt.Sprint(w.SourceTopics, w.RepartitionSinkTopics), "[s1 s2 s3] [r1 r9]")
	want(t, fmt.Sprint(w.CopartitionGroups[0].SourceTopics, w.CopartitionGroups[1].SourceTopics, w.CopartitionGroups[2].SourceTopics), "[0 1] [0 2] [2]")
	want(t, fmt.Sprint(w.CopartitionGroups[1].RepartitionSourceTopics, w.CopartitionGroups[2].RepartitionSourceTopics), "[1] [0]")
	want(t, w.RepartitionSourceTopics[0].ReplicationFactor, int16(-1))
}

func TestM14TheCanonicalFormSharesNothing(t *testing.T) {
	built := wide()
	c, err := built.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	before := wireBytes(c.Wire())
	built.Subtopologies[0].Sources[0] = "other"
	built.Subtopologies[0].Changelogs[0].Configs["x"] = "other"
	built.Subtopologies[0].CopartitionGroups[0][0] = "other"
	if !bytes.Equal(wireBytes(c.Wire()), before) {
		t.Error("a change of what it was made from shows")
	}
}

func TestWhatBrokersAnswerWithoutATextIsRefusedHere(t *testing.T) {
	long := strings.Repeat("x", maxString+1)
	one := func(change func(s *Subtopology)) Topology {
		top := wide()
		change(&top.Subtopologies[0])
		return top
	}
	for name, top := range map[string]Topology{
		"M5 no subtopology":          {},
		"a subtopology twice":        {Subtopologies: []Subtopology{{ID: "0", Sources: []string{"a"}}, {ID: "0", Sources: []string{"b"}}}},
		"a negative epoch":           {Epoch: -1, Subtopologies: []Subtopology{{ID: "0", Sources: []string{"a"}}}},
		"a blank id":                 {Subtopologies: []Subtopology{{ID: " ", Sources: []string{"a"}}}},
		"no source":                  {Subtopologies: []Subtopology{{ID: "0"}}},
		"a long string":              {Subtopologies: []Subtopology{{ID: "0", Sources: []string{long}}}},
		"a source twice":             one(func(s *Subtopology) { s.Sources = append(s.Sources, s.Sources[0]) }),
		"a sink twice":               one(func(s *Subtopology) { s.RepartitionSinks = append(s.RepartitionSinks, s.RepartitionSinks[0]) }),
		"a changelog twice":          one(func(s *Subtopology) { s.Changelogs = append(s.Changelogs, s.Changelogs[0]) }),
		"a changelog with a count":   one(func(s *Subtopology) { s.Changelogs[0].Partitions = 2 }),
		"a negative count":           one(func(s *Subtopology) { s.Repartitions[0].Partitions = -1 }),
		"a foreign copartition name": one(func(s *Subtopology) { s.CopartitionGroups = [][]string{{"t"}} }),
		"a copartition name twice":   one(func(s *Subtopology) { s.CopartitionGroups = [][]string{{"s1", "s1"}} }),
		"a replication factor of -2": one(func(s *Subtopology) { s.Repartitions[0].Replicas = -2 }),
		"a long config value":        one(func(s *Subtopology) { s.Changelogs[0].Configs = map[string]string{"x": long} }),
		"an empty config key":        one(func(s *Subtopology) { s.Changelogs[0].Configs = map[string]string{"": "x"} }),
	} {
		var ce *ConfigError
		if _, err := top.Canonical(); !errors.As(err, &ce) || !strings.HasPrefix(ce.Field, "Topology.") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiffNamesWhatDiffers(t *testing.T) {
	a := wide()
	want(t, len(a.Diff(shuffled(a, rand.New(rand.NewPCG(1, 1))))), 0)
	b := wide()
	b.Epoch = 2
	b.Subtopologies[0].Sources = append(b.Subtopologies[0].Sources, "new")
	b.Subtopologies[1].ID = "11"
	got := strings.Join(a.Diff(b), "\n")
	for _, s := range []string{"epoch 2", `sources ["new" "s1"`, "no subtopology 10", "a new subtopology 11"} {
		if !strings.Contains(got, s) {
			t.Errorf("no %q in:\n%s", s, got)
		}
	}
}

func TestDiffNamesEveryKindOfDifference(t *testing.T) {
	a := wide()
	for text, change := range map[string]func(s *Subtopology){
		"repartition sinks":  func(s *Subtopology) { s.RepartitionSinks = append(s.RepartitionSinks, "new") },
		"repartition topics": func(s *Subtopology) { s.Repartitions[0].Partitions++ },
		"replicas=9":         func(s *Subtopology) { s.Changelogs[0].Replicas = 9 },
		"new=1":              func(s *Subtopology) { s.Changelogs[0].Configs = map[string]string{"new": "1"} },
		"copartition groups": func(s *Subtopology) { s.CopartitionGroups = append(s.CopartitionGroups, []string{s.Sources[0]}) },
	} {
		b := shuffled(wide(), rand.New(rand.NewPCG(1, 1)))
		for i := range b.Subtopologies {
			if b.Subtopologies[i].ID == a.Subtopologies[0].ID {
				change(&b.Subtopologies[i])
			}
		}
		if d := a.Diff(b); len(d) != 1 || !strings.Contains(d[0], text) {
			t.Errorf("no %q alone in %q", text, d)
		}
	}
}

// Java's tables grow when more than three quarters are full: p is the first of
// 16 buckets and the seventeenth of 32.
func TestC17JavasTablesGrow(t *testing.T) {
	names := strings.Split("pabcdefghijk", "")
	order := func(groups ...[]string) [][]string {
		top := Topology{JavaOrder: true, Subtopologies: []Subtopology{{ID: "0", Sources: append(names, "l"), CopartitionGroups: groups}}}
		c, err := top.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		return c.Subtopologies[0].CopartitionGroups
	}
	want(t, strings.Join(order(names)[0], ""), "pabcdefghijk")
	want(t, strings.Join(order(append(names[:12:12], "l"))[0], ""), "abcdefghijklp")
	place := func(groups [][]string, name string) int {
		return slices.IndexFunc(groups, func(g []string) bool { return g[0] == name })
	}
	eleven := order([]string{"a"}, []string{"p"}, names[2:11])
	want(t, place(eleven, "p") < place(eleven, "a"), true)
	twelve := order([]string{"a"}, []string{"p"}, names[2:12])
	want(t, place(twelve, "p") > place(twelve, "a"), true)
}

func TestC7ATaskReadsWhatThereIsOfItsNumber(t *testing.T) {
	top := wide()
	count := func(topic string) int32 {
		return map[string]int32{"s1": 4, "s2": 2, "s3": 1, "r4": 4, "r5": 3}[topic]
	}
	got := top.Partitions(TaskID{"2", 2}, count)
	want(t, fmt.Sprint(got), "[r4-2 r5-2 s1-2]")
	want(t, len(top.Partitions(TaskID{"none", 0}, count)), 0)
	want(t, slices.IsSortedFunc(got, kafka.TopicPartition.Compare), true)
}
