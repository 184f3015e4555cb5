//go:build kafka

package compat

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// releases are what docs/compatibility.md has a row of, oldest first.
var releases = []string{"0.11.0.3", "1.1.1", "2.1.1", "2.8.2", "3.3.2", "3.9.2", "4.0.2", "4.2.2", "4.4.0"}

// page is where the table is.
const page = "../../docs/compatibility.md"

var write = flag.Bool("write", false, "try every release and write "+page)

func TestMain(m *testing.M) { os.Exit(sim.NoLeaks(m.Run)) }

// TestKafkaCompatibility tries every feature on the release under test, and
// compares its row with the one on the page. With -write it tries all releases
// and writes the page.
func TestKafkaCompatibility(t *testing.T) {
	if !*write {
		release := os.Getenv(realkafka.VersionEnv)
		if release == "" {
			release = realkafka.DefaultVersion
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		got := trial{release: release, seen: tryRelease(t, release)}
		if row := got.row(); !strings.Contains(string(text), row+"\n") {
			t.Errorf("%s does not have this row; `make compat` writes it:\n%s", page, row)
		}
		return
	}
	var trials []trial
	for _, r := range releases {
		t.Run(r, func(t *testing.T) { trials = append(trials, trial{r, tryRelease(t, r)}) })
	}
	if t.Failed() {
		return // a page about what does not work would be wrong
	}
	if err := os.WriteFile(page, []byte(render(trials)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rig is one broker of a release and a client at it.
type rig struct {
	ctx     context.Context
	kafka   *realkafka.Cluster
	client  *cluster.Cluster
	admin   *admin.Admin
	feature string // that is being tried: names its topics
}

func (r *rig) topic() string { return strings.Trim(strings.Map(plain, r.feature), "-") }

// plain is a character that the name of a topic may have.
func plain(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
		return c
	}
	return '-'
}

// create makes the topic of the feature.
func (r *rig) create() error {
	return r.admin.CreateTopics(r.ctx, []admin.NewTopic{{Name: r.topic(), Partitions: 1, Replicas: 1}}, admin.Visible).Err()
}

// tryRelease tries every feature on a broker of a release. What is off there
// says so with a typed error; any other failure fails the test.
func tryRelease(t *testing.T, release string) (seen []string) {
	// 0.11 deletes no topic by default; the others do.
	k := realkafka.Start(t, realkafka.Options{Version: release, Props: map[string]string{"delete.topic.enable": "true"}})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(k.Bootstrap(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, f := range features {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		err := f.try(&rig{ctx: ctx, kafka: k, client: c, admin: admin.New(c), feature: f.name})
		cancel()
		switch {
		case err == nil:
			seen = append(seen, "")
		case isOff(err):
			seen = append(seen, strings.ReplaceAll(err.Error(), k.Bootstrap(), "broker:9092"))
		default:
			seen = append(seen, "fails: "+err.Error())
			t.Errorf("Kafka %s: %s: %v", release, f.name, err)
		}
	}
	return seen
}

// isOff reports whether an error says that the broker does not have something.
func isOff(err error) bool {
	var ve *kafka.VersionError
	var ce *commandError
	switch {
	case errors.As(err, &ve):
		return !kafka.MayHaveHappened(err)
	case errors.As(err, &ce):
		return ce.status == 1 && strings.Contains(ce.stderr, "too old")
	}
	return errors.Is(err, kerr.UnsupportedVersion)
}

// trial is what was seen on one release: by feature what a user is told who
// tries it, empty if it works.
type trial struct {
	release string
	seen    []string
}

// row is the line of the release in the table.
func (tr trial) row() string {
	var off []string
	for i, f := range features {
		if tr.seen[i] != "" {
			off = append(off, f.name)
		}
	}
	if len(off) == 0 {
		off = append(off, "nothing")
	}
	return fmt.Sprintf("| %s | %d of %d | %s |", tr.release, len(features)-count(tr.seen), len(features), strings.Join(off, ", "))
}

func count(seen []string) (n int) {
	for _, s := range seen {
		if s != "" {
			n++
		}
	}
	return n
}

// render is the page.
func render(trials []trial) string {
	var b strings.Builder
	b.WriteString("# Compatibility\n\nWritten by `make compat`, which runs all of this against one broker of each release. Nothing is done in another way\n" +
		"where a broker is too old for it: the call fails, nothing is sent, and the error says what is missing. The features are\n" +
		"those of `internal/compat`; for one broker's versions of each API see `ottla brokers --api-versions`.\n\n" +
		"| Kafka | works | off there |\n|---|---|---|\n")
	for _, tr := range trials {
		b.WriteString(tr.row() + "\n")
	}
	b.WriteString("\n## What needs a newer broker\n\nThe error is that of the youngest release of the table that does not have it.\n\n")
	b.WriteString("| | from | error before |\n|---|---|---|\n")
	for i, f := range features {
		from, told := "none", ""
		for _, tr := range trials {
			if tr.seen[i] != "" {
				from, told = "none", tr.seen[i]
			} else if from == "none" {
				from = tr.release
			}
		}
		if told != "" {
			fmt.Fprintf(&b, "| %s | %s | `%s` |\n", f.name, from, strings.TrimSpace(strings.ReplaceAll(told, "|", "/")))
		}
	}
	b.WriteString("\n## What works on all of them\n\n")
	for i, f := range features {
		everywhere := true
		for _, tr := range trials {
			everywhere = everywhere && tr.seen[i] == ""
		}
		if everywhere {
			fmt.Fprintf(&b, "- %s\n", f.name)
		}
	}
	return b.String()
}
