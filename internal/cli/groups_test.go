package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

func TestConsumeInAGroupGoesOnWhereItStood(t *testing.T) {
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 2}})
			e.feed("a\nb\nc\n", "produce", "t", "-p", "0").wantDone(t)
			in := []string{"consume", "t", "-g", "g", "--group-protocol", protocol}
			res := e.ottla(append(in, "-c", "2")...)
			res.wantDone(t)
			if res.stdout != "a\nb\n" {
				t.Errorf("first: %q", res.stdout)
			}
			e.feed("d\n", "produce", "t", "-p", "1").wantDone(t)
			res = e.ottla(append(in, "-e")...)
			res.wantDone(t)
			if got := strings.Join(strings.Fields(res.stdout), ""); got != "cd" && got != "dc" {
				t.Errorf("then: %q", got)
			}
			if res = e.ottla(append(in, "-e")...); res.stdout != "" {
				t.Errorf("again: %q", res.stdout)
			}
		})
	}
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	for line, want := range map[string]string{
		"-g g -p 0": "do not go together", "-g g --until @-1h": "do not go together", "-g g -o 5": "committed nothing",
		"-g g --group-protocol new": "classic or consumer", "--group-protocol consumer": "needs -g",
	} {
		e.ottla(append([]string{"consume", "t"}, strings.Fields(line)...)...).wantError(t, 2, want)
	}
	e.ottla("consume", "nope", "-g", "g").wantError(t, 1, `topic "nope" does not exist`)
}

func TestA16A17A18A19GroupsAreListedDescribedResetAndDeleted(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 2}})
	e.feed("a\nb\nc\nd\n", "produce", "t", "-p", "0", "--timestamp", "1000").wantDone(t)
	e.feed("e\n", "produce", "t", "-p", "0", "--timestamp", "5000").wantDone(t)
	e.ottla("consume", "t", "-g", "g", "-c", "3").wantDone(t)

	list := decode[[]listedGroup](t, e.ottla("groups", "list", "-o", "json"))
	if len(list) != 1 || list[0].ID != "g" || list[0].State != "Empty" {
		t.Errorf("listed %+v", list)
	}
	described := decode[[]describedGroup](t, e.ottla("groups", "describe", "g", "-o", "json"))
	if len(described) != 1 || described[0].ID != "g" || described[0].Members == nil {
		t.Errorf("described %+v", described)
	}
	lag := func() (committed, left int64) {
		t.Helper()
		for _, l := range decode[[]groupLag](t, e.ottla("groups", "lag", "g", "-o", "json")) {
			if l.Partition == 0 && l.Committed != nil {
				return *l.Committed, l.Lag
			}
		}
		return -1, -1
	}
	if c, l := lag(); c != 3 || l != 2 {
		t.Errorf("committed %d, lag %d", c, l)
	}
	for _, step := range []struct {
		args string
		want int64
	}{
		{"--to start --dry-run", 3}, {"--to start", 0}, {"--shift 2", 2}, {"--shift -100", 0}, {"--to end", 5}, {"--to -1", 4},
		{"--to 3", 3}, {"--to 99", 5}, {"--to @1970-01-01T00:00:02Z", 4}, {"--to @-1h", 5}, {"--topic t --to 1", 1},
	} {
		e.ottla(append([]string{"groups", "reset", "g"}, strings.Fields(step.args)...)...).wantDone(t)
		if c, _ := lag(); c != step.want {
			t.Errorf("after %q: committed %d, want %d", step.args, c, step.want)
		}
	}
	e.ottla("groups", "reset", "g").wantError(t, 2, "one of --to and --shift")
	e.ottla("groups", "reset", "none", "--to", "start").wantError(t, 1, "committed nothing")
	if r := e.feed("no\n", "groups", "delete", "g"); r.status != 1 || !strings.Contains(r.stderr, "nothing is deleted") {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	e.ottla("groups", "reset", "made", "--topic", "t", "--to", "2").wantDone(t)
	e.ottla("groups", "delete", "g", "--yes").wantDone(t)
	e.ottla("groups", "delete", "g", "--yes").wantError(t, 1, "GROUP_ID_NOT_FOUND")
	e.ottla("groups", "describe", "g").wantError(t, 1, "GROUP_ID_NOT_FOUND")
}

// Mutation: partitions of which it cannot be told stay out of a reset.
func TestA18AResetOfWhatCannotBeToldIsAnError(t *testing.T) {
	told := admin.Results[kafka.TopicPartition, kafka.Commit]{
		{Item: kafka.TopicPartition{Topic: "t"}, Value: kafka.Commit{Offset: 3}},
		{Item: kafka.TopicPartition{Topic: "t", Partition: 1}, Err: kerr.UnstableOffsetCommit},
	}
	for topics, fails := range map[string]bool{"": true, "t": true, "other": false} {
		r := &resetting{id: "g", f: &resetFlags{topics: strings.Fields(topics)}}
		err := r.add(map[kafka.TopicPartition]int64{}, told)
		if fails != errors.Is(err, kerr.UnstableOffsetCommit) || fails && !strings.Contains(err.Error(), "t-1: what group g has committed") {
			t.Errorf("topics %q: %v", topics, err)
		}
	}
}
